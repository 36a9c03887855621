//! The followers and their progress, stored periodically, so that changes that all of them have passed can be
//! deleted.
//!
//! What must stay true: a change is deleted only when every known follower has passed it, and the triggers
//! write nothing only when no follower has reported for an hour. A follower that has not reported for half an
//! hour counts itself as unknown: it starts again.

use super::place::TriggerPlace;
use super::snapshot::Snapshot;
use crate::Error;
use crate::limits::FOLLOW_DELETE_ROWS;
use crate::postgres::Bulk;
use crate::postgres::positions::log_text;
use crate::postgres::session::Session;
use crate::postgres::table::text;
use forebay_value::Value;

/// What was known about a follower when it joined.
pub(super) struct Joined {
    /// Whether the triggers have reported everything to it, for all open transactions.
    pub(super) all_told: bool,
    /// Whether everything that it has not read at the place still exists.
    pub(super) goes_on: bool,
}

/// Registers a follower: at its place when it can continue from there, otherwise with the present snapshot.
pub(super) async fn join(
    session: &mut Session,
    log: u128,
    tables: &[i64],
    place: Option<&TriggerPlace>,
) -> Result<Joined, Error> {
    let known = "SELECT seen FROM _forebay.forebay_follower WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes' FOR UPDATE";
    let again = "UPDATE _forebay.forebay_follower SET updated_at = clock_timestamp(), tables = $2::text::jsonb WHERE log = $1";
    // By then its own transaction has an id: no earlier place shows as much.
    let anew = "INSERT INTO _forebay.forebay_follower AS f (log, seen, updated_at, tables) \
         VALUES ($1, pg_current_snapshot()::text, clock_timestamp(), $2::text::jsonb) \
         ON CONFLICT (log) DO UPDATE SET seen = excluded.seen, updated_at = excluded.updated_at, tables = excluded.tables";
    session.begin_job().await?;
    let joined = async {
        let noted = session.run(known, &[log_text(log)]).await?;
        let goes_on = match (noted.values.first(), place) {
            (Some(noted), Some(place)) => Snapshot::parse(text(noted))?.is_within(&place.snapshot()?),
            _ => false,
        };
        if !goes_on {
            session.run("SELECT pg_current_xact_id()::text", &[]).await?;
        }
        session.run(if goes_on { again } else { anew }, &[log_text(log), array(tables)]).await?;
        Ok(Joined { all_told: !noted.is_empty(), goes_on })
    };
    let joined = joined.await;
    session.end(joined).await
}

/// Invalidates every earlier place, and retains what was not read: the stored snapshot ends later than any of
/// them.
pub(super) async fn void(session: &mut Session, log: u128) -> Result<(), Error> {
    let voided = "UPDATE _forebay.forebay_follower SET seen = split_part(seen, ':', 1) || ':' || pg_snapshot_xmax(pg_current_snapshot()) || ':' \
         WHERE log = $1";
    session.begin_job().await?;
    let done = async {
        session.run("SELECT pg_current_xact_id()::text", &[]).await?;
        session.run(voided, &[log_text(log)]).await
    };
    let done = done.await.map(drop);
    session.end(done).await
}

/// Stores that this follower follows these tables and needs nothing that `seen` shows, deletes followers that
/// are silent for too long, and deletes the changes that all others have passed.
pub(super) async fn note(bulk: &Bulk, log: u128, tables: &[i64], seen: &Snapshot) -> Result<(), Error> {
    let mut session = bulk.sessions.lease().await?;
    let noted = "UPDATE _forebay.forebay_follower SET seen = $2, updated_at = clock_timestamp(), tables = $3::text::jsonb \
         WHERE log = $1 AND updated_at > clock_timestamp() - interval '30 minutes'";
    let forgotten =
        "DELETE FROM _forebay.forebay_follower WHERE updated_at < clock_timestamp() - interval '1 hour'";
    let passed = format!(
        "DELETE FROM _forebay.forebay_change WHERE ctid = ANY (ARRAY( \
           SELECT ctid FROM _forebay.forebay_change \
           WHERE xid < (SELECT min(split_part(seen, ':', 1)::int8) FROM _forebay.forebay_follower) \
           ORDER BY xid, id LIMIT {FOLLOW_DELETE_ROWS} FOR UPDATE SKIP LOCKED))"
    );
    session.run(noted, &[log_text(log), Value::Text(seen.to_string().into()), array(tables)]).await?;
    session.run(forgotten, &[]).await?;
    while session.run(&passed, &[]).await?.changed == FOLLOW_DELETE_ROWS {}
    Ok(())
}

/// The oids of tables as an array in JSON.
fn array(tables: &[i64]) -> Value {
    Value::Text(serde_json::to_string(tables).expect("numbers are JSON").into())
}
