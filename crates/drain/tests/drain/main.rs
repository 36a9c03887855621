//! The drain over a real log, real tables and a real database; one file a topic.

mod acting;
mod faults;
mod model;
mod postgres;
mod starting;
mod stopping;
mod verifying;

use forebay_database::Store;
use forebay_drain::{Drain, LastPosition, NewDatabase, Progress, Settings, reconcile, warm};
use forebay_log::{Log, Position};
use forebay_table::{BoxFuture, Others, Source, SourceError, Table, TableSpec, Tables, WriteError};
use forebay_value::{Column, KeyKind, Row, RowRef, Schema, Type, Value};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A server's data folder and its database.
pub(crate) struct World {
    pub(crate) log: Log,
    pub(crate) tables: Tables,
    pub(crate) store: Store,
    /// The database's file, or its URL.
    pub(crate) url: String,
    pub(crate) data: PathBuf,
}

pub(crate) struct DatabaseSource(pub(crate) Store);

impl Source for DatabaseSource {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        let (store, schema) = (self.0.clone(), schema.clone());
        Box::pin(async move { store.next_keys(&schema, count).await.map_err(source_error) })
    }

    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let (store, schema) = (self.0.clone(), schema.clone());
        Box::pin(async move { store.fetch(&schema, key).await.map_err(source_error) })
    }
}

fn source_error(error: forebay_database::Error) -> SourceError {
    SourceError { message: error.to_string(), retry: error.may_retry() }
}

impl World {
    /// Opens everything as a server's start does: log, database, missing tables, rows loaded, log replayed.
    pub(crate) async fn open(folder: &Path) -> World {
        World::open_parts(&folder.join("data"), &folder.join("records.db"), false).await
    }

    pub(crate) async fn open_parts(data: &Path, database: &Path, shared: bool) -> World {
        let store = Store::open(&format!("sqlite:{}", database.display()), Default::default()).unwrap();
        World::open_on(store, data, &database.display().to_string(), shared).await
    }

    pub(crate) async fn open_on(store: Store, data: &Path, url: &str, shared: bool) -> World {
        let mut options = forebay_log::Options::new(data.join("log"));
        options.segment_bytes = 1 << 20;
        let (log, _) = Log::open(options).unwrap();
        let source = Arc::new(DatabaseSource(store.clone()));
        let mut specs = Vec::new();
        for schema in [people(), hits()] {
            if store.describe(&schema.name).await.unwrap().is_none() {
                store.create_table(&schema).await.unwrap();
            }
            specs.push(TableSpec {
                schema,
                others: Others::unseen_if(shared),
                ordered: false,
                rules: Arc::default(),
            });
        }
        let tables = Tables::open(log.clone(), data, 1 << 30, specs, source).unwrap();
        let start = reconcile(&log, &store, &[], NewDatabase::Accept, &LastPosition::Unknown).await.unwrap();
        for table in tables.all() {
            warm(table, &store, None, &Arc::new(Progress::default())).await.unwrap();
        }
        let reached = start.reached();
        tables.replay_uneven(reached.all(), |table| reached.of(table)).unwrap();
        tables.all().iter().for_each(|table| table.set_loaded());
        World { log, tables, store, url: url.to_owned(), data: data.to_owned() }
    }

    pub(crate) fn people(&self) -> Arc<Table> {
        self.tables.get("people").unwrap()
    }

    pub(crate) fn hits(&self) -> Arc<Table> {
        self.tables.get("hits").unwrap()
    }

    /// Inserts into `people`; waits while the log's disk lags.
    pub(crate) fn insert(&self, row: RowRef<'_>) {
        while let Err(error) = self.people().insert(row) {
            assert_eq!(error, WriteError::Busy);
            self.end();
        }
    }

    pub(crate) fn drain(&self, settings: Settings) -> Drain {
        Drain::start(self.log.clone(), self.tables.clone(), self.store.clone(), settings).unwrap()
    }

    pub(crate) fn end(&self) -> Position {
        self.log.flush().unwrap()
    }

    pub(crate) fn plain(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(&self.url).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        connection
    }

    pub(crate) fn text(&self, sql: &str) -> String {
        self.plain().query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

pub(crate) fn column(name: &str, ty: Type) -> Column {
    Column { name: name.into(), ty, nullable: true, unique: false, indexed: false, fill: None }
}

/// `people(id bigint key, name text null, email text null unique, n bigint)`.
pub(crate) fn people() -> Schema {
    let columns = vec![
        Column { nullable: false, ..column("id", Type::Bigint) },
        column("name", Type::TEXT),
        Column { unique: true, ..column("email", Type::TEXT) },
        Column { nullable: false, ..column("n", Type::Bigint) },
    ];
    Schema::new("people", columns, 0, KeyKind::Bigint).unwrap()
}

/// `hits(code text key, n bigint)`.
pub(crate) fn hits() -> Schema {
    let key = Column { nullable: false, ..column("code", Type::TEXT) };
    let n = Column { nullable: false, ..column("n", Type::Bigint) };
    Schema::new("hits", vec![key, n], 0, KeyKind::Text).unwrap()
}

pub(crate) fn text(text: &str) -> Value {
    Value::Text(text.into())
}

pub(crate) fn person(id: i64, name: &str, email: Option<&str>, n: i64) -> Row {
    let email = email.map_or(Value::Null, text);
    Row::from_values(&people(), &[Value::Bigint(id), text(name), email, Value::Bigint(n)])
}

pub(crate) const PEOPLE: &str = "SELECT coalesce(group_concat(id || ':' || coalesce(name, '-') || ':' || coalesce(email, '-') || ':' || n, ' '), '') \
     FROM (SELECT * FROM people ORDER BY id)";

/// The files of a folder as they are now: what a crash would leave, except for the lock.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            // The log prepares segments in advance, under another name until they are used.
            let copied = std::fs::copy(entry.path(), target);
            assert!(copied.is_ok() || copied.unwrap_err().kind() == std::io::ErrorKind::NotFound);
        }
    }
}
