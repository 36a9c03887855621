//! Limits of the drain from streams, and where they come from.

use std::time::Duration;

/// How long a lease lasts without a renewal: the longest that a shard waits after its drain has died.
pub const LEASE_MS: u64 = 5_000;

/// How often leases are renewed and free ones looked for: two renewals may fail before a lease is lost.
pub const LEASE_ROUND: Duration = Duration::from_millis(1_500);

/// Timeout of one request of the drain to the tier: shorter than a lease, including the work that follows. A
/// shard that does not answer is skipped until it does.
pub const TIER_LIMIT: Duration = Duration::from_secs(2);

/// The same for a shard that did not answer the last time.
pub const PROBE_LIMIT: Duration = Duration::from_millis(200);

/// How many shards of one drain write at the same time. The wait is for the database's commits, and
/// PostgreSQL shares one flush among commits that arrive together; more shards would only take connections
/// away from the endpoints.
pub const SHARDS_AT_ONCE: usize = 4;

/// Entries of one read of a stream. Both sides hold the whole reply in memory: 2,000 rows of 500 bytes are 1
/// MB.
pub const READ_ROWS: usize = 2_000;

/// How long a small batch waits for more records: with 64 shards, some 600 commits a second when every shard
/// is lightly loaded.
pub const LINGER: Duration = Duration::from_millis(100);

/// The size below which a batch is small, in rows.
pub const LINGER_ROWS: usize = 200;

/// How often a shard that was empty is read again.
pub const IDLE: Duration = Duration::from_millis(20);

/// How often the memory of the servers is compared with its limit, and drained rows are evicted.
pub const MAINTENANCE_ROUND: Duration = Duration::from_millis(500);

/// How often the drain reads which deletes act on rows of other tables: as often as a server reads what the
/// database enforces.
pub const CASCADES_ROUND: Duration = Duration::from_secs(5);

/// How soon the drain retries, when that could not be read.
pub const CASCADES_AGAIN: Duration = Duration::from_millis(200);

const _: () = assert!(LEASE_MS as u128 >= 3 * LEASE_ROUND.as_millis());
const _: () = assert!(LEASE_MS as u128 > LEASE_ROUND.as_millis() + TIER_LIMIT.as_millis());
