//! Blocks of serial keys from SQLite's own sequence table, so that plain INSERTs and hot tables share one key
//! space.
//!
//! AUTOINCREMENT gives the next row `max(sqlite_sequence.seq, largest rowid) + 1` and stores it in
//! `sqlite_sequence`, which ordinary statements may change (<https://www.sqlite.org/autoinc.html>). Reserving
//! a block is raising `seq` by its length, in a transaction that holds the write lock and is durable before
//! the block is handed out.

use super::Sqlite;
use super::errors::map;
use super::schema::quoted;
use super::writer::Session;
use crate::{Error, Kind};
use forebay_value::{KeyKind, Schema};
use rusqlite::{OptionalExtension, params};
use std::ops::RangeInclusive;

impl Sqlite {
    pub(crate) async fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> Result<Vec<RangeInclusive<i64>>, Error> {
        let count = i64::try_from(count.max(1)).map_err(|_| exhausted(&schema.name))?;
        let table = Sequence::of(schema)?;
        let reserve = move |session: &mut Session| {
            session.transaction(|session| {
                let last = table.last(session)?;
                let end = last.checked_add(count).ok_or_else(|| exhausted(&table.name))?;
                table.set(session, end)?;
                Ok(vec![last + 1..=end])
            })
        };
        self.writer.urgent(reserve).await
    }

    pub(crate) async fn raise_keys(&self, schema: &Schema, at_least: i64) -> Result<(), Error> {
        let table = Sequence::of(schema)?;
        let raise = move |session: &mut Session| {
            session.transaction(|session| {
                if table.last(session)? < at_least {
                    table.set(session, at_least)?;
                }
                Ok(())
            })
        };
        self.writer.urgent(raise).await
    }
}

fn exhausted(table: &str) -> Error {
    Error::new(Kind::Full, format!("no serial keys left: the sequence of table {table} is at its end"))
}

/// The sequence of one table.
struct Sequence {
    name: String,
    largest_sql: String,
}

impl Sequence {
    fn of(schema: &Schema) -> Result<Sequence, Error> {
        if schema.key_kind != KeyKind::Serial {
            return Err(Error::new(Kind::Schema, format!("the key of table {} is not serial", schema.name)));
        }
        let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
        let largest_sql = format!("SELECT max({key}) FROM {table}");
        Ok(Sequence { name: schema.name.clone(), largest_sql })
    }

    /// The largest key that was ever handed out or inserted; 0 when there is none.
    fn last(&self, session: &Session) -> Result<i64, Error> {
        let connection = &session.connection;
        // Without AUTOINCREMENT plain INSERTs would take the keys of a reserved block.
        let auto = "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        let sql: Option<String> = connection
            .prepare_cached(auto)
            .and_then(|mut s| s.query_row([&self.name], |row| row.get(0)).optional())
            .map_err(map)?;
        match sql {
            Some(sql) if super::schema::is_autoincrement(&sql) => {}
            Some(_) => {
                let message = format!(
                    "the key of table {} must be INTEGER PRIMARY KEY AUTOINCREMENT to be serial",
                    self.name
                );
                return Err(Error::new(Kind::Schema, message));
            }
            None => return Err(Error::new(Kind::Syntax, format!("no such table: {}", self.name))),
        }
        let sequence: Option<i64> = connection
            .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")
            .and_then(|mut s| s.query_row([&self.name], |row| row.get(0)).optional())
            .map_err(map)?;
        let largest: Option<i64> = connection
            .prepare_cached(&self.largest_sql)
            .and_then(|mut s| s.query_row([], |row| row.get(0)))
            .map_err(map)?;
        Ok(sequence.unwrap_or(0).max(largest.unwrap_or(0)).max(0))
    }

    fn set(&self, session: &Session, last: i64) -> Result<(), Error> {
        let connection = &session.connection;
        let changed = connection
            .prepare_cached("UPDATE sqlite_sequence SET seq = ?2 WHERE name = ?1")
            .and_then(|mut s| s.execute(params![self.name, last]))
            .map_err(map)?;
        if changed == 0 {
            connection
                .prepare_cached("INSERT INTO sqlite_sequence (name, seq) VALUES (?1, ?2)")
                .and_then(|mut s| s.execute(params![self.name, last]))
                .map_err(map)?;
        }
        Ok(())
    }
}
