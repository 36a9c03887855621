//! The limits of this crate in one place, with where each comes from. What a caller may change
//! stands in [`crate::Settings`].

use std::time::Duration;

/// The longest head of an answer: four times what clients may send, since applications like cookies and
/// policies. A longer head is no good answer.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The most fields of an answer, as of a request in most servers.
pub(crate) const HEAD_FIELDS_MAX: usize = 100;
/// How much room there is for one read: most answers come with one.
pub(crate) const READ_BYTES: usize = 8 * 1024;
/// The longest extension of a chunk, and all trailers of a body: nothing of them is passed on.
pub(crate) const CHUNK_LINE_BYTES_MAX: usize = 16 * 1024;
pub(crate) const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// Idle connections kept to one upstream, per worker.
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 256;
/// The largest buffer that an idle connection keeps.
pub(crate) const IDLE_BUFFER_BYTES_MAX: usize = 2 * READ_BYTES;
/// Idle connections are looked at so often, and closed when they have been idle for so many looks: 30 s is
/// less than the 60 to 75 s after which most servers close them, and more than a pause between two polls.
/// Node closes after 5 s; a connection that was closed under a request that was not sent yet is replaced
/// unseen.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(5);
pub(crate) const IDLE_SWEEPS_MAX: u32 = 6;
/// So many failures one after the other put an upstream out: one or two may be chance.
pub(crate) const FAILURES_MAX: u32 = 3;
/// How long an upstream is out before one request tries it again: short beside a restart, long
/// beside a request.
pub(crate) const OUT: Duration = Duration::from_secs(5);
/// From one health check to the next, and how long one may take.
pub(crate) const CHECK_PERIOD: Duration = Duration::from_secs(5);
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

const _: () = assert!(CHECK_TIMEOUT.as_millis() < CHECK_PERIOD.as_millis());
