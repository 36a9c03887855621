//! Memory taken from the system before rows need it.
//!
//! To touch memory for the first time is dear: a fault for every page, which the kernel has to clear, and in
//! a virtual machine the host to find. A row of 600 bytes then costs as much for its memory as for all else
//! that is done to store it. What is taken ahead is held in small blocks, such as rows are, so that it lies
//! where the allocator looks for room for rows; as rows come, as much is given back to the allocator, a
//! little before them. Promises nothing to anybody: what else the process needs may come out of it, too.

use crate::limits::{RESERVE_AHEAD_BYTES, RESERVE_BLOCK_BYTES, RESERVE_STEP_BYTES, RESERVE_THREADS_MAX};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

type Block = Box<[u8; RESERVE_BLOCK_BYTES]>;

/// What is held. None at first.
pub(crate) struct Reserve {
    held: Mutex<Held>,
    /// With so many bytes in use some of it is given up.
    next_bytes: AtomicU64,
}

#[derive(Default)]
struct Held {
    blocks: Vec<Block>,
    /// With so many bytes in use the last of it is to have been given up.
    until_bytes: u64,
}

impl Reserve {
    pub fn new() -> Reserve {
        Reserve { held: Mutex::default(), next_bytes: AtomicU64::new(u64::MAX) }
    }

    /// Takes memory until, with what is in use, there is so much. Takes seconds for gigabytes.
    pub fn fill(&self, until_bytes: u64, used_bytes: u64) {
        let count = (until_bytes.saturating_sub(used_bytes) as usize).div_ceil(RESERVE_BLOCK_BYTES);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(RESERVE_THREADS_MAX);
        let mut held = self.held.lock();
        thread::scope(|scope| {
            // On threads of their own, which end: the allocator then has these blocks free for every thread.
            let parts: Vec<_> = (0..threads).map(|_| scope.spawn(|| taken(count / threads))).collect();
            held.blocks =
                parts.into_iter().flat_map(|part| part.join().expect("nothing of it panics")).collect();
        });
        held.until_bytes = until_bytes;
        self.next_bytes.store(used_bytes, Ordering::Relaxed);
    }

    /// Says how much is in use.
    #[inline]
    pub fn watch(&self, used_bytes: u64) {
        if used_bytes >= self.next_bytes.load(Ordering::Relaxed) {
            self.give_up(used_bytes);
        }
    }

    #[cold]
    fn give_up(&self, used_bytes: u64) {
        // The holder of the lock does the same.
        let Some(mut held) = self.held.try_lock() else { return };
        let kept_bytes = held.until_bytes.saturating_sub(used_bytes + RESERVE_AHEAD_BYTES);
        let kept = (kept_bytes / RESERVE_BLOCK_BYTES as u64) as usize;
        let next_bytes = if kept == 0 { u64::MAX } else { used_bytes + RESERVE_STEP_BYTES };
        self.next_bytes.store(next_bytes, Ordering::Relaxed);
        if kept == 0 {
            held.blocks = Vec::new();
        } else {
            held.blocks.truncate(kept);
        }
    }

    /// How much is held.
    pub fn bytes(&self) -> u64 {
        (self.held.lock().blocks.len() * RESERVE_BLOCK_BYTES) as u64
    }
}

/// Blocks that have been written to. Not with zeros: those would be asked for as such, and not be touched.
fn taken(count: usize) -> Vec<Block> {
    (0..count).map(|_| Box::new([1; RESERVE_BLOCK_BYTES])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_as_rows_come() {
        const MIB: u64 = 1 << 20;
        let reserve = Reserve::new();
        reserve.watch(u64::MAX - 1);
        reserve.fill(64 * MIB, 10 * MIB);
        let full = reserve.bytes();
        assert!(full.abs_diff(54 * MIB) < MIB, "{full}");
        for used in (10..=64).map(|used| used * MIB) {
            reserve.watch(used);
            let (left, wanted) = (reserve.bytes(), (64 * MIB - used).saturating_sub(RESERVE_AHEAD_BYTES));
            assert!(left.abs_diff(wanted) <= RESERVE_STEP_BYTES, "{left} held with {used} in use");
        }
        assert_eq!(reserve.bytes(), 0);
        // What is freed does not bring it back.
        reserve.watch(0);
        assert_eq!(reserve.bytes(), 0);
    }
}
