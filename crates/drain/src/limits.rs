//! Every limit of this crate and where it comes from.

use std::time::Duration;

/// Log records in one batch at most, when no direct write wants the writer. At 500-byte rows these are 50 MB
/// in memory, twice. Each batch rewrites most pages of a random key's index, which speaks for few large ones.
/// Measured so far only on a busy machine (`crates/drain/examples/drain_rates.rs`, 1,000,000 rows): 100,000
/// gave 0.87 and 1.06 of SQLite's own rate, 50,000 gave 0.78, 0.84 and 0.89; the spread is as large as the
/// difference.
pub const BATCH_ROWS_DEFAULT: usize = 100_000;

/// Log records in one batch at least: what a database applies without giving way
/// (`forebay_database::limits::YIELD_FLOOR`).
pub const BATCH_ROWS_MIN: usize = forebay_database::limits::YIELD_FLOOR;

/// Log records in the first batch of a backlog: a store that has nothing to do shall not wait until the
/// largest batch is ready. The next ones double, which keeps making ready (about 3 µs a row) and applying (5
/// µs and more) side by side.
pub const BATCH_ROWS_FIRST: usize = 10_000;

/// Log records at most in a batch that is applied one by one: whether their tables still fit is asked between
/// two of them.
pub const UNCOALESCED_ROWS: usize = 1_000;

/// Bytes of one read of the log. Bounds, with the batch, what the drain holds in memory.
pub const READ_BYTES: usize = 4 << 20;

/// Bytes of rows in one batch, whatever their number: rows may be a megabyte each.
pub const BATCH_BYTES: usize = 64 << 20;

/// How long a batch may hold the writer while direct writes wait.
pub const SLICE_MS: u64 = forebay_database::limits::SLICE_MS;

/// How long a batch may take when no direct write waits. One that arrives meanwhile makes it give way within
/// [`SLICE_MS`], so that this bounds only the work that is then lost.
pub const BATCH_MS_MAX: u64 = 2_000;

/// How long a small batch waits for others to join it. Bounds the commits of a server with little to do to 50
/// a second.
pub const LINGER_MS: u64 = 20;

/// What is a small batch, in bytes of the log: below it the commit costs more than the rows.
pub const LINGER_BYTES: u64 = 256 << 10;

/// Bytes of log behind a batch from which on the next one is made ready while the store is busy: then there
/// is no time for lingering.
pub const AHEAD_BYTES: u64 = READ_BYTES as u64;

/// A drain begins before its window when the log that waits is this part of its limit: writes go on while
/// half of the log is drained.
pub const CROWDED_LOG_PART: u64 = 2;

/// The same of the memory limit, in bytes of the log, once memory is three quarters full: a row of four
/// numbers took 61 bytes in the log and 116 in memory, so that some quarter of it is not drained then.
pub const CROWDED_MEMORY_PART: u64 = 8;

/// How often an idle drain reads its controls.
pub const IDLE_MS: u64 = 50;

/// How often a server that writes nothing says that it lives: four times while its claim on tables lasts.
pub const BEAT: Duration = Duration::from_secs(5);

/// How long the drain waits in each turn for rows that memory gave up and that it reads again.
pub const READ_MS: u64 = 20;

/// How long it begins no reads of such rows after one that failed.
pub const READ_AGAIN_MS: u64 = 2_000;

/// How long a pause waits for the batch in hand. Most take less than [`BATCH_MS_MAX`].
pub const PAUSE_WAIT: Duration = Duration::from_secs(5);

/// How long a drain that was told to leave waits for the batch in hand. A database that does not answer would
/// hold up the stop as long as it may be silent.
pub const LEAVE_WAIT: Duration = Duration::from_millis(500);

/// The first pause when the store is away; doubled each time.
pub const BACK_OFF_FIRST_MS: u64 = 50;

/// The longest pause when the store is away.
pub const BACK_OFF_LAST_MS: u64 = 5_000;

/// With a pace, how much of a second one batch may be, so that it is a stream and not a wave.
pub const PACE_SLICE_S: f64 = 0.1;

/// The longest pause that a pace makes after one batch, in seconds, however slow it is.
pub const PACE_PAUSE_S_MAX: f64 = 60.0;

/// Rows of one bulk insert of `seed`; larger runs of sorted keys make random keys cheaper.
pub const SEED_ROWS: usize = 100_000;

/// Rows that `verify` has the database give back at a time: the answer is held in memory whole.
pub const STORED_ROWS: usize = 256;

/// Differences that `verify` names.
pub const EXAMPLES: usize = 20;

const _: () = assert!(BATCH_ROWS_MIN < BATCH_ROWS_DEFAULT);
const _: () = assert!(BEAT.as_millis() as u64 * 4 <= forebay_database::limits::CLAIM_MS);
const _: () = assert!(BACK_OFF_FIRST_MS < BACK_OFF_LAST_MS);

/// How often the database is asked what others have committed: half of a tenth of a second, in which a
/// change is to be seen.
pub const FOLLOW_PAUSE: Duration = Duration::from_millis(50);

/// How often replication slots that no server uses are looked for.
pub const IDLE_SLOTS_PAUSE: Duration = Duration::from_secs(600);

/// Keys of a table that one poll reads because they are wanted: about what a page of told changes has.
pub const FOLLOW_KEYS: usize = 2_000;
