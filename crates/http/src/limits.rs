//! Every limit of the engine, with its derivation.
//!
//! [`Limits`] can be configured; the constants follow from the engine's structure. The parser
//! enforces sizes, the connection enforces times and back-pressure, the acceptor enforces the number
//! of connections.

/// What one server accepts from its clients. Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request head, request line and blank line included; a longer one is answered 431.
    pub head_bytes: usize,
    /// Longest request target; a longer one is answered 414.
    pub target_bytes: usize,
    /// Longest request body that is handed to a service together with its head. Of a longer one, and of one
    /// that has not arrived with its head, the service says how long it may be; a longer one is answered 413.
    pub body_bytes: usize,
    /// Most bytes of all bodies that are arriving; past it, the one that has not moved for longest is
    /// answered 503.
    pub bodies_bytes: usize,
    /// Most header fields (at most `FIELDS_MAX`); more are answered 431.
    pub fields: usize,
    /// The longest time from the first byte of a head to its last; a slower head is answered 408. Also the
    /// window in which a body must keep its pace.
    pub head_timeout_ms: u64,
    /// Slowest pace at which a body may arrive in each window of `head_timeout_ms`; a slower body is answered
    /// 408.
    pub body_bytes_per_s_min: u64,
    /// A connection without a request for this long is closed.
    pub idle_timeout_ms: u64,
    /// A connection whose client takes no byte of a waiting answer for this long is closed.
    pub write_timeout_ms: u64,
    /// Most connections of all workers together; for one more, those end that have waited longest for their
    /// clients, or it is answered 503.
    pub connections: usize,
    /// Most TLS handshakes in progress of all workers together; for one more, the oldest ends. A handshake
    /// may take `head_timeout_ms`.
    pub handshakes: usize,
    /// Most deferred requests of one connection; at this number the connection is not read until one of them
    /// is answered.
    pub pipeline_depth: usize,
    /// Most bytes of unsent answers of one connection; at this number the connection is not read until the
    /// client has taken some.
    pub output_bytes: usize,
    /// Most bytes of the unsent answers of all connections that hold more than 16 KiB; past it, those end
    /// whose clients have taken none for longest.
    pub answers_bytes: usize,
    /// How long a graceful stop waits for answers that are not ready, before it closes the remaining
    /// connections.
    pub stop_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head_bytes: 16 * 1024,
            target_bytes: 8 * 1024,
            body_bytes: 1024 * 1024,
            bodies_bytes: 256 * 1024 * 1024,
            fields: 100,
            head_timeout_ms: 10_000,
            body_bytes_per_s_min: 1024,
            idle_timeout_ms: 75_000,
            write_timeout_ms: 30_000,
            connections: 16_384,
            handshakes: 4_096,
            pipeline_depth: 128,
            output_bytes: 256 * 1024,
            answers_bytes: 256 * 1024 * 1024,
            stop_timeout_ms: 10_000,
        }
    }
}

impl Limits {
    /// Returns a sentence about the first contradiction in these limits, if there is one.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.fields > FIELDS_MAX {
            return Err("fields may be at most 128");
        }
        if self.target_bytes + METHOD_BYTES_MAX >= self.head_bytes {
            return Err("target_bytes must leave room in head_bytes for the rest of the head");
        }
        let counts = [self.connections, self.handshakes, self.pipeline_depth, self.output_bytes];
        if counts.contains(&0) {
            return Err("connections, handshakes, pipeline_depth and output_bytes must be at least 1");
        }
        if self.bodies_bytes < BODIES_BYTES_MIN || self.bodies_bytes / 2 < self.body_bytes {
            return Err("bodies_bytes must be at least 1 MiB, and twice body_bytes");
        }
        if self.answers_bytes / 2 < self.output_bytes {
            return Err("answers_bytes must be at least twice output_bytes");
        }
        if self.body_bytes_per_s_min == 0 {
            return Err("body_bytes_per_s_min must be at least 1");
        }
        Ok(())
    }
}

/// Header slots on the stack of the parser (32 bytes each: one page).
pub const FIELDS_MAX: usize = 128;
/// Longest method token: the registered methods have at most 17 letters.
pub const METHOD_BYTES_MAX: usize = 64;
/// Hex digits of a chunk size: as many as a u64 holds.
pub const CHUNK_SIZE_DIGITS_MAX: usize = 16;
/// All chunk extensions of one body together: clients do not use them, so any finite limit works.
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 4 * 1024;
/// All trailer lines of one body together: as much as the default head.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// Longest header of the PROXY protocol: addresses of Unix sockets have 216 bytes, names in certificates
/// some hundred.
pub(crate) const PROXY_HEADER_BYTES_MAX: usize = 2 * 1024;
/// Longest read. A pipelined burst fits; larger bodies take several reads.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// The pieces in which long bodies and answers wait. Nine fill a page of the allocator (512 KiB) but for
/// 8 KiB; with pieces of 64 KiB seven would, and a huge page makes all of it resident.
pub(crate) const PIECE_BYTES: usize = 56 * 1024;
/// A buffer larger than this goes back to the allocator instead of the worker's pool.
pub(crate) const POOLED_BUFFER_BYTES_MAX: usize = 64 * 1024;
/// Unused buffers stored per worker. One is in use at a time unless answers are held or clients are slow.
pub(crate) const POOLED_BUFFERS_MAX: usize = 64;
/// Unused lists of deferred answers stored per worker, for connections that begin to defer.
pub(crate) const UNUSED_LISTS_MAX: usize = 64;
/// Capacity of a new output buffer.
pub(crate) const BUFFER_BYTES_START: usize = 4 * 1024;
/// Plain bytes that TLS encrypts before it writes: four records. Encrypted bytes that the socket does not
/// take are stored.
pub(crate) const ENCRYPTED_BYTES_MAX: usize = 4 * RECORD_PLAIN_BYTES_MAX;
/// The most plain bytes in one TLS record (RFC 8446 section 5.1).
pub(crate) const RECORD_PLAIN_BYTES_MAX: usize = 1 << 14;
/// What a TLS record adds to its plain bytes: a head of 5 bytes, 8 of a nonce, 16 of a tag, one of a type,
/// rounded up. A short message, such as an alert or a new key, fits in twice that.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 64;
/// The beginning of a body is appended to a waiting head of at most this length, so that both leave with one
/// write.
pub(crate) const OPEN_BYTES_MAX: usize = 2 * 1024;
/// Chunks handed to one writev.
pub(crate) const WRITE_SLICES_MAX: usize = 16;
/// Read-answer-write turns of one connection before it yields to the others.
pub(crate) const TURNS_PER_POLL: usize = 16;
/// Bytes of a streamed body, in either direction, that are buffered for the slower side before the faster
/// side waits: one read.
pub(crate) const PIPE_BYTES: usize = READ_BYTES;
/// HTTP/2: the bytes that a client may send of one request's body before the service has read them.
pub(crate) const STREAM_WINDOW_BYTES: usize = 2 * PIPE_BYTES;
/// HTTP/2: the same limit for all requests of a connection together.
pub(crate) const CONNECTION_WINDOW_BYTES: usize = 16 * PIPE_BYTES;
/// HTTP/2: the bytes that a client may send while no request begins and no body moves in either direction.
/// Settings, pings, priorities and window updates need a few bytes per request.
pub(crate) const CONTROL_BYTES_MAX: u64 = 256 * 1024;
/// HTTP/2: the excess of requests that the client reset over requests that were answered, per connection. A
/// browser that leaves a page resets a few dozen.
pub(crate) const RESETS_MAX: u32 = 200;
/// HTTP/2: streams of a connection that the engine had to reset because the client broke a rule.
pub(crate) const BROKEN_STREAMS_MAX: usize = 100;
/// HTTP/2: how long a client may take to react to GOAWAY.
pub(crate) const GOAWAY_MS: u64 = 2_000;
/// The period of the coarse clock: deadlines are precise to this, and Date is at most this late.
pub(crate) const TICK_MS: u64 = 250;
/// After the last answer of a connection that is closed: how long the client's input is read and discarded,
/// and how much of it, so that the kernel does not reset the connection before the client has read that
/// answer (RFC 9112 section 9.6).
pub(crate) const LINGER_MS: u64 = 2_000;
pub(crate) const LINGER_BYTES: usize = 4 * 1024 * 1024;
/// On a graceful stop a connection gets this long to send a request that is already in transit; that request
/// is answered with `Connection: close`.
pub(crate) const STOP_GRACE_MS: u64 = 200;
/// The same for a connection that has sent no request yet: its handshake takes up to three round trips of
/// its client, and the request may arrive with the last.
pub(crate) const STOP_NEW_MS: u64 = 1_000;
/// How long a connection lingers during a stop.
pub(crate) const STOP_LINGER_MS: u64 = 300;
/// The part of a worker's connections that end at a time to make room.
pub(crate) const ROOM_PART: usize = 256;
/// The part of `Limits::connections` by which more may be open while others are being ended.
pub(crate) const ROOM_AHEAD_PART: usize = 64;
/// Answers of a connection that together are at most this long are not counted for `Limits::answers_bytes`:
/// as much as its head may take.
pub(crate) const ANSWER_BYTES_SMALL: usize = 16 * 1024;
/// What a request takes about while its answer is awaited, and how often its head is kept (`make attack`).
pub(crate) const WAITING_BYTES: usize = 8 * 1024;
pub(crate) const WAITING_HEADS: usize = 4;
/// The part of `Limits::answers_bytes` and of `Limits::bodies_bytes` that is left to the allocator, which
/// keeps for a while what was freed (`make attack`).
pub(crate) const FREED_PART: usize = 4;
/// The part of `Limits::answers_bytes` that is freed at a time.
pub(crate) const ANSWERS_ROOM_PART: usize = 16;
/// The least that `Limits::bodies_bytes` may be: several pipes.
pub const BODIES_BYTES_MIN: usize = 1 << 20;
/// The part of `Limits::bodies_bytes` that is freed at a time.
pub(crate) const BODIES_ROOM_PART: usize = 16;
/// How long the acceptor waits for workers that have not made room yet, before it refuses a connection.
pub(crate) const ROOM_WAIT_MS: u64 = 100;
/// The backlog of a listener: pending connections in the kernel, which caps it at net.core.somaxconn.
pub(crate) const BACKLOG: i32 = 4_096;
/// Refused connections that are sent a 503 at the same time; further ones are closed without an answer.
pub(crate) const REFUSALS_MAX: usize = 64;
/// How long a refused client has to read its 503.
pub(crate) const REFUSAL_MS: u64 = 1_000;

const _: () = assert!(STOP_NEW_MS > STOP_GRACE_MS, "the stages of a stop follow each other");
const _: () = assert!(TICK_MS <= 1_000, "Date must not be more than a second late");
const _: () = assert!(READ_BYTES > 2 * RECORD_PLAIN_BYTES_MAX, "a record must fit");
const _: () = assert!(BUFFER_BYTES_START <= POOLED_BUFFER_BYTES_MAX);
