//! Every limit of this crate and where it comes from.

/// Default for what the entries of one process take, in bytes: 200,000 answers of a kilobyte.
pub const BURST_BYTES: u64 = 256 << 20;

/// What an entry takes beside its bodies and its key, in bytes: heads, validator, times, its place
/// in the map (measured: 700 to 900).
pub const ENTRY_BYTES: u64 = 1024;

/// The average entry that the map is laid out for, in bytes; only its first size depends on it.
pub const ENTRY_BYTES_TYPICAL: u64 = 4096;

/// Longest key that is kept, in bytes: a few parameters of usual length. Whoever sends longer ones
/// is answered without the cache, so that keys cannot take the place of answers.
pub const KEY_BYTES_MAX: usize = 1024;

/// Largest body that is kept, in bytes. Larger ones are answered and forgotten: a few hundred of
/// them would be the whole cache.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// Default for the longest body that is kept of an upstream server's answer, in bytes: pages and
/// lists, not downloads. So much of each question that is being asked is held at one time.
pub const UPSTREAM_BYTES: u64 = 1 << 20;

/// Longest that an upstream server's own word lets its answer be shown stale where the rules say
/// nothing of it, in milliseconds: a day.
pub const UPSTREAM_STALE_MS_MAX: u64 = 86_400_000;

/// Longest time that is read from an upstream's fields, in milliseconds: what is longer means for
/// ever (RFC 9111 section 1.2.2).
pub const UPSTREAM_LIFE_MS_MAX: u64 = 1 << 41;

/// For how long a question whose answer turned out to be for nobody else is not asked for everybody
/// again, in milliseconds. Asking costs one request more; not asking costs the shield of a page
/// that says for once that it is for one client.
pub const ALONE_MS: u64 = 10_000;

/// Questions of an endpoint of which that is remembered: 64 KiB. With more, some are asked for
/// everybody again.
pub const ALONE_PLACES: usize = 8192;

/// Generations kept. Two tags that share one are dropped together, which costs a fill and never
/// shows anything old. 1 MiB.
pub const GENERATIONS: usize = 1 << 17;

/// An answer's time to live is shortened by up to this part of it, so that what was filled together
/// does not end together.
pub const JITTER_PART: f64 = 0.1;

/// After a failed fill an entry that may still be shown is shown for so long before the next try,
/// in milliseconds.
pub const FAILURE_PAUSE_MS: u64 = 1_000;

/// For so long after that pause the next try is made while the entry is still shown, in
/// milliseconds: whoever answers late or never shall not keep everybody waiting once a second.
/// After it somebody waits again: what nobody has asked for meanwhile may be had by now.
pub const FAILURE_MEMORY_MS: u64 = 10_000;

/// Who refreshes an entry has it for so long before somebody else may, in milliseconds: longer than
/// fills take that are any good.
pub const CLAIM_MS: u64 = 5_000;

/// Smallest body that is compressed, in bytes: below it, head and system calls cost more than the
/// bytes saved.
pub const COMPRESS_BYTES_MIN: usize = 512;

/// Largest body that is compressed, in bytes: 10 to 20 ms of a worker, once.
pub const COMPRESS_BYTES_MAX: usize = 1 << 20;

/// An encoding is kept when it is at most this many quarters of the plain body: what saves less is
/// not worth its memory. It is also what an entry is charged for each encoding that it may get.
pub const COMPRESSED_QUARTERS_MAX: usize = 3;

/// Brotli's quality (0 to 11): the last that is about as fast as gzip.
pub const BROTLI_QUALITY: i32 = 5;
/// Brotli's window, as a power of two: the whole body, at most 1 MiB.
pub const BROTLI_WINDOW_LOG: i32 = 20;
/// Gzip's level (0 to 9): its usual one.
pub const GZIP_LEVEL: u32 = 6;
/// Zstandard's level (1 to 22): its usual one.
pub const ZSTD_LEVEL: i32 = 3;

/// How long a lease on a key lasts, in milliseconds, and so how long another server waits for one
/// that died while it filled.
pub const LEASE_MS: u64 = 5_000;

/// First pause between two looks at an entry that another server fills, in milliseconds; doubled up
/// to [`LEASE_LOOK_MS_MAX`].
pub const LEASE_LOOK_MS: u64 = 5;
/// Longest pause between two such looks.
pub const LEASE_LOOK_MS_MAX: u64 = 100;

/// How long the shared level may take to answer, in milliseconds: what a database would have taken, and more.
pub const SHARED_TIMEOUT_MS: u64 = 1_000;

/// How long a shared level that did not answer is left alone before a task of the cache's own looks
/// for it, in milliseconds.
pub const SHARED_PAUSE_MS: u64 = 1_000;

/// How long a write waits, where `strict` is promised, for a shared level that does not answer, in
/// milliseconds: a hiccup of the network, not a failover. Then it is answered that others could not
/// be told.
pub const STRICT_PATIENCE_MS: u64 = 3_000;

/// A generation is kept on the shared level for longer than any entry that was filled before it, by
/// this factor.
pub const GENERATION_TTL_FACTOR: u64 = 2;

/// Tags that could not be told to the shared level and are told again; with more, everything is
/// dropped when it is back.
pub const UNTOLD_TAGS_MAX: usize = 10_000;

/// Tags told at one time.
pub const TELL_TAGS: usize = 256;

/// Counters are spread over so many places, so that workers do not write to one cache line.
pub const COUNTER_PLACES: usize = 16;

const _: () = assert!(GENERATIONS.is_power_of_two() && ALONE_PLACES.is_power_of_two());
const _: () = assert!(UPSTREAM_BYTES <= BODY_BYTES_MAX as u64);
const _: () = assert!(COMPRESS_BYTES_MIN < COMPRESS_BYTES_MAX && COMPRESS_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(LEASE_LOOK_MS <= LEASE_LOOK_MS_MAX && LEASE_LOOK_MS_MAX < LEASE_MS);
