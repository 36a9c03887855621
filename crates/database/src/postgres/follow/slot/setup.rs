//! The database objects for following by logical decoding: a publication of the followed tables and of the
//! drain's positions, and a slot of this log.
//!
//! What must stay true: no other program's statement fails because of the publication, so that it contains
//! only tables whose replica identity contains our key; a slot is permanent only where the server bounds the
//! WAL that it retains for slots. A slot is created after the publication is complete: its creation waits for
//! every open transaction, so that no transaction is streamed without its earlier changes.

use super::stream::Own;
use super::wire::{Fault, Wire};
use crate::limits::{
    FOLLOW_LAG_BYTES, FOLLOW_LOCK_PAUSE_MS, FOLLOW_LOCK_TRIES, FOLLOW_STREAM_WAIT_MS, SLOT_WAIT_MS,
};
use crate::postgres::drain_tables::{self, LOCK, making};
use crate::postgres::follow::cursor::{Patience, Table, Tracked};
use crate::postgres::follow::fits::judge;
use crate::postgres::follow::look::{look, old_types, undecodable};
use crate::postgres::follow::shape::{self, Shape, TOLD_BY_SLOT, UNCOMPILED};
use crate::postgres::follow::snapshot::Snapshot;
use crate::postgres::session::Session;
use crate::postgres::sql::literal;
use crate::postgres::table::{number, text};
use crate::postgres::url::Pooler;
use crate::{Error, Follow, Kind};
use forebay_value::Value;
use std::time::Duration;

/// What the server and the tables permit.
pub(super) struct SlotRequirements {
    pub(super) tables: Vec<Tracked>,
    pub(super) own: Vec<Own>,
    /// Tables that are not in the publication, by index, as SQL.
    missing: Vec<(usize, String)>,
    /// Whether the table of the drain's positions is in the publication.
    has_positions: bool,
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
    /// The table as SQL, when it is not in the publication.
    missing: Option<String>,
}

/// The error when logical decoding is not available.
pub(super) fn cannot(why: impl Into<String>) -> Error {
    Error::new(Kind::Schema, why)
}

/// Checks whether logical decoding is available; otherwise returns the reason, with what is needed.
pub(super) async fn look_for(
    session: &mut Session,
    follows: &[Follow],
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
    let (tables, own, missing) = (Vec::new(), Vec::new(), Vec::new());
    let mut footing = SlotRequirements {
        tables,
        own,
        missing,
        has_positions: true,
        keeps,
        lag_bytes_max: FOLLOW_LAG_BYTES,
    };
    for (index, follow) in follows.iter().enumerate() {
        let (shape, looked) = look_at(session, follow, Patience::START).await?;
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
        footing.missing.extend(fit.missing.map(|table| (index, table)));
    }
    let positions = "SELECT EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid \
         WHERE p.pubname = 'forebay' AND r.prrelid = to_regclass('forebay_position'))";
    footing.has_positions = session.run(positions, &[]).await?.values == [Value::Bool(true)];
    Ok(Ok(footing))
}

/// The outcome of a look at a table: what it permits; why logical decoding cannot report its changes, though
/// triggers may; or why it cannot be followed.
type Looked = Result<Result<Fit, Error>, Error>;

/// Looks at a table; returns also its shape before that.
///
/// # Errors
/// Those that concern all tables.
async fn look_at(
    session: &mut Session,
    follow: &Follow,
    patience: Patience,
) -> Result<(Shape, Looked), Error> {
    let mut tries = 1;
    loop {
        session.begin(&patience.begin()).await?;
        let mut shape = Shape::default();
        let looked = look_once(session, follow, &mut shape).await;
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
    shape: &mut Shape,
) -> Result<Result<Fit, Error>, Error> {
    // Before anything else is read: what changes meanwhile gives another shape at the next poll.
    *shape = shape::of(session, TOLD_BY_SLOT, follow).await?;
    let found = judge(session, follow).await?;
    if let Some(why) = undecodable(&found, follow) {
        return Ok(Err(cannot(why)));
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
    let missing = (!found.is("published")).then(|| found.table());
    Ok(Ok(Fit { table, own, bytes, missing }))
}

/// Looks at a table again, and publishes it when it is another one than before.
///
/// # Errors
/// Those that concern all tables.
pub(super) async fn look_again(
    session: &mut Session,
    follow: &Follow,
) -> Result<Result<(Tracked, Own), Error>, Error> {
    let (shape, looked) = look_at(session, follow, Patience::POLL).await?;
    let refused = |why: &Error| Ok(Ok((Tracked::refused(shape.clone(), why), Own::Unknown)));
    let fit = match looked {
        Ok(Ok(fit)) => fit,
        Ok(Err(why)) => return Ok(Err(why)),
        Err(why) => {
            withdraw(session, std::slice::from_ref(follow)).await?;
            return refused(&why);
        }
    };
    let mut tracked = Tracked::followed(shape.clone(), fit.table);
    if let Some(table) = fit.missing {
        session.begin(&Patience::POLL.begin()).await?;
        let published = publish_late(session, follow, &table).await;
        match session.end(published).await {
            Ok(told) => tracked.shape.told = told,
            Err(error) if Patience::POLL.is_lost(session, &error) => return Err(error),
            Err(error) => {
                return refused(&error.context(format!("cannot publish table {}", follow.schema.name)));
            }
        }
    }
    Ok(Ok((tracked, fit.own)))
}

/// Adds a table to the publication of a slot that exists already. Whoever has written to the table has ended
/// by then, so that no transaction is streamed without its earlier changes. Returns how the table is told.
async fn publish_late(session: &mut Session, follow: &Follow, table: &str) -> Result<String, Error> {
    session.execute(LOCK).await?;
    session.execute(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await?;
    session.execute(&format!("ALTER PUBLICATION forebay ADD TABLE {table}")).await?;
    Ok(shape::of(session, TOLD_BY_SLOT, follow).await?.told)
}

/// Removes tables from the publication that have become unfit for it: other programs' updates fail while a
/// table without a usable replica identity is published.
pub(super) async fn withdraw(session: &mut Session, follows: &[Follow]) -> Result<(), Error> {
    for follow in follows {
        if is_to_be_withdrawn(session, follow).await?.is_some() {
            making!(session, withdraw_once(session, follow).await)?;
        }
    }
    Ok(())
}

async fn withdraw_once(session: &mut Session, follow: &Follow) -> Result<(), Error> {
    match is_to_be_withdrawn(session, follow).await? {
        Some(table) => session.execute(&format!("ALTER PUBLICATION forebay DROP TABLE {table}")).await,
        None => Ok(()),
    }
}

/// The table as SQL, if it is published and unfit for that.
async fn is_to_be_withdrawn(session: &mut Session, follow: &Follow) -> Result<Option<String>, Error> {
    let found = match look(session, follow).await {
        Ok(found) => found,
        // It is not there, or not under this name.
        Err(error) if *error.kind() == Kind::Schema => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok((found.is("published") && undecodable(&found, follow).is_some()).then(|| found.table()))
}

/// How many bytes of WAL are decoded in the time in which one byte of a table is read again: its keys, its
/// rows, and the work in memory.
const TABLE_BYTES_READ: u64 = 4;

impl SlotRequirements {
    /// Creates the publication, or adds tables to it. `is_late`: a slot exists already, and may go on.
    /// Returns whether everything in it was reported so far.
    pub(super) async fn publish(
        &mut self,
        session: &mut Session,
        follows: &[Follow],
        is_late: bool,
    ) -> Result<bool, Error> {
        let (was_whole, told) = making!(session, self.publish_once(session, follows, is_late).await)?;
        told.into_iter().for_each(|(index, told)| self.tables[index].shape.told = told);
        Ok(was_whole && self.has_positions)
    }

    /// Returns whether the publication was there with all kinds of changes, and how each table that was added
    /// is told.
    async fn publish_once(
        &self,
        session: &mut Session,
        follows: &[Follow],
        is_late: bool,
    ) -> Result<(bool, Vec<(usize, String)>), Error> {
        session.execute(UNCOMPILED).await?;
        let there = "SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate FROM pg_publication WHERE pubname = 'forebay'";
        let there = session.run(there, &[]).await?;
        if is_late {
            for (_, table) in &self.missing {
                session.execute(&format!("LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")).await?;
            }
        }
        let missing = self.still_missing(session).await?;
        match there.values.first() {
            None => session.execute(&format!("CREATE PUBLICATION forebay FOR TABLE {missing}")).await?,
            Some(is_whole) => {
                if *is_whole != Value::Bool(true) {
                    let whole =
                        "ALTER PUBLICATION forebay SET (publish = 'insert, update, delete, truncate')";
                    session.execute(whole).await?;
                }
                if !missing.is_empty() {
                    session.execute(&format!("ALTER PUBLICATION forebay ADD TABLE {missing}")).await?;
                }
            }
        }
        let mut told = Vec::with_capacity(self.missing.len());
        for (index, _) in &self.missing {
            told.push((*index, shape::of(session, TOLD_BY_SLOT, &follows[*index]).await?.told));
        }
        Ok((there.values.first() == Some(&Value::Bool(true)), told))
    }

    /// The tables that no other server has published meanwhile, as a list in SQL.
    async fn still_missing(&self, session: &mut Session) -> Result<String, Error> {
        let published = "SELECT EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid \
             WHERE p.pubname = 'forebay' AND r.prrelid = to_regclass($1))";
        let positions = (!self.has_positions).then_some("forebay_position");
        let mut missing = Vec::new();
        for table in self.missing.iter().map(|(_, table)| table.as_str()).chain(positions) {
            let found = session.run(published, &[Value::Text(table.into())]).await?;
            if found.values != [Value::Bool(true)] {
                missing.push(table);
            }
        }
        Ok(missing.join(", "))
    }
}

/// Whether the slot has retained everything that was committed since `at`, and that is not more than the
/// limit.
pub(super) async fn has_since(
    session: &mut Session,
    slot: &str,
    at: u64,
    lag_bytes_max: u64,
) -> Result<bool, Error> {
    let sql = "SELECT plugin = 'pgoutput' AND database = current_database() AND coalesce(wal_status, 'lost') <> 'lost' \
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
    let create = format!("CREATE_REPLICATION_SLOT {slot} {kind} pgoutput EXPORT_SNAPSHOT");
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

/// Removes all slots and the publication; returns their names.
pub(super) async fn remove(session: &mut Session) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    let slots = "SELECT slot_name::text FROM pg_replication_slots WHERE slot_name LIKE 'forebay\\_%' AND database = current_database() AND NOT temporary ORDER BY 1";
    for slot in session.run(slots, &[]).await?.values {
        if discard(session, text(&slot)).await? {
            removed.push(format!("slot {}", text(&slot)));
        }
    }
    let there = "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = 'forebay')";
    if session.run(there, &[]).await?.values == [Value::Bool(true)] {
        drain_tables::make(session, "DROP PUBLICATION IF EXISTS forebay").await?;
        removed.push("publication forebay".into());
    }
    Ok(removed)
}
