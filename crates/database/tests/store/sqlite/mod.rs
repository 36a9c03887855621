//! What only SQLite does, or does differently: files, locks of other processes, one writer.

mod applying;
mod concurrency;
mod errors;
mod follow;
mod keys;
mod tables;

use forebay_database::{Error, Options, Rows, Store};
use forebay_value::Value;
use std::path::PathBuf;

/// A database in a scratch folder.
pub(crate) struct Scratch {
    pub(crate) store: Store,
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Scratch {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/records.db");
        let store = Store::open(&format!("sqlite:{}", path.display()), options).unwrap();
        Scratch { store, path, _folder: folder }
    }

    /// The view of another process: a separate connection.
    pub(crate) fn plain(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(&self.path).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection
    }

    pub(crate) fn execute(&self, sql: &str) {
        self.plain().execute_batch(sql).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.plain().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn text(&self, sql: &str) -> String {
        self.plain().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) async fn run(&self, sql: &str, params: Vec<Value>) -> Result<Rows, Error> {
        let statement = self.store.prepare(sql).await?;
        self.store.run(&statement, params).await
    }
}
