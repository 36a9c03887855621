//! Who follows, and how far: noted from time to time, so that what all have passed can be deleted.
//!
//! What must stay true: a change is deleted only when every follower that is known has passed it, and the
//! triggers write nothing only when no follower was heard of for an hour. A follower that was not heard of
//! for half an hour counts as unknown to itself: it begins again.

use super::place::Place;
use super::snapshot::Snapshot;
use crate::Error;
use crate::limits::FOLLOW_DELETE_ROWS;
use crate::postgres::Bulk;
use crate::postgres::positions::log_text;
use crate::postgres::session::Session;
use crate::postgres::table::text;
use forebay_value::Value;

/// What was known of a follower when it joined.
pub(super) struct Joined {
    /// The triggers have told it everything, of all transactions that are open.
    pub(super) all_told: bool,
    /// Everything that it has not read at the place is still there.
    pub(super) goes_on: bool,
}

/// Makes a follower known: at its place when that is one to go on from, else with the present snapshot.
pub(super) async fn join(
    session: &mut Session,
    home: &str,
    log: u128,
    place: Option<&Place>,
) -> Result<Joined, Error> {
    let known = format!(
        "SELECT seen FROM {home}.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes' FOR UPDATE"
    );
    let again = format!("UPDATE {home}.forebay_follower SET updated_at = clock_timestamp() WHERE log = $1");
    // Its own transaction has an id by then: no earlier place shows as much.
    let anew = format!(
        "INSERT INTO {home}.forebay_follower AS f (log, seen, updated_at) VALUES ($1, pg_current_snapshot()::text, clock_timestamp()) \
         ON CONFLICT (log) DO UPDATE SET seen = excluded.seen, updated_at = excluded.updated_at"
    );
    session.begin_job().await?;
    let joined = async {
        let noted = session.run(&known, &[log_text(log)]).await?;
        let goes_on = match (noted.values.first(), place) {
            (Some(noted), Some(place)) => Snapshot::parse(text(noted))?.is_within(&place.snapshot()?),
            _ => false,
        };
        if !goes_on {
            session.run("SELECT pg_current_xact_id()::text", &[]).await?;
        }
        session.run(if goes_on { &again } else { &anew }, &[log_text(log)]).await?;
        Ok(Joined { all_told: !noted.is_empty(), goes_on })
    };
    let joined = joined.await;
    session.end(joined).await
}

/// Has no place from before be one to go on from, and keeps what was not read: what is noted ends later than
/// any of them.
pub(super) async fn void(session: &mut Session, home: &str, log: u128) -> Result<(), Error> {
    let voided = format!(
        "UPDATE {home}.forebay_follower SET seen = split_part(seen, ':', 1) || ':' || pg_snapshot_xmax(pg_current_snapshot()) || ':' \
         WHERE log = $1"
    );
    session.begin_job().await?;
    let done = async {
        session.run("SELECT pg_current_xact_id()::text", &[]).await?;
        session.run(&voided, &[log_text(log)]).await
    };
    let done = done.await.map(drop);
    session.end(done).await
}

/// Notes that this follower needs nothing that `seen` shows, forgets followers that were not heard of, and
/// deletes the changes that all others have passed.
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
