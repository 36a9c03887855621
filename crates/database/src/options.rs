//! How a store is used: what its opener decides.

use serde::{Deserialize, Serialize};

/// How a store is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that run reads, each with a connection of its own. SQLite only: PostgreSQL's pool has its size
    /// in the URL.
    pub readers: usize,
    /// Statements that may wait for a reader, and as many for the writer; more get [`Kind::Busy`].
    pub queue: usize,
    /// How long a statement may run, unless the URL says `statement_timeout`. A read may wait as long for
    /// its turn, a write twice as long: there is one writer, and a request that arrives while a statement
    /// uses up its time-out must outlive it.
    pub statement_timeout_ms: u64,
    /// What the server said of itself when it was last opened: one that is away is then opened all the same,
    /// and connections to it are made when it is back.
    pub known: Option<ServerFacts>,
}

/// What a PostgreSQL server says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The connections that it allows.
    pub connections: usize,
    /// Whether its commits are durable only when that is asked for.
    pub is_asynchronous: bool,
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options { readers: cores.clamp(2, 8), queue: 1_024, statement_timeout_ms: 5_000, known: None }
    }
}
