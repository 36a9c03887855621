//! Every limit of this crate, with its derivation.

/// Default time for a connection to be ready: a TLS handshake over a distant network, and one lost SYN (1
/// s).
pub const CONNECT_TIMEOUT_MS: u64 = 2_000;

/// Default time-out of a batch: above [`WAIT_TIMEOUT_MS`], below the time-outs of HTTP clients.
pub const RESPONSE_TIMEOUT_MS: u64 = 5_000;

/// How long a node may take to report its facts where unreachable nodes are left out.
pub const REACH_MS: u64 = 500;

/// How long a request that no server has executed is retried: the duration of a failover. A longer wait does
/// not help the caller.
pub const RETRY_FOR_MS: u64 = 3_000;

/// Default for WAIT and WAITAOF: `appendfsync everysec` confirms after up to a second, two when the
/// disk is slow.
pub const WAIT_TIMEOUT_MS: u64 = 3_000;

/// Requests that may wait for one connection. At 10 µs each that is 0.16 s: with a longer queue, refuse
/// instead.
pub const QUEUE_REQUESTS: usize = 16_384;

/// Most requests in one batch, so that the first answer is not delayed by the last write.
pub const BATCH_REQUESTS: usize = 1_024;

/// Bytes after which a batch takes no more requests: the capacity of the socket buffers of both systems, so
/// that writing rarely waits.
pub const BATCH_BYTES: usize = 1 << 20;

/// Capacity of a connection's buffer at the start, and after a larger batch.
pub const BUFFER_BYTES: usize = 16 << 10;

/// The longest answer in bytes (Redis limits a string to 512 MiB); a longer one closes the connection.
pub const ANSWER_BYTES_MAX: usize = 512 << 20;

/// Redirections (MOVED, ASK) that one request follows before it waits and refreshes the map.
pub const REDIRECTS: u32 = 5;

/// How often a batch loads its scripts before a server that keeps losing them is an error.
pub const SCRIPT_LOADS: usize = 2;

/// First pause before a request that was not executed is sent again; doubled each time up to
/// [`RETRY_MS_MAX`].
pub const RETRY_MS: u64 = 10;

/// Longest pause between two attempts: a failover takes seconds, and is noticed at most this late.
pub const RETRY_MS_MAX: u64 = 200;

/// Shortest time between two refreshes of the topology, however many requests start one.
pub const REFRESH_MS_MIN: u64 = 50;

/// Interval of refreshes without a failure: an isolated primary does not report its demotion.
pub const REFRESH_MS: u64 = 1_000;

/// A write connection that was idle for this long reads its epoch again: the primary may have been demoted
/// and promoted meanwhile without closing the connection.
pub const EPOCH_IDLE_MS: u64 = 1_000;

/// Nodes asked, one after the other, for the topology before a refresh fails.
pub const REFRESH_NODES: usize = 5;

/// Messages of client tracking that are queued for the listener; then the server's buffer fills.
pub const INVALIDATIONS_WAITING: usize = 1_024;

/// A tracking connection without a message for this long gets a PING; without an answer for the same
/// time it counts as lost.
pub const INVALIDATIONS_PING_MS: u64 = 1_000;

/// Keys asked for in one SCAN: about 1 ms of the server's time.
pub const SCAN_KEYS: usize = 1_000;

const _: () = assert!(WAIT_TIMEOUT_MS < RESPONSE_TIMEOUT_MS);
const _: () = assert!(RETRY_MS <= RETRY_MS_MAX);
const _: () = assert!(BATCH_REQUESTS <= QUEUE_REQUESTS);
