//! Every limit of this crate, and where it comes from.

use std::time::Duration;

/// Shards of a table's rows, and lock stripes of its unique values. 64 is several times the cores of the
/// machines this is made for, so that two workers seldom meet, and the set of stripes that one row touches is
/// one machine word.
pub(crate) const SHARDS: usize = 64;

/// Stripes of a table's counters: few values are counted, and a stripe is held for one addition.
pub(crate) const COUNTER_STRIPES: usize = 16;

/// Slots of a chunk (24 KiB): a shard wastes half of one on average, 0.75 bytes a row at 1,000,000 rows.
pub(crate) const CHUNK_SLOTS: usize = 1024;

/// Bytes of a block of memory taken ahead of use: of the size of rows, since allocators keep small and large
/// blocks apart, and a power of two, so that blocks fill whole pages.
pub(crate) const RESERVE_BLOCK_BYTES: usize = 2048;

/// Threads that take memory ahead at most: the kernel and the host serve no more of them at the same time.
pub(crate) const RESERVE_THREADS_MAX: usize = 8;

/// Memory taken ahead is freed in steps of this: 512 blocks, some 20 µs for the write that does it.
pub(crate) const RESERVE_STEP_BYTES: u64 = 1 << 20;

/// It is freed this many bytes before rows need it: a page for each size and thread. No more, because the
/// allocator returns memory to the system that has not been used for a second.
pub(crate) const RESERVE_AHEAD_BYTES: u64 = 4 << 20;

/// Draws of `random` before it walks the lengths. A draw hits with a chance of 1/2 or more unless most rows
/// were deleted.
pub(crate) const RANDOM_DRAWS: usize = 16;

/// Slots that eviction looks at in one visit of a shard, under its lock: about 10 µs when none is evicted,
/// 100 µs when all are.
pub(crate) const EVICT_VISIT_SLOTS: u32 = 512;

/// Consecutive undrained rows after which a visit ends: rows drain in the order of their slots, so the rows
/// that follow are undrained too.
pub(crate) const EVICT_RUN_SLOTS: u32 = 64;

/// Eviction frees one 128th of the limit more than was requested, so that it does not run for every insert.
pub(crate) const EVICT_AHEAD_PART: u64 = 128;

/// After a complete search that found nothing to evict, each row read back since counts as this many slots;
/// the search is repeated when these reach the slots that it looked at.
pub(crate) const EVICT_SCAN_SLOTS_PER_ROW: u64 = 1024;

/// Reads through the source at the same time: more than a database's readers, fewer than would crowd out its
/// other users.
pub(crate) const FETCHES_MAX: usize = 64;

/// Reads that may wait for one of the [`FETCHES_MAX`].
pub(crate) const FETCH_QUEUE_MAX: usize = 4096;

/// How often one read through the source is tried when the row changes meanwhile.
pub(crate) const FETCH_TRIES: usize = 8;

/// Additions to one row's columns that are stored separately until the database has them (40 KiB). A hot
/// counter has more; neighbours are then merged, and fewer images of its row can be used.
pub(crate) const PENDING_ADDS_MAX: usize = 1024;

/// [`PENDING_ADDS_MAX`] when the memory limit is reached.
pub(crate) const PENDING_ADDS_TIGHT: usize = 4;

/// Memory that an intent takes besides its record: its entries in two maps at their lowest load, and the
/// client's channel.
pub(crate) const INTENT_BYTES: usize = 448;

/// How often a strict write that has nothing to write checks whether the row that it shows is durable.
pub(crate) const PROMISE_LOOK: Duration = Duration::from_millis(1);

/// Rows of a followed table that may be waited for at the same time.
pub(crate) const WANTED_MAX: usize = FETCHES_MAX + FETCH_QUEUE_MAX;

/// Smallest block of serial keys: a restart leaves up to so many keys of a rarely written table unused.
pub(crate) const KEYS_MIN: u64 = 1_000;

/// Largest block of serial keys: one second at 1,000,000 inserts a second.
pub(crate) const KEYS_MAX: u64 = 1_000_000;

/// A block that was used up faster than this is followed by one four times its size, unless that is the
/// largest.
pub(crate) const KEYS_FAST: Duration = Duration::from_secs(2);

/// A block that lasted longer than this is followed by one half its size, unless that is the smallest.
pub(crate) const KEYS_SLOW: Duration = Duration::from_secs(60);

/// Bytes that replay takes from the log at a time: still in the CPU's cache when they are applied, and enough
/// to keep a disk busy.
pub(crate) const REPLAY_BATCH_BYTES: usize = 1 << 20;

/// Batches that replay reads ahead.
pub(crate) const REPLAY_BATCHES: usize = 4;

/// Threads that replay applies changes on at most. Each thread decodes every record, for 20 ns; to apply one
/// takes 500 ns or more, so the duplicated decoding stays small with a few threads.
pub(crate) const REPLAY_THREADS_MAX: usize = 4;

/// Rows that a checkpoint takes of a shard under its lock at a time, and bytes of them: some 50 µs.
pub(crate) const CHECKPOINT_SLICE_SLOTS: u32 = 512;
/// See [`CHECKPOINT_SLICE_SLOTS`].
pub(crate) const CHECKPOINT_SLICE_BYTES: usize = 256 << 10;

/// Bytes of a checkpoint that are written at a time.
pub(crate) const CHECKPOINT_WRITE_BYTES: usize = 1 << 20;

/// Bytes of a checkpoint that are synced at a time: the last sync, and those of the log beside it, wait for
/// no more than that.
pub(crate) const CHECKPOINT_SYNC_BYTES: u64 = 32 << 20;

/// Threads that load a checkpoint at most: more of them would wait for memory.
pub(crate) const CHECKPOINT_THREADS_MAX: usize = 8;

/// The longest record, in bytes: what the log's buffer accepts, and far below the limit of a Redis command.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Bits of a position that a slot stores; 2^56 bytes of log are 64 PiB.
pub(crate) const POSITION_BITS: u32 = 56;

const _: () = assert!(SHARDS == u64::BITS as usize, "the stripes of a row are one word");
const _: () = assert!(CHUNK_SLOTS.is_power_of_two());
const _: () = assert!(KEYS_MIN < KEYS_MAX);
const _: () = assert!(EVICT_RUN_SLOTS < EVICT_VISIT_SLOTS);

/// Shards of a tier on one server: one drain lease, stream and counter each; more would only cost, because
/// the server has one thread.
pub(crate) const SHARDS_SINGLE: u16 = 8;

/// Shards of a tier on a cluster: 15 primaries have four or five each, and a few more primaries still get
/// equal shares.
pub(crate) const SHARDS_CLUSTER: u16 = 64;

/// How long a request waits for a shard that has changed over before it is refused: the time of a failover
/// once the new primary is reachable.
pub(crate) const REMOTE_REPAIR_WAIT: Duration = Duration::from_secs(3);

/// How often the request checks meanwhile.
pub(crate) const REMOTE_REPAIR_PAUSE: Duration = Duration::from_millis(50);

/// The lifetime of a repair's lock: the server that repairs renews it; another one takes over this long after
/// that server died, and the shard accepts no writes until then.
pub(crate) const REMOTE_LOCK_MS: u64 = 5_000;

/// Shards whose position is fenced in the database at the same time: each is a transaction of its own.
pub(crate) const REMOTE_FENCES_AT_ONCE: usize = 8;

/// Concurrent scans of all rows for lost reservations: several a primary, so that each is busy.
pub(crate) const REMOTE_REBUILDS_AT_ONCE: usize = 32;

/// How far the numbers of a shard's queue jump when its server has changed over. A primary that was cut off
/// may continue to count: its numbers and the new primary's never overlap unless it accepts 2^30 writes. 2^53
/// is the last number, reached after 8 million change-overs.
pub(crate) const REMOTE_JUMP: u64 = 1 << 30;

/// How often a change is tried while others change the row; then the client may retry.
pub(crate) const REMOTE_TRIES: usize = 32;

/// How old the counts of the shards may be by which a random row's shard is chosen.
pub(crate) const REMOTE_COUNTS_AGE: Duration = Duration::from_secs(1);

/// Empty shards that `random` draws before it reports that there is no row.
pub(crate) const REMOTE_RANDOM_DRAWS: usize = 4;

/// The lifetime of the lease for loading a table, and of the hold that retains tombstones for the load.
pub(crate) const REMOTE_LOAD_LEASE_MS: u64 = 30_000;

/// Rows that one script loads: some 2 ms of the server's time.
pub(crate) const REMOTE_LOAD_ROWS: usize = 200;

/// The lifetime of staged keys after the last row: longer than a load may pause, and short enough that a
/// server does not store rows for long that no load will use.
pub(crate) const REMOTE_STAGE_MS: u64 = 2 * REMOTE_LOAD_LEASE_MS;

/// The most shards of a tier for which a load is staged: each shard costs some commands with every part of a
/// load.
pub(crate) const REMOTE_STAGE_SHARDS_MAX: usize = 64;

/// Rows looked at by one step of a scan of a shard.
pub(crate) const REMOTE_SCAN_ROWS: usize = 200;

/// How often a caller that waits for a table to be loaded checks.
pub(crate) const REMOTE_LOADED_PAUSE: Duration = Duration::from_millis(100);

/// Eviction continues until this percentage of the limit is in use, so that it does not run for every row.
pub(crate) const REMOTE_EVICT_TO_PERCENT: u64 = 90;

/// Drained rows are evicted from this percentage of the servers' own `maxmemory` on: the rest is for the
/// queues, buffers of clients and growth between two checks.
pub(crate) const REMOTE_SERVERS_PERCENT: u64 = 85;

/// From this percentage of its `maxmemory` on, a server is reported as full: eviction does not keep up.
pub(crate) const REMOTE_SERVER_FULL_PERCENT: u64 = 95;

/// A shard that was full accepts rows again below this percentage of the limit.
pub(crate) const REMOTE_FULL_UNTIL_PERCENT: u64 = 97;

const _: () = assert!(REMOTE_EVICT_TO_PERCENT < REMOTE_FULL_UNTIL_PERCENT);
const _: () = assert!(REMOTE_SERVERS_PERCENT < REMOTE_SERVER_FULL_PERCENT);

/// How old the servers' memory figures may be when eviction uses them.
pub(crate) const REMOTE_USED_AGE: Duration = Duration::from_secs(1);

/// Steps of eviction between two reads of the servers' memory use: 20,000 rows, 10 MB at 500 bytes each.
pub(crate) const REMOTE_EVICT_STEPS: usize = 100;

/// A checkpoint of followed tables is due when the database has reported more changed rows since the last one
/// than this, and than the tables have.
pub(crate) const HELD_TOLD_MIN: u64 = 1_000_000;
/// The database retains its changes since the last checkpoint up to this multiple of that number: meanwhile a
/// late or failed checkpoint can be tried again.
pub(crate) const HELD_TOLD_TIMES: u64 = 4;

/// The longest log behind a checkpoint with which rows can be read while the checkpoint is loaded: to scan it
/// first takes a tenth of a second.
pub(crate) const EARLY_LOG_BYTES_MAX: u64 = 64 << 20;
