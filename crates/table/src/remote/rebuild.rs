//! Rebuilds, from the rows, the reservations of unique values that a shard of a cluster has lost. The top of
//! `unique` explains why this is enough, and how a shard that lost none is recognised.
//!
//! **While writes are accepted.** All rows of the tier are scanned, which may take seconds. Meanwhile the
//! shard accepts everything but new reservations (`rebuilding` in its meta): updates, deletes, and inserts of
//! rows whose unique values are reserved elsewhere. That is correct because:
//! - No writer takes a value of this shard while it is rebuilt: that needs a reservation, and earlier
//!   reservations are of an earlier generation, which every shard refuses by then. So a row that has such a
//!   value at the end had it all the time, and a scan returns every field that existed all the time.
//! - A row that releases its value, or is deleted, after it was scanned leaves a stale reservation: the next
//!   writer of the value detects that, as after a crash.
//! - A reservation that exists and names another row than the one that has the value is stale.
//!
//! The script that begins the shard's epoch also sets the mark and counts the lost reservations as made. A
//! script that runs after all reservations were rebuilt, in the same epoch, removes the mark: a promoted
//! replica has the mark, or all reservations. A server that dies or fails in between leaves the mark, and the
//! next one that needs a reservation starts the rebuild again.

use super::encode::{StoredRow, Tracked, tracked_columns};
use super::names::{TableNames, generation_field, reserved_field};
use super::repair::{ShardRepair, ShardState};
use super::tier::Tier;
use super::{scripts, wire};
use crate::error::HotError;
use crate::hash::NO_VALUE;
use crate::limits::{REMOTE_LOCK_MS, REMOTE_REBUILDS_AT_ONCE, REMOTE_SCAN_ROWS};
use crate::record::TableId;
use forebay_redis::{Command, Link};
use forebay_value::Schema;
use futures_util::future::try_join_all;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The locks of the shards that are being rebuilt, renewed because the rebuild takes longer than a lock
/// lasts.
struct Locks<'b> {
    broken: &'b [ShardRepair],
    renewed: tokio::sync::Mutex<Instant>,
}

impl Locks<'_> {
    /// Renews the locks when it is time. False: one was lost.
    async fn renew(&self, tier: &Tier, link: &Link) -> Result<bool, HotError> {
        let mut renewed = self.renewed.lock().await;
        if renewed.elapsed() < Duration::from_millis(REMOTE_LOCK_MS / 4) {
            return Ok(true);
        }
        let locks = self.broken.iter().map(|own| tier.lock(link, own.shard, &own.token));
        let is_held = try_join_all(locks).await?.into_iter().all(|is_held| is_held);
        *renewed = Instant::now();
        Ok(is_held)
    }
}

/// Some fields and values of a hash.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

impl Tier {
    /// The next fields of a hash, and the cursor behind them: 0 at the end.
    pub async fn scan_hash(
        &self,
        link: &Link,
        shard: u16,
        key: &[u8],
        cursor: u64,
    ) -> Result<(u64, Fields), HotError> {
        let mut command = Command::new();
        command.arg("HSCAN").arg(key).arg(cursor).arg("COUNT").arg(REMOTE_SCAN_ROWS);
        let [next, fields] = wire::tuple("HSCAN", self.read(link, shard, command).await?)?;
        let mut fields = wire::array("HSCAN", fields)?.into_iter();
        let mut found = Vec::with_capacity(fields.len() / 2);
        while let (Some(key), Some(value)) = (fields.next(), fields.next()) {
            found.push((wire::bytes("HSCAN", key)?, wire::bytes("HSCAN", value)?));
        }
        Ok((wire::number("HSCAN", &next)?, found))
    }

    /// Gives the broken shards new generations, announces these to all shards, and finds out which of the
    /// broken shards have lost reservations. False: another server also repairs one of them.
    pub(crate) async fn renew_all(
        &self,
        link: &Link,
        broken: &mut [ShardRepair],
        states: &[ShardState],
    ) -> Result<bool, HotError> {
        for own in broken.iter_mut() {
            // Newer than any generation that the shard ever had, because the opening is new.
            own.generation = own.drained.opening.clone().into_bytes();
        }
        let Some(relied) = self.announce(link, broken, states).await? else { return Ok(false) };
        for (own, relied) in broken.iter_mut().zip(&relied) {
            own.reserved = own.state.reserved.unwrap_or(0).max(*relied);
            own.is_lossy |= own.state.reserved != Some(own.reserved);
        }
        Ok(true)
    }

    /// Reserves the rows' values in these shards again; the shards accept no new reservations meanwhile.
    /// False: a lock was lost, or a server changed over.
    pub(crate) async fn rebuild(&self, link: &Link, lossy: &[ShardRepair]) -> Result<bool, HotError> {
        let locks = Locks { broken: lossy, renewed: tokio::sync::Mutex::new(Instant::now()) };
        let catalogue = self.catalogue.read().clone();
        let mut parts = Vec::new();
        for (id, schema) in catalogue.tables() {
            if schema.unique_columns().next().is_some() {
                for shard in 0..self.shard_count() {
                    parts.push(self.rebuild_from(link, shard, (id, schema.clone()), lossy, &locks));
                }
            }
        }
        let mut rebuilt = stream::iter(parts).buffer_unordered(REMOTE_REBUILDS_AT_ONCE);
        while let Some(is_held) = rebuilt.try_next().await? {
            if !is_held {
                return Ok(false);
            }
        }
        let rebuilt = lossy.iter().map(|own| {
            let names = &self.shards[usize::from(own.shard)];
            let keys = vec![names.meta.clone(), names.lock.clone()];
            link.write(names.slot, &scripts::REBUILT, keys, vec![own.token.clone(), own.generation.clone()])
        });
        let rebuilt = try_join_all(rebuilt).await?;
        let is_told = |answer| Ok::<_, HotError>(wire::number("rebuilt", &answer)? == 1);
        Ok(rebuilt
            .into_iter()
            .map(is_told)
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .all(|is_told| is_told))
    }

    /// Announces the new generations to all shards: from then on no attempt under an earlier generation
    /// succeeds, in any shard. Returns, for each broken shard, the newest of its reservations on which any
    /// row relies. `None`: another server also repairs one of them, and began later.
    async fn announce(
        &self,
        link: &Link,
        broken: &[ShardRepair],
        states: &[ShardState],
    ) -> Result<Option<Vec<u64>>, HotError> {
        let announced = self.shards.iter().map(|names| {
            let mut args = vec![wire::digits(2 * broken.len() as u64)];
            args.extend(broken.iter().map(|own| reserved_field(own.shard)));
            args.extend(broken.iter().map(|own| generation_field(own.shard)));
            if broken.iter().any(|own| own.shard == names.number) {
                // A broken shard may have lost earlier announcements.
                for (other, state) in (0..).zip(states) {
                    args.push(generation_field(other));
                    args.push(state.generation.clone().into_bytes());
                }
            }
            for own in broken {
                args.push(generation_field(own.shard));
                args.push(own.generation.clone());
            }
            link.write(names.slot, &scripts::ANNOUNCE, vec![names.meta.clone()], args)
        });
        let mut newest = vec![0; broken.len()];
        for answer in try_join_all(announced).await? {
            let mut numbers = wire::array("announce", answer)?;
            let generations = numbers.split_off(broken.len());
            for (newest, number) in newest.iter_mut().zip(numbers) {
                *newest = (*newest).max(wire::number("a reservation's number", &number)?);
            }
            for (own, generation) in broken.iter().zip(generations) {
                if wire::bytes("a generation", generation)? != own.generation {
                    return Ok(None);
                }
            }
        }
        Ok(Some(newest))
    }

    async fn rebuild_from(
        &self,
        link: &Link,
        shard: u16,
        table: (TableId, Arc<Schema>),
        lossy: &[ShardRepair],
        locks: &Locks<'_>,
    ) -> Result<bool, HotError> {
        let (id, schema) = (table.0, &*table.1);
        let rows = TableNames::new(&self.shards[usize::from(shard)], id, schema).rows;
        let mut cursor = 0;
        loop {
            if !locks.renew(self, link).await? {
                return Ok(false);
            }
            let (next, found) = self.scan_hash(link, shard, &rows, cursor).await?;
            if let Some(state) = &mut *self.rebuild_state.lock() {
                state.rows += found.len() as u64;
            }
            let mut values: HashMap<(u16, usize), Vec<Vec<u8>>> = HashMap::new();
            for (key, value) in found {
                let tracked = StoredRow::read(schema, &value)?.tracked(&self.hasher, schema);
                for (place, index, fingerprint) in self.reserved_values(schema, &tracked) {
                    values.entry((place, index)).or_default().extend([fingerprint, key.clone()]);
                }
            }
            let mut reserved = Vec::new();
            for own in lossy {
                for index in 0..schema.unique_columns().count() {
                    let Some(pairs) = values.remove(&(own.shard, index)) else {
                        continue;
                    };
                    let names = &self.shards[usize::from(own.shard)];
                    let uniques = TableNames::new(names, id, schema).uniques.swap_remove(index);
                    let keys = vec![names.lock.clone(), uniques];
                    let args = [vec![own.token.clone()], pairs].concat();
                    reserved.push(link.write(names.slot, &scripts::REBUILD, keys, args));
                }
            }
            for done in try_join_all(reserved).await? {
                if wire::number("rebuild", &done)? == 0 {
                    return Ok(false);
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(true);
            }
        }
    }

    /// For each unique value of a row: the shard that reserves it, the index among the unique columns, the
    /// fingerprint.
    fn reserved_values<'t>(
        &'t self,
        schema: &'t Schema,
        tracked: &'t Tracked,
    ) -> impl Iterator<Item = (u16, usize, Vec<u8>)> + use<'t> {
        debug_assert_eq!(tracked.values.len(), tracked_columns(schema).count());
        let values = tracked.values.iter().take(schema.unique_columns().count()).enumerate();
        values
            .filter(|(_, value)| **value != NO_VALUE)
            .map(|(index, value)| (self.shard_of_value(*value), index, value.to_le_bytes().to_vec()))
    }
}
