//! Every limit of this room, and where it comes from.

/// Threads that a sample names: more than any machine has cores to run them on; of more, those that
/// used the most CPU are named.
pub(crate) const THREADS_MAX: usize = 256;

/// Interfaces that a sample names: container hosts have hundreds of virtual ones, too many for a report.
pub(crate) const INTERFACES_MAX: usize = 64;

/// Room for one part of the kernel's list of queues; it sends parts of at most this size (netlink's
/// own page limit).
pub(crate) const NETLINK_BYTES: usize = 32 * 1024;

/// How long the kernel may take to answer: it does so at once, or something is broken.
pub(crate) const NETLINK_TIMEOUT_MS: u64 = 1_000;
