//! Every limit of this crate, and where it comes from.

use std::time::Duration;

/// Groups start and end on multiples of this, so that no write touches a sector that contains acknowledged
/// bytes: 512 is the smallest unit that disks promise to write atomically.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// The alignment of buffers that are written to the disk without a copy: a page, the most that any device
/// requires.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Bytes of a group's header; see `format`.
pub(crate) const GROUP_HEADER_BYTES: usize = 48;

/// Bytes of a segment's header: one sector.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = SECTOR_BYTES;

/// Bytes before each record: its length.
pub(crate) const RECORD_HEADER_BYTES: usize = 4;

/// Bytes of the history before its openings, and of one of them.
pub(crate) const HISTORY_HEADER_BYTES: usize = 32;
/// See [`HISTORY_HEADER_BYTES`].
pub(crate) const OPENING_BYTES: usize = 24;

/// The history stores this many openings, the newest. A database that was last written to by an older opening
/// is no longer recognised; such a backup is older than what the log retains.
pub(crate) const OPENINGS_MAX: usize = 1000;

/// Bytes of the manifest.
pub(crate) const MANIFEST_BYTES: usize = 56;

/// Largest group, in bytes, and so the largest `Options::buffer_bytes`: the length field is 32
/// bits, and a group is one allocation and one write.
pub const GROUP_BYTES_MAX: usize = 1 << 30;

/// Smallest segment: a header and a few small groups. For tests; in production use [`SEGMENT_BYTES_DEFAULT`].
pub const SEGMENT_BYTES_MIN: u64 = 2048;

/// Default segment: large enough that changing segments (three syncs) is rare, small enough to be deleted
/// often.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// Default limit of unreleased bytes.
pub const LIMIT_BYTES_DEFAULT: u64 = 8 << 30;

/// Default size of one group buffer. Two of them exist. 16 MiB is what a slow disk (200 MB/s)
/// writes in 80 ms.
pub const BUFFER_BYTES_DEFAULT: usize = 16 << 20;

/// Chunk in which the reserve is zeroed and synced: small, so that a group's sync never waits long behind it.
pub(crate) const RESERVE_CHUNK_BYTES: usize = 1 << 20;

/// Pause between two tries to reserve space on a full disk.
pub(crate) const FULL_RETRY_MS: u64 = 100;

/// A group waits for more records only when at least this many are expected: with fewer writers the wait
/// gains nothing.
pub(crate) const GATHER_FROM_RECORDS: u32 = 8;

/// A group of this many records does not wait for more: some 100 µs of the log thread and the disk are then
/// 0.2 µs a record.
pub(crate) const GATHER_RECORDS_MAX: u32 = 512;

/// When no record arrives for this time, the group is complete. Several times what a writer needs to append
/// again, because each check costs a wake-up (the kernel's timer slack adds 50 µs).
pub(crate) const GATHER_PAUSE: Duration = Duration::from_micros(250);

/// A group waits at most this long, which is the most that gathering adds to the latency of a write.
pub(crate) const GATHER_TIME_MAX: Duration = Duration::from_millis(1);

/// How long a record that no caller waits for may wait for others. Long enough that 100,000 such records a
/// second make 200 groups and not 1,000. A crash loses only records that were not promised, and a read that
/// must wait for one of them waits at most this much longer.
pub(crate) const LATER_TIME_MAX: Duration = Duration::from_millis(5);

/// Segments for which the log's disk must have room besides other files: as many as the log may exceed
/// [`crate::Options::limit_bytes`] by.
pub(crate) const SPARE_SEGMENTS: u64 = 3;

/// The records that are set aside are found by the place of one in so many bytes.
pub(crate) const ASIDE_INDEX_BYTES: u64 = 64 << 10;

/// Bytes that are read at a time of what is set aside.
pub(crate) const ASIDE_READ_BYTES: usize = 4 << 20;

/// Bytes that recovery reads at a time.
pub(crate) const WINDOW_BYTES: usize = 1 << 20;

/// Free buffers that a reader retains for its next batches: more than any user reads ahead.
pub(crate) const SPARE_BUFFERS_MAX: usize = 8;

const _: () = assert!(GROUP_HEADER_BYTES < SECTOR_BYTES as usize);
const _: () = assert!((GROUP_BYTES_MAX as u64) <= u32::MAX as u64);
const _: () = assert!((GROUP_BYTES_MAX as u64).is_multiple_of(SECTOR_BYTES));
const _: () = assert!(SEGMENT_BYTES_MIN >= SEGMENT_HEADER_BYTES + 2 * SECTOR_BYTES);
const _: () = assert!((RESERVE_CHUNK_BYTES as u64).is_multiple_of(SECTOR_BYTES));

/// The next multiple of a sector.
pub(crate) const fn align_up(bytes: u64) -> u64 {
    bytes.next_multiple_of(SECTOR_BYTES)
}
