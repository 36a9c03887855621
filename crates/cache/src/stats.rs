//! What the cache counted.

use crate::limits::COUNTER_PLACES;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What happened so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answered from this process.
    pub hits: u64,
    /// Not found in this process, or not good any more.
    pub misses: u64,
    /// Asked of whoever makes the answers.
    pub fills: u64,
    /// Fills that failed.
    pub failures: u64,
    /// Found on the shared level.
    pub shared_hits: u64,
    /// Requests to the shared level that failed.
    pub shared_failures: u64,
    /// Whether the shared level did not answer when it was asked last.
    pub shared_away: bool,
    /// Tags that were dropped here and that the shared level does not know of yet.
    pub untold: u64,
    /// Drops of a tag, by this server or another.
    pub drops: u64,
    /// Entries in this process.
    pub entries: u64,
    /// What they take, in bytes.
    pub bytes: u64,
}

/// The counters. Hits and misses are counted by worker.
#[derive(Default)]
pub(crate) struct Stats {
    places: [Place; COUNTER_PLACES],
    pub(crate) fills: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) shared_hits: AtomicU64,
    pub(crate) shared_failures: AtomicU64,
    pub(crate) drops: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Place {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Stats {
    #[inline]
    pub(crate) fn hit(&self, worker: usize) {
        self.places[worker % COUNTER_PLACES].hits.fetch_add(1, Relaxed);
    }

    pub(crate) fn miss(&self, worker: usize) {
        self.places[worker % COUNTER_PLACES].misses.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let sum =
            |of: fn(&Place) -> &AtomicU64| self.places.iter().map(|place| of(place).load(Relaxed)).sum();
        Counts {
            hits: sum(|place| &place.hits),
            misses: sum(|place| &place.misses),
            fills: self.fills.load(Relaxed),
            failures: self.failures.load(Relaxed),
            shared_hits: self.shared_hits.load(Relaxed),
            shared_failures: self.shared_failures.load(Relaxed),
            drops: self.drops.load(Relaxed),
            ..Counts::default()
        }
    }
}
