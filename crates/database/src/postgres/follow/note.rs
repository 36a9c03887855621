//! Who follows, and how far: noted from time to time, so that what all have passed can be deleted.
//!
//! What must stay true: a change is deleted only when every follower that is known has passed it, and the
//! triggers write nothing only when no follower was heard of for an hour. A follower that was not heard of
//! for half an hour counts as unknown to itself: it begins again.

use super::snapshot::Snapshot;
use crate::Error;
use crate::limits::FOLLOW_DELETE_ROWS;
use crate::postgres::Bulk;
use crate::postgres::positions::log_text;
use crate::postgres::session::Session;
use forebay_value::Value;

/// Makes a follower known, with the present snapshot; whether it was known all the time.
pub(super) async fn join(session: &mut Session, home: &str, log: u128) -> Result<bool, Error> {
    let known = format!(
        "SELECT FROM {home}.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'"
    );
    let sql = format!(
        "INSERT INTO {home}.forebay_follower AS f (log, seen, updated_at) VALUES ($1, pg_current_snapshot()::text, clock_timestamp()) \
         ON CONFLICT (log) DO UPDATE SET seen = excluded.seen, updated_at = excluded.updated_at"
    );
    session.begin_job().await?;
    let joined = async {
        let was_known = session.run(&known, &[log_text(log)]).await?.changed == 1;
        session.run(&sql, &[log_text(log)]).await?;
        Ok(was_known)
    };
    let joined = joined.await;
    session.end(joined).await
}

/// Notes that this follower has passed `seen`, forgets followers that were not heard of, and deletes the
/// changes that all others have passed.
pub(super) async fn note(bulk: &Bulk, home: &str, log: u128, seen: &Snapshot) -> Result<(), Error> {
    let mut session = bulk.sessions.lease().await?;
    let noted = format!(
        "UPDATE {home}.forebay_follower SET seen = $2, updated_at = clock_timestamp() \
         WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'"
    );
    let forgotten = format!(
        "DELETE FROM {home}.forebay_follower WHERE updated_at < clock_timestamp() - interval '1 hour'"
    );
    let passed = format!(
        "DELETE FROM {home}.forebay_change WHERE ctid = ANY (ARRAY( \
           SELECT ctid FROM {home}.forebay_change \
           WHERE xid < (SELECT min(split_part(seen, ':', 1)::int8) FROM {home}.forebay_follower) \
           ORDER BY xid, id LIMIT {FOLLOW_DELETE_ROWS} FOR UPDATE SKIP LOCKED))"
    );
    session.run(&noted, &[log_text(log), Value::Text(seen.to_string().into())]).await?;
    session.run(&forgotten, &[]).await?;
    while session.run(&passed, &[]).await?.changed == FOLLOW_DELETE_ROWS {}
    Ok(())
}
