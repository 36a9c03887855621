//! A stage: all rows of a table are first written beside their final keys, in a tier that has no row of the
//! table yet.
//!
//! Plain commands write them, many rows to a command, which costs the servers about half as much as a script;
//! then one script a shard moves them to the final keys. Until a shard is loaded nothing else writes rows
//! there, so nothing is overwritten. The hold of each shard contains the token of the load that began last,
//! and the script refuses every other load, which has lost the lease. Staged keys that are never moved
//! expire.
//!
//! **In a cluster** a value may be reserved in another shard than that of its row. Reservations are moved
//! first, and counted as made, in all shards; the scripts of the rows then note the number and the generation
//! of the reservations on which they rely, as every writer does (`unique`). A shard that already has
//! reservations (of an attempt that found the table not loaded, or of a load that did not end) takes none,
//! and the next load reserves value by value. In between, reservations name rows that do not exist yet, in
//! shards that are not loaded: no request can look such a row up, so none takes over its reservation.

use super::commit::Relied;
use super::encode::{HEAD_BYTES, LOADED_HEAD, Tracked};
use super::table::{KeyPlace, RemoteTable};
use super::tier::Call;
use super::unique::UNHELD;
use super::{scripts, wire};
use crate::error::HotError;
use crate::limits::{REMOTE_LOAD_ROWS, REMOTE_STAGE_MS};
use forebay_redis::{Command, Link, Slot};
use forebay_value::Row;
use futures_util::future::try_join_all;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A row that is being loaded.
pub(super) struct Loading<'a> {
    pub place: KeyPlace,
    pub row: &'a Row,
    pub tracked: Tracked,
}

/// The staging keys of a load, and how many rows and reservations they hold.
pub(super) struct LoadStage {
    /// The suffix of the names of its keys.
    suffix: Vec<u8>,
    /// By shard: the epoch in which the stage was begun. A server that has changed over may have lost a part
    /// of the stage.
    epochs: Vec<Vec<u8>>,
    /// By shard, how many rows are staged.
    rows: Vec<AtomicU64>,
    /// By shard, how many reservations are staged.
    reserved: Vec<AtomicU64>,
}

impl LoadStage {
    pub fn new(token: &[u8], epochs: Vec<Vec<u8>>) -> LoadStage {
        let digits: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        let suffix = format!(":{digits}").into_bytes();
        let zeros = || epochs.iter().map(|_| AtomicU64::new(0)).collect();
        LoadStage { suffix, rows: zeros(), reserved: zeros(), epochs }
    }

    fn beside(&self, place: &[u8]) -> Vec<u8> {
        [place, &self.suffix].concat()
    }

    /// Writes rows, given by shard, to the staging keys.
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
        let sent = commands.commands.into_iter().map(|(slot, command)| link.change(slot, command));
        try_join_all(sent).await.map_err(HotError::from)?;
        Ok(by_shard.iter().map(|rows| rows.len() as u64).sum())
    }

    /// Moves everything to the final keys. False: the load must begin again.
    pub async fn put_in_place(
        &self,
        table: &RemoteTable,
        link: &Link,
        token: &[u8],
        since: &[u64],
    ) -> Result<bool, HotError> {
        let Some(relied) = self.put_reservations(table, link, token).await? else { return Ok(false) };
        let placed = table.tier.shards.iter().zip(since).map(|(shard, since)| {
            let (relied, number) = (&relied, usize::from(shard.number));
            async move {
                let names = table.names(shard.number);
                let call = || {
                    let mut keys = vec![shard.meta.clone(), shard.hold.clone(), names.deleted.clone()];
                    let places = [&names.rows, &names.order].into_iter().chain(&names.counters);
                    for place in places.chain(names.uniques.iter().filter(|_| !table.tier.is_cluster)) {
                        keys.extend([place.clone(), self.beside(place)]);
                    }
                    let mut args = vec![
                        table.loaded_field.clone(),
                        wire::digits(*since),
                        token.to_vec(),
                        self.epochs[number].clone(),
                        wire::digits(self.rows[number].load(Ordering::Relaxed)),
                    ];
                    args.extend(relied.iter().flat_map(Relied::args));
                    Call { script: &scripts::PLACE_STAGED, keys, args }
                };
                wire::number("place", &table.tier.write(link, shard.number, call).await?)
            }
        });
        Ok(try_join_all(placed).await?.into_iter().all(|is_placed| is_placed == 1))
    }

    /// In a cluster, moves reservations to the final keys; returns those on which the rows rely. `None`: the
    /// load must begin again.
    async fn put_reservations(
        &self,
        table: &RemoteTable,
        link: &Link,
        token: &[u8],
    ) -> Result<Option<Vec<Relied>>, HotError> {
        if !table.tier.is_cluster {
            return Ok(Some(Vec::new()));
        }
        let counts = self.reserved.iter().map(|count| count.load(Ordering::Relaxed));
        let with_some = table.tier.shards.iter().zip(counts).filter(|(_, count)| *count > 0);
        let placed = with_some.map(|(shard, count)| async move {
            let call = || {
                let mut keys = vec![shard.meta.clone(), shard.hold.clone()];
                for place in &table.names(shard.number).uniques {
                    keys.extend([place.clone(), self.beside(place)]);
                }
                let epoch = self.epochs[usize::from(shard.number)].clone();
                let args = vec![table.loaded_field.clone(), token.to_vec(), epoch, wire::digits(count)];
                Call { script: &scripts::PLACE_RESERVED, keys, args }
            };
            let answer = wire::array("place", table.tier.write(link, shard.number, call).await?)?;
            let Ok([generation, number]) = <[_; 2]>::try_from(answer) else { return Ok(None) };
            let (generation, number) = (wire::bytes("place", generation)?, wire::number("place", &number)?);
            Ok::<_, HotError>(Some(Relied { shard: shard.number, generation, number }))
        });
        let relied: Option<Vec<Relied>> = try_join_all(placed).await?.into_iter().collect();
        // The next load then does not stage.
        table.is_reserved.fetch_or(relied.is_none(), Ordering::Relaxed);
        Ok(relied)
    }

    /// Deletes all staging keys.
    pub async fn clear(&self, table: &RemoteTable, link: &Link) -> Result<(), HotError> {
        let cleared = table.tier.shards.iter().map(|shard| {
            let mut command = Command::new();
            command.arg("UNLINK");
            for place in places(table, shard.number) {
                command.arg(self.beside(place));
            }
            link.change(shard.slot, command)
        });
        try_join_all(cleared).await?;
        Ok(())
    }
}

/// The final keys of what is staged for a shard.
fn places(table: &RemoteTable, shard: u16) -> impl Iterator<Item = &Vec<u8>> {
    let names = table.names(shard);
    let order = Some(&names.order).filter(|_| table.is_ordered);
    [&names.rows].into_iter().chain(order).chain(&names.counters).chain(&names.uniques)
}

/// The commands of one part of a load.
struct Commands<'s> {
    stage: &'s LoadStage,
    commands: Vec<(Slot, Command)>,
}

impl Commands<'_> {
    fn begin(&self, verb: &str, place: &[u8]) -> Command {
        let mut command = Command::new();
        command.arg(verb).arg(self.stage.beside(place));
        command
    }

    fn rows(&mut self, table: &RemoteTable, shard: usize, rows: &[Loading<'_>]) {
        let (names, slot) = (&table.names[shard], table.tier.shards[shard].slot);
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
            self.commands.push((slot, command));
            if table.is_ordered {
                let mut command = self.begin("ZADD", &names.order);
                for Loading { place, .. } in rows {
                    command.arg(0).arg(&place.key);
                }
                self.commands.push((slot, command));
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
                self.commands.push((table.tier.shards[shard].slot, command));
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
                self.stage.reserved[usize::from(shard)].fetch_add(1, Ordering::Relaxed);
            }
        }
        let slot = |shard: u16| table.tier.shards[usize::from(shard)].slot;
        self.commands.extend(claims.into_iter().map(|((_, shard), command)| (slot(shard), command)));
    }

    /// Sets the expiry of all staging keys at the same time, so that none expires before another.
    fn lifetimes(&mut self, table: &RemoteTable) {
        for shard in &table.tier.shards {
            for place in places(table, shard.number) {
                let mut command = self.begin("PEXPIRE", place);
                command.arg(REMOTE_STAGE_MS);
                self.commands.push((shard.slot, command));
            }
        }
    }
}
