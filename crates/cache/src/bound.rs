//! The bound of the shared level: on servers that evict nothing, as queues require, the cache evicts entries
//! itself.
//!
//! Entries are spread over [`PLACES`](limits::SHARED_PLACES), each in one slot of a cluster, and each with
//! its share of the bound. Beside its entries each place has these keys:
//!
//! | key | holds |
//! |---|---|
//! | `fb:NAME:c:o:{PLACE}` | a sorted set: the keys of its entries, by when they expire |
//! | `fb:NAME:c:b:{PLACE}` | a hash: the bytes of each entry by its key, and of all of them under an empty field |
//!
//! The script that stores an entry also makes room for it: it first deletes expired entries, then those that
//! would expire first. A server with its own eviction policy has a bound already, and no such keys.
//!
//! What must stay true: all entries together take no more than the bound, even while the queues fill the
//! server, and a full server stores no entry (the script begins with a command that a full server refuses).

use crate::limits;
use forebay_redis::{Client, Role, Script};

/// Stores an entry, makes room for it and releases the lease.
pub(crate) static STORE: Script = Script::new("cache/store_bounded", include_str!("store.lua"));

/// The bound of all entries together, in bytes; `None`: the servers evict entries themselves.
///
/// # Errors
/// When a server does not answer.
pub(crate) async fn of(client: &Client, limit_bytes: u64) -> Result<Option<u64>, forebay_redis::Error> {
    let facts = client.facts().await?;
    let primaries = facts.iter().filter(|facts| facts.role == Role::Primary);
    let mut bound = None;
    for facts in
        primaries.filter(|facts| facts.maxmemory_bytes == 0 || facts.maxmemory_policy == "noeviction")
    {
        let part = match facts.maxmemory_bytes {
            0 => limit_bytes,
            // All of the entries may be on this server.
            bytes => limit_bytes.min(bytes / limits::SHARED_MEMORY_PART),
        };
        bound = Some(bound.map_or(part, |bound: u64| bound.min(part)));
    }
    Ok(bound)
}
