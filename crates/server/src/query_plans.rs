//! Statements whose cost grows with a table: reported when a config is checked and when they are first
//! served, and again when one has become slow and its plan now scans.
//!
//! Promises: no start waits for this or fails because of it; a line is logged once in a process. Plans are
//! read by `forebay_database`.

use crate::compile::sql_claims::plain;
use crate::compile::sql_types::check_names;
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_database::{Error, Growing, Planning, Store, TableWork};
use forebay_terminal::warn;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The number of rows that estimates assume.
const ROWS: u64 = 10_000_000;

/// The time between two checks.
const PERIOD: Duration = Duration::from_secs(5);

/// The fewest calls in a period for a meaningful mean.
const CALLS_MIN: u64 = 20;

/// How many times slower than in its best period a statement must be before its plan is checked again.
const SLOWER: u64 = 10;

/// Below this mean, such a factor may be noise.
const SLOW_US: u64 = 1_000;

/// All statements of a server.
#[derive(Clone, Default)]
pub struct QueryPlans(Arc<Mutex<PlanQueue>>);

#[derive(Default)]
struct PlanQueue {
    /// Statements that are not checked yet.
    new: Vec<NamedStatement>,
    served: Vec<Weak<StatementTiming>>,
}

/// A statement, and the name of the endpoint or job that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NamedStatement {
    name: String,
    sql: String,
}

/// The durations of a statement.
pub struct StatementTiming {
    named: NamedStatement,
    calls: AtomicU64,
    total_us: AtomicU64,
    /// The mean of its fastest period, in microseconds; 0: none yet.
    best_us: AtomicU64,
}

impl StatementTiming {
    /// Counts a run that has ended.
    pub fn add(&self, took: Duration) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.total_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    /// Ends a period. `Some`: the mean has jumped; the means before and after, in microseconds.
    fn jumped(&self) -> Option<(u64, u64)> {
        let (calls, total) =
            (self.calls.swap(0, Ordering::Relaxed), self.total_us.swap(0, Ordering::Relaxed));
        if calls < CALLS_MIN {
            return None;
        }
        let mean = (total / calls).max(1);
        let best = self.best_us.load(Ordering::Relaxed);
        if best == 0 || mean < best {
            self.best_us.store(mean, Ordering::Relaxed);
        }
        (best > 0 && mean >= best * SLOWER && mean >= SLOW_US).then_some((best, mean))
    }
}

impl QueryPlans {
    /// Adds a statement that no client waits for.
    pub fn add(&self, name: String, sql: &str) {
        self.0.lock().new.push(NamedStatement { name, sql: sql.to_owned() });
    }

    /// Adds a statement that clients wait for.
    pub fn add_timed(&self, name: String, sql: &str) -> Arc<StatementTiming> {
        let named = NamedStatement { name, sql: sql.to_owned() };
        let timed = StatementTiming {
            named: named.clone(),
            calls: AtomicU64::new(0),
            total_us: AtomicU64::new(0),
            best_us: AtomicU64::new(0),
        };
        let timed = Arc::new(timed);
        let mut known = self.0.lock();
        known.new.push(named);
        known.served.retain(|served| served.strong_count() > 0);
        known.served.push(Arc::downgrade(&timed));
        timed
    }

    /// Checks new statements, and those that have become slow, periodically. Never returns.
    pub async fn watch(self, store: Store) {
        let mut told = HashSet::new();
        loop {
            let new = std::mem::take(&mut self.0.lock().new);
            for named in new {
                if !told.insert(named.clone()) {
                    continue;
                }
                match lines(&store, &named.name, &named.sql).await {
                    // Checked again when the database is reachable.
                    Err(error) if error.may_retry() => {
                        told.remove(&named);
                        self.0.lock().new.push(named);
                    }
                    Err(error) => warn!("{}", unknown(&named.name, &error)),
                    Ok(lines) => lines.iter().for_each(|line| warn!("{line}")),
                }
            }
            tokio::time::sleep(PERIOD).await;
            let served: Vec<_> = self.0.lock().served.iter().filter_map(Weak::upgrade).collect();
            let mut turned = HashSet::new();
            for timed in served {
                let Some((before, now)) = timed.jumped() else { continue };
                let NamedStatement { name, sql } = &timed.named;
                // A statement whose plan cannot be read now is checked after the next period.
                let Ok(growing) = store.growing(sql, Planning::AsItIs).await else { continue };
                if let Some(first) = growing.first()
                    && turned.insert(timed.named.clone())
                {
                    warn!("{}", turned_bad(name, sql, first, before, now));
                    timed.best_us.store(now, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The statements of a config whose cost grows with a table: a line for each, of endpoints and jobs.
pub async fn of_config(config: &Config, store: &Store) -> Vec<String> {
    let dialect = config.database.dialect();
    let of_endpoint =
        |endpoint: &model::Endpoint| of_endpoint(endpoint, dialect).into_iter().map(|(named, _)| named);
    let of_job = |job: &model::Job| {
        let sql = job.statements.in_dialect(dialect)?.to_owned();
        Some(NamedStatement { name: format!("job {}", job.name), sql })
    };
    let statements =
        config.endpoints.iter().flat_map(of_endpoint).chain(config.jobs.iter().filter_map(of_job));
    let mut all = Vec::new();
    for named in statements {
        match lines(store, &named.name, &named.sql).await {
            Ok(lines) => all.extend(lines),
            Err(error) => all.push(unknown(&named.name, &error)),
        }
    }
    all
}

/// The statements of an endpoint, and what it answers of them.
fn of_endpoint(endpoint: &model::Endpoint, dialect: model::Dialect) -> Vec<(NamedStatement, model::Returns)> {
    let name = format!("{} {}", endpoint.method.name(), endpoint.route);
    let statement = |action: &model::Action| match action {
        model::Action::Sql(sql) => Some((sql.statements.in_dialect(dialect)?.to_owned(), sql.returns)),
        _ => None,
    };
    let statements = endpoint.action.each().iter().filter_map(statement);
    let named = |sql: &str| NamedStatement { name: name.clone(), sql: plain(sql) };
    statements.map(|(sql, returns)| (named(&sql), returns)).collect()
}

/// Why a start would refuse statements of endpoints whose results it can read now.
pub async fn refused(config: &Config, store: &Store) -> Vec<StartError> {
    let mut refused = Vec::new();
    for (named, returns) in config.endpoints.iter().flat_map(|e| of_endpoint(e, config.database.dialect())) {
        // A statement that cannot be prepared is among those whose plan is not known.
        let Ok(statement) = store.prepare(&named.sql).await else { continue };
        let names = statement.columns.iter().map(|column| column.name.as_str());
        if returns != model::Returns::None
            && let Err(error) = check_names(names)
        {
            refused.push(format!("{}: {error}", named.name).into());
        }
    }
    refused
}

async fn lines(store: &Store, name: &str, sql: &str) -> Result<Vec<String>, Error> {
    let found = store.growing(sql, Planning::WithEveryIndex).await?;
    Ok(found.iter().map(|growing| line(name, sql, growing)).collect())
}

fn unknown(name: &str, error: &Error) -> String {
    format!("{name}: its plan is not known: {error}")
}

/// The line: what grows, by how much, and what to use instead.
fn line(name: &str, sql: &str, growing: &Growing) -> String {
    let Growing { table, work, index } = growing;
    let does = match work {
        TableWork::Scan => "reads every row",
        TableWork::Sort => "reads and sorts every row",
        TableWork::Shuffle => "reads every row and shuffles all",
    };
    let mut line = format!("warning: {name} {does} of {table}: {}", estimate(*work));
    let hot = hot_form(sql, growing);
    match (index, hot) {
        (Some(index), Some(hot)) => write!(line, "; {index}; or a hot table with {hot}"),
        (Some(index), None) => write!(line, "; {index}"),
        (None, Some(hot)) => write!(line, "; use a hot table with {hot}"),
        (None, None) => write!(line, "; no index is known that helps: add a LIMIT, or `cache` its answer"),
    }
    .expect("a text takes every line");
    line
}

fn turned_bad(name: &str, sql: &str, growing: &Growing, before_us: u64, now_us: u64) -> String {
    let jump = format!("took {:.1} ms and takes {:.1} ms", before_us as f64 / 1e3, now_us as f64 / 1e3);
    match &growing.index {
        Some(_) => format!("{}; it {jump} now", line(name, sql, growing)),
        None => format!(
            "{}; it {jump} now; if an index is there, ANALYZE {}",
            line(name, sql, growing),
            growing.table
        ),
    }
}

fn estimate(work: TableWork) -> String {
    format!("about {:.0} s a request with 10,000,000 rows", work.estimated_ms(ROWS) as f64 / 1e3)
}

/// The action on a hot table that gives the same result at the cost of one row.
fn hot_form(sql: &str, growing: &Growing) -> Option<String> {
    let table = &growing.table;
    let sql = sql.to_ascii_lowercase();
    let is_select = sql.trim_start().starts_with("select");
    let is_count = sql.contains("count(") && !sql.contains("group by");
    match growing.work {
        _ if !is_select => None,
        TableWork::Shuffle => Some(format!("`random = \"{table}\"`")),
        TableWork::Scan if is_count => Some(format!("`count = \"{table}\"`")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(work: TableWork, index: Option<&str>) -> Growing {
        Growing { table: "account".into(), work, index: index.map(str::to_owned) }
    }

    #[test]
    fn lines_say_what_to_use_instead() {
        for (sql, growing, expected) in [
            (
                "SELECT count(*) FROM account WHERE name = $name",
                growing(TableWork::Scan, Some("CREATE INDEX ON account (name)")),
                "warning: GET /a reads every row of account: about 1 s a request with 10,000,000 rows; \
                 CREATE INDEX ON account (name); or a hot table with `count = \"account\"`",
            ),
            (
                "SELECT * FROM account ORDER BY random() LIMIT 1",
                growing(TableWork::Shuffle, None),
                "warning: GET /a reads every row and shuffles all of account: about 2 s a request with \
                 10,000,000 rows; use a hot table with `random = \"account\"`",
            ),
            (
                "DELETE FROM account WHERE done",
                growing(TableWork::Scan, None),
                "warning: GET /a reads every row of account: about 1 s a request with 10,000,000 rows; no index is known \
                 that helps: add a LIMIT, or `cache` its answer",
            ),
        ] {
            assert_eq!(line("GET /a", sql, &growing), expected);
        }
    }

    #[test]
    fn a_jump_is_ten_times_the_best_period() {
        let plans = QueryPlans::default();
        let timed = plans.add_timed("GET /a".into(), "SELECT 1");
        let period = |calls: u32, each_us: u64| {
            (0..calls).for_each(|_| timed.add(Duration::from_micros(each_us)));
            timed.jumped()
        };
        assert_eq!(period(100, 500), None);
        assert_eq!(period(100, 300), None);
        assert_eq!(period(100, 2_900), None);
        assert_eq!(period(5, 90_000), None, "too few calls");
        assert_eq!(period(100, 3_000), Some((300, 3_000)));
    }
}
