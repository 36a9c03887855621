//! The drain's transaction: changes and the position they reach, both or neither; and the bulk insert of `seed`.
//!
//! The position is moved first, by compare-and-set: a drain that was replaced finds out before it does anything.
//! A change that the database refuses undoes only itself (SQLite's ABORT), so that a batch that sends refused
//! changes to `forebay_dead_letter` goes on with the next one. What is not the change's fault (a full disk, a lock,
//! a lost file) always fails the whole batch.

use super::Sqlite;
use super::change::TableStatements;
use super::errors::map;
use super::schema::quoted;
use super::writer::Session;
use crate::letter;
use crate::limits::{BULK_LOCK_WAIT_MS, SLICE_MS, YIELD_EVERY, YIELD_FLOOR};
use crate::{Applied, Batch, Change, DeadLetter, Error, Kind, OnError, Priority, StoredPosition};
use forebay_value::{Row, Schema, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS forebay_position (
  log TEXT PRIMARY KEY NOT NULL,
  position INTEGER NOT NULL,
  updated_at TIMESTAMP TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS forebay_dead_letter (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  log TEXT NOT NULL,
  position INTEGER NOT NULL,
  table_name TEXT NOT NULL,
  op TEXT NOT NULL,
  row JSON TEXT NOT NULL,
  reason TEXT NOT NULL,
  at TIMESTAMP TEXT NOT NULL
);";

const SLICE: Duration = Duration::from_millis(SLICE_MS);
const LOCK_WAIT: Duration = Duration::from_millis(BULK_LOCK_WAIT_MS);

impl Sqlite {
    pub(crate) async fn apply(&self, batch: Batch) -> Result<Applied, Error> {
        self.writer.bulk(move |session| apply(session, &batch)).await
    }

    pub(crate) async fn insert_many(&self, schema: &Arc<Schema>, rows: Vec<Row>) -> Result<(), Error> {
        let schema = schema.clone();
        self.writer.bulk(move |session| insert_many(session, &schema, &rows)).await
    }

    pub(crate) async fn clear(&self, schema: &Schema) -> Result<(), Error> {
        let (name, delete) = (schema.name.clone(), format!("DELETE FROM {}", quoted(&schema.name)));
        let clear = move |session: &mut Session| {
            session.begin(LOCK_WAIT)?;
            let reset = || {
                session.connection.execute(&delete, [])?;
                if has_table(&session.connection, "sqlite_sequence")? {
                    session.connection.execute("DELETE FROM sqlite_sequence WHERE name = ?1", [&name])?;
                }
                Ok(())
            };
            if let Err(error) = reset() {
                session.rollback();
                return Err(map(error));
            }
            session.commit()
        };
        self.writer.bulk(clear).await
    }

    pub(crate) async fn positions(&self) -> Result<Vec<StoredPosition>, Error> {
        let read = |connection: &Connection| {
            if !has_table(connection, "forebay_position").map_err(map)? {
                return Ok(Vec::new());
            }
            let sql = "SELECT log, position, updated_at FROM forebay_position ORDER BY updated_at";
            let mut statement = connection.prepare_cached(sql).map_err(map)?;
            let mut rows = statement.raw_query();
            let mut positions = Vec::new();
            while let Some(row) = rows.next().map_err(map)? {
                let position: i64 = row.get(1).map_err(map)?;
                positions.push(StoredPosition {
                    log: log_id(row, 0)?,
                    position: position.unsigned_abs(),
                    updated_at: timestamp(row, 2)?,
                });
            }
            Ok(positions)
        };
        self.readers.submit(read).await
    }

    pub(crate) async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.readers.submit(move |connection| dead_letters(connection, limit)).await
    }

    pub(crate) async fn dead_letter_count(&self) -> Result<u64, Error> {
        self.readers.submit(|connection| count_letters(connection, "true", [])).await
    }

    pub(crate) async fn dead_letter_count_of(&self, log: u128, table: &str) -> Result<u64, Error> {
        let values = [log_text(log), table.to_owned()];
        let read =
            move |connection: &Connection| count_letters(connection, "log = ?1 AND table_name = ?2", values);
        self.readers.submit(read).await
    }
}

fn count_letters(connection: &Connection, filter: &str, values: impl rusqlite::Params) -> Result<u64, Error> {
    if !has_table(connection, "forebay_dead_letter").map_err(map)? {
        return Ok(0);
    }
    let sql = format!("SELECT count(*) FROM forebay_dead_letter WHERE {filter}");
    let count: i64 = connection.query_row(&sql, values, |row| row.get(0)).map_err(map)?;
    Ok(count.unsigned_abs())
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .and_then(|mut statement| statement.exists([name]))
}

/// The stored position of one log, in whatever transaction the connection is.
pub(super) fn position(connection: &Connection, log: u128) -> Result<Option<u64>, Error> {
    if !has_table(connection, "forebay_position").map_err(map)? {
        return Ok(None);
    }
    let sql = "SELECT position FROM forebay_position WHERE log = ?1";
    let position: Option<i64> = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([log_text(log)], |row| row.get(0)).optional())
        .map_err(map)?;
    Ok(position.map(i64::unsigned_abs))
}

fn log_text(log: u128) -> String {
    format!("{log:032x}")
}

fn log_id(row: &rusqlite::Row<'_>, index: usize) -> Result<u128, Error> {
    let text: String = row.get(index).map_err(map)?;
    u128::from_str_radix(&text, 16)
        .map_err(|source| Error::new(Kind::Corrupt, format!("{text:?} is no log id")).with_source(source))
}

fn timestamp(row: &rusqlite::Row<'_>, index: usize) -> Result<Timestamp, Error> {
    let text: String = row.get(index).map_err(map)?;
    Timestamp::parse_stored(&text).ok_or_else(|| Error::new(Kind::Corrupt, format!("{text:?} is no time")))
}

fn dead_letters(connection: &Connection, limit: i64) -> Result<Vec<DeadLetter>, Error> {
    if !has_table(connection, "forebay_dead_letter").map_err(map)? {
        return Ok(Vec::new());
    }
    let sql = "SELECT id, log, position, table_name, op, row, reason, at FROM forebay_dead_letter ORDER BY id DESC LIMIT ?1";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut rows = statement.query([limit]).map_err(map)?;
    let mut letters = Vec::new();
    while let Some(row) = rows.next().map_err(map)? {
        let position: i64 = row.get(2).map_err(map)?;
        letters.push(DeadLetter {
            id: row.get(0).map_err(map)?,
            log: log_id(row, 1)?,
            position: position.unsigned_abs(),
            table: row.get(3).map_err(map)?,
            op: row.get(4).map_err(map)?,
            row: row.get(5).map_err(map)?,
            reason: row.get(6).map_err(map)?,
            at: timestamp(row, 7)?,
        });
    }
    Ok(letters)
}

/// What became of the changes that were not simply applied.
#[derive(Default)]
struct Done {
    dead: u64,
    missing: u64,
}

fn apply(session: &mut Session, batch: &Batch) -> Result<Applied, Error> {
    let began = Instant::now();
    session.begin(LOCK_WAIT)?;
    let mut outcome = apply_changes(session, batch, began).and_then(|done| session.commit().map(|()| done));
    if let (Err(error), [change], OnError::DeadLetter) = (&outcome, &batch.changes[..], batch.on_error)
        && error.is_data()
    {
        let error = error.clone();
        outcome = bury_alone(session, batch, change, &error);
    }
    match outcome {
        Ok(Done { dead, missing }) => {
            Ok(Applied { dead, missing, took: began.elapsed(), others_waited: session.others_wait() })
        }
        Err(error) => {
            session.rollback();
            // The tables may have been made by the very transaction that is gone now.
            session.has_drain_tables = false;
            Err(error)
        }
    }
}

/// The only change of a batch was refused at the commit (a deferred foreign key): the position moves, and it is a dead letter.
fn bury_alone(session: &mut Session, batch: &Batch, change: &Change, error: &Error) -> Result<Done, Error> {
    session.rollback();
    session.begin(LOCK_WAIT)?;
    session.connection.execute_batch(TABLES).map_err(map)?;
    move_position(&session.connection, batch)?;
    write_dead_letter(&session.connection, batch, change, error)?;
    session.commit()?;
    session.has_drain_tables = true;
    Ok(Done { dead: 1, missing: 0 })
}

fn apply_changes(session: &mut Session, batch: &Batch, began: Instant) -> Result<Done, Error> {
    if !session.has_drain_tables {
        session.connection.execute_batch(TABLES).map_err(map)?;
        session.has_drain_tables = true;
    }
    move_position(&session.connection, batch)?;
    if batch.on_error == OnError::Fail {
        // Coalescing orders by kind and key: a row may come before the one it refers to. Until the commit only, which ends it.
        session.connection.pragma_update(None, "defer_foreign_keys", true).map_err(map)?;
    }
    let connection = &session.connection;
    let mut tables: Vec<_> =
        batch.schemas.iter().map(|schema| TableStatements::new(connection, schema)).collect();
    let mut done = Done::default();
    for (index, change) in batch.changes.iter().enumerate() {
        if index % YIELD_EVERY == 0 && index >= YIELD_FLOOR && must_yield(session, batch, began) {
            return Err(Error::new(Kind::Yielded { done: index }, "gave way to direct writes"));
        }
        let error = match tables[change.table].execute(&change.op) {
            Ok(true) => continue,
            Ok(false) => {
                done.missing += 1;
                continue;
            }
            Err(error) => error,
        };
        if session.connection.is_autocommit() || !error.is_data() {
            return Err(error);
        }
        match batch.on_error {
            OnError::Fail => return Err(error.at_row(index)),
            OnError::DeadLetter => write_dead_letter(&session.connection, batch, change, &error)?,
        }
        done.dead += 1;
    }
    Ok(done)
}

fn must_yield(session: &Session, batch: &Batch, began: Instant) -> bool {
    batch.priority == Priority::Yields && session.others_wait() && began.elapsed() >= SLICE
}

fn move_position(connection: &Connection, batch: &Batch) -> Result<(), Error> {
    let log = log_text(batch.log);
    let stored = |position: u64| {
        i64::try_from(position)
            .map_err(|_| Error::new(Kind::Type, format!("position {position} is past 63 bits")))
    };
    let (to, now) = (stored(batch.to)?, Timestamp::now().to_string());
    let changed = match batch.from.map(stored).transpose()? {
        Some(from) => connection
            .prepare_cached("UPDATE forebay_position SET position = ?2, updated_at = ?3 WHERE log = ?1 AND position = ?4")
            .and_then(|mut statement| statement.execute(params![log, to, now, from])),
        None => connection
            .prepare_cached("INSERT INTO forebay_position (log, position, updated_at) VALUES (?1, ?2, ?3) ON CONFLICT (log) DO NOTHING")
            .and_then(|mut statement| statement.execute(params![log, to, now])),
    };
    let changed = changed.map_err(map)?;
    if changed == 1 {
        return Ok(());
    }
    let found = match position(connection, batch.log)? {
        Some(position) => format!("it is at {position}"),
        None => "it has none".to_owned(),
    };
    let expected = batch.from.map_or_else(|| "none yet".to_owned(), |from| from.to_string());
    let message =
        format!("another drain has taken over log {log}: the position should be {expected}, {found}");
    Err(Error::new(Kind::Fenced, message))
}

fn write_dead_letter(
    connection: &Connection,
    batch: &Batch,
    change: &Change,
    error: &Error,
) -> Result<(), Error> {
    let schema = &batch.schemas[change.table];
    let (op, row) = letter::of(schema, &change.op);
    let position = i64::try_from(change.position).unwrap_or(i64::MAX);
    let sql = "INSERT INTO forebay_dead_letter (log, position, table_name, op, row, reason, at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let (log, now) = (log_text(batch.log), Timestamp::now().to_string());
    connection
        .prepare_cached(sql)
        .and_then(|mut letter| {
            letter.execute(params![log, position, schema.name, op, row, error.message(), now])
        })
        .map(drop)
        .map_err(map)
}

fn insert_many(session: &mut Session, schema: &Schema, rows: &[Row]) -> Result<(), Error> {
    let mut rest = rows;
    while !rest.is_empty() {
        session.begin(LOCK_WAIT)?;
        let done = match insert_slice(session, schema, rest) {
            Ok(done) => done,
            Err((done, error)) => {
                session.rollback();
                return Err(error.at_row(rows.len() - rest.len() + done));
            }
        };
        session.commit()?;
        rest = &rest[done..];
        if !rest.is_empty() {
            session.serve_direct();
        }
    }
    Ok(())
}

/// Inserts until direct writes want the writer; how many rows that were.
fn insert_slice(session: &Session, schema: &Schema, rows: &[Row]) -> Result<usize, (usize, Error)> {
    let began = Instant::now();
    let mut statements = TableStatements::new(&session.connection, schema);
    for (done, row) in rows.iter().enumerate() {
        let may_yield = done >= YIELD_FLOOR && done % YIELD_EVERY == 0;
        if may_yield && session.others_wait() && began.elapsed() >= SLICE {
            return Ok(done);
        }
        statements.insert(row).map_err(|error| (done, error))?;
    }
    Ok(rows.len())
}
