//! Eviction: when the servers use more than the limit, drained rows are replaced by stubs: key, version,
//! fingerprints of unique and counted values.
//!
//! The holder of a shard's lease evicts in that shard. The limit is for all primaries together, by their own
//! figures (`used_memory`), read at most once a second. Rows are evicted in the order of the hash's cursor,
//! turn after turn, regardless of how recently they were used: Redis offers no cheap way to know that. When a
//! whole turn found nothing to evict, the shard is marked full: it refuses changes that grow until enough is
//! drained.

use super::encode::{Body, Tracked, stub};
use super::queue::{Eviction, Lease, TierQueues};
use super::table::RemoteTable;
use super::tier::{Call, Tier};
use super::{scripts, wire};
use crate::error::HotError;
use crate::limits::{
    REMOTE_EVICT_STEPS, REMOTE_EVICT_TO_PERCENT, REMOTE_FULL_UNTIL_PERCENT, REMOTE_SERVER_FULL_PERCENT,
    REMOTE_SERVERS_PERCENT, REMOTE_USED_AGE,
};
use forebay_redis::{Facts, Link, Need, Role, require};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The result of [`TierQueues::maintain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Maintained {
    /// Bytes that all primaries use.
    pub used_bytes: u64,
    /// Rows that were evicted.
    pub evicted_rows: u64,
    /// Whether the shard refuses changes that grow.
    pub is_full: bool,
    /// Whether there is more to evict: call again soon.
    pub more: bool,
}

impl Tier {
    /// Bytes that all primaries use, at most about a second ago.
    pub async fn used_bytes(&self) -> Result<u64, HotError> {
        let mut used = self.used.lock().await;
        match *used {
            Some((at, bytes)) if at.elapsed() < REMOTE_USED_AGE => Ok(bytes),
            _ => {
                // A primary that does not answer has none of the shards that are maintained now.
                let facts = self.client.facts_of_reachable().await;
                let primaries = facts.iter().filter(|facts| facts.role == Role::Primary);
                *self.memory_troubles.lock() = primaries.clone().filter_map(trouble).collect();
                let limits: Vec<u64> = primaries.clone().map(|facts| facts.maxmemory_bytes).collect();
                let servers = if limits.contains(&0) { 0 } else { limits.iter().sum() };
                self.servers_limit_bytes.store(servers, Ordering::Relaxed);
                let bytes = primaries.map(|facts| facts.used_memory_bytes).sum();
                *used = Some((Instant::now(), bytes));
                Ok(bytes)
            }
        }
    }
}

impl Tier {
    /// The bytes that all primaries may use before drained rows are evicted: the configured limit or a part
    /// of the servers' own, which leaves the queues some room, whichever is lower. 0: there is neither.
    fn eviction_limit_bytes(&self) -> u64 {
        let servers = self.servers_limit_bytes.load(Ordering::Relaxed) / 100 * REMOTE_SERVERS_PERCENT;
        match (self.limit_bytes, servers) {
            (0, limit) | (limit, 0) => limit,
            (own, servers) => own.min(servers),
        }
    }
}

/// What is wrong with a server's memory, as a sentence.
fn trouble(facts: &Facts) -> Option<String> {
    if let Err(error) = require(facts, Need::NoEviction) {
        return Some(error.to_string());
    }
    let (used, limit) = (facts.used_memory_bytes, facts.maxmemory_bytes);
    (limit > 0 && used >= limit / 100 * REMOTE_SERVER_FULL_PERCENT).then(|| {
        format!(
            "{} at {} uses {used} bytes of its maxmemory {limit}: what grows gets 503 until enough is drained and evicted; \
             raise maxmemory, or set memory.limit well below it",
            facts.name(),
            facts.address
        )
    })
}

impl TierQueues {
    /// Bytes that all primaries use, and may use before drained rows are evicted; 0: there is no limit.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn use_and_limit(&self) -> Result<(u64, u64), HotError> {
        Ok((self.tier.used_bytes().await?, self.tier.eviction_limit_bytes()))
    }

    /// Maintains the memory of a shard whose lease is held: evicts some drained rows when the limit is
    /// exceeded, and marks the shard full or no longer full. To be called after each release, and
    /// periodically.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn maintain(&self, link: &Link, lease: &Lease) -> Result<Maintained, HotError> {
        let used_bytes = self.tier.used_bytes().await?;
        let limit = self.tier.eviction_limit_bytes();
        let part = |percent: u64| limit / 100 * percent;
        let mut state = self.eviction.lock()[usize::from(lease.shard)].clone();
        if limit == 0 || self.tables.is_empty() {
            return Ok(Maintained { used_bytes, ..Maintained::default() });
        }
        if used_bytes > limit {
            state.is_under_way = true;
        } else if used_bytes <= part(REMOTE_EVICT_TO_PERCENT) {
            state.is_under_way = false;
        }
        let mut evicted_rows = 0;
        for _ in 0..REMOTE_EVICT_STEPS {
            if !state.is_under_way {
                break;
            }
            let table = &self.tables[state.table % self.tables.len()];
            let (next, evicted) = table.evict_step(link, lease.shard, state.cursor).await?;
            evicted_rows += evicted;
            state.turn_rows += evicted;
            state.cursor = next;
            if next == 0 {
                state.table = (state.table + 1) % self.tables.len();
                if state.table == 0 {
                    let found = std::mem::take(&mut state.turn_rows);
                    if found == 0 {
                        self.set_full(link, lease.shard, &mut state, used_bytes > limit).await?;
                        break;
                    }
                }
            }
        }
        if evicted_rows > 0 {
            // Reads the use anew before more rows are evicted.
            *self.tier.used.lock().await = None;
        }
        if state.is_full && used_bytes <= part(REMOTE_FULL_UNTIL_PERCENT) {
            self.set_full(link, lease.shard, &mut state, false).await?;
        }
        let done = Maintained {
            used_bytes,
            evicted_rows,
            is_full: state.is_full,
            more: state.is_under_way && !state.is_full,
        };
        self.eviction.lock()[usize::from(lease.shard)] = state;
        Ok(done)
    }

    /// Evicts every drained row of a shard, whatever the limit; returns how many.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn evict(&self, link: &Link, lease: &Lease) -> Result<u64, HotError> {
        let mut rows = 0;
        for table in self.tables.iter() {
            let mut cursor = 0;
            loop {
                let (next, evicted) = table.evict_step(link, lease.shard, cursor).await?;
                rows += evicted;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(rows)
    }

    async fn set_full(
        &self,
        link: &Link,
        shard: u16,
        state: &mut Eviction,
        is_full: bool,
    ) -> Result<(), HotError> {
        let names = &self.tier.shards[usize::from(shard)];
        let call = || Call {
            script: &scripts::IS_FULL,
            keys: vec![names.meta.clone()],
            args: vec![wire::digits(u64::from(is_full))],
        };
        self.tier.write(link, shard, call).await?;
        state.is_full = is_full;
        Ok(())
    }
}

impl RemoteTable {
    /// Evicts the drained ones among the next rows of a shard. Returns the next cursor, and how many were
    /// evicted.
    async fn evict_step(&self, link: &Link, shard: u16, cursor: u64) -> Result<(u64, u64), HotError> {
        let (next, found) = self.scan_fields(link, shard, cursor).await?;
        let mut args = Vec::with_capacity(3 * found.len());
        for (key, value) in found {
            let entry = self.read_entry(&value)?;
            let Body::Row(row) = &entry.body else {
                continue;
            };
            let left = stub(entry.head, &Tracked::of(&self.tier.hasher, &self.schema, row.as_ref()));
            if left.len() < value.len() {
                args.extend([key, entry.head.to_vec(), left]);
            }
        }
        if args.is_empty() {
            return Ok((next, 0));
        }
        let call = || Call {
            script: &scripts::EVICT,
            keys: vec![self.meta(shard), self.names(shard).rows.clone()],
            args: args.clone(),
        };
        let evicted = self.tier.write(link, shard, call).await?;
        Ok((next, wire::number("evict", &evicted)?))
    }
}
