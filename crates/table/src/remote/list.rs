//! Listing: rows in the order of their keys, starting after any key.
//!
//! Each shard has its keys in a sorted set, all with the same score and so sorted by their bytes, which is
//! the order of the keys. A list asks all shards concurrently for a few keys after the last one, merges them,
//! and reads the rows of the page from their shards, also concurrently.

use super::encode::{Body, key_bytes, key_value};
use super::table::RemoteTable;
use super::wire;
use crate::error::HotError;
use crate::key::KeyRef;
use forebay_redis::{Command, Link};
use forebay_value::{Row, ValueRef};
use futures_util::future::try_join_all;
use std::collections::BTreeMap;

/// The keys of one shard that were read and not merged yet.
struct ShardKeys {
    shard: u16,
    /// Descending, so that the next key is the last.
    keys: Vec<Vec<u8>>,
    /// The last key read, when the shard may have more keys.
    more_after: Option<Vec<u8>>,
}

impl RemoteTable {
    /// Up to `limit` rows after a key, or from the beginning, in order. Rows that are inserted or deleted
    /// meanwhile may or may not be on the page.
    ///
    /// # Errors
    /// As [`RemoteTable::get`].
    ///
    /// # Panics
    /// When the table was not opened as ordered: what is configured must be checked at start.
    pub async fn list(
        &self,
        link: &Link,
        after: Option<ValueRef<'_>>,
        limit: usize,
    ) -> Result<Vec<Row>, HotError> {
        assert!(self.is_ordered, "table {} was not opened as ordered", self.schema.name);
        let mut after = after.and_then(KeyRef::of).map(key_bytes);
        let mut rows: Vec<Row> = Vec::with_capacity(limit);
        loop {
            let wanted = limit - rows.len();
            let keys = self.merged(link, after.as_deref(), wanted).await?;
            let is_last = keys.len() < wanted;
            if let Some((key, _)) = keys.last() {
                after = Some(key.clone());
            }
            rows.extend(self.rows_of(link, &keys).await?);
            // Rows that were deleted meanwhile leave room for others.
            if is_last || rows.len() >= limit {
                break;
            }
        }
        if rows.is_empty() && !self.check_loaded(link).await? {
            return Err(HotError::unavailable(format!("table {} is being loaded", self.schema.name)));
        }
        Ok(rows)
    }

    /// The next keys of all shards in order, each with its shard.
    async fn merged(
        &self,
        link: &Link,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, u16)>, HotError> {
        let shards = self.tier.shard_count();
        // More than one shard's average share, so that few shards must be asked twice.
        let batch = limit / usize::from(shards) * 2 + 4;
        let asked = (0..shards).map(|shard| self.run(link, shard, after, batch.min(limit)));
        let mut runs = try_join_all(asked).await?;
        let mut merged = Vec::with_capacity(limit);
        while merged.len() < limit {
            for run in &mut runs {
                if run.keys.is_empty()
                    && let Some(more) = run.more_after.take()
                {
                    *run = self.run(link, run.shard, Some(&more), batch).await?;
                }
            }
            let next = runs.iter_mut().filter(|run| !run.keys.is_empty());
            let Some(run) = next.min_by(|one, other| one.keys.last().cmp(&other.keys.last())) else {
                break;
            };
            let shard = run.shard;
            merged.extend(run.keys.pop().map(|key| (key, shard)));
        }
        Ok(merged)
    }

    async fn run(
        &self,
        link: &Link,
        shard: u16,
        after: Option<&[u8]>,
        batch: usize,
    ) -> Result<ShardKeys, HotError> {
        let from = after.map_or_else(|| b"-".to_vec(), |key| [b"(", key].concat());
        let mut command = Command::new();
        command.arg("ZRANGEBYLEX").arg(&self.names(shard).order).arg(from).arg("+");
        command.arg("LIMIT").arg(0).arg(batch);
        let answer = wire::array("ZRANGEBYLEX", self.tier.read(link, shard, command).await?)?;
        let mut keys = Vec::with_capacity(answer.len());
        for key in answer {
            keys.push(wire::bytes("ZRANGEBYLEX", key)?);
        }
        let more_after = if keys.len() == batch { keys.last().cloned() } else { None };
        keys.reverse();
        Ok(ShardKeys { shard, keys, more_after })
    }

    /// The rows of these keys, in their order, without deleted ones.
    async fn rows_of(&self, link: &Link, keys: &[(Vec<u8>, u16)]) -> Result<Vec<Row>, HotError> {
        let mut by_shard: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (index, (_, shard)) in keys.iter().enumerate() {
            by_shard.entry(*shard).or_default().push(index);
        }
        let asked = by_shard.into_iter().map(|(shard, indexes)| async move {
            let mut command = Command::new();
            command.arg("HMGET").arg(&self.names(shard).rows);
            for &index in &indexes {
                command.arg(&keys[index].0);
            }
            let answer = self.tier.read(link, shard, command).await?;
            Ok::<_, HotError>((indexes, wire::array("HMGET", answer)?))
        });
        let mut found: Vec<Option<Row>> = vec![None; keys.len()];
        let mut evicted = Vec::new();
        for (indexes, values) in try_join_all(asked).await? {
            for (index, value) in indexes.into_iter().zip(values) {
                let Some(bytes) = wire::optional_bytes("HMGET", value)? else {
                    continue;
                };
                match self.read_entry(&bytes)?.body {
                    Body::Row(row) => found[index] = Some(row),
                    Body::Stub(_) => evicted.push(index),
                }
            }
        }
        for index in evicted {
            let key = key_value(&self.schema, &keys[index].0)?;
            found[index] = self.get(link, key.as_ref()).await?;
        }
        Ok(found.into_iter().flatten().collect())
    }
}
