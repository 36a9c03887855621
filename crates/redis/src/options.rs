//! Durability, read routing and time-outs of a client.

use crate::error::{Error, Kind};
use crate::limits;

/// How durable a write is before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// As soon as the primary has executed it. A crash of the primary may lose it.
    #[default]
    Async,
    /// When it is on the primary's disk: `appendfsync always`, or WAITAOF. Refused if the server supports
    /// neither.
    Sync,
    /// When this many replicas have it: one WAIT per batch, whose result is checked.
    Replicated(Replicas),
}

/// How many replicas must have received a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Replicas {
    /// This number; at least 1.
    Count(u32),
    /// All known replicas of the shard, at least one: a shard without its replica takes no writes.
    All,
}

/// The nodes that serve reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ReadFrom {
    /// The primary: a read sees every write that was answered.
    #[default]
    Primary,
    /// The replicas in turn, the primary when there is none: a read may be behind by the replica's lag
    /// ([`crate::Facts`]).
    Replicas,
}

/// The kind of topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Topology {
    /// One server, no replica.
    Single,
    /// One primary whose replicas were discovered by asking it.
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
    /// The nodes that serve reads.
    pub read_from: ReadFrom,
    /// How long it may take to open a connection (TCP, TLS, AUTH, INFO), in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a batch may go without an answer, and how long a request that was not executed may be
    /// retried, in milliseconds.
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
    /// [`Kind::Url`] with the options that contradict each other.
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
