//! `forebay_held`: rows are inserted and deleted in the drain's transaction, and read by the drain that
//! settles.

use super::Sqlite;
use super::errors::map;
use super::positions::{has_table, log_id, log_text, timestamp};
use crate::dead_letter::{EncodedChange, plain};
use crate::unwritten_dead_letters::{Letters, of_letters};
use crate::{Batch, Change, DeadLetter, Error, Held, HeldId};
use forebay_value::Timestamp;
use rusqlite::{Connection, Row, params};

pub(super) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS forebay_held (
  log TEXT NOT NULL,
  position INTEGER NOT NULL,
  table_name TEXT NOT NULL,
  op TEXT NOT NULL,
  row TEXT NOT NULL,
  reason TEXT NOT NULL,
  at TIMESTAMP TEXT NOT NULL,
  change BLOB NOT NULL,
  key_hash INTEGER NOT NULL,
  PRIMARY KEY (log, position)
);
CREATE INDEX IF NOT EXISTS forebay_held_key ON forebay_held (key_hash);";

/// Distinguishes this database from others, in one row.
pub(super) const IDENTITY: &str = "
CREATE TABLE IF NOT EXISTS forebay_database (id TEXT PRIMARY KEY NOT NULL);
INSERT INTO forebay_database
  SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM forebay_database);";

impl Sqlite {
    pub(crate) async fn held(&self) -> Result<Vec<Held>, Error> {
        let sql = "SELECT log, position, table_name, op, row, reason, at, change, key_hash FROM forebay_held ORDER BY log, position";
        self.readers.submit(move |connection| collect(connection, sql, [], read)).await
    }

    pub(crate) async fn held_of(&self, log: u128) -> Result<Vec<(HeldId, i64)>, Error> {
        let sql = "SELECT position, key_hash FROM forebay_held WHERE log = ?1 ORDER BY position";
        let one = move |row: &Row<'_>| {
            let position: i64 = row.get(0).map_err(map)?;
            let key_hash = row.get(1).map_err(map)?;
            Ok((HeldId { log, position: position.unsigned_abs() }, key_hash))
        };
        self.readers.submit(move |connection| collect(connection, sql, [log_text(log)], one)).await
    }

    /// The number of held changes, and when the oldest was held.
    pub(crate) async fn held_count(&self) -> Result<Option<(u64, Timestamp)>, Error> {
        let sql = "SELECT count(*), min(at) FROM forebay_held HAVING count(*) > 0";
        let one = |row: &Row<'_>| {
            let count: i64 = row.get(0).map_err(map)?;
            Ok((count.unsigned_abs(), timestamp(row, 1)?))
        };
        let found = self.readers.submit(move |connection| collect(connection, sql, [], one)).await?;
        Ok(found.into_iter().next())
    }
}

fn collect<T>(
    connection: &Connection,
    sql: &str,
    values: impl rusqlite::Params,
    read: impl Fn(&Row<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    if !has_table(connection, "forebay_held").map_err(map)? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut rows = statement.query(values).map_err(map)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(map)? {
        found.push(read(row)?);
    }
    Ok(found)
}

fn read(row: &Row<'_>) -> Result<Held, Error> {
    let position: i64 = row.get(1).map_err(map)?;
    let id = HeldId { log: log_id(row, 0)?, position: position.unsigned_abs() };
    let letter = DeadLetter {
        id: 0,
        log: id.log,
        position: id.position,
        table: row.get(2).map_err(map)?,
        op: row.get(3).map_err(map)?,
        row: row.get(4).map_err(map)?,
        reason: row.get(5).map_err(map)?,
        at: timestamp(row, 6)?,
        change: row.get(7).map_err(map)?,
    };
    Ok(Held { id, key_hash: row.get(8).map_err(map)?, letter })
}

/// Checks that the changes that a batch settles are held, in the open transaction. SQLite has one writer at a
/// time.
pub(super) fn check(connection: &Connection, batch: &Batch) -> Result<(), Error> {
    let mut there = connection
        .prepare_cached("SELECT 1 FROM forebay_held WHERE log = ?1 AND position = ?2")
        .map_err(map)?;
    let mut found = 0;
    for id in &batch.held.settles {
        found +=
            usize::from(there.exists(params![log_text(id.log), id.position.cast_signed()]).map_err(map)?);
    }
    if found == batch.held.settles.len() { Ok(()) } else { Err(batch.not_held(found)) }
}

/// Deletes held changes, in the open transaction.
pub(super) fn remove(connection: &Connection, settled: &[HeldId]) -> Result<(), Error> {
    let mut delete = connection
        .prepare_cached("DELETE FROM forebay_held WHERE log = ?1 AND position = ?2")
        .map_err(map)?;
    for id in settled {
        delete.execute(params![log_text(id.log), id.position.cast_signed()]).map_err(map)?;
    }
    Ok(())
}

/// Holds a change, in the open transaction. `index` is the index of the refused change, for the error.
pub(super) fn hold(
    connection: &Connection,
    batch: &Batch,
    change: &Change,
    index: usize,
    reason: &Error,
    letters: &Letters,
) -> Result<(), Error> {
    let schema = &batch.schemas[change.table];
    if let Some(broken) = &letters.broken {
        return Err(Error::no_letter(index, &schema.name, reason, broken.message()));
    }
    let kept = EncodedChange::of(schema, &change.op);
    let values = params![
        log_text(batch.log),
        change.position.cast_signed(),
        schema.name,
        kept.op,
        plain(&kept.row, false),
        plain(reason.message(), false),
        Timestamp::now().to_string(),
        kept.change,
        kept.key_hash,
    ];
    let sql = "INSERT INTO forebay_held (log, position, table_name, op, row, reason, at, change, key_hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let written = connection.prepare_cached(sql).and_then(|mut insert| insert.execute(values));
    written.map(drop).map_err(|error| of_letters(map(error)))
}

/// Whether changes of a row are held.
pub(super) fn has_key(connection: &Connection, key_hash: i64) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM forebay_held WHERE key_hash = ?1";
    connection.prepare_cached(sql).and_then(|mut held| held.exists([key_hash])).map_err(map)
}
