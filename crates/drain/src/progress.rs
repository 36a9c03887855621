//! The progress of a long job: a counter that any thread may read while the job runs.

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

/// The result of loading or warming a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// Rows read from the database and passed to the table.
    pub rows: u64,
    /// The time that the job took.
    pub took: Duration,
}
