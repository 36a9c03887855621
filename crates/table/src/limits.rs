//! Every limit of this room, and where it comes from.

use std::time::Duration;

/// Shards of a table's rows, and lock stripes of its unique values. 64 is several times the cores of the machines this is made for, so
/// that two workers seldom meet, and the set of stripes that one row touches is one machine word.
pub(crate) const SHARDS: usize = 64;

/// Stripes of a table's counters: few values are counted, and a stripe is held for one addition.
pub(crate) const COUNTER_STRIPES: usize = 16;

/// Slots of a chunk (24 KiB): a shard wastes half of one on average, 0.75 bytes a row at 1,000,000 rows.
pub(crate) const CHUNK_SLOTS: usize = 1024;

/// Draws of `random` before it walks the lengths. A draw hits with a chance of 1/2 or more unless most rows were deleted.
pub(crate) const RANDOM_DRAWS: usize = 16;

/// Slots that eviction looks at in one visit of a shard, under its lock: about 10 µs when nothing goes, 100 µs when all do.
pub(crate) const EVICT_VISIT_SLOTS: u32 = 512;

/// Undrained rows in a row after which a visit ends: rows drain in the order in which they stand, so what follows is undrained as well.
pub(crate) const EVICT_RUN_SLOTS: u32 = 64;

/// Eviction frees this part of the limit beyond what was asked for, so that it does not run for every insert.
pub(crate) const EVICT_AHEAD_PART: u64 = 128;

/// A complete search for something to evict is repeated after so many slots for each row that was read back since.
pub(crate) const EVICT_SCAN_SLOTS_PER_ROW: u64 = 1024;

/// Reads through the source at the same time: more than a record store's readers, fewer than would crowd out its other users.
pub(crate) const FETCHES_MAX: usize = 64;

/// Reads that may wait for one of those.
pub(crate) const FETCH_QUEUE_MAX: usize = 4096;

/// Times that one read through the source is done again because the row changed meanwhile.
pub(crate) const FETCH_TRIES: usize = 8;

/// Smallest block of serial keys: what a table that is seldom written to leaves unused at a restart.
pub(crate) const KEYS_MIN: u64 = 1_000;

/// Largest block of serial keys: one second at 1,000,000 inserts a second.
pub(crate) const KEYS_MAX: u64 = 1_000_000;

/// A block that was used up faster than this is followed by one four times its size, unless that is the largest.
pub(crate) const KEYS_FAST: Duration = Duration::from_secs(2);

/// A block that lasted longer than this is followed by one half its size, unless that is the smallest.
pub(crate) const KEYS_SLOW: Duration = Duration::from_secs(60);

/// Bytes that replay takes from the log at a time: still in the cache when they are applied.
pub(crate) const REPLAY_BATCH_BYTES: usize = 512 << 10;

/// Batches that replay reads ahead.
pub(crate) const REPLAY_BATCHES: usize = 4;

/// Bits of a position that a slot keeps; 2^56 bytes of log are 64 PiB.
pub(crate) const POSITION_BITS: u32 = 56;

const _: () = assert!(SHARDS == u64::BITS as usize, "the stripes of a row are one word");
const _: () = assert!(CHUNK_SLOTS.is_power_of_two());
const _: () = assert!(KEYS_MIN < KEYS_MAX);
const _: () = assert!(EVICT_RUN_SLOTS < EVICT_VISIT_SLOTS);
