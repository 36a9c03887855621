//! How far a long job is: a number that anyone may read while it runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rows done. Shared between the job and its display.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
}

impl Progress {
    /// Rows done so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, rows: u64) {
        self.done.fetch_add(rows, Ordering::Relaxed);
    }
}

/// What a loading or warming did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Rows read from the database and given to the table.
    pub rows: u64,
    /// How long it took.
    pub took: Duration,
}
