//! The options with which a database is opened.

use serde::{Deserialize, Serialize};

/// The options of a database.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that run reads, each with its own connection. SQLite only: the URL sets the size of
    /// PostgreSQL's pool.
    pub readers: usize,
    /// Statements that may wait for a reader, and as many for the writer; more get
    /// [`Kind::Busy`](crate::Kind::Busy).
    pub queue: usize,
    /// How long a statement may run, unless the URL sets `statement_timeout`. A read may wait as long for its
    /// turn, a write twice as long: there is one writer, and a request that arrives while a statement uses up
    /// its timeout must outlive that statement.
    pub statement_timeout_ms: u64,
    /// The server's facts from the last time it was opened: with them, a database whose server is unreachable
    /// opens all the same, and connects when the server is back.
    pub known: Option<ServerFacts>,
}

/// Facts about a PostgreSQL server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// The connections that the server allows.
    pub connections: usize,
    /// Whether its commits are durable only when that is requested.
    pub is_asynchronous: bool,
}

impl Default for Options {
    fn default() -> Options {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options { readers: cores.clamp(2, 8), queue: 1_024, statement_timeout_ms: 5_000, known: None }
    }
}
