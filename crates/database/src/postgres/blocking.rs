//! Which session holds the lock that a drain's transaction waits for.

use super::Postgres;
use super::positions::integer;
use super::table::text;

/// A drain's transaction has changed `forebay_position` before anything else, so that it is found without the
/// number of its process, which a pooler hides. The longest transaction comes first: the others may wait for
/// it too. Without the privilege to see others' sessions, state and age are NULL.
const BLOCKING: &str = "SELECT b.pid::int8, coalesce(a.application_name, ''), coalesce(a.usename::text, ''), coalesce(a.state, ''), \
       extract(epoch FROM clock_timestamp() - a.xact_start)::int8 \
     FROM pg_locks w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b(pid) \
     LEFT JOIN pg_stat_activity a ON a.pid = b.pid \
     WHERE NOT w.granted AND w.pid IN (SELECT pid FROM pg_locks \
       WHERE relation = to_regclass('_forebay.forebay_position')::oid AND mode = 'RowExclusiveLock' AND granted) \
     ORDER BY a.xact_start NULLS LAST LIMIT 1";

impl Postgres {
    /// The session for which a drain waits now, as words for people; `None` when there is none, or when that
    /// cannot be read.
    pub(super) async fn who_blocks(&self) -> Option<String> {
        let rows = self.of_drain(BLOCKING, Vec::new()).await.ok()??;
        let row = rows.iter().next()?;
        let (pid, name, user) = (integer(&row[0]), text(&row[1]), text(&row[2]));
        let named = [name, user].into_iter().filter(|word| !word.is_empty());
        let mut words: Vec<String> = named.map(str::to_owned).collect();
        let (state, age) = (text(&row[3]), integer(&row[4]));
        if !state.is_empty() {
            words.push(format!("{state}, its transaction is {age} s old"));
        }
        Some(format!("process {pid} of PostgreSQL ({})", words.join(", ")))
    }
}
