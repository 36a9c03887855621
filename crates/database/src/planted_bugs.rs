//! Planted bugs that `make torture-database-planted` must find: one at a time, named by FOREBAY_PLANTED.
//!
//! This module, and the code that calls it, exist only in a build with the feature `planted`.

/// Whether this bug is planted.
pub fn is(bug: &str) -> bool {
    std::env::var("FOREBAY_PLANTED").is_ok_and(|planted| planted == bug)
}
