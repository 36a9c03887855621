//! Every limit of this crate and where it comes from.

/// How long a commit that other writes wait behind may take: the drain yields the writer this often.
pub const SLICE_MS: u64 = 20;

/// How long one statement may run inside a shared transaction; a slower statement is run again, alone.
pub const SHARED_STATEMENT_MS: u64 = SLICE_MS;

/// Statements that share one transaction at most. In a group this large the fsync costs a small part of each
/// statement; a larger group would only make the first statements wait.
pub const GROUP_STATEMENTS: usize = 1_024;

/// How often a shared transaction is retried without the statement that broke it, before each statement runs
/// alone.
pub const GROUP_ATTEMPTS: usize = 4;

/// Drain and bulk jobs that may wait for the writer. There are one drain and at most one seed; more is a
/// mistake.
pub const BULK_QUEUE: usize = 64;

/// Bytes of one result at most, so that a missing LIMIT cannot use up the server's memory.
pub const RESULT_BYTES: usize = 64 << 20;

/// SQLite virtual-machine steps between two checks of the clock: 10 to 100 µs, against 25 ns for a check.
pub const PROGRESS_OPS: i32 = 1_000;

/// How long opening waits for a lock that another process holds.
pub const OPEN_LOCK_WAIT_MS: u64 = 5_000;

/// How long drain and bulk jobs wait for a lock that another process holds before they report it and back
/// off.
pub const BULK_LOCK_WAIT_MS: u64 = 500;

/// The page cache of the writer in KiB. A drain batch touches most leaves of a random (UUID) key's index: at
/// 1,000,000 rows these are 50 MB, and pages that the cache evicts are read again for the next batch.
pub const WRITER_CACHE_KIB: i64 = 64 << 10;

/// The page cache of each reader in KiB: the inner pages of the indexes; leaves come from the operating
/// system's cache.
pub const READER_CACHE_KIB: i64 = 16 << 10;

/// SQLite's memory-mapped reads stay off: when another process truncates a mapped file, or a disk fails, the
/// process is killed with SIGBUS, where `read` returns an error that can be reported.
pub const MMAP_BYTES: i64 = 0;

/// Pages in the write-ahead log after which a commit copies them into the database file. 16,384 pages are 64
/// MiB: several drain batches, so that an index page that each of them changes is copied once.
pub const CHECKPOINT_PAGES: i64 = 16_384;

/// The size in bytes to which a larger write-ahead log file is truncated.
pub const WAL_KEPT_BYTES: i64 = 128 << 20;

/// Prepared statements cached per connection; a configuration has far fewer.
pub const STATEMENTS_CACHED: usize = 256;

/// Rows in one message of a scan: enough to make the hand-over cheap, and only 0.5 MB at 500-byte rows.
pub const SCAN_ROWS: usize = 1_024;

/// Messages of a scan in its channel; together with [`SCAN_ROWS`] this bounds what a slow receiver leaves in
/// memory.
pub const SCAN_MESSAGES: usize = 8;

/// Changes between two checks whether direct writes wait.
pub const YIELD_EVERY: usize = 64;

/// Changes that a batch may always execute: with fewer, a batch could yield without end.
pub const YIELD_FLOOR: usize = 256;

/// Connections to PostgreSQL when the URL sets no number: a backend is a process of some 10 MB that uses a
/// core while it works, and pipelines over two connections keep two cores busy. The other connections are for
/// slow statements.
pub const POOL_DEFAULT: usize = 16;

/// One connection to read, one to write, one for drain and schema.
pub const POOL_MIN: usize = 3;

/// More connections than this make any PostgreSQL slower, not faster.
pub const POOL_MAX: usize = 500;

/// Connections of PostgreSQL's `max_connections` that are left to other clients, beside those that the server
/// reserves for superusers: a `psql`, a backup, a monitor.
pub const CONNECTIONS_LEFT: usize = 5;

/// Connections of the pool for drain, seed, keys and schemas, at most; one drain uses one of them.
pub const BULK_CONNECTIONS_MAX: usize = 4;

/// Forms of texts that are asked at a time on the sessions of drain and schemas, which must keep some.
pub const FORMS_MAX: usize = 2;

/// Concurrent scans, each with its own connection beside the pool: scans are long, and there are few (warm,
/// check).
pub const SCANS_MAX: usize = 4;

/// The longest statement timeout that a URL may set: an hour.
pub const STATEMENT_TIMEOUT_MS_MAX: u64 = 3_600_000;

/// Reads pipelined on one connection in one flight: 64 answers of 600 bytes fit its socket buffer, and the
/// server executes such a flight in a millisecond or two.
pub const PIPELINED_READS: usize = 64;

/// Inserts in one transaction: beyond this number the commit costs only a few per cent of the inserts.
pub const PIPELINED_INSERTS: usize = 128;

/// Connections that commit shared inserts at a time: while one waits for its fsync, the other inserts the
/// next group.
pub const INSERT_CONNECTIONS: usize = 2;

/// How long an insert in a shared transaction waits for a lock; after that it is run alone, where it may wait
/// as long as a statement may run.
pub const SHARED_LOCK_WAIT_MS: u64 = SHARED_STATEMENT_MS;

/// How often a read, or a statement that was only prepared, is sent again because its connection was lost: a
/// restarted server leaves several dead connections.
pub const SEND_TRIES: u8 = 8;

/// How long a connection may be busy with statements that were meanwhile sent on another connection, before a
/// new connection replaces it.
pub const LEFTOVERS_MS: u64 = 10 * SHARED_STATEMENT_MS;

/// How often a statement that once delayed a pipeline must be quick by itself before it is pipelined again.
pub const QUICK_AGAIN_AFTER: u8 = 16;

/// How long after its timeout a statement that the server does not end is abandoned, with its connection.
pub const SERVER_GRACE_MS: u64 = 2_000;

/// How much a pause of this process counts at most towards the server's time: a small part of
/// [`SERVER_GRACE_MS`], and few wake-ups while waiting for a statement.
pub const PATIENCE_SLICE_MS: u64 = 250;

/// How long a statement of the drain, or a COPY, may be unanswered before its connection is abandoned: a
/// batch takes half a second, or a few seconds with slow triggers.
pub const BULK_ANSWER_MS: u64 = 30_000;

/// The same for statements over a whole table (VACUUM), and for a scan that has not found its next row.
pub const WHOLE_TABLE_MS: u64 = 3_600_000;

/// How long running work may take when the database is closed; after that its connections are dropped.
pub const CLOSE_MS: u64 = 1_000;

/// How long the handshake of a new connection may take, from the first byte to the server's last message,
/// beside `connect_timeout`.
pub const HANDSHAKE_MS: u64 = 5_000;

/// How long sent data may stay unacknowledged, and a silent connection unanswered, before the operating
/// system closes the connection, on both ends: a server that vanished must not hold locks for long.
pub const TCP_USER_TIMEOUT_MS: u64 = 15_000;
/// See [`TCP_USER_TIMEOUT_MS`]: the silence after which the system probes a connection.
pub const KEEPALIVE_IDLE_S: u64 = 10;
/// See [`TCP_USER_TIMEOUT_MS`]: the interval between probes.
pub const KEEPALIVE_INTERVAL_S: u64 = 5;
/// See [`KEEPALIVE_INTERVAL_S`]: the number of probes.
pub const KEEPALIVE_PROBES: u32 = 3;

/// How long after its last use a connection is used for a batch without a check that it is still open.
pub const SESSION_WARM_MS: u64 = 1_000;

/// How long the outcome of an unanswered COMMIT is looked up before the drain is told that it is unknown.
pub const OUTCOME_MS: u64 = 10_000;

/// The first and the longest pause between two attempts to connect.
pub const RECONNECT_FIRST_MS: u64 = 50;
/// See [`RECONNECT_FIRST_MS`]. A server that restarts after a crash takes seconds, and must be found soon
/// after.
pub const RECONNECT_LAST_MS: u64 = 1_000;

/// After a failed attempt to connect, how long calls are refused without another attempt; and how long an
/// attempt may take for calls to wait for its outcome. A reachable server takes some 10 ms.
pub const CONNECT_AGAIN_MS: u64 = 100;

/// How often waiting statements are searched for those that have timed out.
pub const SWEEP_MS: u64 = 100;

/// The number of changes of one kind to one table from which on COPY is used; fewer are sent as statements,
/// which cost less than a COPY's two round trips.
pub const COPY_ROWS_MIN: usize = 32;

/// Changes at most in a batch that is sent as one flight, COMMIT included. In a larger batch round trips
/// matter little, and COPY costs less a row.
pub const FLIGHT_CHANGES: usize = 128;

/// Changes in the first flight of a larger batch; the next ones are twice as long. Between flights a batch
/// looks at the time.
pub const FLIGHT_CHANGES_FIRST: usize = 8;

/// Rows at most in one INSERT of such a batch. A statement has 65,535 parameters at most, and a table of the
/// config 1,000 columns.
pub const INSERTED_TOGETHER: usize = 32;

/// Bytes of encoded rows given to a COPY at once: large enough that the hand-over is cheap, small enough that
/// the server works on the first part while the next is encoded.
pub const COPY_CHUNK_BYTES: usize = 128 << 10;

/// Changes in one savepoint when each may become a dead letter: a refused change causes at most this many to
/// run again.
pub const SAVEPOINT_CHANGES: usize = 64;

/// Changes in one flight, each with its own savepoint, after one was refused. The changes sent behind the
/// next refused one are discarded.
pub const APART_CHANGES: usize = 8;

/// Characters of a dead letter's row, and of its reason, that are stored as text: for people; the change
/// itself is stored as bytes.
pub const LETTER_TEXT_CHARS: usize = 1 << 20;

/// Dead letters whose keys are read before each batch, to see which of them the batch supersedes. When there
/// are more, the database looks up each key.
pub const LETTERS_LOOKED_AT: usize = 1_000;

/// Keys taken one by one from a sequence at most; a larger step uses `setval`.
pub const SEQUENCE_STEPS_MAX: i64 = 1_000_000;

/// The age of a claim on tables at which another server may take them over: several times the seconds between
/// two signs of life, and longer than a batch takes.
pub const CLAIM_MS: u64 = 20_000;

/// The oldest PostgreSQL that can be followed: `pg_current_snapshot()` exists since 13
/// (`server_version_num`).
pub const FOLLOW_SERVER_MIN: i64 = 130_000;

/// Changes in one page of a follower: their rows are in memory at once, and the page's two or three round
/// trips are spread over thousands of rows.
pub const FOLLOW_PAGE: usize = 4_000;

/// How long to wait for a lock on a table that is to be followed. Other writers wait behind this request
/// meanwhile.
pub const FOLLOW_LOCK_WAIT_MS: u64 = 2_000;

/// How long a poll waits for a lock on one table: the changes of all others wait meanwhile.
pub const FOLLOW_POLL_LOCK_MS: u64 = 20;

/// How long a table that is locked is left alone by the polls.
pub const FOLLOW_LOCKED_PAUSE_MS: u64 = 250;

/// When a table that cannot be followed is looked at again, though its definition is unchanged: a right may
/// have been granted.
pub const FOLLOW_TROUBLE_PAUSE_MS: u64 = 2_000;

/// How often rows are counted, in tables of which rows may be removed without a report: a count reads an
/// index as a whole.
pub const FOLLOW_COUNT_MS: u64 = 1_000;

/// How often a poll looks at a table again that is altered again and again.
pub const FOLLOW_LOOKS: usize = 3;

/// How often the lock is tried, and the pause between two tries, in which the waiting writers proceed.
pub const FOLLOW_LOCK_TRIES: usize = 15;
/// See [`FOLLOW_LOCK_TRIES`].
pub const FOLLOW_LOCK_PAUSE_MS: u64 = 500;

/// How long the creation of a replication slot waits for open transactions.
pub const SLOT_WAIT_MS: u64 = 10_000;

/// How far a stream may lag, beside what its tables' sizes allow: beyond that the tables are read again.
pub const FOLLOW_LAG_BYTES: u64 = 256 << 20;

/// How long a poll waits for a stream that lags behind the database: a pause between two polls.
pub const FOLLOW_STREAM_WAIT_MS: u64 = 50;

/// A stream on which nothing arrives for this long, though each poll requests an answer, is closed. The
/// server may decode a large transaction of other tables for as long without a message.
pub const FOLLOW_DEAF_MS: u64 = 60_000;

/// Buffer space for one read of a stream.
pub const REPLICATION_READ_BYTES: usize = 256 << 10;

/// How often a follower stores its progress.
pub const FOLLOW_NOTE_MS: u64 = 5_000;

/// The same when there was nothing to read, on SQLite, where each such note is a commit: well within the half
/// hour after which a follower counts as unknown.
pub const FOLLOW_IDLE_NOTE_MS: u64 = 300_000;

/// Changes that are deleted in one transaction: this takes a few milliseconds.
pub const FOLLOW_DELETE_ROWS: u64 = 10_000;

const _: () = assert!(INSERTED_TOGETHER.is_power_of_two() && INSERTED_TOGETHER * 1_000 < 65_535);
const _: () = assert!(CONNECT_AGAIN_MS < RECONNECT_LAST_MS);
const _: () = assert!(YIELD_EVERY <= YIELD_FLOOR);
const _: () = assert!(SHARED_STATEMENT_MS <= SLICE_MS);
const _: () = assert!(PATIENCE_SLICE_MS * 4 <= SERVER_GRACE_MS);
const _: () = assert!(POOL_MIN <= POOL_DEFAULT && POOL_DEFAULT <= POOL_MAX);
