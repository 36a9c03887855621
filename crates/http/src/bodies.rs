//! The bodies that are arriving, of all connections, and the memory that they hold together.
//!
//! Promises that past `Limits::bodies_bytes` the memory of others is free before a worker reads again: those
//! end that have not moved for longest, of the network that holds most. Leaves what a body is to
//! [`crate::intake`].

use crate::crowd::{Member, going};
use crate::limits::{BODIES_ROOM_PART, FREED_PART};
use slab::Slab;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A body that is arriving.
pub(crate) trait Arriving: Send + Sync {
    fn member(&self) -> Member;

    /// Ends the body, whose memory others need.
    fn end_for_room(&self);
}

/// The bodies that are arriving.
pub(crate) struct Bodies {
    bytes_max: AtomicUsize,
    held_bytes: AtomicUsize,
    arriving: Mutex<Slab<Weak<dyn Arriving>>>,
}

impl std::fmt::Debug for Bodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bodies").field("held_bytes", &self.held_bytes).finish_non_exhaustive()
    }
}

impl Bodies {
    pub(crate) fn new(bytes_max: usize) -> Arc<Bodies> {
        Arc::new(Bodies {
            bytes_max: AtomicUsize::new(bytes_max),
            held_bytes: AtomicUsize::new(0),
            arriving: Mutex::default(),
        })
    }

    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    fn arriving(&self) -> MutexGuard<'_, Slab<Weak<dyn Arriving>>> {
        // No code panics while it holds the lock.
        self.arriving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a body; returns its place.
    pub(crate) fn enter(&self, body: Weak<dyn Arriving>) -> usize {
        self.arriving().insert(body)
    }

    /// A body is gone.
    pub(crate) fn leave(&self, place: usize) {
        self.arriving().remove(place);
    }

    /// A body holds more or less memory than before.
    pub(crate) fn recount(&self, before_bytes: usize, bytes: usize) {
        self.held_bytes.fetch_add(bytes.wrapping_sub(before_bytes), Relaxed);
    }

    fn exceeds(&self, bytes_max: usize) -> bool {
        self.held_bytes.load(Relaxed) > bytes_max
    }

    /// Ends bodies while all of them hold too much. The caller holds none of their locks.
    #[inline]
    pub(crate) fn keep_within(&self) {
        let bytes_max = self.bytes_max.load(Relaxed);
        let bytes_max = bytes_max - bytes_max / FREED_PART;
        if self.exceeds(bytes_max) {
            self.make_room(bytes_max);
        }
    }

    /// Frees more than is asked for, so that one look at all bodies pays for many reads.
    #[cold]
    fn make_room(&self, bytes_max: usize) {
        let all: Vec<Arc<dyn Arriving>> =
            self.arriving().iter().filter_map(|(_, body)| body.upgrade()).collect();
        let crowd: Vec<_> = all.iter().map(|body| body.member()).collect();
        for at in going(&crowd) {
            if !self.exceeds(bytes_max - bytes_max / BODIES_ROOM_PART) {
                return;
            }
            all[at].end_for_room();
        }
    }
}
