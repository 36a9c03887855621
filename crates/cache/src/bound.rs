//! The bound of the shared level: on servers that evict nothing, which queues need, it evicts by itself.
//!
//! Entries are spread over [`PLACES`](limits::SHARED_PLACES), each in one slot of a cluster, and each has its
//! part of the bound. Beside the entries of a place stand
//!
//! | key | holds |
//! |---|---|
//! | `fb:NAME:c:o:{PLACE}` | a sorted set: the keys of its entries, by when they expire |
//! | `fb:NAME:c:b:{PLACE}` | a hash: the bytes of each entry by its key, and of all of them under an empty field |
//!
//! What is stored makes room for itself in the same script: first goes what has expired, then what would
//! expire first. A server that evicts keys by a policy of its own has a bound already, and no such keys.
//!
//! What must stay true: all entries together take no more than the bound, also while the queues fill the
//! server, and a server that is full takes none (the script begins with what a full server refuses).

use crate::limits;
use forebay_redis::{Client, Role, Script};

/// Stores an entry, makes room for it and gives the lease up.
pub(crate) static STORE: Script = Script::new("cache/store_bounded", include_str!("store.lua"));

/// What all entries together may take, in bytes; `None`: the servers evict what is too much.
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
            // Should all of them be on this one.
            bytes => limit_bytes.min(bytes / limits::SHARED_MEMORY_PART),
        };
        bound = Some(bound.map_or(part, |bound: u64| bound.min(part)));
    }
    Ok(bound)
}
