//! The limits of this crate in one place, with the source of each. The limits that a caller may change are
//! in [`crate::Settings`].

use std::time::Duration;

/// The longest head of an answer: four times the default for clients, since applications send long cookies
/// and policies. A longer head is refused.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most fields of an answer, as of a request in most servers.
pub(crate) const HEAD_FIELDS_MAX: usize = 100;
/// The room for one read: most answers fit.
pub(crate) const READ_BYTES: usize = 8 * 1024;
/// The longest extension of a chunk, and all trailers of a body: they are not passed on.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = 16 * 1024;
pub(crate) const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// Idle connections stored for one upstream, per worker.
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 256;
/// The largest buffer that an idle connection retains.
pub(crate) const IDLE_BUFFER_BYTES_MAX: usize = 2 * READ_BYTES;
/// The interval at which idle connections are checked; one that was idle for several checks in a row is
/// closed: 30 s is less than the 60 to 75 s after which most servers close them, and more than a pause
/// between two polls. Node closes after 5 s; a connection that the upstream closed before the request was
/// sent is replaced, without an error.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(5);
pub(crate) const IDLE_SWEEPS_MAX: u32 = 6;
/// The number of consecutive failures that suspends an upstream: one or two may be chance.
pub(crate) const FAILURES_MAX: u32 = 3;
/// How long an upstream is suspended before one request tries it again: short compared with a restart, long
/// compared with a request.
pub(crate) const SUSPENSION: Duration = Duration::from_secs(5);
/// The interval between two health checks, and the longest duration of one.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(5);
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an upstream that has answered may pause in reading the rest of the request's body.
pub(crate) const UPLOAD_REST: Duration = Duration::from_secs(60);
/// The silence after which the system probes a connection, the pause between probes, and their number: a
/// host that disappeared ends a silent stream after two minutes.
pub(crate) const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
pub(crate) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
pub(crate) const KEEPALIVE_PROBES: u32 = 4;

const _: () = assert!(CHECK_TIMEOUT.as_millis() < CHECK_PERIOD.as_millis());
