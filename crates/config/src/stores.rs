//! What `[database]` and `[memory]` mean: part of the model, in a file of its own.

use std::path::PathBuf;

/// `[database]`: the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    /// `sqlite:PATH`, relative to the current folder, or `postgres://…`, which may hold a password.
    pub url: String,
    /// The line of `url`; 0 when it is not from the file.
    pub line: usize,
}

impl Database {
    /// Which SQL it understands.
    pub fn dialect(&self) -> Dialect {
        if self.url.starts_with("sqlite:") { Dialect::Sqlite } else { Dialect::Postgres }
    }

    /// For people: the URL without secrets.
    pub fn describe(&self) -> String {
        without_password(&self.url)
    }
}

/// Which SQL a database understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// PostgreSQL's.
    Postgres,
    /// SQLite's.
    Sqlite,
}

impl Dialect {
    /// Its key in `sql = { … }`.
    pub fn key(self) -> &'static str {
        match self {
            Dialect::Postgres => "postgres",
            Dialect::Sqlite => "sqlite",
        }
    }
}

/// A URL, or a line with one, as it may be printed: `postgres://user:***@host/db`.
pub(super) fn without_password(url: &str) -> String {
    let hidden = || {
        let (scheme, rest) = url.split_once("://")?;
        let (user, host) = rest.rsplit_once('@')?;
        let (user, _) = user.split_once(':')?;
        Some(format!("{scheme}://{user}:***@{host}"))
    };
    hidden().unwrap_or_else(|| url.to_owned())
}

/// `[memory]`: the memory tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Where it is.
    pub tier: Tier,
    /// The folder of what this server keeps beside it: embedded, of the log and the catalogue. Relative to the current folder.
    pub data_dir: PathBuf,
    /// When a write counts as done.
    pub durability: Durability,
    /// Most memory that hot tables take, in bytes.
    pub limit_bytes: u64,
    /// Embedded: how much of that memory is taken from the system at the start, in bytes.
    pub reserve_bytes: u64,
    /// Embedded: whether memory may come in huge pages.
    pub huge_pages: bool,
    /// Embedded: longest the log may grow before inserts are refused, in bytes.
    pub log_limit_bytes: u64,
    /// Embedded: length of one file of the log, in bytes.
    pub segment_bytes: u64,
    /// The line of `[memory]`; 0 when it is not in the file.
    pub line: usize,
}

impl Memory {
    /// For people: the URL without secrets.
    pub fn describe(&self) -> String {
        match &self.tier {
            Tier::Embedded => format!("embedded:{}", self.data_dir.display()),
            Tier::Remote(remote) => without_password(&remote.url),
        }
    }
}

/// Where hot tables are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tier {
    /// In this process, with a log in `data_dir`.
    Embedded,
    /// On Redis or Valkey.
    Remote(Remote),
}

/// A Redis or Valkey, from one server to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// `redis://…`, `redis-cluster://…`, `redis-sentinel://…`; may hold a password.
    pub url: String,
    /// How many queues the tables are spread over; `None`: by the topology, or as it was when the tier was made.
    pub shards: Option<u16>,
    /// Who answers reads.
    pub read_from: ReadFrom,
}

/// Who answers reads of a tier that has replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primaries: a read sees every write before it.
    Primary,
    /// The replicas: a read may see what was true a moment ago.
    Replicas,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk.
    Sync,
    /// When it is in memory; a crash may undo the last moments.
    Async,
    /// When so many replicas have it.
    Replicated(Replicas),
}

/// How many replicas must have a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replicas {
    /// So many.
    Count(u32),
    /// All that the primary has; a primary without its replica takes no writes.
    All,
}
