//! The stores that a test runs on: SQLite and memory in process, unless the environment names others.
//!
//! `FOREBAY_TEST_DATABASE=postgres` (or `pgbouncer`: the same through PgBouncer in transaction mode) uses
//! the PostgreSQL server that `FOREBAY_TEST_POSTGRES` names (`scripts/services` starts one), with a separate
//! database for each test. `FOREBAY_TEST_MEMORY` is the URL of a Redis or Valkey for tests (`forebay redis
//! up` starts one): it is emptied before each test, and one test at a time uses it. `scripts/contract` goes
//! through all pairs.

use crate::{Archive, Bouncer, Folder};
use postgres::NoTls;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Database and memory tier of one test.
pub struct Stores {
    database: Database,
    memory: Option<(String, MutexGuard<'static, ()>)>,
}

enum Database {
    Sqlite,
    Postgres(Scratch, Option<Bouncer>),
}

/// A database that is dropped with this value.
struct Scratch {
    server: String,
    name: String,
}

/// The URL of the PostgreSQL server that tests share.
pub(crate) fn postgres_url() -> String {
    variable("FOREBAY_TEST_POSTGRES")
        .expect("FOREBAY_TEST_POSTGRES names no server; `eval \"$(scripts/services env)\"` does, after `up`")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Stores {
    /// The stores that the environment names, new and empty.
    #[track_caller]
    pub fn new() -> Stores {
        let database = match variable("FOREBAY_TEST_DATABASE").as_deref() {
            None | Some("sqlite") => Database::Sqlite,
            Some("postgres") => Database::Postgres(Scratch::create(&postgres_url()), None),
            Some("pgbouncer") => Database::pooled(&postgres_url()),
            Some(other) => panic!("FOREBAY_TEST_DATABASE={other}: must be sqlite, postgres or pgbouncer"),
        };
        let memory = variable("FOREBAY_TEST_MEMORY").map(|url| {
            // A test that failed while it used the servers leaves nothing behind: they are emptied
            // below.
            let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            flush(&url).unwrap_or_else(|error| panic!("{url} cannot be emptied: {error}"));
            (url, turn)
        });
        Stores { database, memory }
    }

    /// PostgreSQL with a separate database, whatever the environment names; the test chooses the memory
    /// tier.
    #[track_caller]
    pub fn postgres() -> Stores {
        Stores { database: Database::Postgres(Scratch::create(&postgres_url()), None), memory: None }
    }

    /// SQLite, whatever the environment names; the test chooses the memory tier.
    pub fn sqlite() -> Stores {
        Stores { database: Database::Sqlite, memory: None }
    }

    /// Whether the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.database, Database::Postgres(..))
    }

    /// As [`Stores::postgres`], on this server.
    #[track_caller]
    pub fn postgres_at(server: &str) -> Stores {
        Stores { database: Database::Postgres(Scratch::create(server), None), memory: None }
    }

    /// As [`Stores::postgres`], through PgBouncer in transaction mode.
    #[track_caller]
    pub fn pgbouncer() -> Stores {
        Stores { database: Database::pooled(&postgres_url()), memory: None }
    }

    /// `HOST:PORT` of the PostgreSQL server itself.
    pub fn server_host() -> String {
        let url = postgres_url();
        let (_, rest) = url.rsplit_once('@').unwrap_or_else(|| panic!("{url} names no user"));
        rest.split(['/', '?']).next().unwrap_or_default().to_owned()
    }

    /// The value of the setting `database.url`.
    pub fn database_url(&self, folder: &Folder) -> String {
        match &self.database {
            Database::Sqlite => format!("sqlite:{}", folder.database().display()),
            Database::Postgres(scratch, None) => scratch.url(),
            Database::Postgres(scratch, Some(bouncer)) => bouncer.url(&scratch.name),
        }
    }

    /// `memory.url`, when it is not embedded.
    pub fn memory_url(&self) -> Option<&str> {
        self.memory.as_ref().map(|(url, _)| url.as_str())
    }

    /// A connection to the database, for checks.
    #[track_caller]
    pub fn archive(&self, folder: &Folder) -> Archive {
        match &self.database {
            Database::Sqlite => Archive::sqlite(&folder.database()),
            Database::Postgres(scratch, _) => Archive::postgres(&scratch.url()),
        }
    }
}

impl Default for Stores {
    fn default() -> Self {
        Stores::new()
    }
}

impl Database {
    #[track_caller]
    fn pooled(server: &str) -> Database {
        Database::Postgres(Scratch::create(server), Some(Bouncer::before(server)))
    }
}

impl Scratch {
    #[track_caller]
    fn create(server: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("forebay_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let postgres = Scratch { server: server.to_owned(), name };
        postgres.run(&format!("CREATE DATABASE {}", postgres.name));
        postgres
    }

    #[track_caller]
    fn run(&self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn try_run(&self, sql: &str) -> Result<(), postgres::Error> {
        postgres::Client::connect(&self.server, NoTls)?.batch_execute(sql)
    }

    fn url(&self) -> String {
        let (server, query) =
            self.server.split_once('?').map_or((self.server.as_str(), None), |(s, q)| (s, Some(q)));
        let host = server.find("://").map_or(0, |at| at + 3);
        let base = server[host..].find('/').map_or(server, |slash| &server[..host + slash]);
        format!("{base}/{}{}", self.name, query.map(|query| format!("?{query}")).unwrap_or_default())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let sql = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        // A replication slot is in use until PostgreSQL has noticed that its client is gone.
        crate::wait_for(&sql, || self.try_run(&sql).ok());
    }
}

/// Held by the test that uses the servers of `FOREBAY_TEST_MEMORY`.
static TURN: Mutex<()> = Mutex::new(());

/// Deletes everything on every primary.
fn flush(url: &str) -> redis::RedisResult<()> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    if scheme != "redis-cluster" {
        let mut connection = redis::Client::open(url)?.get_connection()?;
        return redis::cmd("FLUSHALL").query(&mut connection);
    }
    let first = format!("redis://{}", rest.split(',').next().unwrap_or(rest));
    let mut connection = redis::Client::open(first)?.get_connection()?;
    let nodes: String = redis::cmd("CLUSTER").arg("NODES").query(&mut connection)?;
    for line in nodes.lines().filter(|line| line.contains("master") && !line.contains("fail")) {
        let address = line.split(' ').nth(1).and_then(|at| at.split('@').next()).unwrap_or_default();
        let mut node = redis::Client::open(format!("redis://{address}"))?.get_connection()?;
        redis::cmd("FLUSHALL").exec(&mut node)?;
    }
    Ok(())
}
