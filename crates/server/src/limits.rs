//! The limits of this crate that no config changes, with where each comes from.

/// Callers of one endpoint whose rate is remembered in one set: two cache lines of 16 bytes each, searched
/// one after the other.
pub(crate) const RATE_WAYS: usize = 8;
/// Sets of one endpoint's rate: 65,536 callers in a little over 1 MiB. A server with more callers than that
/// within one period loses the memory of those that were furthest from their limit.
pub(crate) const RATE_SETS: usize = 8_192;

const _: () = assert!(RATE_SETS.is_power_of_two(), "a set is chosen by masking");
