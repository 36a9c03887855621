//! Buffers for reading past the page cache: aligned, and reused.
//!
//! A batch owns its buffer and returns it on drop, on any thread: reading a whole log allocates only as many
//! buffers as there are batches at a time. This module does not know what the bytes mean.

use crate::limits::{PAGE_BYTES, SPARE_BUFFERS_MAX};
use parking_lot::Mutex;
use std::sync::Arc;

/// Free buffers.
#[derive(Clone, Default)]
pub(crate) struct Buffers {
    spare: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// Bytes that begin at a page boundary.
#[derive(Default)]
pub(crate) struct Buffer {
    /// Longer than `length`, because of the alignment and of earlier, longer uses.
    memory: Vec<u8>,
    from: usize,
    length: usize,
    home: Buffers,
}

impl Buffers {
    /// A buffer of `length` bytes with arbitrary content.
    pub fn take(&self, length: usize) -> Buffer {
        let mut memory = self.spare.lock().pop().unwrap_or_default();
        if memory.len() < length + PAGE_BYTES {
            memory = vec![0; length + PAGE_BYTES];
        }
        let from = memory.as_ptr().align_offset(PAGE_BYTES);
        Buffer { memory, from, length, home: self.clone() }
    }
}

impl Buffer {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.from..][..self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.from..][..self.length]
    }

    /// Shortens the buffer to its first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut spare = self.home.spare.lock();
        if !self.memory.is_empty() && spare.len() < SPARE_BUFFERS_MAX {
            spare.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_come_back() {
        let buffers = Buffers::default();
        for length in [512, 100_000, 1] {
            let mut buffer = buffers.take(length);
            assert_eq!(buffer.bytes().len(), length);
            assert!((buffer.bytes().as_ptr() as usize).is_multiple_of(PAGE_BYTES));
            buffer.bytes_mut().fill(7);
            buffer.truncate(length / 2);
            assert_eq!(buffer.bytes(), vec![7; length / 2]);
            drop(buffer);
            assert_eq!(buffers.spare.lock().len(), 1, "one buffer, used again");
        }
    }
}
