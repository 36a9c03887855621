//! Every limit of this crate and where it comes from.

use std::time::Duration;

/// Log records in one batch at most, when no direct write waits for the writer. At 500-byte rows these are 50
/// MB in memory, twice. Each batch rewrites most pages of a random key's index, which speaks for few large
/// batches. Measured so far only on a busy machine (`crates/drain/examples/drain_rates.rs`, 1,000,000 rows):
/// 100,000 gave 0.87 and 1.06 of SQLite's own rate, 50,000 gave 0.78, 0.84 and 0.89; the spread is as large
/// as the difference.
pub const BATCH_ROWS_DEFAULT: usize = 100_000;

/// Log records in one batch at least: as many as a database applies without yielding
/// (`forebay_database::limits::YIELD_FLOOR`).
pub const BATCH_ROWS_MIN: usize = forebay_database::limits::YIELD_FLOOR;

/// Log records in the first batch of a backlog: an idle database must not wait until the largest batch is
/// ready. The next batches double in size, so that preparing (about 3 µs a row) and applying (5 µs and more)
/// run side by side.
pub const BATCH_ROWS_FIRST: usize = 10_000;

/// Log records at most in a batch that is applied one by one: between two such batches the drain checks
/// whether their tables still fit.
pub const UNCOALESCED_ROWS: usize = 1_000;

/// Bytes of one read of the log. Bounds, with the batch, what the drain holds in memory.
pub const READ_BYTES: usize = 4 << 20;

/// Bytes of rows in one batch, whatever their number: a row may be a megabyte large.
pub const BATCH_BYTES: usize = 64 << 20;

/// How long a batch may hold the writer while direct writes wait.
pub const SLICE_MS: u64 = forebay_database::limits::SLICE_MS;

/// How long a batch may take when no direct write waits. A direct write that arrives meanwhile makes the
/// batch yield within [`SLICE_MS`], so that this bounds only the work that is then lost.
pub const BATCH_MS_MAX: u64 = 2_000;

/// How long a small batch waits for more records. Bounds the commits of a lightly loaded server to 50 a
/// second.
pub const LINGER_MS: u64 = 20;

/// The size below which a batch is small, in bytes of the log: the commit then costs more than the rows.
pub const LINGER_BYTES: u64 = 256 << 10;

/// Bytes of log behind a batch from which on the next batch is prepared while the database is busy; no batch
/// lingers then.
pub const AHEAD_BYTES: u64 = READ_BYTES as u64;

/// A drain starts before its window when the undrained log reaches its limit divided by this: writes continue
/// while that half of the log is drained.
pub const CROWDED_LOG_PART: u64 = 2;

/// The same for the memory limit, in bytes of the log, once memory is three quarters full: a row of four
/// numbers took 61 bytes in the log and 116 in memory, so that about a quarter of memory is undrained then.
pub const CROWDED_MEMORY_PART: u64 = 8;

/// The room of stopped tables in the log: its limit divided by this. At most three times as much is set
/// aside, beside the log, which keeps three quarters of its limit for the others.
pub const ASIDE_LOG_PART: u64 = 4;

/// The same for the memory limit: the rows of these changes cannot be evicted.
pub const ASIDE_MEMORY_PART: u64 = 4;

/// The room at most: the drain writes nothing to the database while so much is read and set aside.
pub const ASIDE_BYTES_MAX: u64 = 256 << 20;

/// When setting records aside is tried again after it failed, on a full disk for example.
pub const ASIDE_AGAIN: Duration = Duration::from_secs(10);

/// How often an idle drain reads its controls.
pub const IDLE_MS: u64 = 50;

/// How long a table that a lock or slowness has stopped is not announced: others' transactions may take a
/// moment, and a strict write waits for them as long.
pub const ANNOUNCED_AFTER: Duration = Duration::from_secs(5);

/// How long a batch of tables that catch up may take: the others' writes wait behind it.
pub const CATCH_UP_MS: u64 = 250;

/// From how many milliseconds a row on a table is slow: its rows then share a batch with those of other
/// tables only as far as they take [`CATCH_UP_MS`].
pub const SLOW_ROW_MS: f64 = 1.0;

/// Records that are read for one batch of tables that catch up: few of them are theirs.
pub const CATCH_UP_READ: usize = 10_000;

/// How long a batch of tables that catch up waits for a lock.
pub const CATCH_UP_LOCK_MS: u64 = 100;

/// How long a batch of tables that catch up may run, its triggers included: of one row, if need be.
pub const CATCH_UP_STATEMENT_MS: u64 = 1_000;

/// How long a small batch may run, and each of its statements, triggers included.
pub const STATEMENT_MS_MIN: u64 = 500;

/// How long a large batch may run.
pub const STATEMENT_MS_MAX: u64 = 4_000;

/// How many rows a large batch must write in a millisecond at least, until it is broken off.
pub const ROWS_PER_MS_MIN: u64 = 6;

/// How often a server that writes nothing renews its claim: four times within the time that a claim on tables
/// lasts.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// How long the drain waits in each round for the rows that memory dropped and that the drain reads again.
pub const READ_MS: u64 = 20;

/// How long the drain starts no such reads after one that failed.
pub const READ_AGAIN_MS: u64 = 2_000;

/// How long a pause waits for the batch in hand. Most take less than [`BATCH_MS_MAX`].
pub const PAUSE_WAIT: Duration = Duration::from_secs(5);

/// How long a drain that was told to leave waits for the batch in hand. Otherwise a database that does not
/// answer would delay the stop until its own timeout.
pub const LEAVE_WAIT: Duration = Duration::from_millis(500);

/// The first pause when the database is unreachable; doubled each time.
pub const BACK_OFF_FIRST_MS: u64 = 50;

/// The longest pause when the database is unreachable.
pub const BACK_OFF_LAST_MS: u64 = 5_000;

/// With a pace: the part of a second that one batch may take, so that rows flow evenly.
pub const PACE_SLICE_S: f64 = 0.1;

/// The longest pause that a pace causes after one batch, in seconds, however slow the pace is.
pub const PACE_PAUSE_S_MAX: f64 = 60.0;

/// Rows of one bulk insert of `seed`; larger runs of sorted keys make random keys cheaper.
pub const SEED_ROWS: usize = 100_000;

/// Rows that `verify` reads back from the database at a time: the whole answer is held in memory.
pub const STORED_ROWS: usize = 256;

/// Differences that `verify` lists.
pub const EXAMPLES: usize = 20;

const _: () = assert!(BATCH_ROWS_MIN < BATCH_ROWS_DEFAULT);
const _: () = assert!(HEARTBEAT.as_millis() as u64 * 4 <= forebay_database::limits::CLAIM_MS);
const _: () = assert!(BACK_OFF_FIRST_MS < BACK_OFF_LAST_MS);

/// How often the follower polls the database for changes by other programs: half of the tenth of a second
/// within which a change must be visible.
pub const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// How often the follower looks for replication slots that no server uses.
pub const IDLE_SLOTS_PAUSE: Duration = Duration::from_secs(600);

/// Keys of a table that one poll reads on request: about as many as a page of reported changes contains.
pub const FOLLOW_KEYS: usize = 2_000;

/// How much longer than looking for changes that are not drained the follower pauses before it looks again.
pub(crate) const ADOPT_SHARE: u32 = 20;

/// How long counted rows wait for memory to have no writes that the database lacks, before the table is read
/// again without a comparison.
pub(crate) const GHOST_PATIENCE: Duration = Duration::from_secs(30);

/// When columns' new names that could not be noted, on a full disk, are tried again.
pub(crate) const ADOPT_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// When a table that could not be read again, because it was locked or its rows did not fit, is tried again.
pub const RELOAD_RETRY_PAUSE: Duration = Duration::from_secs(1);
