//! A SQLite database as another process sees it.

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Params};
use std::path::Path;
use std::time::Duration;

/// A SQLite file, opened beside the server that writes it.
pub struct Database(Connection);

impl Database {
    /// Opens an existing file.
    #[track_caller]
    pub fn open(path: &Path) -> Database {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)
            .unwrap_or_else(|error| panic!("{} cannot be opened: {error}", path.display()));
        connection.busy_timeout(Duration::from_secs(20)).expect("a time-out can be set");
        Database(connection)
    }

    /// The first column of the first row.
    #[track_caller]
    pub fn one(&self, sql: &str, params: impl Params) -> Value {
        self.0.query_row(sql, params, |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The same as a number.
    #[track_caller]
    pub fn number(&self, sql: &str, params: impl Params) -> i64 {
        match self.one(sql, params) {
            Value::Integer(number) => number,
            other => panic!("{sql}: {other:?} is not a number"),
        }
    }

    /// The same as text.
    #[track_caller]
    pub fn text(&self, sql: &str, params: impl Params) -> String {
        match self.one(sql, params) {
            Value::Text(text) => text,
            other => panic!("{sql}: {other:?} is not a text"),
        }
    }

    /// The rows of a query.
    #[track_caller]
    pub fn rows(&self, sql: &str, params: impl Params) -> Vec<Vec<Value>> {
        let mut statement = self.0.prepare(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let columns = statement.column_count();
        let rows = statement.query_map(params, |row| (0..columns).map(|place| row.get(place)).collect());
        rows.and_then(Iterator::collect).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Runs statements that change the database.
    #[track_caller]
    pub fn change(&self, sql: &str) {
        self.0.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The connection, for operations that this type lacks.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.0
    }
}
