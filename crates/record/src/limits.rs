//! Every limit of this crate and where it comes from.

/// How long a commit that others wait behind may take: the drain gives the writer back this often (DESIGN "direct SQL").
pub const SLICE_MS: u64 = 20;

/// How long one statement may run inside a transaction that it shares; past it, it is run again, alone.
pub const SHARED_STATEMENT_MS: u64 = SLICE_MS;

/// Statements that share one transaction at most. A group this large has its fsync paid for many times over;
/// more would only make the first of them wait.
pub const GROUP_STATEMENTS: usize = 1_024;

/// How often a shared transaction is tried again without the statement that broke it, before each runs alone.
pub const GROUP_ATTEMPTS: usize = 4;

/// Drain and bulk jobs that may wait for the writer. There is one drain and at most a seed; more is a mistake.
pub const BULK_QUEUE: usize = 64;

/// Bytes that one result may hold, so that a forgotten LIMIT cannot take the server's memory.
pub const RESULT_BYTES: usize = 64 << 20;

/// SQLite virtual-machine steps between two looks at the clock: 10 to 100 µs, against 25 ns for the look.
pub const PROGRESS_OPS: i32 = 1_000;

/// How long opening waits for a lock that another process holds.
pub const OPEN_LOCK_WAIT_MS: u64 = 5_000;

/// How long drain and bulk jobs wait for a lock that another process holds before they report it and back off.
pub const BULK_LOCK_WAIT_MS: u64 = 500;

/// The page cache of the writer in KiB. A drain batch touches most leaves of a random (UUID) key's index: at 1,000,000
/// rows these are 50 MB, and what falls out of the cache is read again for the next batch.
pub const WRITER_CACHE_KIB: i64 = 64 << 10;

/// The page cache of each reader in KiB: the inner pages of the indexes; leaves come from the operating system's cache.
pub const READER_CACHE_KIB: i64 = 16 << 10;

/// SQLite's memory-mapped reads stay off: a mapped file that another process truncates, or a disk that fails, kills
/// the process with SIGBUS, where `read` gives an error that can be answered.
pub const MMAP_BYTES: i64 = 0;

/// Pages in the write-ahead log after which a commit copies them into the database file. 16,384 pages are 64 MiB: several drain
/// batches, so that an index page that each of them changes is copied once.
pub const CHECKPOINT_PAGES: i64 = 16_384;

/// The size in bytes that the write-ahead log's file is cut back to once it was larger.
pub const WAL_KEPT_BYTES: i64 = 128 << 20;

/// Prepared statements kept per connection; a configuration has far fewer.
pub const STATEMENTS_CACHED: usize = 256;

/// Rows in one message of a scan: enough to make the hand-over free, little enough to be 0.5 MB at 500-byte rows.
pub const SCAN_ROWS: usize = 1_024;

/// Messages of a scan on their way; with [`SCAN_ROWS`] bounds what a slow taker leaves in memory.
pub const SCAN_MESSAGES: usize = 8;

/// Changes between two looks at whether direct writes wait.
pub const YIELD_EVERY: usize = 64;

/// Changes that a batch is always given time for: below it, giving way again would never end.
pub const YIELD_FLOOR: usize = 256;

const _: () = assert!(YIELD_EVERY <= YIELD_FLOOR);
const _: () = assert!(SHARED_STATEMENT_MS <= SLICE_MS);
