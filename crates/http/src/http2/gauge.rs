//! The memory that the requests of one connection use together. Read and written by one thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counters that every request of a connection adds to.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Bytes of complete answers that wait for the client.
    answer_bytes: AtomicUsize,
    /// Pieces of bodies that moved, in either direction.
    pieces: AtomicU64,
}

impl Gauge {
    /// One request's share of the answer bytes.
    pub(super) fn answer_share(&self) -> Share<'_> {
        Share { count: &self.answer_bytes, own: 0 }
    }

    /// Counts a piece of a body that moved.
    pub(super) fn count_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }

    pub(super) fn answer_bytes(&self) -> usize {
        self.answer_bytes.load(Relaxed)
    }

    pub(super) fn pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }
}

/// One request's contribution to a counter of its connection's [`Gauge`].
pub(super) struct Share<'a> {
    count: &'a AtomicUsize,
    own: usize,
}

impl Share<'_> {
    pub(super) fn set(&mut self, bytes: usize) {
        self.count.fetch_sub(self.own, Relaxed);
        self.count.fetch_add(bytes, Relaxed);
        self.own = bytes;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
