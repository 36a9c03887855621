//! Every limit of this room, and where it comes from.

/// Bytes that a read asks for: the default content of a loopback socket, in one system call.
pub(crate) const READ_BYTES: usize = 128 * 1024;

/// Largest head of an answer: four times what servers commonly accept in a request.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Largest line between chunks: a size, extensions, a field of a trailer.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = 8 * 1024;

/// Digits of a Content-Length: a petabyte.
pub(crate) const LENGTH_DIGITS_MAX: usize = 15;

/// Largest answer that is buffered for a callback that reads answers. Without a callback, answers
/// are not buffered.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of a malformed answer that are quoted.
pub(crate) const MALFORMED_BYTES_SHOWN: usize = 120;

/// Events taken from the kernel at once.
pub(crate) const EVENTS: usize = 512;

/// How often time-outs and the stop flag are checked: time-outs are seconds, so this is exact
/// enough and its cost is negligible.
pub(crate) const SWEEP_NS: u64 = 50_000_000;

/// Pause before a failed connection attempt is repeated; doubles up to [`RECONNECT_NS_MAX`].
pub(crate) const RECONNECT_NS: u64 = 20_000_000;

/// Longest pause before a connection is tried again.
pub(crate) const RECONNECT_NS_MAX: u64 = 1_000_000_000;

/// A request of the open model that is sent later than this after it was due counts as late: ten
/// times what a wake-up takes.
pub(crate) const LATE_NS: u64 = 1_000_000;

/// Connections that may be connecting at once: fits a backlog of 4096 (the default of Linux), with
/// room for others.
pub(crate) const CONNECTING_MAX: usize = 1024;

/// Longest latency that the histogram resolves, in nanoseconds: a day, more than any time-out.
pub(crate) const LATENCY_NS_MAX: u64 = 86_400_000_000_000;

/// Significant decimal digits of latencies.
pub(crate) const LATENCY_DIGITS: u8 = 3;

/// Significant decimal digits of the latencies of one second: they are drawn in charts rather than read as
/// figures, and there are many.
pub(crate) const SECOND_DIGITS: u8 = 2;

/// Most connections of one run: every port of four addresses.
pub(crate) const CONNECTIONS_MAX: usize = 250_000;

/// Most requests under way on a connection.
pub(crate) const PIPELINING_MAX: usize = 10_000;

/// Most threads.
pub(crate) const WORKERS_MAX: usize = 1024;

/// URLs whose validator a client remembers: a page and its parts. The oldest is dropped first.
pub(crate) const VALIDATORS_MAX: usize = 16;

/// Longest validator that is remembered, in bytes: a hash in hexadecimal, several times over.
/// 10,000 clients that remember the maximum take 30 MB.
pub(crate) const VALIDATOR_BYTES_MAX: usize = 128;

/// Files that this process needs besides its connections: epoll sets, standard streams, reports,
/// files that libraries open.
pub(crate) const FILES_BESIDE: u64 = 64;

/// Highest rate that can be asked for, in requests a second: one each nanosecond.
pub(crate) const RATE_PER_S_MAX: f64 = 1e9;

/// Largest frame between controller and agent: a plan with its files, or an hour's results (some
/// hundred bytes a second and endpoint).
pub(crate) const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Largest frame before the other side has shown that it knows the token: a nonce and a proof, many
/// times over.
pub(crate) const FRAME_BYTES_STRANGER_MAX: usize = 4 * 1024;

/// How often an agent reports progress: four times for each second that is shown.
pub(crate) const PROGRESS_MS: u64 = 250;

/// Silence after which the other side counts as dead: twenty times [`PROGRESS_MS`], more than a
/// busy machine or two lost packets take.
pub(crate) const SILENCE_MS: u64 = 5_000;

/// Round trips for the estimate of a clock offset: the shortest of them has met no queue.
pub(crate) const CLOCK_ROUND_TRIPS: u32 = 16;

/// From "all are ready" to the start: the start message must have reached all agents, over a slow
/// line too.
pub(crate) const START_LEAD_MS: u64 = 300;

/// Connections that an agent serves at once, each with a thread: every agent of a run may probe the network
/// to it, and controllers watch. One controller runs a load, others are told that it is busy.
pub(crate) const SESSIONS_MAX: usize = 2 * AGENTS_MAX;

/// How long each measurement of a probe sends: many round trips, so that TCP has found its window.
pub(crate) const PROBE_MS: u64 = 500;

/// Length of a counting interval: short compared with a measurement, whose first and last intervals
/// are cut.
pub(crate) const PROBE_TICK_MS: u64 = 10;

/// Timeout for the first datagram: all streams must have logged in, over a slow line too.
pub(crate) const PROBE_FIRST_MS: u64 = 2_000;

/// How long the whole probe of an agent may take: four measurements, and a connection that gets no answer.
pub(crate) const PROBE_ANSWER_MS: u64 = 4 * PROBE_MS + 2 * PROBE_FIRST_MS + 2 * SILENCE_MS;

/// Streams of one tester: clouds let one flow have a part of an instance's bandwidth, and one thread sends
/// some hundred thousand datagrams a second.
pub(crate) const PROBE_STREAMS: usize = 8;

/// Streams of all testers together, but at least one for each tester: the server's agent has a
/// thread for each stream.
pub(crate) const PROBE_STREAMS_IN_ALL: usize = 64;

/// Bytes of one read or write of a probe.
pub(crate) const PROBE_BUFFER_BYTES: usize = 64 * 1024;

/// Payload of a datagram: a small request without its headers.
pub(crate) const PROBE_DATAGRAM_BYTES: usize = 64;

/// Most agents of one run: each has a thread and a socket at the controller.
pub(crate) const AGENTS_MAX: usize = 1024;

const _: () = assert!(SILENCE_MS >= 8 * PROGRESS_MS, "a slow agent is no dead one");

/// Longest name of a key, without its number: it is copied for each command.
pub(crate) const KEY_BYTES_MAX: usize = 1024;

/// Slots of a Redis cluster (its specification).
pub(crate) const SLOTS: u16 = 16_384;

/// Largest value of the Redis load: far above what caches hold, and it is copied for each SET.
pub(crate) const DATA_BYTES_MAX: u64 = 16 * 1024 * 1024;
