//! The database as another client sees it, SQLite or PostgreSQL: takes SQL, returns texts.

use crate::Database;
use postgres::{NoTls, SimpleQueryMessage};
use rusqlite::types::Value;
use std::cell::RefCell;
use std::path::Path;

/// A database, opened beside the server that writes it.
pub enum Archive {
    /// A SQLite file.
    Sqlite(Database),
    /// A PostgreSQL database.
    Postgres(Box<RefCell<postgres::Client>>),
}

impl Archive {
    /// Opens an existing SQLite file.
    #[track_caller]
    pub fn sqlite(path: &Path) -> Archive {
        Archive::Sqlite(Database::open(path))
    }

    /// Connects to an existing PostgreSQL database.
    #[track_caller]
    pub fn postgres(url: &str) -> Archive {
        let mut client =
            postgres::Client::connect(url, NoTls).unwrap_or_else(|error| panic!("{url}: {error}"));
        // Forebay's own tables are named as in SQLite.
        client.batch_execute("SET search_path = \"$user\", public, _forebay").expect("a search path");
        Archive::Postgres(Box::new(RefCell::new(client)))
    }

    /// All rows, every value as text; NULL is `None`.
    #[track_caller]
    pub fn rows(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        match self {
            Archive::Sqlite(database) => {
                let rows = database.rows(sql, []).into_iter();
                rows.map(|row| row.into_iter().map(text_of).collect()).collect()
            }
            Archive::Postgres(client) => {
                let messages =
                    client.borrow_mut().simple_query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
                let rows = messages.into_iter().filter_map(|message| match message {
                    SimpleQueryMessage::Row(row) => Some(row),
                    _ => None,
                });
                rows.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()).collect()
            }
        }
    }

    /// The first column of the only row.
    #[track_caller]
    pub fn text(&self, sql: &str) -> String {
        let rows = self.rows(sql);
        match rows.as_slice() {
            [row] => row[0].clone().unwrap_or_else(|| panic!("{sql}: NULL")),
            _ => panic!("{sql}: {} rows", rows.len()),
        }
    }

    /// [`Archive::text`] as a number.
    #[track_caller]
    pub fn number(&self, sql: &str) -> i64 {
        let text = self.text(sql);
        text.parse().unwrap_or_else(|_| panic!("{sql}: {text:?} is not a number"))
    }

    /// An SQL expression that formats a timestamp column as the server writes it, except for trailing zeros
    /// of its fraction.
    pub fn time(&self, column: &str) -> String {
        match self {
            Archive::Sqlite(_) => {
                format!("replace({column}, ' ', 'T') || iif(instr({column}, '.'), 'Z', '.000000Z')")
            }
            Archive::Postgres(_) => {
                format!(
                    "to_char({column}::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
                )
            }
        }
    }

    /// An SQL expression for a timestamp column as seconds since 1970, by the database's own functions.
    pub fn seconds(&self, column: &str) -> String {
        match self {
            Archive::Sqlite(_) => format!("CAST(strftime('%s', {column}) AS INTEGER)"),
            Archive::Postgres(_) => format!("floor(extract(epoch FROM {column}::timestamptz))::bigint"),
        }
    }
}

fn text_of(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Integer(number) => Some(number.to_string()),
        Value::Real(number) => Some(number.to_string()),
        Value::Text(text) => Some(text),
        Value::Blob(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
    }
}
