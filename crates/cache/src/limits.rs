//! Every limit of this crate and where it comes from.

/// Default memory limit for the entries of one process, in bytes: 200,000 answers of a kilobyte.
pub const LOCAL_BYTES: u64 = 256 << 20;

/// Memory of an entry beside its bodies and its key, in bytes: heads, validator, times, map slot
/// (measured: 700 to 900).
pub const ENTRY_BYTES: u64 = 1024;

/// The average entry that the map is laid out for, in bytes; only its first size depends on it.
pub const ENTRY_BYTES_TYPICAL: u64 = 4096;

/// Longest key that is stored, in bytes: a few parameters of usual length. Requests with longer keys
/// bypass the cache, so that keys cannot displace answers.
pub const KEY_BYTES_MAX: usize = 1024;

/// Largest body that is stored, in bytes. Larger ones are not cached: a few hundred of them would
/// fill the cache.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// Default for the longest upstream body that is stored, in bytes: pages and lists, not downloads.
/// Each running fill buffers at most this much.
pub const UPSTREAM_BYTES: u64 = 1 << 20;

/// The longest time for which an upstream server may declare its answer usable when stale, where the rules
/// set nothing, in milliseconds: a day.
pub const UPSTREAM_STALE_MS_MAX: u64 = 86_400_000;

/// The longest lifetime that is read from an upstream's fields, in milliseconds: a longer one counts as
/// unlimited (RFC 9111 section 1.2.2).
pub const UPSTREAM_LIFE_MS_MAX: u64 = 1 << 41;

/// How long requests for a key bypass the shared fill after a private answer, in milliseconds.
/// Shorter costs a page that is always private one request more; longer leaves a page that was
/// private once without single flight.
pub const PRIVATE_ANSWER_MS: u64 = 10_000;

/// Keys of an endpoint whose private answers are remembered: 64 KiB. With more, some get a shared
/// fill again.
pub const PRIVATE_ANSWER_SLOTS: usize = 8192;

/// Slots for generations, 1 MiB. Two tags that share a slot are dropped together, which costs a fill
/// and never serves an old answer.
pub const GENERATIONS: usize = 1 << 17;

/// The largest part by which an answer's time to live is randomly shortened, so that answers that were filled
/// together do not expire together.
pub const JITTER_PART: f64 = 0.1;

/// The pause after a failed fill in which a stale entry is served without another try, in milliseconds.
pub const FAILURE_PAUSE_MS: u64 = 1_000;

/// For this long after that pause the next try runs while the stale entry is still served, in milliseconds: a
/// server that answers late must not delay a request each second. Afterwards a request waits for the fill
/// again, because the server may have recovered.
pub const FAILURE_MEMORY_MS: u64 = 10_000;

/// How long the request that refreshes an entry keeps others from refreshing it, in milliseconds:
/// longer than a useful fill takes.
pub const CLAIM_MS: u64 = 5_000;

/// Smallest body that is compressed, in bytes: below it, head and system calls cost more than the
/// bytes saved.
pub const COMPRESS_BYTES_MIN: usize = 512;

/// Largest body that is compressed, in bytes: 10 to 20 ms of a worker, once.
pub const COMPRESS_BYTES_MAX: usize = 1 << 20;

/// An encoding is stored when it is at most this many quarters of the plain body: a smaller saving is not
/// worth its memory. An entry is also charged this much for each encoding that it may get.
pub const COMPRESSED_QUARTERS_MAX: usize = 3;

/// Brotli's quality (0 to 11): the last that is about as fast as gzip.
pub const BROTLI_QUALITY: i32 = 5;
/// Brotli's window, as a power of two: the whole body, at most 1 MiB.
pub const BROTLI_WINDOW_LOG: i32 = 20;
/// Gzip's level (0 to 9): its usual one.
pub const GZIP_LEVEL: u32 = 6;
/// Zstandard's level (1 to 22): its usual one.
pub const ZSTD_LEVEL: i32 = 3;

/// How long a lease on a key lasts, in milliseconds, and so how long another server waits for a server that
/// died during a fill.
pub const LEASE_MS: u64 = 5_000;

/// First pause between two reads of an entry that another server fills, in milliseconds; doubled up
/// to [`LEASE_POLL_MS_MAX`].
pub const LEASE_POLL_MS: u64 = 5;
/// Longest pause between two such reads.
pub const LEASE_POLL_MS_MAX: u64 = 100;

/// How long the shared level may take to answer, in milliseconds: as long as a database would, or longer.
pub const SHARED_TIMEOUT_MS: u64 = 1_000;

/// Places over which the shared level's entries are spread: a cluster of 15 primaries has four each.
pub const SHARED_PLACES: u64 = 64;

/// The part of `maxmemory` that the shared level takes at most on a server that evicts nothing: the rest is
/// for queues and rows.
pub const SHARED_MEMORY_PART: u64 = 4;

/// Pause between two probes of an unavailable shared level, in milliseconds.
pub const SHARED_PAUSE_MS: u64 = 1_000;

/// How long a write under `strict` waits for an unavailable shared level, in milliseconds: a short
/// network failure, not a failover. Then the answer says that other servers were not informed.
pub const STRICT_PATIENCE_MS: u64 = 3_000;

/// The factor by which a generation on the shared level outlives any entry that was filled before it.
pub const GENERATION_TTL_FACTOR: u64 = 2;

/// Tags whose drop is queued while the shared level is unavailable. Once one finds no room, this server uses
/// no entry of that level until all that were there have expired.
pub const PENDING_TAGS_MAX: usize = 10_000;

/// Queued tags that are sent at a time.
pub const PENDING_TAGS_BATCH: usize = 256;

/// Counters are spread over this many slots, so that workers do not write to one cache line.
pub const COUNTER_SLOTS: usize = 16;

const _: () = assert!(GENERATIONS.is_power_of_two() && PRIVATE_ANSWER_SLOTS.is_power_of_two());
const _: () = assert!(UPSTREAM_BYTES <= BODY_BYTES_MAX as u64);
const _: () = assert!(COMPRESS_BYTES_MIN < COMPRESS_BYTES_MAX && COMPRESS_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(LEASE_POLL_MS <= LEASE_POLL_MS_MAX && LEASE_POLL_MS_MAX < LEASE_MS);
/// The largest window of a Zstandard body that is decoded, as a power of two (RFC 9659: 8 MiB).
pub(crate) const ZSTD_WINDOW_LOG_MAX: u32 = 23;
