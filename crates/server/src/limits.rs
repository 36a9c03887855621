//! The limits of this crate that no config changes, with where each comes from.

/// Callers of one endpoint whose rate is remembered in one set: two cache lines of 16 bytes each, searched
/// one after the other.
pub(crate) const RATE_WAYS: usize = 8;
/// Sets of one endpoint's rate: 65,536 callers in a little over 1 MiB. A server with more callers than that
/// within one period loses the memory of those that were furthest from their limit.
pub(crate) const RATE_SETS: usize = 8_192;

/// How long a request waits at most for the decision of a rate that all servers count. A round trip within a
/// data centre takes less than 1 ms; one to a Redis on a busy machine, some hundred. Only those requests wait
/// so long that come before the first of them has waited in vain.
pub(crate) const RATE_DECISION_MS: u64 = 500;
/// How often it is looked whether Redis decides again.
pub(crate) const RATE_PROBE_MS: u64 = 250;

const _: () = assert!(RATE_SETS.is_power_of_two(), "a set is chosen by masking");
