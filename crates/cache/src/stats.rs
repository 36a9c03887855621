//! Counters of the cache.

use crate::limits::COUNTER_SLOTS;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the start, and gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Answered from this process.
    pub hits: u64,
    /// Not in this process, or no longer fresh.
    pub misses: u64,
    /// Answers requested from the database or upstream.
    pub fills: u64,
    /// Fills that failed.
    pub failures: u64,
    /// Found on the shared level.
    pub shared_hits: u64,
    /// Requests to the shared level that failed.
    pub shared_failures: u64,
    /// Whether the last request to the shared level found it unavailable.
    pub shared_away: bool,
    /// Tags that were dropped here and whose drop the shared level has not accepted yet.
    pub pending_invalidations: u64,
    /// Drops of a tag, by this server or another.
    pub drops: u64,
    /// Entries in this process; a gauge.
    pub entries: u64,
    /// Their memory in bytes; a gauge.
    pub bytes: u64,
}

/// The counters. Hits and misses are counted by worker.
#[derive(Default)]
pub(crate) struct Stats {
    slots: [Slot; COUNTER_SLOTS],
    pub(crate) fills: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) shared_hits: AtomicU64,
    pub(crate) shared_failures: AtomicU64,
    pub(crate) drops: AtomicU64,
}

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Stats {
    #[inline]
    pub(crate) fn hit(&self, worker: usize) {
        self.slots[worker % COUNTER_SLOTS].hits.fetch_add(1, Relaxed);
    }

    pub(crate) fn miss(&self, worker: usize) {
        self.slots[worker % COUNTER_SLOTS].misses.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        let sum = |of: fn(&Slot) -> &AtomicU64| self.slots.iter().map(|slot| of(slot).load(Relaxed)).sum();
        Counts {
            hits: sum(|slot| &slot.hits),
            misses: sum(|slot| &slot.misses),
            fills: self.fills.load(Relaxed),
            failures: self.failures.load(Relaxed),
            shared_hits: self.shared_hits.load(Relaxed),
            shared_failures: self.shared_failures.load(Relaxed),
            drops: self.drops.load(Relaxed),
            ..Counts::default()
        }
    }
}
