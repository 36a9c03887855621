//! The handle that all callers hold, and the seam between it and the engines.
//!
//! Every method says what any engine must do; `Engine` is matched here and nowhere else.

use crate::follower::{Follower, Following};
use crate::postgres::Postgres;
use crate::sqlite::Sqlite;
use crate::{
    Applied, Batch, Cascades, Claim, Claimed, DeadLetter, Enforced, Error, Follow, Growing, Held, HeldId,
    KeepLetters, Kind, Options, Planning, Rows, Scan, ServerFacts, Statement, StoredPosition,
    UnwrittenLetter,
};
use forebay_value::{Row, Schema, Timestamp, Value};
use futures_util::future::Either;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Which SQL a store understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite's.
    Sqlite,
    /// PostgreSQL's.
    Postgres,
}

/// A database. Cheap to clone; the last clone that is dropped finishes what is queued and closes the
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

/// The same call on whichever engine there is.
macro_rules! on {
    ($store:expr, $engine:ident => $call:expr) => {
        match &$store.engine {
            Engine::Sqlite($engine) => $call,
            Engine::Postgres($engine) => $call,
        }
    };
}

impl Store {
    /// Opens `sqlite:PATH` (created when missing, with its folders; a relative path is taken as the process
    /// has it), or connects to `postgres://USER:PASSWORD@HOST/DATABASE`. Blocks until the first connection is
    /// there, or has failed: [`Kind::Url`] when the server refuses what the URL says, [`Kind::Unavailable`]
    /// when it is away.
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
                let engine = Engine::Sqlite(Arc::new(Sqlite::open(Path::new(path), &options)?));
                Ok(Store { engine })
            }
            "postgres" | "postgresql" => {
                let engine = Engine::Postgres(Arc::new(Postgres::open(url, &options)?));
                Ok(Store { engine })
            }
            _ => {
                let shown = if scheme.is_empty() {
                    "it has no scheme".into()
                } else {
                    format!("{scheme}: is unknown")
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

    /// What the server has said of itself; `None`: there is no server.
    pub fn facts(&self) -> Option<ServerFacts> {
        match &self.engine {
            Engine::Sqlite(_) => None,
            Engine::Postgres(postgres) => Some(postgres.facts),
        }
    }

    /// Whether it was away when it was opened ([`Options::known`]).
    pub fn was_away(&self) -> bool {
        matches!(&self.engine, Engine::Postgres(postgres) if postgres.was_away)
    }

    /// Which SQL it understands.
    pub fn dialect(&self) -> Dialect {
        match &self.engine {
            Engine::Sqlite(_) => Dialect::Sqlite,
            Engine::Postgres(_) => Dialect::Postgres,
        }
    }

    /// How long a statement goes on at most once [`Store::run`] has begun it, whether or not a caller waits
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

    /// Whether requests reach it, as far as is known without asking it: for SQLite, whether its file is where
    /// it was; for PostgreSQL, whether a connection for requests can be had.
    ///
    /// # Errors
    /// Why they do not.
    pub fn availability(&self) -> Result<(), Error> {
        on!(self, engine => engine.availability())
    }

    /// Reads a table's schema from the store; `None` when there is no such table.
    pub async fn describe(&self, table: &str) -> Result<Option<Schema>, Error> {
        on!(self, engine => engine.describe(table).await)
    }

    /// What the store enforces on a table, as it is now; nothing when there is no such table.
    pub async fn enforced(&self, schema: &Schema) -> Result<Enforced, Error> {
        on!(self, engine => engine.enforced(schema).await)
    }

    /// Makes a table (and its indexes), with types and defaults such that plain SQL works on it.
    /// [`Kind::Schema`] when a table of that name is there.
    pub async fn create_table(&self, schema: &Schema) -> Result<(), Error> {
        on!(self, engine => engine.create_table(schema).await)
    }

    /// Checks a statement: one, with `$name` parameters, that names nothing which is not there.
    pub async fn prepare(&self, sql: &str) -> Result<Statement, Error> {
        on!(self, engine => engine.prepare(sql).await)
    }

    /// Runs a statement with one value for each of its parameters. It is queued at once, not at the first
    /// poll; when the future is dropped before the statement began, it is not run.
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

    /// The names of all tables that statements find without a schema's name, in order; Forebay's own are left
    /// out.
    pub async fn tables(&self) -> Result<Vec<String>, Error> {
        on!(self, engine => engine.tables().await)
    }

    /// What of a statement's plan grows with a table. Runs nothing.
    pub async fn growing(&self, sql: &str, planning: Planning) -> Result<Vec<Growing>, Error> {
        on!(self, engine => engine.growing(sql, planning).await)
    }

    /// Has statements that are asked for on this thread run on this thread's runtime, which is asked at its
    /// start: thread `thread` of `threads`. A statement then wakes no other thread, which is most of what it
    /// costs when there are few. For PostgreSQL; SQLite's calls block and keep their own threads.
    pub fn serve_here(&self, thread: usize, threads: usize) {
        match &self.engine {
            Engine::Sqlite(_) => {}
            Engine::Postgres(postgres) => postgres.serve_here(thread, threads),
        }
    }

    /// Reserves `count` serial keys (at least 1), durably, that neither this nor plain SQL will hand out
    /// again.
    pub async fn next_keys(&self, schema: &Schema, count: u64) -> Result<RangeInclusive<i64>, Error> {
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

    /// As [`Store::fetch`], as of a moment at which everything of `log` before `position` is in the store:
    /// [`Kind::Unavailable`] when it is not, because the store has lost commits.
    pub async fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
        position: u64,
    ) -> Result<Option<Row>, Error> {
        let (found, row) = on!(self, engine => engine.fetch_at(schema, key, log).await?);
        if found >= position {
            return Ok(row);
        }
        let message = "the database has lost its last commits; they come back from the log";
        Err(Error::new(Kind::Unavailable, message))
    }

    /// All rows (or those for which the SQL expression `filter` is true) as of one moment, in the order the
    /// store reads fastest, on a thread of its own; dropping the receiver ends it.
    pub fn scan(&self, schema: &Schema, filter: Option<&str>) -> mpsc::Receiver<Result<Vec<Row>, Error>> {
        on!(self, engine => engine.scan(schema, filter))
    }

    /// As [`Store::scan`], with the drain position of `log` in that same moment.
    pub async fn scan_at(&self, schema: &Schema, filter: Option<&str>, log: u128) -> Result<Scan, Error> {
        on!(self, engine => engine.scan_at(schema, filter, log).await)
    }

    /// What these rows become when the table takes them and gives them back: its columns may pad, round, or
    /// put in order what they are given. A row that it would refuse stays as it is. Changes nothing.
    pub async fn as_stored(&self, schema: &Schema, rows: Vec<Row>) -> Result<Vec<Row>, Error> {
        match &self.engine {
            // Columns here are made for our texts, and keep them.
            Engine::Sqlite(_) => Ok(rows),
            Engine::Postgres(engine) => engine.as_stored(schema, rows).await,
        }
    }

    /// How many rows the table has.
    pub async fn count(&self, schema: &Schema) -> Result<u64, Error> {
        on!(self, engine => engine.count(schema).await)
    }

    /// About how many rows the table has, by what the database knows without counting them; `None`: it does
    /// not know.
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

    /// As [`Store::position`], after any transaction that is moving it has ended: what a
    /// drain must ask before it goes on. [`Kind::Busy`] when one does not end.
    pub async fn settled_position(&self, log: u128) -> Result<Option<u64>, Error> {
        on!(self, engine => engine.settled_position(log).await)
    }

    /// Gives a log the opening `after` if it has `before` (empty: none yet), after a transaction that is
    /// moving its position has ended: its position and note from then on, which no batch of `before` moves
    /// any more. `None`: it has another opening. [`Kind::Busy`] when that transaction does not end.
    pub async fn fence(&self, log: u128, before: &str, after: &str) -> Result<Option<(u64, String)>, Error> {
        on!(self, engine => engine.fence(log, before, after).await)
    }

    /// Claims tables and the positions of the queues that their changes come from, in one transaction.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, Error> {
        on!(self, engine => engine.claim(claim).await)
    }

    /// Gives a log's claim on tables back, if it is that of `opening`: another server may claim them at once.
    pub async fn give_back(&self, log: u128, opening: &str) -> Result<(), Error> {
        on!(self, engine => engine.give_back(log, opening).await)
    }

    /// Applies a batch in one transaction with its position; durable when it returns. Errors leave nothing of
    /// it behind, except [`Kind::UnknownOutcome`]: then the store's position tells.
    pub async fn apply(&self, batch: Batch) -> Result<Applied, Error> {
        self.apply_keeping(batch, None).await
    }

    /// The same; a letter that `forebay_dead_letter` does not take is kept in `elsewhere`. Without that, the
    /// batch fails ([`Kind::DeadLetter`]).
    pub async fn apply_keeping(
        &self,
        batch: Batch,
        elsewhere: Option<Arc<dyn KeepLetters>>,
    ) -> Result<Applied, Error> {
        on!(self, engine => engine.apply(batch, elsewhere).await)
    }

    /// Writes letters that were kept elsewhere into `forebay_dead_letter`, in one transaction; one that is
    /// there already stays as it is.
    pub async fn write_letters(&self, letters: Vec<UnwrittenLetter>) -> Result<(), Error> {
        on!(self, engine => engine.write_letters(letters).await)
    }

    /// Inserts rows in bulk: one transaction when no writer waits, else commits between slices, so that
    /// after an error a first part of the rows may be there.
    pub async fn insert_many(&self, schema: &Arc<Schema>, rows: Vec<Row>) -> Result<(), Error> {
        on!(self, engine => engine.insert_many(schema, rows).await)
    }

    /// Tells the store that the inserting is over. PostgreSQL marks the rows as seen by all and counts them
    /// (`VACUUM (ANALYZE)`): otherwise the first to read the table does the one, page by page, and queries
    /// are planned for an empty table until the other has happened.
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

    /// Applies a dead letter's change again, to the table as `schema` has it, and deletes the letter: one
    /// transaction, both or neither. False when the letter is gone: another process has replayed it. What is
    /// refused again ([`Error::is_data`]) leaves the letter where it is.
    pub async fn replay(&self, schema: &Arc<Schema>, letter: &DeadLetter) -> Result<bool, Error> {
        on!(self, engine => engine.replay(schema, letter).await)
    }

    /// What tells this database from others: drawn at random when it is first asked for, and kept in it. A
    /// copy of the database has the same.
    pub async fn identity(&self) -> Result<String, Error> {
        on!(self, engine => engine.identity().await)
    }

    /// All held changes: those of one log in the order of that log.
    pub async fn held(&self) -> Result<Vec<Held>, Error> {
        on!(self, engine => engine.held().await)
    }

    /// Which changes of one log are held, with the hashes of their keys ([`Change::key_hash`]); in the order
    /// of the log.
    pub async fn held_of(&self, log: u128) -> Result<Vec<(HeldId, i64)>, Error> {
        on!(self, engine => engine.held_of(log).await)
    }

    /// How many changes are held, of whichever log, and since when; `None`: none is.
    pub async fn held_count(&self) -> Result<Option<(u64, Timestamp)>, Error> {
        on!(self, engine => engine.held_count().await)
    }

    /// Which deletes of these tables act on rows of which others of them, by foreign keys.
    pub async fn cascades(&self, schemas: &[Arc<Schema>]) -> Result<Cascades, Error> {
        on!(self, engine => engine.cascades(schemas).await)
    }

    /// For each of some rows, the rows of these tables that its delete would act on. A row is the index of
    /// its table, and its key.
    pub async fn reached(
        &self,
        cascades: &Arc<Cascades>,
        schemas: &[Arc<Schema>],
        rows: Vec<(usize, Value)>,
    ) -> Result<Vec<Vec<(usize, Value)>>, Error> {
        let (cascades, schemas) = (cascades.clone(), schemas.to_vec());
        on!(self, engine => engine.reached(cascades, schemas, rows).await)
    }

    /// How many dead letters there are.
    pub async fn dead_letter_count(&self) -> Result<u64, Error> {
        on!(self, engine => engine.dead_letter_count().await)
    }

    /// How many dead letters of one table there are, from one log.
    pub async fn dead_letter_count_of(&self, log: u128, table: &str) -> Result<u64, Error> {
        on!(self, engine => engine.dead_letter_count_of(log, table).await)
    }

    /// Begins to follow tables for the server whose log this is: makes the triggers that are missing and
    /// takes the first snapshot. What is committed from then on is told by [`Follower::poll`]; rows that are
    /// read after this returns are no older.
    pub async fn follow(&self, log: u128, tables: Vec<Follow>) -> Result<Follower, Error> {
        Ok(self.follow_from(log, tables, None).await?.0)
    }

    /// The same; from a place that an earlier follower of this log had ([`Follower::place`]), as far as the
    /// database has kept what was committed since. For each table, whether it goes on from there: of the
    /// others, what is committed from now on is told.
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

    /// How these tables would be followed, in words: who would tell of changes, and why not a way that would
    /// cost less. Makes nothing.
    pub async fn could_follow(&self, tables: Vec<Follow>) -> Result<String, Error> {
        match &self.engine {
            Engine::Sqlite(_) => Ok("triggers".into()),
            Engine::Postgres(postgres) => postgres.could_follow(tables).await,
        }
    }

    /// The replication slots of servers that do not run: each in words. The database keeps WAL for them.
    pub async fn idle_slots(&self) -> Result<Vec<String>, Error> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(Vec::new()),
            Engine::Postgres(postgres) => postgres.idle_slots(None).await,
        }
    }

    /// Removes what following has made in the database, once no server follows; what that was.
    pub async fn unfollow(&self) -> Result<Vec<String>, Error> {
        on!(self, engine => engine.unfollow().await)
    }
}
