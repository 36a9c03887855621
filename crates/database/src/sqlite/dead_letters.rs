//! Refused changes: written in the transaction that could not apply them, read, marked when they are
//! superseded, and replayed.
//!
//! `crate::dead_letter` describes the contents of a dead letter and when it may be replayed. What must stay
//! true: a dead letter can be written whatever the row contains; one that the database does not accept at all
//! is stored elsewhere (`crate::unwritten_dead_letters`) before the transaction is committed.

use super::change::TableStatements;
use super::errors::{map, of_change};
use super::positions::{self, has_table, log_id, log_text, timestamp};
use super::scan::row_of;
use super::writer::Session;
use super::{Sqlite, held_changes};
use crate::dead_letter::{EncodedChange, Outstanding, Seen, image, key_hash, newer_is_held, plain, replayed};
use crate::limits::LETTERS_LOOKED_AT;
use crate::unwritten_dead_letters::Letters;
use crate::{Batch, Change, DeadLetter, Error, Kind, Op, UnwrittenDeadLetter};
use forebay_value::{Schema, Timestamp, Value};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::Arc;

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS forebay_dead_letter (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  log TEXT NOT NULL,
  position INTEGER NOT NULL,
  table_name TEXT NOT NULL,
  op TEXT NOT NULL,
  row TEXT NOT NULL,
  reason TEXT NOT NULL,
  at TIMESTAMP TEXT NOT NULL
);";

/// Columns that an earlier version did not have.
const COLUMNS: &str = "
ALTER TABLE forebay_dead_letter ADD COLUMN change BLOB;
ALTER TABLE forebay_dead_letter ADD COLUMN seen BLOB;
ALTER TABLE forebay_dead_letter ADD COLUMN key_hash INTEGER;
ALTER TABLE forebay_dead_letter ADD COLUMN superseded_by INTEGER;
CREATE INDEX forebay_dead_letter_key ON forebay_dead_letter (key_hash) WHERE superseded_by IS NULL;";

/// Creates the drain's tables, or alters them from the form of an earlier version.
pub(super) fn make_drain_tables(session: &mut Session) -> Result<(), Error> {
    if !session.has_drain_tables {
        positions::make_table(&session.connection)?;
        session.connection.execute_batch(TABLE).map_err(map)?;
        session.connection.execute_batch(held_changes::TABLE).map_err(map)?;
        session.connection.execute_batch(held_changes::IDENTITY).map_err(map)?;
        if !has_columns(&session.connection)? {
            session.connection.execute_batch(COLUMNS).map_err(map)?;
        }
        session.has_drain_tables = true;
    }
    Ok(())
}

fn has_columns(connection: &Connection) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM pragma_table_info('forebay_dead_letter') WHERE name = 'key_hash'";
    connection.prepare(sql).and_then(|mut statement| statement.exists([])).map_err(map)
}

impl Sqlite {
    pub(crate) async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        let read =
            move |connection: &Connection| read_letters(connection, "ORDER BY id DESC", i64::MIN, limit);
        self.readers.submit(read).await
    }

    pub(crate) async fn dead_letters_after(
        &self,
        after: i64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.readers.submit(move |connection| read_letters(connection, "ORDER BY id", after, limit)).await
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

    pub(crate) async fn write_letters(&self, letters: Vec<UnwrittenDeadLetter>) -> Result<(), Error> {
        let write = move |session: &mut Session| {
            session.transaction(|session| {
                make_drain_tables(session)?;
                write_unwritten(&session.connection, &letters)
            })
        };
        self.writer.urgent(write).await
    }

    /// Applies a dead letter's change again and deletes the dead letter, both or neither. False: the dead
    /// letter no longer exists.
    pub(crate) async fn replay(&self, schema: &Arc<Schema>, letter: &DeadLetter) -> Result<bool, Error> {
        let (op, schema, id) = (letter.change(schema)?, schema.clone(), letter.id);
        let replay = move |session: &mut Session| {
            session.transaction(|session| {
                make_drain_tables(session)?;
                replay(&session.connection, &schema, op, id)
            })
        };
        self.writer.urgent(replay).await
    }
}

fn replay(connection: &Connection, schema: &Schema, op: Op, id: i64) -> Result<bool, Error> {
    let sql = "DELETE FROM forebay_dead_letter WHERE id = ?1 RETURNING seen, superseded_by";
    let deleted: Option<(Option<Vec<u8>>, Option<i64>)> =
        connection.query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?))).optional().map_err(map)?;
    let Some((seen, superseded_by)) = deleted else { return Ok(false) };
    if let Some(position) = superseded_by {
        let message = format!("its key was changed again (log position {position}): what is newer is kept");
        return Err(Error::new(Kind::Newer, message));
    }
    let key: Value = op.key(schema).to_owned();
    let before = row_of(connection, schema, key.as_ref())?;
    let hash = key_hash(schema, &op);
    if held_changes::has_key(connection, hash)? {
        return Err(newer_is_held());
    }
    let op = replayed(schema, op, &Seen::of(seen.as_deref()), before.as_ref())?;
    let mut statements = TableStatements::new(connection, schema)?;
    statements.execute(&op).map_err(|error| of_change(error, schema))?;
    let after = row_of(connection, schema, key.as_ref())?;
    let [before, after] = [before, after].map(|row| image(schema, row.as_ref()));
    let sql = "UPDATE forebay_dead_letter SET seen = ?1 WHERE key_hash = ?2 AND seen = ?3 AND id > ?4";
    connection.execute(sql, params![after, hash, before, id]).map_err(map)?;
    Ok(true)
}

/// The dead letters that changes of this transaction may supersede.
pub(super) fn outstanding(connection: &Connection) -> Result<Outstanding, Error> {
    let sql = format!(
        "SELECT key_hash FROM forebay_dead_letter WHERE superseded_by IS NULL AND key_hash IS NOT NULL LIMIT {LETTERS_LOOKED_AT}"
    );
    let hashes: Result<Vec<i64>, _> = connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect());
    Ok(Outstanding::of(hashes.map_err(map)?))
}

/// Marks the dead letters whose key this applied change has changed again.
pub(super) fn supersede(
    connection: &Connection,
    batch: &Batch,
    change: &Change,
    letters: &Outstanding,
) -> Result<(), Error> {
    for hash in letters.hit(&batch.schemas, std::slice::from_ref(change)) {
        let sql =
            "UPDATE forebay_dead_letter SET superseded_by = ?1 WHERE superseded_by IS NULL AND key_hash = ?2";
        let position = change.position.cast_signed();
        connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([position, hash]))
            .map_err(map)?;
    }
    Ok(())
}

/// Writes the dead letter of a refused change in the open transaction, or stores it elsewhere when the
/// database does not accept it; returns whether the database contains it.
pub(super) fn write(
    connection: &Connection,
    batch: &Batch,
    index: usize,
    error: &Error,
    letters: &mut Letters,
) -> Result<bool, Error> {
    let change = &batch.changes[index];
    let schema = &batch.schemas[change.table];
    let kept = EncodedChange::of(schema, &change.op);
    let seen = match row_of(connection, schema, change.op.key(schema)) {
        Ok(row) => Some(image(schema, row.as_ref())),
        Err(error) if error.may_retry() => return Err(error),
        Err(_) => None,
    };
    let values = params![
        log_text(batch.log_of(index)),
        change.position.cast_signed(),
        schema.name,
        kept.op,
        plain(&kept.row, false),
        plain(error.message(), false),
        Timestamp::now().to_string(),
        kept.change,
        seen,
        kept.key_hash,
    ];
    let written = match &letters.broken {
        None => insert(connection, values),
        Some(broken) => Err(broken.clone()),
    };
    let failed = match written {
        Ok(()) => {
            letters.outstanding.add(kept.key_hash);
            return Ok(true);
        }
        Err(failed) if failed.may_retry() => return Err(failed),
        Err(failed) => failed,
    };
    letters.keep(batch, index, kept, seen, error, &failed).map(|()| false)
}

fn insert(connection: &Connection, values: impl rusqlite::Params) -> Result<(), Error> {
    let sql = "INSERT INTO forebay_dead_letter (log, position, table_name, op, row, reason, at, change, seen, key_hash) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    connection.prepare_cached(sql).and_then(|mut letter| letter.execute(values)).map(drop).map_err(map)
}

fn write_unwritten(connection: &Connection, letters: &[UnwrittenDeadLetter]) -> Result<(), Error> {
    for letter in letters {
        let (log, position) = (log_text(letter.log), letter.position.cast_signed());
        let there = "SELECT 1 FROM forebay_dead_letter WHERE log = ?1 AND position = ?2";
        let is_there =
            connection.prepare_cached(there).and_then(|mut there| there.exists(params![log, position]));
        if is_there.map_err(map)? {
            continue;
        }
        let values = params![
            log,
            position,
            letter.table,
            letter.op,
            plain(&letter.row, false),
            plain(&letter.reason, false),
            letter.at.to_string(),
            letter.change,
            letter.seen,
            letter.key_hash,
        ];
        insert(connection, values)?;
    }
    Ok(())
}

fn count_letters(connection: &Connection, filter: &str, values: impl rusqlite::Params) -> Result<u64, Error> {
    if !has_table(connection, "forebay_dead_letter").map_err(map)? {
        return Ok(0);
    }
    let sql = format!("SELECT count(*) FROM forebay_dead_letter WHERE {filter}");
    let count: i64 = connection.query_row(&sql, values, |row| row.get(0)).map_err(map)?;
    Ok(count.unsigned_abs())
}

fn read_letters(
    connection: &Connection,
    order: &str,
    after: i64,
    limit: usize,
) -> Result<Vec<DeadLetter>, Error> {
    if !has_table(connection, "forebay_dead_letter").map_err(map)? {
        return Ok(Vec::new());
    }
    let change = if has_columns(connection)? { "change" } else { "NULL" };
    let sql = format!(
        "SELECT id, log, position, table_name, op, row, reason, at, {change} FROM forebay_dead_letter WHERE id > ?1 {order} LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(map)?;
    let mut rows = statement.query([after, i64::try_from(limit).unwrap_or(i64::MAX)]).map_err(map)?;
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
            change: row.get(8).map_err(map)?,
        });
    }
    Ok(letters)
}
