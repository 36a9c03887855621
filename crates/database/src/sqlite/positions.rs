//! How far each log is drained.
//!
//! What must stay true: a position moves in the transaction of the changes that it covers, by
//! compare-and-set, so that only one of two drains of one log succeeds.

use super::Sqlite;
use super::errors::map;
use super::writer::Session;
use crate::held_changes::{in_use, would_lose};
use crate::limits::CLAIM_MS;
use crate::{Batch, Error, Kind, StoredPosition};
use forebay_value::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS forebay_position (
  log TEXT PRIMARY KEY NOT NULL,
  position INTEGER NOT NULL,
  updated_at TIMESTAMP TEXT NOT NULL,
  note TEXT NOT NULL DEFAULT '',
  history TEXT NOT NULL DEFAULT '',
  tables TEXT NOT NULL DEFAULT '',
  server TEXT NOT NULL DEFAULT '',
  taken_by TEXT NOT NULL DEFAULT '',
  pending INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS forebay_log (log TEXT PRIMARY KEY NOT NULL);";

/// Columns that an earlier version did not have.
const ADDED: [(&str, &str); 6] = [
    ("note", "TEXT NOT NULL DEFAULT ''"),
    ("history", "TEXT NOT NULL DEFAULT ''"),
    ("tables", "TEXT NOT NULL DEFAULT ''"),
    ("server", "TEXT NOT NULL DEFAULT ''"),
    ("taken_by", "TEXT NOT NULL DEFAULT ''"),
    ("pending", "INTEGER NOT NULL DEFAULT 0"),
];

impl Sqlite {
    /// Our tables are beside the application's: see ARCHITECTURE.md.
    pub(crate) fn own_schema(&self) -> Option<&str> {
        None
    }

    pub(crate) async fn settled_position(&self, log: u128) -> Result<Option<u64>, Error> {
        // A transaction that writes holds the file's only write lock.
        let read =
            move |session: &mut Session| session.transaction(|session| position(&session.connection, log));
        self.writer.urgent(read).await
    }

    pub(crate) async fn positions(&self) -> Result<Vec<StoredPosition>, Error> {
        let read = |connection: &Connection| {
            if !has_table(connection, "forebay_position").map_err(map)? {
                return Ok(Vec::new());
            }
            let mut columns = String::new();
            for column in ["note", "history", "server", "taken_by"] {
                columns += if has_column(connection, column)? { ", " } else { ", '' AS " };
                columns += column;
            }
            let sql = format!(
                "SELECT log, position, updated_at{columns} FROM forebay_position ORDER BY updated_at"
            );
            let mut statement = connection.prepare_cached(&sql).map_err(map)?;
            let mut rows = statement.raw_query();
            let mut positions = Vec::new();
            while let Some(row) = rows.next().map_err(map)? {
                let position: i64 = row.get(1).map_err(map)?;
                positions.push(StoredPosition {
                    log: log_id(row, 0)?,
                    position: position.unsigned_abs(),
                    note: row.get(3).map_err(map)?,
                    opening: row.get(4).map_err(map)?,
                    server: row.get(5).map_err(map)?,
                    taken_by: row.get(6).map_err(map)?,
                    updated_at: timestamp(row, 2)?,
                });
            }
            Ok(positions)
        };
        self.readers.submit(read).await
    }
}

/// Creates the table, or alters it from the form of an earlier version.
pub(super) fn make_table(connection: &Connection) -> Result<(), Error> {
    connection.execute_batch(TABLE).map_err(map)?;
    for (column, declared) in ADDED {
        if !has_column(connection, column)? {
            let sql = format!("ALTER TABLE forebay_position ADD COLUMN {column} {declared}");
            connection.execute_batch(&sql).map_err(map)?;
        }
    }
    Ok(())
}

fn has_column(connection: &Connection, column: &str) -> Result<bool, Error> {
    connection
        .prepare_cached("SELECT 1 FROM pragma_table_info('forebay_position') WHERE name = ?1")
        .and_then(|mut statement| statement.exists([column]))
        .map_err(map)
}

pub(super) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .and_then(|mut statement| statement.exists([name]))
}

/// The stored position of one log, in the connection's present transaction.
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

/// The position of one log and its note, in the connection's present transaction.
pub(super) fn noted(connection: &Connection, log: u128) -> Result<(Option<u64>, String), Error> {
    Ok((position(connection, log)?, note(connection, log)?))
}

/// The note beside the position of one log, in the connection's present transaction.
pub(super) fn note(connection: &Connection, log: u128) -> Result<String, Error> {
    if !has_table(connection, "forebay_position").map_err(map)? || !has_column(connection, "note")? {
        return Ok(String::new());
    }
    let note = connection
        .prepare_cached("SELECT note FROM forebay_position WHERE log = ?1")
        .and_then(|mut statement| statement.query_row([log_text(log)], |row| row.get(0)).optional());
    Ok(note.map_err(map)?.unwrap_or_default())
}

pub(super) fn log_text(log: u128) -> String {
    format!("{log:032x}")
}

pub(super) fn log_id(row: &rusqlite::Row<'_>, index: usize) -> Result<u128, Error> {
    let text: String = row.get(index).map_err(map)?;
    u128::from_str_radix(&text, 16)
        .map_err(|source| Error::new(Kind::Corrupt, format!("{text:?} is no log id")).with_source(source))
}

pub(super) fn timestamp(row: &rusqlite::Row<'_>, index: usize) -> Result<Timestamp, Error> {
    let text: String = row.get(index).map_err(map)?;
    Timestamp::parse_stored(&text).ok_or_else(|| Error::new(Kind::Corrupt, format!("{text:?} is no time")))
}

/// A position in its stored form.
pub(super) fn stored(position: u64) -> Result<i64, Error> {
    i64::try_from(position)
        .map_err(|_| Error::new(Kind::Type, format!("position {position} is past 63 bits")))
}

/// Moves the position, in the open transaction.
pub(super) fn move_position(connection: &Connection, batch: &Batch) -> Result<(), Error> {
    let log = log_text(batch.log);
    let (to, now) = (stored(batch.to)?, Timestamp::now().to_string());
    let changed = match batch.from.map(stored).transpose()? {
        Some(from) => connection
            .prepare_cached(
                "UPDATE forebay_position SET position = ?2, updated_at = ?3, note = ?5
                 WHERE log = ?1 AND position = ?4 AND note = ?6 AND history = ?7 AND taken_by = ''",
            )
            .and_then(|mut statement| {
                statement.execute(params![
                    log,
                    to,
                    now,
                    from,
                    batch.note.to,
                    batch.note.from,
                    batch.opening
                ])
            }),
        None => connection
            .prepare_cached(
                "INSERT INTO forebay_position (log, position, updated_at, note, history) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (log) DO NOTHING",
            )
            .and_then(|mut statement| statement.execute(params![log, to, now, batch.note.to, batch.opening])),
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

/// Removes the drain's tables; those that hold what would be lost with them come first.
pub(super) fn remove(connection: &Connection) -> Result<Vec<String>, Error> {
    let mut removed = Vec::new();
    for table in
        ["forebay_dead_letter", "forebay_held", "forebay_position", "forebay_log", "forebay_database"]
    {
        if !has_table(connection, table).map_err(map)? {
            continue;
        }
        if table == "forebay_dead_letter" || table == "forebay_held" {
            let count = format!("SELECT count(*) FROM {table}");
            if connection.query_row(&count, [], |row| row.get::<_, i64>(0)).map_err(map)? > 0 {
                return Err(would_lose(table));
            }
        }
        if table == "forebay_position"
            && let Some(server) = user(connection).map_err(map)?
        {
            return Err(in_use(&server));
        }
        connection.execute_batch(&format!("DROP TABLE {table}")).map_err(map)?;
        removed.push(format!("table {table}"));
    }
    Ok(removed)
}

/// A server that needs the tables: it has changes that the database lacks, or has written a moment ago.
fn user(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let since = Timestamp(Timestamp::now().0 - CLAIM_MS.cast_signed() * 1_000).to_string();
    let sql = "SELECT server FROM forebay_position WHERE pending > 0 OR tables <> '' AND tables NOT LIKE '-%' AND updated_at > ?1";
    connection.query_row(sql, [since], |row| row.get(0)).optional()
}
