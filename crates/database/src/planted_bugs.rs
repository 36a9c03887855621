//! Bugs that `make torture-database-planted` wants found: one at a time, named by FOREBAY_PLANTED.
//!
//! This module, and the lines that ask it, are only in a build with the feature `planted`.

/// Whether this is the bug that is planted.
pub fn is(bug: &str) -> bool {
    std::env::var("FOREBAY_PLANTED").is_ok_and(|planted| planted == bug)
}
