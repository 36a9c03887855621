//! Reservations of unique values that a shard of a cluster may have lost: made again from the rows. Why this
//! is enough stands at the top of `unique`.

use super::encode::{Entry, Tracked, tracked_columns};
use super::names::{TableNames, generation_field};
use super::repair::{Broken, ShardState};
use super::tier::Tier;
use super::{scripts, wire};
use crate::error::HotError;
use crate::hash::NO_VALUE;
use crate::limits::REMOTE_SCAN_ROWS;
use crate::record::TableId;
use forebay_redis::{Command, Link};
use forebay_value::Schema;
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::sync::Arc;

/// Fields and values of a hash, some at a time.
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

    /// Gives the broken shards a new generation, makes it known everywhere, and reserves in them what rows
    /// have. False: a lock was lost.
    pub(crate) async fn rebuild(
        &self,
        link: &Link,
        broken: &mut [Broken],
        states: &[ShardState],
    ) -> Result<bool, HotError> {
        for shard in broken.iter_mut() {
            shard.generation = format!("{:016x}", rand::random::<u64>()).into_bytes();
        }
        self.announce(link, broken, states).await?;
        let catalogue = self.catalogue.read().clone();
        for (id, schema) in catalogue.tables() {
            if schema.unique_columns().next().is_none() {
                continue;
            }
            for shard in 0..self.shard_count() {
                if !self.rebuild_from(link, shard, (id, schema), broken).await? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// From here on no attempt under an earlier generation succeeds, in any shard.
    async fn announce(&self, link: &Link, broken: &[Broken], states: &[ShardState]) -> Result<(), HotError> {
        let announced = self.shards.iter().map(|names| {
            let mut args = Vec::new();
            if broken.iter().any(|own| own.shard == names.number) {
                // It may have lost what was announced to it.
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
        try_join_all(announced).await?;
        Ok(())
    }

    async fn rebuild_from(
        &self,
        link: &Link,
        shard: u16,
        table: (TableId, &Arc<Schema>),
        broken: &[Broken],
    ) -> Result<bool, HotError> {
        let (id, schema) = table;
        let rows = TableNames::new(&self.shards[usize::from(shard)], id, schema).rows;
        let mut cursor = 0;
        loop {
            // The locks last longer than one step.
            for own in broken {
                if !self.lock(link, own.shard, &own.token).await? {
                    return Ok(false);
                }
            }
            let (next, found) = self.scan_hash(link, shard, &rows, cursor).await?;
            let mut values: HashMap<(u16, usize), Vec<Vec<u8>>> = HashMap::new();
            for (key, value) in found {
                let tracked = Entry::read(schema, &value)?.tracked(&self.hasher, schema);
                for (place, index, fingerprint) in self.reserved_values(schema, &tracked) {
                    values.entry((place, index)).or_default().extend([fingerprint, key.clone()]);
                }
            }
            for own in broken {
                for index in 0..schema.unique_columns().count() {
                    let Some(pairs) = values.remove(&(own.shard, index)) else {
                        continue;
                    };
                    let names = &self.shards[usize::from(own.shard)];
                    let uniques = TableNames::new(names, id, schema).uniques.swap_remove(index);
                    let keys = vec![names.lock.clone(), uniques];
                    let args = [vec![own.token.clone()], pairs].concat();
                    let done = link.write(names.slot, &scripts::REBUILD, keys, args).await?;
                    if wire::number("rebuild", &done)? == 0 {
                        return Ok(false);
                    }
                }
            }
            cursor = next;
            if cursor == 0 {
                return Ok(true);
            }
        }
    }

    /// The shard in which each unique value of a row is reserved, its place among the unique columns, its
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
