//! A stage: all rows of a table on their way into a tier on one primary that has none of them yet.
//!
//! They are written beside their places by plain commands, many to a command, which costs the server about
//! half of what a script does; one script a shard then puts them in their place. Until a shard is loaded
//! nothing else writes there, so that this loses nothing, and whoever has lost the lease of the load
//! meanwhile is refused by that script. What was staged and never put in place goes by itself after a while.

use super::encode::{HEAD_BYTES, LOADED_HEAD, Tracked};
use super::table::{Place, RemoteTable};
use super::tier::Call;
use super::unique::UNHELD;
use super::{scripts, wire};
use crate::error::HotError;
use crate::limits::{REMOTE_LOAD_ROWS, REMOTE_STAGE_MS};
use forebay_redis::{Command, Link};
use forebay_value::Row;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A row on its way into memory.
pub(super) struct Loading<'a> {
    pub place: Place,
    pub row: &'a Row,
    pub tracked: Tracked,
}

/// Where a load's rows wait, and how many do.
pub(super) struct Stage {
    /// What the names of its keys end with.
    suffix: Vec<u8>,
    /// The epoch in which it was begun: a server that has changed over may lack a part of it.
    epoch: Vec<u8>,
    /// By shard.
    rows: Vec<AtomicU64>,
}

impl Stage {
    pub fn new(token: &[u8], epoch: Vec<u8>, shards: usize) -> Stage {
        let digits: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let suffix = format!(":{digits}").into_bytes();
        Stage { suffix, epoch, rows: (0..shards).map(|_| AtomicU64::new(0)).collect() }
    }

    fn beside(&self, place: &[u8]) -> Vec<u8> {
        [place, &self.suffix].concat()
    }

    /// Writes rows, by shard, beside their places.
    pub async fn take(
        &self,
        table: &RemoteTable,
        link: &Link,
        by_shard: &[Vec<Loading<'_>>],
    ) -> Result<u64, HotError> {
        let mut commands = Commands { stage: self, commands: Vec::new() };
        for (shard, rows) in by_shard.iter().enumerate() {
            commands.rows(table, shard, rows);
            self.rows[shard].fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        commands.counters(table, by_shard);
        commands.claims(table, by_shard);
        commands.lifetimes(table);
        let sent = commands.commands.into_iter().map(|command| link.change(table.tier.names.slot, command));
        try_join_all(sent).await.map_err(HotError::from)?;
        Ok(by_shard.iter().map(|rows| rows.len() as u64).sum())
    }

    /// Puts everything in its place. False: it has to begin again.
    pub async fn put_in_place(
        &self,
        table: &RemoteTable,
        link: &Link,
        token: &[u8],
        since: &[u64],
    ) -> Result<bool, HotError> {
        let placed = table.tier.shards.iter().map(|shard| async {
            let number = usize::from(shard.number);
            let names = table.names(shard.number);
            let call = || {
                let mut keys = vec![
                    shard.meta.clone(),
                    table.tier.names.loader(table.id),
                    names.deleted.clone(),
                    names.rows.clone(),
                ];
                keys.push(self.beside(&names.rows));
                for place in parts(table, shard.number) {
                    keys.extend([place.clone(), self.beside(place)]);
                }
                let args = vec![
                    table.loaded_field.clone(),
                    wire::digits(since[number]),
                    token.to_vec(),
                    self.epoch.clone(),
                    wire::digits(self.rows[number].load(Ordering::Relaxed)),
                ];
                Call { script: &scripts::PLACE_STAGED, keys, args }
            };
            wire::number("place", &table.tier.write(link, shard.number, call).await?)
        });
        Ok(try_join_all(placed).await?.into_iter().all(|is_placed| is_placed == 1))
    }

    /// Takes everything away that was not put in its place.
    pub async fn clear(&self, table: &RemoteTable, link: &Link) -> Result<(), HotError> {
        let mut command = Command::new();
        command.arg("UNLINK");
        for_each_place(table, |place| {
            command.arg(self.beside(place));
        });
        link.change(table.tier.names.slot, command).await?;
        Ok(())
    }
}

/// What stands in a shard beside its rows.
fn parts(table: &RemoteTable, shard: u16) -> impl Iterator<Item = &Vec<u8>> {
    let names = table.names(shard);
    [&names.order].into_iter().chain(&names.counters).chain(&names.uniques)
}

fn for_each_place(table: &RemoteTable, mut visit: impl FnMut(&[u8])) {
    for shard in 0..table.tier.shard_count() {
        visit(&table.names(shard).rows);
        parts(table, shard).for_each(|place| visit(place));
    }
}

/// The commands of one part of a load.
struct Commands<'s> {
    stage: &'s Stage,
    commands: Vec<Command>,
}

impl Commands<'_> {
    fn begin(&self, verb: &str, place: &[u8]) -> Command {
        let mut command = Command::new();
        command.arg(verb).arg(self.stage.beside(place));
        command
    }

    fn rows(&mut self, table: &RemoteTable, shard: usize, rows: &[Loading<'_>]) {
        let names = &table.names[shard];
        for rows in rows.chunks(REMOTE_LOAD_ROWS) {
            let mut command = self.begin("HSET", &names.rows);
            let mut entry = Vec::new();
            for Loading { place, row, .. } in rows {
                entry.clear();
                entry.reserve(HEAD_BYTES + row.0.len());
                entry.extend_from_slice(&LOADED_HEAD);
                entry.extend_from_slice(&row.0);
                command.arg(&place.key).arg(&entry);
            }
            self.commands.push(command);
            if table.is_ordered {
                let mut command = self.begin("ZADD", &names.order);
                for Loading { place, .. } in rows {
                    command.arg(0).arg(&place.key);
                }
                self.commands.push(command);
            }
        }
    }

    fn counters(&mut self, table: &RemoteTable, by_shard: &[Vec<Loading<'_>>]) {
        for (shard, rows) in by_shard.iter().enumerate() {
            let mut sums = BTreeMap::<_, i64>::new();
            for Loading { tracked, .. } in rows {
                for (index, value, _) in table.counter_changes(&Tracked::default(), tracked) {
                    *sums.entry((index, value)).or_default() += 1;
                }
            }
            for ((index, value), sum) in sums {
                let mut command = self.begin("HINCRBY", &table.names[shard].counters[index]);
                command.arg(&value.to_le_bytes()).arg(sum);
                self.commands.push(command);
            }
        }
    }

    fn claims(&mut self, table: &RemoteTable, by_shard: &[Vec<Loading<'_>>]) {
        let mut claims = BTreeMap::<_, Command>::new();
        for Loading { place, tracked, .. } in by_shard.iter().flatten() {
            for unique in table.unique_values(tracked) {
                let shard = table.tier.shard_of_value(unique.value);
                let command = claims
                    .entry((unique.index, shard))
                    .or_insert_with(|| self.begin("HSET", &table.names(shard).uniques[unique.index]));
                command.arg(&unique.value.to_le_bytes()).arg([&UNHELD[..], &place.key].concat());
            }
        }
        self.commands.extend(claims.into_values());
    }

    /// All of them together, so that none goes before another.
    fn lifetimes(&mut self, table: &RemoteTable) {
        for_each_place(table, |place| {
            let mut command = self.begin("PEXPIRE", place);
            command.arg(REMOTE_STAGE_MS);
            self.commands.push(command);
        });
    }
}
