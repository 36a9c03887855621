//! Every limit of this room, and where it comes from.

/// Bytes of room an input buffer begins with, and that every read has at least: one loopback segment.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Largest head of an answer: four times what servers commonly accept in a request.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Largest body of an answer. The whole answer is held, so that a callback can look at it.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Events taken from the kernel at once.
pub(crate) const EVENTS: usize = 512;

/// How often time-outs are looked for: they are seconds, so that this is exact enough and costs nothing.
pub(crate) const SWEEP_MS: u64 = 50;

/// Pause before a connection is tried again that failed or was lost.
pub(crate) const RECONNECT_MS: u64 = 20;

/// Longest latency that is told apart, in nanoseconds: a day, more than any time-out.
pub(crate) const LATENCY_NS_MAX: u64 = 86_400_000_000_000;

/// Significant decimal digits of latencies.
pub(crate) const LATENCY_DIGITS: u8 = 3;

/// Significant decimal digits of the latencies of one second: they are drawn, not quoted, and there are many.
pub(crate) const SECOND_DIGITS: u8 = 2;
