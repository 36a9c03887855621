//! A database with tables of a test, and servers beside it, by each way of following.

use forebay_tests::{Answer, Archive, Client, Folder, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

/// How others' changes are followed, and with that the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Logical,
    Triggers,
    Sqlite,
    /// Rows in a Redis before PostgreSQL: others' changes are not followed.
    Redis,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Logical => "logical",
            Way::Triggers => "triggers",
            Way::Sqlite => "sqlite",
            Way::Redis => "redis",
        }
    }

    pub fn is_postgres(self) -> bool {
        self != Way::Sqlite
    }
}

/// The longest time after which memory shows what the database has.
pub const FRESH: Duration = Duration::from_secs(5);

/// What the routes of tables with secrets ask for in a draft.
const KEY: &str = "the key of a test";

/// Sends a request as one who may use every route of a draft.
pub fn ask(client: &mut Client, method: &str, target: &str, body: Option<&str>) -> Answer {
    let answer = client.call(method, target, &[("X-Forebay-Key", KEY)], body);
    answer.unwrap_or_else(|error| panic!("{method} {target}: no answer: {error}"))
}

/// A folder and a database.
pub struct Site {
    pub way: Way,
    pub folder: Folder,
    stores: Stores,
    pub config: PathBuf,
    redis: Option<Local>,
}

impl Site {
    /// Makes the tables by SQL.
    #[track_caller]
    pub fn new(way: Way, sql: &str) -> Site {
        let folder = Folder::new();
        let stores = if way.is_postgres() { Stores::postgres() } else { Stores::sqlite() };
        let config = folder.path().join("forebay.toml");
        let redis = (way == Way::Redis).then(|| {
            let spec = Spec::new(Topology::Single).on(Flavour::Redis).keep(Persistence::Always);
            Local::up(spec).unwrap_or_else(|error| panic!("{error}"))
        });
        let site = Site { way, folder, stores, config, redis };
        if !way.is_postgres() {
            // Opened by others as it is by default: in WAL mode, so that nobody waits for readers.
            site.sqlite().pragma_update(None, "journal_mode", "wal").expect("a file can be made");
        }
        site.run(sql).unwrap_or_else(|error| panic!("{error}"));
        site
    }

    /// The URL of the database, without the way of following.
    pub fn url(&self) -> String {
        self.stores.database_url(&self.folder)
    }

    /// The URL with the way of following.
    pub fn url_of_server(&self) -> String {
        let (url, way) = (self.url(), self.way.name());
        match self.way {
            Way::Sqlite | Way::Redis => url,
            _ if url.contains('?') => format!("{url}&follow={way}"),
            _ => format!("{url}?follow={way}"),
        }
    }

    /// A new connection of another client.
    #[track_caller]
    pub fn postgres(&self) -> postgres::Client {
        let mut client =
            postgres::Client::connect(&self.url(), postgres::NoTls).expect("PostgreSQL is there");
        client.batch_execute("SET TimeZone = 'UTC'").expect("a setting");
        client
    }

    /// The same for SQLite, with its foreign keys.
    pub fn sqlite(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.folder.database()).expect("the file can be opened");
        connection.busy_timeout(Duration::from_secs(20)).expect("a time-out can be set");
        connection.pragma_update(None, "foreign_keys", true).expect("a setting");
        connection
    }

    /// Runs statements of another client.
    pub fn run(&self, sql: &str) -> Result<(), String> {
        if self.way.is_postgres() {
            self.postgres().batch_execute(sql).map_err(|error| format!("{sql}: {error:?}"))
        } else {
            self.sqlite().execute_batch(sql).map_err(|error| format!("{sql}: {error}"))
        }
    }

    /// The database as another client sees it.
    #[track_caller]
    pub fn archive(&self) -> Archive {
        self.stores.archive(&self.folder)
    }

    /// How a server is started.
    pub fn start(&self) -> Start {
        let url = self.url_of_server();
        let start = Start::new(binary(), &self.folder, &self.config).database(&url);
        let start = start.environment("DATABASE_URL", &url).environment("FOREBAY_KEY", KEY);
        match &self.redis {
            Some(redis) => start.memory(&redis.url()),
            None => start,
        }
    }

    /// Kills the Redis and starts it again on its data.
    pub fn restart_redis(&self) {
        self.without_redis(|| ());
    }

    /// As [`Site::restart_redis`], with what is done in between.
    pub fn without_redis(&self, meanwhile: impl FnOnce()) {
        let redis = self.redis.as_ref().expect("there is a Redis");
        let node = &redis.nodes()[0].name;
        redis.kill(node).unwrap_or_else(|error| panic!("{error}"));
        meanwhile();
        redis.start(node).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs a command of the program.
    pub fn command(&self, command: &str, arguments: &[&str]) -> Output {
        self.start().run_bare(command, arguments.iter().copied())
    }

    /// Starts a server and waits until it is ready; what it printed when it ended.
    pub fn serve(&self) -> Result<Server, String> {
        let mut server = self.start().try_start().map_err(|ended| ended.output)?;
        self.wait_ready(&mut server)?;
        Ok(server)
    }

    /// Waits until a server is ready.
    pub fn wait_ready(&self, server: &mut Server) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if !server.is_running() {
                return Err(server.wait().output);
            }
            let ready =
                Client::connect(server.admin).and_then(|mut admin| admin.call("GET", "/ready", &[], None));
            if ready.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("it does not become ready\n{}", server.output()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Everything that a process printed.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// An answer in a few words.
pub fn brief(answer: &Answer) -> String {
    let body: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
    format!("{} {body}", answer.status)
}

/// Repeats `attempt` until it finds nothing wrong, for at most [`FRESH`]; what it found last.
pub fn soon(mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let until = Instant::now() + FRESH;
    loop {
        let found = attempt();
        if found.is_ok() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
