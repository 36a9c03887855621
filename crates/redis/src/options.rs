//! Durability, read routing and time-outs of a client.

use crate::error::{Error, Kind};
use crate::limits;

/// How safe a write is before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// As soon as the primary has executed it. A crash of the primary may lose it.
    #[default]
    Async,
    /// When it is on the primary's disk: `appendfsync always`, or WAITAOF. Refused where the server
    /// can do neither.
    Sync,
    /// When so many replicas have it: one WAIT a batch, its number read.
    Replicated(Replicas),
}

/// How many replicas must have a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replicas {
    /// So many; at least 1.
    Count(u32),
    /// All that the shard is known to have, at least one: a shard without its replica takes no writes.
    All,
}

/// The nodes that answer reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadFrom {
    /// The primary: a read sees every write that was answered.
    #[default]
    Primary,
    /// A replica in turn, the primary when there is none: a read may be behind by the replica's lag
    /// ([`crate::Facts`]).
    Replicas,
}

/// The kind of topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topology {
    /// One server, no replica.
    Single,
    /// One primary whose replicas were found by asking it.
    Replicas,
    /// A primary that Sentinel names, and its replicas.
    Sentinel,
    /// A cluster: 16,384 slots over several primaries.
    Cluster,
}

/// The options of a [`crate::Client`]. Settings in the URL take precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The durability of a write when it is answered.
    pub durability: Durability,
    /// The nodes that answer reads.
    pub read_from: ReadFrom,
    /// How long one connection may take to be ready (TCP, TLS, AUTH, INFO), in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a batch may go without an answer, and how long a request may be retried where
    /// nothing happened, in milliseconds.
    pub response_timeout_ms: u64,
    /// The time-out given to WAIT and WAITAOF, in milliseconds; below `response_timeout_ms`.
    pub wait_timeout_ms: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            durability: Durability::Async,
            read_from: ReadFrom::Primary,
            connect_timeout_ms: limits::CONNECT_TIMEOUT_MS,
            response_timeout_ms: limits::RESPONSE_TIMEOUT_MS,
            wait_timeout_ms: limits::WAIT_TIMEOUT_MS,
        }
    }
}

impl Options {
    /// # Errors
    /// [`Kind::Url`] with what contradicts what.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::new(Kind::Url, what));
        if self.connect_timeout_ms == 0 || self.response_timeout_ms == 0 {
            return wrong("connect_timeout_ms and response_timeout_ms must be above 0");
        }
        if self.wait_timeout_ms == 0 || self.wait_timeout_ms >= self.response_timeout_ms {
            return wrong("wait_timeout_ms must be above 0 and below response_timeout_ms");
        }
        if self.durability == Durability::Replicated(Replicas::Count(0)) {
            return wrong("replicated(0) promises nothing: use async");
        }
        Ok(())
    }
}
