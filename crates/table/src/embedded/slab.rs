//! Slots: the dense storage of one shard's rows; every number below the length is a row.
//!
//! Chunks instead of one vector: growing copies nothing and leaves no more than one chunk unused. Only the
//! first chunk grows by doubling, so that a small table stays small.

use crate::limits::{CHUNK_SLOTS, POSITION_BITS};
use forebay_log::Position;

/// One row, or the stub of an evicted one.
pub(crate) struct Slot {
    /// The row in the row format, or its stub.
    pub bytes: Box<[u8]>,
    /// The position of the last change, and the flags above it.
    state: u64,
}

/// The body is not in memory: `bytes` is a stub.
pub(crate) const EVICTED: u64 = 1 << POSITION_BITS;
/// The last change was an increment, and the row itself was already durable then.
pub(crate) const COUNTED: u64 = 2 << POSITION_BITS;
/// The row was read since the eviction clock last passed.
pub(crate) const REFERENCED: u64 = 4 << POSITION_BITS;

const POSITION_MASK: u64 = (1 << POSITION_BITS) - 1;

impl Slot {
    pub fn new(bytes: Box<[u8]>, position: Position) -> Slot {
        Slot { bytes, state: packed(position) }
    }

    pub fn position(&self) -> Position {
        Position(self.state & POSITION_MASK)
    }

    /// Sets the position of the last change, and replaces all flags by `flags`.
    pub fn changed(&mut self, position: Position, flags: u64) {
        self.state = packed(position) | flags;
    }

    pub fn has(&self, flag: u64) -> bool {
        self.state & flag != 0
    }

    pub fn set(&mut self, flag: u64) {
        self.state |= flag;
    }

    pub fn clear(&mut self, flag: u64) {
        self.state &= !flag;
    }

    /// The position for an answer that depends on the row's existence, but on no counter.
    pub fn row_mark(&self) -> Position {
        if self.has(COUNTED) { Position(0) } else { self.position() }
    }
}

fn packed(position: Position) -> u64 {
    assert!(position.0 <= POSITION_MASK, "a log has fewer than 2^56 bytes");
    position.0
}

/// The slots of one shard.
#[derive(Default)]
pub(crate) struct Slab {
    chunks: Vec<Vec<Slot>>,
    length: u32,
}

impl Slab {
    pub fn len(&self) -> u32 {
        self.length
    }

    pub fn get(&self, slot: u32) -> &Slot {
        let slot = slot as usize;
        &self.chunks[slot / CHUNK_SLOTS][slot % CHUNK_SLOTS]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Slot {
        let slot = slot as usize;
        &mut self.chunks[slot / CHUNK_SLOTS][slot % CHUNK_SLOTS]
    }

    /// Appends a row; returns its number.
    pub fn push(&mut self, slot: Slot) -> u32 {
        let number = self.length;
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_SLOTS) {
            let capacity = if self.chunks.is_empty() { 0 } else { CHUNK_SLOTS };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        self.chunks.last_mut().expect("there is a chunk with room").push(slot);
        self.length = number.checked_add(1).expect("a shard has fewer than 2^32 rows");
        number
    }

    /// Removes a row; the last row takes its number.
    pub fn swap_remove(&mut self, number: u32) -> Slot {
        let chunk = self.chunks.last_mut().expect("a slot in use");
        let last = chunk.pop().expect("no chunk is empty");
        if chunk.is_empty() {
            self.chunks.pop();
        }
        self.length -= 1;
        if number == self.length { last } else { std::mem::replace(self.get_mut(number), last) }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.chunks.iter().flatten()
    }

    /// Bytes taken by the slots, rows excluded.
    pub fn allocated_bytes(&self) -> usize {
        let slots = match &self.chunks[..] {
            [] => 0,
            [only] => only.capacity(),
            more => more.len() * CHUNK_SLOTS,
        };
        slots * size_of::<Slot>()
    }
}

const _: () = assert!(size_of::<Slot>() == 24);
