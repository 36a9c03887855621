//! The handle that all callers use, and the seam between it and the engines.
//!
//! Every method describes what each engine must do; `Engine` is matched here and nowhere else.

use crate::follower::{Follower, Following};
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;
use crate::{
    Acting, Applied, Batch, Cascades, Claim, Claimed, DeadLetter, DeadLetterStorage, Dialect, Enforced,
    Error, Follow, Growing, Held, HeldId, Kind, Options, Planning, References, Rows, Scan, ScannedRows,
    ServerFacts, Statement, StoredPosition, UnwrittenDeadLetter,
};
use forebay_value::{Form, Row, Schema, Timestamp, Type, Value};
use futures_util::future::Either;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// A database. Cheap to clone; when the last clone is dropped, it finishes what is queued and closes the
/// database.
#[derive(Debug, Clone)]
pub struct Store {
    engine: Engine,
}

#[derive(Debug, Clone)]
enum Engine {
    Sqlite(Arc<Sqlite>),
    Postgres(Arc<Postgres>),
}

/// Makes the same call on either engine.
macro_rules! on {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.engine {
            Engine::Sqlite($engine) => $call,
            Engine::Postgres($engine) => $call,
        }
    };
}

impl Store {
    /// Opens `sqlite:PATH` (created when missing, with its folders; a relative path is relative to the
    /// working directory), or connects to `postgres://USER:PASSWORD@HOST/DATABASE`. Blocks until the first
    /// connection is open or has failed: [`Kind::Url`] when the server refuses the URL, [`Kind::Unavailable`]
    /// when the server is unreachable.
    pub fn open(url: &str, options: Options) -> Result<Store, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        match scheme {
            "sqlite" => {
                let path = rest.strip_prefix("//").unwrap_or(rest);
                if path.is_empty() || path == ":memory:" || path.contains(['?', '\0']) {
                    let message = format!(
                        "the database {url:?} names no file; write sqlite:PATH, such as sqlite:data/records.db"
                    );
                    return Err(Error::new(Kind::Url, message));
                }
                Ok(Store { engine: Engine::Sqlite(Arc::new(Sqlite::open(Path::new(path), &options)?)) })
            }
            "postgres" | "postgresql" => {
                Ok(Store { engine: Engine::Postgres(Arc::new(Postgres::open(url, &options)?)) })
            }
            _ => {
                let shown = match scheme {
                    "" => "it has no scheme".into(),
                    scheme => format!("{scheme}: is unknown"),
                };
                Err(Error::new(
                    Kind::Url,
                    format!(
                        "cannot use the database's URL: {shown}; write sqlite:PATH or postgres://USER@HOST/DATABASE"
                    ),
                ))
            }
        }
    }

    /// The server's facts; `None`: there is no server.
    pub fn facts(&self) -> Option<ServerFacts> {
        match &self.engine {
            Engine::Sqlite(_) => None,
            Engine::Postgres(postgres) => Some(postgres.facts),
        }
    }

    /// Whether the server was unreachable when the database was opened ([`Options::known`]).
    pub fn was_away(&self) -> bool {
        matches!(&self.engine, Engine::Postgres(postgres) if postgres.was_away)
    }

    /// The database's SQL dialect.
    pub fn dialect(&self) -> Dialect {
        if matches!(self.engine, Engine::Sqlite(_)) { Dialect::Sqlite } else { Dialect::Postgres }
    }

    /// How long a statement runs at most after [`Store::run`] has started it, whether or not a caller waits
    /// for it.
    pub fn statement_limit(&self) -> Duration {
        on!(self, engine => engine.statement_limit())
    }

    /// Its URL without secrets, for people.
    pub fn describe_url(&self) -> String {
        match &self.engine {
            Engine::Sqlite(sqlite) => format!("sqlite:{}", sqlite.path().display()),
            Engine::Postgres(postgres) => postgres.shown().to_owned(),
        }
    }

    /// Whether requests can reach the database, without asking it: for SQLite, whether its file is still in
    /// place; for PostgreSQL, whether a connection for requests is open or may be opened.
    ///
    /// # Errors
    /// Why requests cannot reach it.
    pub fn availability(&self) -> Result<(), Error> {
        on!(self, engine => engine.availability())
    }

    /// The schema of our own tables, if they have one.
    pub fn own_schema(&self) -> Option<&str> {
        on!(self, engine => engine.own_schema())
    }

    /// Reads a table's schema from the database; `None` when there is no such table.
    pub async fn describe(&self, table: &str) -> Result<Option<Schema>, Error> {
        on!(self, engine => engine.describe(table).await)
    }

    /// What the database enforces on a table at present; `None` when there is no such table.
    pub async fn enforced(&self, schema: &Schema) -> Result<Option<Enforced>, Error> {
        on!(self, engine => engine.enforced(schema).await)
    }

    /// The values of defaults that the database computes ([`Fill::Asked`](forebay_value::Fill::Asked)), for
    /// one row. `asked`: the types of the columns, and the defaults.
    ///
    /// # Errors
    /// [`Kind::Type`] when a default is no value of its column's type.
    pub async fn defaults(&self, asked: Vec<(Type, Box<str>)>) -> Result<Vec<Value>, Error> {
        let types: Vec<Type> = asked.iter().map(|(ty, _)| *ty).collect();
        let values = on!(self, engine => engine.defaults(asked).await?);
        let fit = values.iter().zip(&types).filter(|(value, ty)| value.as_ref().fits(**ty)).count();
        match fit == types.len() {
            true => Ok(values),
            false => Err(Error::new(Kind::Type, "a default is no value of its column's type")),
        }
    }

    /// The text in which the database stores a text; of `None`, NULL.
    ///
    /// # Errors
    /// When the database refuses it, or its type has changed since the form was read.
    pub async fn form(&self, form: &Form, text: Option<Box<str>>) -> Result<Value, Error> {
        on!(self, engine => engine.form(form, text).await)
    }

    /// Creates a table (and its indexes), with types and defaults such that plain SQL works on it.
    /// [`Kind::Schema`] when a table of that name exists.
    pub async fn create_table(&self, schema: &Schema) -> Result<(), Error> {
        on!(self, engine => engine.create_table(schema).await)
    }

    /// Checks a statement: exactly one, with `$name` parameters, that names only existing things.
    pub async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        on!(self, engine => engine.prepare(sql).await)
    }

    /// Runs a statement with one value for each of its parameters. The statement is queued at once, not at
    /// the first poll; when the future is dropped before the statement started, it is not run.
    ///
    /// Writes that arrive together share a transaction; each is atomic by itself and answered after the
    /// commit.
    pub fn run(
        &self,
        statement: &Statement,
        params: Vec<Value>,
    ) -> impl Future<Output = Result<Rows, Error>> + Send + use<> {
        match &self.engine {
            Engine::Sqlite(sqlite) => Either::Left(sqlite.run(statement, params)),
            Engine::Postgres(postgres) => Either::Right(postgres.run(statement, params)),
        }
    }

    /// Whether the statement writes, as far as is known after its last run: its text says so, or the database
    /// has refused to run it as a read (a function that writes).
    pub fn writes(&self, statement: &Statement) -> bool {
        match &self.engine {
            Engine::Sqlite(_) => statement.writes,
            Engine::Postgres(postgres) => postgres.writes(statement),
        }
    }

    /// The names of all tables that statements find without a schema's name, in order; without Forebay's own.
    pub async fn tables(&self) -> Result<Vec<String>, Error> {
        on!(self, engine => engine.tables().await)
    }

    /// The parts of a statement's plan whose cost grows with a table. Runs nothing.
    pub async fn growing(&self, sql: &str, planning: Planning) -> Result<Vec<Growing>, Error> {
        on!(self, engine => engine.growing(sql, planning).await)
    }

    /// Runs the statements that are requested on this thread on this thread's runtime, which must be the
    /// current one: thread `thread` of `threads`. A statement then wakes no other thread, which is most of
    /// its cost under little load. For PostgreSQL; SQLite's calls block and keep their own threads.
    pub fn serve_here(&self, thread: usize, threads: usize) {
        match &self.engine {
            Engine::Sqlite(_) => {}
            Engine::Postgres(postgres) => postgres.serve_here(thread, threads),
        }
    }

    /// Reserves about `count` serial keys, at least 1, durably, as blocks that count up by one: neither this
    /// function nor plain SQL hands them out again, unless the sequence does.
    pub async fn next_keys(&self, schema: &Schema, count: u64) -> Result<Vec<RangeInclusive<i64>>, Error> {
        on!(self, engine => engine.next_keys(schema, count).await)
    }

    /// Makes every serial key handed out from now on larger than `at_least`.
    pub async fn raise_keys(&self, schema: &Schema, at_least: i64) -> Result<(), Error> {
        on!(self, engine => engine.raise_keys(schema, at_least).await)
    }

    /// One row by its key.
    pub async fn fetch(&self, schema: &Schema, key: Value) -> Result<Option<Row>, Error> {
        on!(self, engine => engine.fetch(schema, key).await)
    }

    /// As [`Store::fetch`], with the drain's position of `log` in that same moment and the note beside it.
    pub async fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
    ) -> Result<(u64, String, Option<Row>), Error> {
        on!(self, engine => engine.fetch_at(schema, key, log).await)
    }

    /// All rows (or those for which the SQL expression `filter` is true) as of one moment, in the order that
    /// the database reads fastest, on a separate thread; dropping the receiver ends the scan.
    pub fn scan(&self, schema: &Schema, filter: Option<&str>) -> mpsc::Receiver<Result<ScannedRows, Error>> {
        on!(self, engine => engine.scan(schema, filter))
    }

    /// As [`Store::scan`], with the drain position of `log` in that same moment.
    pub async fn scan_at(&self, schema: &Schema, filter: Option<&str>, log: u128) -> Result<Scan, Error> {
        on!(self, engine => engine.scan_at(schema, filter, log).await)
    }

    /// [`Store::as_stored`] for a table that has all columns.
    pub(crate) async fn whole_as_stored(&self, schema: &Schema, rows: Vec<Row>) -> Result<Vec<Row>, Error> {
        match &self.engine {
            // SQLite columns are declared for our texts, and store them unchanged.
            Engine::Sqlite(_) => Ok(rows),
            Engine::Postgres(engine) => engine.as_stored(schema, rows).await,
        }
    }

    /// How many rows the table has.
    pub async fn count(&self, schema: &Schema) -> Result<u64, Error> {
        on!(self, engine => engine.count(schema).await)
    }

    /// The approximate number of rows, from the database's statistics; `None`: there are none.
    pub async fn rows_estimated(&self, schema: &Schema) -> Result<Option<u64>, Error> {
        on!(self, engine => engine.rows_estimated(schema).await)
    }

    /// The drain positions of all logs that were ever drained into this store.
    pub async fn positions(&self) -> Result<Vec<StoredPosition>, Error> {
        on!(self, engine => engine.positions().await)
    }

    /// The drain position of one log.
    pub async fn position(&self, log: u128) -> Result<Option<u64>, Error> {
        Ok(self.positions().await?.iter().find(|stored| stored.log == log).map(|stored| stored.position))
    }

    /// As [`Store::position`], after any transaction that is moving the position has ended: a drain must ask
    /// this before it continues. [`Kind::Busy`] when such a transaction does not end.
    pub async fn settled_position(&self, log: u128) -> Result<Option<u64>, Error> {
        on!(self, engine => engine.settled_position(log).await)
    }

    /// Replaces a log's opening `before` (empty: none yet) by `after`, once a transaction that is moving its
    /// position has ended. Returns position and note from then on, which no batch of `before` can move any
    /// more. `None`: the log has another opening. [`Kind::Busy`] when that transaction does not end.
    pub async fn fence(&self, log: u128, before: &str, after: &str) -> Result<Option<(u64, String)>, Error> {
        on!(self, engine => engine.fence(log, before, after).await)
    }

    /// Claims tables and the positions of the queues that carry their changes, in one transaction.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        on!(self, engine => engine.claim(claim).await)
    }

    /// Releases a log's claim on tables, if the claim is that of `opening`: another server may claim them at
    /// once.
    /// `pending` is how much the database lacks of the log.
    pub async fn release_claim(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        on!(self, engine => engine.release_claim(log, opening, pending).await)
    }

    /// Stores how much the database is known to lack of a log, for the servers that claim its tables later.
    pub async fn set_pending(&self, log: u128, opening: &str, pending: u64) -> Result<(), Error> {
        on!(self, engine => engine.set_pending(log, opening, pending).await)
    }

    /// Whether a log has ever had a position in this database: if it has none now, that was lost.
    pub async fn has_known(&self, log: u128) -> Result<bool, Error> {
        on!(self, engine => engine.has_known(log).await)
    }

    /// Which changes of these tables act on other rows, or are acted on by triggers and rules.
    pub async fn acting(&self, schemas: &[Arc<Schema>]) -> Result<Acting, Error> {
        on!(self, engine => engine.acting(schemas).await)
    }

    /// Applies a batch in one transaction with its position; durable when it returns. An error leaves nothing
    /// of the batch behind, except [`Kind::UnknownOutcome`]: then the stored position shows the outcome.
    pub async fn apply(&self, batch: Batch) -> Result<Applied, Error> {
        self.apply_keeping(batch, None).await
    }

    /// The same; a dead letter that `forebay_dead_letter` does not accept is stored in `elsewhere`. Without
    /// `elsewhere` the batch fails ([`Kind::DeadLetter`]).
    pub async fn apply_keeping(
        &self,
        batch: Batch,
        elsewhere: Option<Arc<dyn DeadLetterStorage>>,
    ) -> Result<Applied, Error> {
        on!(self, engine => engine.apply(batch, elsewhere).await)
    }

    /// Writes dead letters that were stored elsewhere into `forebay_dead_letter`, in one transaction; one
    /// that exists already stays as it is.
    pub async fn write_letters(&self, letters: Vec<UnwrittenDeadLetter>) -> Result<(), Error> {
        on!(self, engine => engine.write_letters(letters).await)
    }

    /// Inserts rows in bulk: in one transaction when no writer waits, otherwise with commits between slices,
    /// so that an error may leave a first part of the rows in the table.
    pub async fn insert_many(&self, schema: &Arc<Schema>, rows: Vec<Row>) -> Result<(), Error> {
        on!(self, engine => engine.insert_many(schema, rows).await)
    }

    /// Ends a bulk insert. PostgreSQL marks the rows as visible to all and updates its statistics (`VACUUM
    /// (ANALYZE)`): otherwise the first reader of the table does the former, page by page, and queries are
    /// planned for an empty table until the latter has happened.
    pub async fn settle(&self, schema: &Schema) -> Result<(), Error> {
        match &self.engine {
            Engine::Postgres(postgres) => postgres.settle(schema).await,
            Engine::Sqlite(_) => Ok(()),
        }
    }

    /// Deletes all rows; serial keys start at 1 again.
    pub async fn clear(&self, schema: &Schema) -> Result<(), Error> {
        on!(self, engine => engine.clear(schema).await)
    }

    /// The newest dead letters, newest first.
    pub async fn dead_letters(&self, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        on!(self, engine => engine.dead_letters(limit).await)
    }

    /// The dead letters with ids above `after`, oldest first: the order in which to replay them.
    pub async fn dead_letters_after(&self, after: i64, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        on!(self, engine => engine.dead_letters_after(after, limit).await)
    }

    /// Applies a dead letter's change again, to the table as `schema` describes it, and deletes the dead
    /// letter, in one transaction. False when the dead letter no longer exists: another process has replayed
    /// it. A change that is refused again ([`Error::is_data`]) leaves the dead letter in place.
    pub async fn replay(&self, schema: &Arc<Schema>, letter: &DeadLetter) -> Result<bool, Error> {
        on!(self, engine => engine.replay(schema, letter).await)
    }

    /// Distinguishes this database from others: drawn at random at the first call, and stored in the
    /// database. A copy of the database has the same identity.
    pub async fn identity(&self) -> Result<String, Error> {
        on!(self, engine => engine.identity().await)
    }

    /// All held changes: those of one log in that log's order.
    pub async fn held(&self) -> Result<Vec<Held>, Error> {
        on!(self, engine => engine.held().await)
    }

    /// The held changes of one log, with the hashes of their keys
    /// ([`Change::key_hash`](crate::Change::key_hash)); in the log's order.
    pub async fn held_of(&self, log: u128) -> Result<Vec<(HeldId, i64)>, Error> {
        on!(self, engine => engine.held_of(log).await)
    }

    /// The number of held changes of all logs, and when the oldest was held; `None`: there are none.
    pub async fn held_count(&self) -> Result<Option<(u64, Timestamp)>, Error> {
        on!(self, engine => engine.held_count().await)
    }

    /// The foreign keys between all tables. Waits for no lock on a table.
    pub async fn references(&self) -> Result<References, Error> {
        on!(self, engine => engine.references().await)
    }

    /// Which deletes in these tables act, through foreign keys, on rows of which of the tables.
    pub async fn cascades(&self, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
        on!(self, engine => engine.cascades(schemas).await)
    }

    /// For each row (the index of its table, its key), the rows of these tables on which its delete acts.
    pub async fn reached(
        &self,
        cascades: &Arc<Cascades>,
        schemas: &[Arc<Schema>],
        rows: Vec<(usize, Value)>,
    ) -> Result<Vec<Vec<(usize, Value)>>, Error> {
        let (cascades, schemas) = (cascades.clone(), schemas.to_vec());
        on!(self, engine => engine.reached(cascades, schemas, rows).await)
    }

    /// The number of dead letters.
    pub async fn dead_letter_count(&self) -> Result<u64, Error> {
        on!(self, engine => engine.dead_letter_count().await)
    }

    /// The number of dead letters of one table, from one log.
    pub async fn dead_letter_count_of(&self, log: u128, table: &str) -> Result<u64, Error> {
        on!(self, engine => engine.dead_letter_count_of(log, table).await)
    }

    /// Starts to follow tables for the server with this log: creates what is missing in the database and
    /// takes the first snapshot. [`Follower::poll`] reports what is committed from then on; rows that are
    /// read after this returns are no older.
    pub async fn follow(&self, log: u128, tables: Vec<Follow>) -> Result<Follower, Error> {
        Ok(self.follow_from(log, tables, None).await?.0)
    }

    /// The same, from a place of an earlier follower of this log ([`Follower::place`]), as far as the
    /// database has retained what was committed since. Returns, for each table, whether it continues from
    /// there: for the others, only what is committed from now on is reported.
    pub async fn follow_from(
        &self,
        log: u128,
        tables: Vec<Follow>,
        place: Option<&str>,
    ) -> Result<(Follower, Vec<bool>), Error> {
        let (engine, goes_on) = match &self.engine {
            Engine::Sqlite(sqlite) => {
                let (follower, goes_on) = sqlite.follow(log, tables, place).await?;
                (Following::Sqlite(follower), goes_on)
            }
            Engine::Postgres(postgres) => {
                let (follower, goes_on) = postgres.follow(log, tables, place).await?;
                (Following::Postgres(follower), goes_on)
            }
        };
        Ok((Follower { engine }, goes_on))
    }

    /// How these tables would be followed, in words: how changes would be reported, and why a cheaper way is
    /// not used. Changes nothing.
    pub async fn could_follow(&self, tables: Vec<Follow>) -> Result<String, Error> {
        match &self.engine {
            Engine::Sqlite(_) => Ok("triggers".into()),
            Engine::Postgres(postgres) => postgres.could_follow(tables).await,
        }
    }

    /// Why a start could not follow this table, in a sentence that says what to do; `None`: it could. Changes
    /// nothing.
    pub async fn cannot_follow(&self, table: Follow) -> Result<Option<String>, Error> {
        on!(self, engine => engine.cannot_follow(table).await)
    }

    /// The replication slots of servers that do not run, each in words. The database retains WAL for them.
    pub async fn idle_slots(&self) -> Result<Vec<String>, Error> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(Vec::new()),
            Engine::Postgres(postgres) => postgres.idle_slots(None).await,
        }
    }

    /// Removes the objects that following created in the database, once no server follows; returns their
    /// names.
    pub async fn unfollow(&self) -> Result<Vec<String>, Error> {
        on!(self, engine => engine.unfollow().await)
    }

    /// As [`Store::unfollow`], and removes the tables of the drain, once everything is drained.
    ///
    /// # Errors
    /// [`Kind::Schema`]: a server needs them, or they hold changes that would be lost; nothing is removed.
    pub async fn remove_all(&self) -> Result<Vec<String>, Error> {
        on!(self, engine => engine.remove_all().await)
    }
}
