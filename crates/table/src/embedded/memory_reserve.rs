//! Memory taken from the system before rows need it.
//!
//! Touching memory for the first time is expensive: each page costs a fault, the kernel must clear the page,
//! and in a virtual machine the host must find it. The memory of a row of 600 bytes then costs as much as the
//! rest of the work to store the row. The reserve is held in blocks as small as rows, so that it lies where
//! the allocator looks for room for rows. As rows are stored, as many bytes are freed to the allocator, a
//! little ahead of them. The reserve guarantees nothing: other allocations of the process may use the freed
//! memory too.

use crate::limits::{RESERVE_AHEAD_BYTES, RESERVE_BLOCK_BYTES, RESERVE_STEP_BYTES, RESERVE_THREADS_MAX};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

type Block = Box<[u8; RESERVE_BLOCK_BYTES]>;

/// The reserved memory; empty at first.
pub(crate) struct Reserve {
    held: Mutex<Held>,
    /// When this many bytes are in use, some blocks are freed.
    next_bytes: AtomicU64,
}

#[derive(Default)]
struct Held {
    blocks: Vec<Block>,
    /// When this many bytes are in use, all blocks are to have been freed.
    until_bytes: u64,
}

impl Reserve {
    pub fn new() -> Reserve {
        Reserve { held: Mutex::default(), next_bytes: AtomicU64::new(u64::MAX) }
    }

    /// Takes memory until reserve and used bytes together make `until_bytes`. Takes seconds for gigabytes.
    pub fn fill(&self, until_bytes: u64, used_bytes: u64) {
        let count = (until_bytes.saturating_sub(used_bytes) as usize).div_ceil(RESERVE_BLOCK_BYTES);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(RESERVE_THREADS_MAX);
        let mut held = self.held.lock();
        thread::scope(|scope| {
            // The blocks are allocated on threads that then end, so that the allocator can reuse them for
            // every thread.
            let parts: Vec<_> = (0..threads).map(|_| scope.spawn(|| taken(count / threads))).collect();
            held.blocks =
                parts.into_iter().flat_map(|part| part.join().expect("nothing of it panics")).collect();
        });
        held.until_bytes = until_bytes;
        self.next_bytes.store(used_bytes, Ordering::Relaxed);
    }

    /// Is told how many bytes are in use, and frees blocks when due.
    #[inline]
    pub fn watch(&self, used_bytes: u64) {
        if used_bytes >= self.next_bytes.load(Ordering::Relaxed) {
            self.free_blocks(used_bytes);
        }
    }

    #[cold]
    fn free_blocks(&self, used_bytes: u64) {
        // Another thread holds the lock and is freeing blocks already.
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

    /// Bytes that are held.
    pub fn bytes(&self) -> u64 {
        (self.held.lock().blocks.len() * RESERVE_BLOCK_BYTES) as u64
    }
}

/// Blocks that have been written to. Not with zeros: the allocator would then request zeroed pages and not
/// touch them.
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
        // Lower use does not refill the reserve.
        reserve.watch(0);
        assert_eq!(reserve.bytes(), 0);
    }
}
