//! SQLite: one file, one writer thread, a pool of reader threads; never on a worker of the server.
//!
//! What must stay true: only the writer's connection can change the file (the readers' are `query_only`), it
//! commits with `synchronous = FULL` in WAL mode, and it checks before each transaction that the file is
//! still the one that it opened. Other processes (`sqlite3`) may use the file at the same time; waits for
//! their locks are limited.

mod acting;
mod apply;
mod cascades;
mod change;
mod claims;
mod dead_letters;
mod defaults;
mod enforced;
mod errors;
pub(crate) mod follow;
mod held_changes;
mod open;
mod positions;
mod query_plan;
mod readers;
mod scan;
mod schema;
mod serial_keys;
mod statement;
mod time_form;
mod times;
mod types;
mod writer;

use crate::limits::OPEN_LOCK_WAIT_MS;
use crate::{Error, Options, Rows, Statement};
use forebay_value::{Form, Schema, Type, Value};
use futures_util::future::Either;
use open::{Identity, Role};
use readers::Readers;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use writer::{Direct, Writer};

/// An open SQLite database.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    identity: Identity,
    writer: Writer,
    readers: Readers,
    timeout: Duration,
}

impl Sqlite {
    /// Opens or creates the file, and starts the threads.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Sqlite, Error> {
        let timeout = Duration::from_millis(options.statement_timeout_ms);
        open::create(path)?;
        let (connection, deadline) = open::connect(path, Role::Writer)?;
        deadline.set(Duration::from_millis(OPEN_LOCK_WAIT_MS));
        Sqlite::leave_dropped(&connection).map_err(|error| error.context(path.display()))?;
        deadline.clear();
        let connection = (connection, deadline);
        let identity = Identity::of(path)?;
        let writer = Writer::start(connection, identity.clone(), options.queue, timeout)?;
        let readers = Readers::start(path, options.readers, options.queue, timeout)?;
        Ok(Sqlite { path: path.to_owned(), identity, writer, readers, timeout })
    }

    /// A write may wait twice its timeout for its turn, then once for the lock, and then runs.
    pub(crate) fn statement_limit(&self) -> Duration {
        self.timeout * 4
    }

    /// The file's path, as it was given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Why the file cannot be written to, if so.
    pub(crate) fn availability(&self) -> Result<(), Error> {
        self.identity.check()
    }

    pub(crate) async fn describe(&self, table: &str) -> Result<Option<Schema>, Error> {
        let table = table.to_owned();
        self.readers.submit(move |connection| schema::describe(connection, &table)).await
    }

    /// The values of defaults for one row.
    pub(crate) async fn defaults(&self, asked: Vec<(Type, Box<str>)>) -> Result<Vec<Value>, Error> {
        let evaluate = move |_: &rusqlite::Connection| {
            asked.iter().map(|(ty, definition)| defaults::evaluate(*ty, definition)).collect()
        };
        self.readers.submit(evaluate).await
    }

    /// No column of SQLite has a form.
    pub(crate) async fn form(&self, _: &Form, text: Option<Box<str>>) -> Result<Value, Error> {
        Ok(text.map_or(Value::Null, Value::Text))
    }

    pub(crate) async fn tables(&self) -> Result<Vec<String>, Error> {
        self.readers.submit(schema::tables).await
    }

    pub(crate) async fn create_table(&self, schema: &Schema) -> Result<(), Error> {
        let sql = schema::create_sql(schema)?;
        let create = move |session: &mut writer::Session| {
            session.transaction(|session| session.connection.execute_batch(&sql).map_err(errors::map))
        };
        self.writer
            .urgent(create)
            .await
            .map_err(|error| error.context(format!("cannot create table {}", schema.name)))
    }

    pub(crate) async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        let sql = sql.to_owned();
        self.readers.submit(move |connection| statement::check(connection, &sql)).await
    }

    pub(crate) fn run(
        &self,
        statement: &Statement,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Rows, Error>> + Send + use<> {
        let (sql, columns) = (statement.sql.clone(), statement.columns.clone());
        if statement.writes {
            let (answer, answered) = oneshot::channel();
            self.writer.submit(Direct { sql, params, columns, arrived: Instant::now(), answer });
            return Either::Left(async move { answered.await.unwrap_or_else(|_| Err(writer::lost())) });
        }
        let run =
            move |connection: &rusqlite::Connection| statement::execute(connection, &sql, &params, &columns);
        Either::Right(self.readers.submit(run))
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        // The readers first: the last connection to close copies the write-ahead log into the file.
        self.readers.stop();
        self.writer.stop();
    }
}
