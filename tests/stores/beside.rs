//! An existing table in PostgreSQL or SQLite, with the embedded tier; other clients change it by SQL.

use forebay_tests::{Folder, Server, Start, Stores, binary, wait_for};
use std::path::PathBuf;

/// A folder, a database with tables in it, and a config that leaves the columns to the database.
pub struct Beside {
    pub folder: Folder,
    pub stores: Stores,
    config: PathBuf,
    params: &'static str,
}

impl Beside {
    /// Makes the tables by SQL, then writes the config.
    #[track_caller]
    pub fn new(sql: &str, config: &str) -> Beside {
        Beside::on(Stores::postgres(), sql, config)
    }

    /// As [`Beside::new`], on these stores.
    #[track_caller]
    pub fn on(stores: Stores, sql: &str, config: &str) -> Beside {
        let folder = Folder::new();
        let config = folder.write("beside.toml", config);
        let beside = Beside { folder, stores, config, params: "" };
        if beside.stores.is_postgres() {
            beside.sql(sql);
        } else {
            let made = rusqlite::Connection::open(beside.folder.database()).expect("a file can be made");
            made.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        }
        beside
    }

    /// With these parameters of the database's URL.
    pub fn by(self, params: &'static str) -> Beside {
        Beside { params, ..self }
    }

    /// A server on this folder and database.
    pub fn start(&self) -> Start {
        let start = Start::new(binary(), &self.folder, &self.config).stores(&self.stores, &self.folder);
        match self.params {
            "" => start,
            params => start.database(&format!("{}{params}", self.stores.database_url(&self.folder))),
        }
    }

    /// Runs SQL as another client; returns the rows.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.stores.archive(&self.folder).rows(sql)
    }

    /// The only value of a query.
    #[track_caller]
    pub fn text(&self, sql: &str) -> String {
        self.stores.archive(&self.folder).text(sql)
    }

    /// Waits until a query returns this text.
    #[track_caller]
    pub fn wait_for_text(&self, server: &Server, sql: &str, expected: &str) {
        let archive = self.stores.archive(&self.folder);
        let what = format!("`{sql}` gives {expected}");
        wait_for(&what, || {
            let is_there = archive.rows(sql).first().is_some_and(|row| row[0].as_deref() == Some(expected));
            is_there.then_some(()).or_else(|| {
                let status = server.admin("GET", "/drain").json();
                assert_ne!(status["status"], "fenced", "{status}");
                None
            })
        });
    }

    /// The number of dead letters.
    #[track_caller]
    pub fn dead_letters(&self) -> i64 {
        let there = match self.stores.is_postgres() {
            true => "SELECT to_regclass('forebay_dead_letter')::text",
            false => "SELECT (SELECT name FROM sqlite_master WHERE name = 'forebay_dead_letter')",
        };
        match self.sql(there)[0][0] {
            None => 0,
            Some(_) => self.stores.archive(&self.folder).number("SELECT count(*) FROM forebay_dead_letter"),
        }
    }
}
