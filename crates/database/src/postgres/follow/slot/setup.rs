//! What following by logical decoding needs, and the slot of this log.
//!
//! What must stay true: no other program's statement fails because of us. A publication would make PostgreSQL
//! refuse the UPDATEs of a published table that has lost its replica identity, so that there is none: the
//! plugin of the slot reports the changes of all tables. A slot is permanent only where the server bounds the
//! WAL that it retains for slots.

use super::stream::Own;
use super::wire::{Fault, Wire};
use crate::limits::{
    FOLLOW_LAG_BYTES, FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES, FOLLOW_STREAM_WAIT_MS, SLOT_WAIT_MS,
};
use crate::postgres::follow::cursor::{Patience, Table, Tracked};
use crate::postgres::follow::fits::judge;
use crate::postgres::follow::look::{old_types, undecodable};
use crate::postgres::follow::shape::{self, Shape, TOLD_BY_SLOT};
use crate::postgres::follow::snapshot::Snapshot;
use crate::postgres::making;
use crate::postgres::session::Session;
use crate::postgres::sql::literal;
use crate::postgres::table::{number, text};
use crate::postgres::url::{FollowBy, Pooler};
use crate::{Error, Follow, Kind};
use forebay_value::Value;
use std::time::Duration;

/// What the server and the tables permit.
pub(super) struct SlotRequirements {
    pub(super) tables: Vec<Tracked>,
    pub(super) own: Vec<Own>,
    /// How many bytes of WAL the server retains for slots at most; `None`: without a bound.
    pub(super) keeps: Option<u64>,
    /// How far a stream may lag; beyond that, reading the tables again costs less.
    pub(super) lag_bytes_max: u64,
}

/// A table that can be followed by a slot.
struct Fit {
    table: Table,
    own: Own,
    bytes: u64,
}

/// The error when logical decoding is not available.
pub(super) fn cannot(why: impl Into<String>) -> Error {
    Error::new(Kind::Schema, why)
}

/// Checks whether logical decoding is available; otherwise returns the reason, with what is needed.
pub(super) async fn look_for(
    session: &mut Session,
    follows: &[Follow],
    by: FollowBy,
) -> Result<Result<SlotRequirements, Error>, Error> {
    let settings = "SELECT current_setting('wal_level'), pg_size_bytes(nullif(current_setting('max_slot_wal_keep_size'), '-1'))";
    let settings = session.run(settings, &[]).await?;
    let level = text(&settings.values[0]);
    if session.pooler != Pooler::None {
        return Ok(Err(cannot("needs the server itself, not the pooler: add direct=HOST:PORT to the URL")));
    }
    if level != "logical" {
        return Ok(Err(cannot(format!("needs wal_level = logical, and it is {level}"))));
    }
    let keeps = match settings.values[1] {
        Value::Bigint(bytes) => Some(bytes.unsigned_abs()),
        _ => None,
    };
    let (tables, own) = (Vec::new(), Vec::new());
    let mut footing = SlotRequirements { tables, own, keeps, lag_bytes_max: FOLLOW_LAG_BYTES };
    for follow in follows {
        let (shape, looked) = look_at(session, follow, by, Patience::START).await?;
        let fit = match looked {
            Ok(Ok(fit)) => fit,
            Ok(Err(why)) => return Ok(Err(why)),
            Err(why) => {
                footing.tables.push(Tracked::refused(shape, &why));
                footing.own.push(Own::Unknown);
                continue;
            }
        };
        footing.lag_bytes_max += TABLE_BYTES_READ * fit.bytes;
        footing.tables.push(Tracked::followed(shape, fit.table));
        footing.own.push(fit.own);
    }
    Ok(Ok(footing))
}

/// The outcome of a look at a table: what it permits; why logical decoding cannot report its changes, though
/// triggers may, if the URL permits them; or why it cannot be followed.
type Looked = Result<Result<Fit, Error>, Error>;

/// Looks at a table; returns also its shape before that.
///
/// # Errors
/// Those that concern all tables.
async fn look_at(
    session: &mut Session,
    follow: &Follow,
    by: FollowBy,
    patience: Patience,
) -> Result<(Shape, Looked), Error> {
    let mut tries = 1;
    loop {
        session.begin(&patience.begin()).await?;
        let mut shape = Shape::default();
        let looked = look_once(session, follow, by, &mut shape).await;
        match session.end(looked).await {
            Ok(looked) => return Ok((shape, Ok(looked))),
            Err(error) if *error.kind() == Kind::Busy && tries < patience.tries => tries += 1,
            Err(error) if patience.is_lost(session, &error) => return Err(error),
            Err(error) => {
                let error = error.context(format!("cannot follow table {}", follow.schema.name));
                return Ok((shape, Err(error)));
            }
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS)).await;
    }
}

async fn look_once(
    session: &mut Session,
    follow: &Follow,
    by: FollowBy,
    shape: &mut Shape,
) -> Result<Result<Fit, Error>, Error> {
    // Before anything else is read: what changes meanwhile gives another shape at the next poll.
    *shape = shape::of(session, TOLD_BY_SLOT, follow).await?;
    let found = judge(session, follow).await?;
    match undecodable(&found, follow).map(cannot) {
        // Its trouble alone: the others go on.
        Some(why) if by == FollowBy::Logical => return Err(why),
        Some(why) => return Ok(Err(why)),
        None => {}
    }
    let own = match (follow.own || found.is("alters"), found.is("cascades")) {
        (true, _) => Own::Unknown,
        (false, true) => Own::Inserts,
        (false, false) => Own::All,
    };
    let table = Table {
        oid: number(&found.0, 0, 0),
        key_type: follow.schema.key_column().ty.unbounded(),
        old_types: old_types(session, follow, &found).await?,
    };
    let bytes = if let Value::Bigint(bytes) = found.value("bytes") { bytes.unsigned_abs() } else { 0 };
    Ok(Ok(Fit { table, own, bytes }))
}

/// Looks at a table again.
///
/// # Errors
/// Those that concern all tables.
pub(super) async fn look_again(
    session: &mut Session,
    follow: &Follow,
    by: FollowBy,
) -> Result<Result<(Tracked, Own), Error>, Error> {
    let (shape, looked) = look_at(session, follow, by, Patience::POLL).await?;
    Ok(match looked {
        Ok(Ok(fit)) => Ok((Tracked::followed(shape, fit.table), fit.own)),
        Ok(Err(why)) => Err(why),
        Err(why) => Ok((Tracked::refused(shape, &why), Own::Unknown)),
    })
}

/// How many bytes of WAL are decoded in the time in which one byte of a table is read again: its keys, its
/// rows, and the work in memory.
const TABLE_BYTES_READ: u64 = 4;

/// Whether the slot has retained everything that was committed since `at`, and that is not more than the
/// limit.
pub(super) async fn has_since(
    session: &mut Session,
    slot: &str,
    at: u64,
    lag_bytes_max: u64,
) -> Result<bool, Error> {
    let sql = "SELECT plugin = 'test_decoding' AND database = current_database() AND coalesce(wal_status, 'lost') <> 'lost' \
         AND confirmed_flush_lsn - '0/0'::pg_lsn <= $2::int8 AND pg_current_wal_insert_lsn() - '0/0'::pg_lsn BETWEEN $2::int8 AND $2::int8 + $3::int8 \
         FROM pg_replication_slots WHERE slot_name = $1";
    let [at, lag] = [at, lag_bytes_max].map(|bytes| Value::Bigint(bytes.min(1 << 62) as i64));
    Ok(session.run(sql, &[Value::Text(slot.into()), at, lag]).await?.values == [Value::Bool(true)])
}

/// Ends the connection that uses the slot: an earlier one of this log, whose loss the server has not noticed
/// yet.
pub(super) async fn release(session: &mut Session, slot: &str) -> Result<(), Error> {
    let release = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active_pid IS NOT NULL";
    for _ in 0..FOLLOW_LOCK_TRIES {
        if session.run(release, &[Value::Text(slot.into())]).await?.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_LOCK_PAUSE_MS / 10)).await;
    }
    Err(Error::new(Kind::Busy, format!("slot {slot} is in use by another connection")))
}

/// Creates the slot again, over the connection that will stream from it; returns where it begins. Earlier
/// commits are not streamed, so every snapshot that is taken after this must show them.
pub(super) async fn make(
    session: &mut Session,
    wire: &mut Wire,
    slot: &str,
    is_temporary: bool,
) -> Result<Result<u64, Fault>, Error> {
    discard(session, slot).await?;
    let kind = if is_temporary { "TEMPORARY LOGICAL" } else { "LOGICAL" };
    // The creation waits for all open transactions, and exports a snapshot of the stream's beginning.
    let create = format!("CREATE_REPLICATION_SLOT {slot} {kind} test_decoding EXPORT_SNAPSHOT");
    let made = match wire.query(&create, SLOT_WAIT_MS).await {
        Ok(row) => match &row[..] {
            [_, Some(begin), Some(snapshot), _] => Ok((lsn(begin), snapshot.clone())),
            _ => Err(Fault::Lost("the slot begins nowhere".into())),
        },
        Err(fault) => Err(fault),
    };
    let made = match made {
        Ok((Some(begin), snapshot)) if is_shown(session, &snapshot).await? => Ok(begin),
        Ok(_) => Err(Fault::Late),
        Err(fault) => Err(fault),
    };
    if made.is_err() {
        discard(session, slot).await?;
    }
    Ok(made)
}

/// Parses a position as PostgreSQL writes it.
fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    let half = |text: &str| u32::from_str_radix(text, 16).ok().map(u64::from);
    Some(half(high)? << 32 | half(low)?)
}

/// Waits until a snapshot shows everything that the exported one shows; returns whether it does in time. At
/// the stream's beginning a transaction may have written its commit and not be visible yet, because it waits
/// for the disk or for a standby.
async fn is_shown(session: &mut Session, exported: &str) -> Result<bool, Error> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
        literal(exported)
    );
    session.begin(&begin).await?;
    let exported = snapshot(session).await;
    let exported = session.end(exported).await?;
    for _ in 0..SLOT_WAIT_MS / FOLLOW_STREAM_WAIT_MS {
        if exported.is_within(&snapshot(session).await?) {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(FOLLOW_STREAM_WAIT_MS)).await;
    }
    Ok(false)
}

async fn snapshot(session: &mut Session) -> Result<Snapshot, Error> {
    let snapshot = session.run("SELECT pg_current_snapshot()::text", &[]).await?;
    Snapshot::parse(snapshot.values.first().map_or("", text))
}

/// Drops a slot, even if a connection uses it, if it exists; returns whether it did.
pub(super) async fn discard(session: &mut Session, slot: &str) -> Result<bool, Error> {
    release(session, slot).await?;
    let drop =
        "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots WHERE slot_name = $1";
    Ok(!session.run(drop, &[Value::Text(slot.into())]).await?.is_empty())
}

/// The permanent slots in this database that no connection uses, except `but`.
pub(super) async fn idle(session: &mut Session, but: &str) -> Result<Vec<String>, Error> {
    let slots = "SELECT slot_name || coalesce(', which holds back ' || pg_size_pretty(pg_current_wal_lsn() - restart_lsn) || ' of WAL', '') \
         FROM pg_replication_slots WHERE slot_name LIKE 'forebay\\_%' AND database = current_database() \
           AND NOT active AND NOT temporary AND slot_name <> $1 ORDER BY 1";
    let slots = session.run(slots, &[Value::Text(but.into())]).await?;
    Ok(slots.values.iter().map(|slot| text(slot).to_owned()).collect())
}

/// The publication of earlier versions, if this role may drop it: with it, PostgreSQL refuses the UPDATEs of
/// other programs when a table loses its primary key.
const OLD_PUBLICATION: &str =
    "SELECT FROM pg_publication WHERE pubname = 'forebay' AND pg_has_role(pubowner, 'USAGE')";

/// Removes the publication of earlier versions; returns whether there was one.
pub(super) async fn remove_publication(session: &mut Session) -> Result<bool, Error> {
    let there = format!("SELECT EXISTS ({OLD_PUBLICATION})");
    let there = session.run(&there, &[]).await?.values == [Value::Bool(true)];
    if there {
        making::make(session, "DROP PUBLICATION IF EXISTS forebay").await?;
    }
    Ok(there)
}

/// Whether another application in this database has tables of ours.
const ARE_OTHERS: &str = "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE c.relname = 'forebay_position' AND n.nspname NOT IN ($1, coalesce(current_schema(), '')))";

/// Removes all slots, except those of other applications, and the publication of earlier versions; returns
/// their names.
pub(super) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    let mut slots = "SELECT slot_name::text FROM pg_replication_slots s WHERE slot_name LIKE 'forebay\\_%' AND database = current_database() \
         AND NOT temporary".to_owned();
    let own = Value::Text((&*session.own).into());
    if session.run(ARE_OTHERS, &[own]).await?.values == [Value::Bool(true)] {
        let there = "SELECT to_regclass('_forebay.forebay_position') IS NOT NULL";
        slots += match session.run(there, &[]).await?.values == [Value::Bool(true)] {
            true => {
                " AND EXISTS (SELECT FROM _forebay.forebay_position p WHERE starts_with(s.slot_name, 'forebay_' || p.log || '_'))"
            }
            false => " AND false",
        };
    }
    slots += " ORDER BY 1";
    for slot in session.run(&slots, &[]).await?.values {
        if discard(session, text(&slot)).await? {
            removed.push(format!("slot {}", text(&slot)));
        }
    }
    if remove_publication(session).await? {
        removed.push("publication forebay".into());
    }
    Ok(removed)
}
