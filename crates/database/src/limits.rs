//! Every limit of this crate and where it comes from.

/// How long a commit that others wait behind may take: the drain gives the writer back this often.
pub const SLICE_MS: u64 = 20;

/// How long one statement may run inside a transaction that it shares; past it, it is run again, alone.
pub const SHARED_STATEMENT_MS: u64 = SLICE_MS;

/// Statements that share one transaction at most. A group this large has its fsync paid for many times over;
/// more would only make the first of them wait.
pub const GROUP_STATEMENTS: usize = 1_024;

/// How often a shared transaction is tried again without the statement that broke it, before each runs alone.
pub const GROUP_ATTEMPTS: usize = 4;

/// Drain and bulk jobs that may wait for the writer. There is one drain and at most a seed; more is a
/// mistake.
pub const BULK_QUEUE: usize = 64;

/// Bytes that one result may hold, so that a forgotten LIMIT cannot take the server's memory.
pub const RESULT_BYTES: usize = 64 << 20;

/// SQLite virtual-machine steps between two looks at the clock: 10 to 100 µs, against 25 ns for the look.
pub const PROGRESS_OPS: i32 = 1_000;

/// How long opening waits for a lock that another process holds.
pub const OPEN_LOCK_WAIT_MS: u64 = 5_000;

/// How long drain and bulk jobs wait for a lock that another process holds before they report it and back
/// off.
pub const BULK_LOCK_WAIT_MS: u64 = 500;

/// The page cache of the writer in KiB. A drain batch touches most leaves of a random (UUID) key's index: at
/// 1,000,000 rows these are 50 MB, and what falls out of the cache is read again for the next batch.
pub const WRITER_CACHE_KIB: i64 = 64 << 10;

/// The page cache of each reader in KiB: the inner pages of the indexes; leaves come from the operating
/// system's cache.
pub const READER_CACHE_KIB: i64 = 16 << 10;

/// SQLite's memory-mapped reads stay off: a mapped file that another process truncates, or a disk that fails,
/// kills the process with SIGBUS, where `read` gives an error that can be answered.
pub const MMAP_BYTES: i64 = 0;

/// Pages in the write-ahead log after which a commit copies them into the database file. 16,384 pages are 64
/// MiB: several drain batches, so that an index page that each of them changes is copied once.
pub const CHECKPOINT_PAGES: i64 = 16_384;

/// The size in bytes that the write-ahead log's file is cut back to once it was larger.
pub const WAL_KEPT_BYTES: i64 = 128 << 20;

/// Prepared statements kept per connection; a configuration has far fewer.
pub const STATEMENTS_CACHED: usize = 256;

/// Rows in one message of a scan: enough to make the hand-over free, little enough to be 0.5 MB at 500-byte
/// rows.
pub const SCAN_ROWS: usize = 1_024;

/// Messages of a scan on their way; with [`SCAN_ROWS`] bounds what a slow taker leaves in memory.
pub const SCAN_MESSAGES: usize = 8;

/// Changes between two looks at whether direct writes wait.
pub const YIELD_EVERY: usize = 64;

/// Changes that a batch is always given time for: below it, giving way again would never end.
pub const YIELD_FLOOR: usize = 256;

/// Connections to PostgreSQL when the URL says nothing: a backend is a process of some 10 MB that wants a
/// core while it works, and what is pipelined over two connections keeps two cores busy. The rest is for
/// statements that take their time.
pub const POOL_DEFAULT: usize = 16;

/// One connection to read, one to write, one for drain and schema.
pub const POOL_MIN: usize = 3;

/// More connections than this make any PostgreSQL slower, not faster.
pub const POOL_MAX: usize = 500;

/// Connections of PostgreSQL's `max_connections` that are left to others, beside those it keeps for
/// superusers: a `psql`, a backup, a monitor.
pub const CONNECTIONS_LEFT: usize = 5;

/// Connections of the pool for drain, seed, keys and schemas, at most; one drain uses one of them.
pub const BULK_CONNECTIONS_MAX: usize = 4;

/// Scans at the same time, each with a connection beside the pool: they are long, and there are few (warm,
/// check).
pub const SCANS_MAX: usize = 4;

/// The longest statement time-out that a URL may ask for: an hour.
pub const STATEMENT_TIMEOUT_MS_MAX: u64 = 3_600_000;

/// Reads sent down one connection in one flight: 64 answers of 600 bytes fit its socket buffer, and a flight
/// of them takes the server a millisecond or two.
pub const PIPELINED_READS: usize = 64;

/// Inserts in one transaction: past it what the commit costs is a few per cent of the inserts themselves.
pub const PIPELINED_INSERTS: usize = 128;

/// Connections that commit shared inserts at a time: while one waits for its fsync, the next group is being
/// inserted.
pub const INSERT_CONNECTIONS: usize = 2;

/// How long an insert in a shared transaction waits for a lock; past it it is run alone, where it may wait as
/// long as a statement may run.
pub const SHARED_LOCK_WAIT_MS: u64 = SHARED_STATEMENT_MS;

/// How often a read, or what has only been prepared, is sent again because its connection was lost: a server
/// that was restarted leaves several dead ones behind.
pub const SEND_TRIES: u8 = 8;

/// How long a connection may be busy with statements that were sent elsewhere meanwhile, before a new one
/// takes its place.
pub const LEFTOVERS_MS: u64 = 10 * SHARED_STATEMENT_MS;

/// How often a statement that once held up a pipeline must be quick by itself before it is pipelined again.
pub const QUICK_AGAIN_AFTER: u8 = 16;

/// How long after its time-out a statement that the server does not end is given up, with its connection.
pub const SERVER_GRACE_MS: u64 = 2_000;

/// What a pause of this process counts at most towards the time that a server has: little of
/// [`SERVER_GRACE_MS`], and few wake-ups while a statement is waited for.
pub const PATIENCE_SLICE_MS: u64 = 250;

/// How long a statement of the drain, or a COPY, may be unanswered before its connection is given up: a batch
/// takes half a second, one whose rows have slow triggers a few.
pub const BULK_ANSWER_MS: u64 = 30_000;

/// The same for what goes through a whole table (VACUUM), and for a scan that has not found its next row.
pub const WHOLE_TABLE_MS: u64 = 3_600_000;

/// How long what is under way may take when the database is closed: then its connections are dropped.
pub const CLOSE_MS: u64 = 1_000;

/// How long a new connection may take from the first byte to the server's last word, beside
/// `connect_timeout`.
pub const HANDSHAKE_MS: u64 = 5_000;

/// How long data may be on its way unacknowledged, and a silent connection unanswered, before the system
/// gives it up, on both ends: of a server that is gone without a word no lock must be left for long.
pub const TCP_USER_TIMEOUT_MS: u64 = 15_000;
/// See [`TCP_USER_TIMEOUT_MS`]: after so long a silence a connection is asked whether it is there.
pub const KEEPALIVE_IDLE_S: u64 = 10;
/// See [`TCP_USER_TIMEOUT_MS`]: how often, and how many times.
pub const KEEPALIVE_INTERVAL_S: u64 = 5;
/// See [`KEEPALIVE_INTERVAL_S`].
pub const KEEPALIVE_PROBES: u32 = 3;

/// How long after its last use a connection is taken for a batch without asking whether it is still there.
pub const SESSION_WARM_MS: u64 = 1_000;

/// How long a COMMIT of unknown outcome is asked after before the drain is told that it is unknown.
pub const OUTCOME_MS: u64 = 10_000;

/// The first and the longest pause between two attempts to connect.
pub const RECONNECT_FIRST_MS: u64 = 50;
/// See [`RECONNECT_FIRST_MS`]. A server that starts again after a crash takes seconds; it must be found soon
/// after.
pub const RECONNECT_LAST_MS: u64 = 1_000;

/// After a failed attempt to connect, how long calls are refused without another one; and how long an attempt
/// may take for calls to wait for its outcome. A server that is there takes some 10 ms.
pub const CONNECT_AGAIN_MS: u64 = 100;

/// How often waiting statements are looked through for those whose time is up.
pub const SWEEP_MS: u64 = 100;

/// Changes of one kind to one table from which on they go by COPY; fewer are sent as statements, which costs
/// less than a COPY's two round trips.
pub const COPY_ROWS_MIN: usize = 32;

/// Changes at most in a batch that is sent as one flight, COMMIT included. In a larger one round trips count
/// for little, and COPY costs less a row.
pub const FLIGHT_CHANGES: usize = 128;

/// For how long a connection knows whether triggers or rules of a table may skip rows or put them elsewhere:
/// as often as the catalogue is looked at for what a table enforces.
pub const SKIPPING_KNOWN_MS: u64 = 5_000;

/// Rows at most that one INSERT of such a batch has. A statement has 65,535 parameters at most, and a table
/// of the config 1,000 columns.
pub const INSERTED_TOGETHER: usize = 32;

/// Bytes of encoded rows handed to a COPY at once: large enough that the hand-over is free, small enough that
/// the server works on the first while the next is encoded.
pub const COPY_CHUNK_BYTES: usize = 128 << 10;

/// Changes in one savepoint when each may become a dead letter: a refused one has at most so many run again.
pub const SAVEPOINT_CHANGES: usize = 64;

/// Changes in one flight, each behind a savepoint of its own, after one was refused. What is sent behind the
/// next refused one is sent in vain.
pub const APART_CHANGES: usize = 8;

/// Characters of a dead letter's row, and of its reason, that are kept as text: for people; the change itself
/// is kept in bytes.
pub const LETTER_TEXT_CHARS: usize = 1 << 20;

/// Dead letters whose keys are read before each batch, to see which of them it supersedes. With more, the
/// database looks for each key.
pub const LETTERS_LOOKED_AT: usize = 1_000;

/// Keys taken one by one from a sequence at most; a larger step sets it.
pub const SEQUENCE_STEPS_MAX: i64 = 1_000_000;

/// How old a claim on tables is when another server may take them over: several times the seconds between
/// two signs of life, and more than a batch takes.
pub const CLAIM_MS: u64 = 20_000;

/// The oldest PostgreSQL that can be followed: `pg_current_snapshot()` is there since 13
/// (`server_version_num`).
pub const FOLLOW_SERVER_MIN: i64 = 130_000;

/// Changes in one page of a follower: their rows are in memory at once, and the page's two or three round
/// trips are spread over thousands of rows.
pub const FOLLOW_PAGE: usize = 4_000;

/// How long a lock on a table that is to be followed is waited for. Other writers wait behind
/// us meanwhile.
pub const FOLLOW_LOCK_WAIT_MS: u64 = 2_000;

/// How often it is tried, and the pause between two tries, in which those who waited get their turn.
pub const FOLLOW_LOCK_TRIES: usize = 15;
/// See [`FOLLOW_LOCK_TRIES`].
pub const FOLLOW_LOCK_PAUSE_MS: u64 = 500;

/// How long the creation of a replication slot waits for the transactions that are open.
pub const SLOT_WAIT_MS: u64 = 10_000;

/// How far a stream may be behind, beside what its tables' sizes allow: beyond it they are read again.
pub const FOLLOW_LAG_BYTES: u64 = 256 << 20;

/// How long a poll waits for a stream that has not come as far as the database is: a pause between two polls.
pub const FOLLOW_STREAM_WAIT_MS: u64 = 50;

/// A stream on which nothing comes for so long, though each poll asks for an answer, is given up. A large
/// transaction of other tables may be decoded for as long without a word.
pub const FOLLOW_DEAF_MS: u64 = 60_000;

/// Room for what one read of a stream takes.
pub const REPLICATION_READ_BYTES: usize = 256 << 10;

/// How often a follower notes how far it is.
pub const FOLLOW_NOTE_MS: u64 = 5_000;

/// The same when there was nothing to read, on SQLite, where each note is a commit: well within the half hour
/// after which a follower is unknown.
pub const FOLLOW_IDLE_NOTE_MS: u64 = 300_000;

/// Changes that are deleted in one transaction: a few milliseconds' work.
pub const FOLLOW_DELETE_ROWS: u64 = 10_000;

const _: () = assert!(INSERTED_TOGETHER.is_power_of_two() && INSERTED_TOGETHER * 1_000 < 65_535);
const _: () = assert!(CONNECT_AGAIN_MS < RECONNECT_LAST_MS);
const _: () = assert!(YIELD_EVERY <= YIELD_FLOOR);
const _: () = assert!(SHARED_STATEMENT_MS <= SLICE_MS);
const _: () = assert!(PATIENCE_SLICE_MS * 4 <= SERVER_GRACE_MS);
const _: () = assert!(POOL_MIN <= POOL_DEFAULT && POOL_DEFAULT <= POOL_MAX);
