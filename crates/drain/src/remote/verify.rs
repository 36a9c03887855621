//! Compares a hot table on Redis or Valkey with the database, row by row, while servers and drains are
//! running.
//!
//! The positions of all shards are read first, the database's rows in a snapshot after that. So a row of
//! memory whose last change lies at or before its shard's position must be in the snapshot with the same
//! values. A row that changed later, or that has held changes, is not compared. A row may change, be deleted
//! and be drained between the snapshot and the read of memory: rows that differ are read again, on both
//! sides, before they count.

use super::warm::tier;
use crate::verify::{Difference, Differences, Pair, difference, is_same, still_different};
use crate::{Error, Progress};
use forebay_database::{Held, Store};
use forebay_redis::Link;
use forebay_table::{RemoteEntry, RemoteTable, RemoteTables};
use forebay_value::{Row, Value};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// How often a row that differs is read again, and after how long: about the time that a change takes from
/// memory to the database.
const READS_MAX: u32 = 5;
const READ_AGAIN: Duration = Duration::from_millis(100);
/// Concurrent reads of memory.
const AT_ONCE: usize = 256;

/// Compares all rows of a table.
///
/// # Errors
/// [`Kind::Database`](crate::Kind::Database), [`Kind::Log`](crate::Kind::Log).
pub async fn verify_remote(
    tables: &RemoteTables,
    table: &RemoteTable,
    link: &Link,
    store: &Store,
    progress: &Progress,
) -> Result<Differences, Error> {
    Differences::judged(verify_rows(tables, table, link, store, progress).await, table.schema())
}

async fn verify_rows(
    tables: &RemoteTables,
    table: &RemoteTable,
    link: &Link,
    store: &Store,
    progress: &Progress,
) -> Result<Differences, Error> {
    let mut comparison = Comparison {
        tables,
        table,
        link,
        store,
        drained: HashMap::new(),
        held: HashSet::new(),
        found: Differences::default(),
    };
    for shard in 0..tables.shard_count() {
        let log = tables.log_id(shard);
        comparison.found.dead += store.dead_letter_count_of(log, &table.schema().name).await?;
    }
    comparison.read_positions().await?;
    let mut messages = store.scan(table.schema(), None);
    let (mut keys, mut doubtful) = (HashSet::new(), Vec::new());
    while let Some(message) = messages.recv().await {
        let message = message?;
        keys.extend(message.unfit.iter().filter_map(|unfit| unfit.key.as_ref()).map(text_of));
        for part in message.rows.chunks(AT_ONCE) {
            let reads = part.iter().map(|row| table.entry(link, row.as_ref().key(table.schema())));
            let entries = futures_util::future::try_join_all(reads).await.map_err(tier)?;
            let mut differing: Vec<Pair> = Vec::new();
            for (row, entry) in part.iter().zip(entries) {
                let key = row.as_ref().key(table.schema()).to_owned();
                keys.insert(text_of(&key));
                if !comparison.agrees(&key, entry.as_ref(), Some(row)) {
                    match entry.and_then(|entry| entry.row) {
                        Some(memory) => differing.push((memory, row.clone())),
                        None => doubtful.push(key),
                    }
                }
            }
            comparison.found.compared += differing.len() as u64;
            let still = still_different(store, table.schema(), differing).await?;
            comparison.found.compared -= still.len() as u64;
            doubtful.extend(still.iter().map(|(_, row)| row.as_ref().key(table.schema()).to_owned()));
        }
        progress.add(message.len() as u64);
    }
    comparison.find_missing(&keys, &mut doubtful).await?;
    for key in doubtful {
        comparison.settle(key).await?;
    }
    Ok(comparison.found)
}

struct Comparison<'a> {
    tables: &'a RemoteTables,
    table: &'a RemoteTable,
    link: &'a Link,
    store: &'a Store,
    /// By shard.
    drained: HashMap<u16, u64>,
    /// The keys of rows with held changes.
    held: HashSet<String>,
    found: Differences,
}

impl Comparison<'_> {
    async fn read_positions(&mut self) -> Result<(), Error> {
        let stored: HashMap<u128, u64> =
            self.store.positions().await?.into_iter().map(|stored| (stored.log, stored.position)).collect();
        for shard in 0..self.tables.shard_count() {
            let position = stored.get(&self.tables.log_id(shard)).copied().unwrap_or(0);
            self.drained.insert(shard, position);
        }
        let schema = self.table.schema();
        let held = self.store.held().await?.into_iter().filter(|held| held.letter.table == schema.name);
        let key = |held: Held| Some(text_of(&held.change(schema).ok()?.key(schema).to_owned()));
        self.held = held.filter_map(key).collect();
        Ok(())
    }

    fn is_drained(&self, key: &Value, position: u64) -> bool {
        let shard = self.table.shard_of(key.as_ref());
        shard.and_then(|shard| self.drained.get(&shard)).is_some_and(|drained| position <= *drained)
    }

    /// Whether a row agrees; counts it if so.
    fn agrees(&mut self, key: &Value, memory: Option<&RemoteEntry>, database: Option<&Row>) -> bool {
        if self.held.contains(&text_of(key)) {
            self.found.undrained += 1;
            return true;
        }
        match (memory, database) {
            (Some(entry), _) if !self.is_drained(key, entry.position) => self.found.undrained += 1,
            (Some(RemoteEntry { row: None, .. }), Some(_)) => self.found.evicted += 1,
            (Some(RemoteEntry { row: Some(memory), .. }), Some(database)) => {
                if !is_same(self.table.schema(), memory, database) {
                    return false;
                }
                self.found.compared += 1;
            }
            (None, Some(_)) if self.table.shared() => self.found.only_in_database += 1,
            (None, None) => {}
            (None, Some(_)) | (Some(_), None) => return false,
        }
        true
    }

    /// Finds rows of memory that the database should contain and does not.
    async fn find_missing(&mut self, keys: &HashSet<String>, doubtful: &mut Vec<Value>) -> Result<(), Error> {
        for shard in 0..self.tables.shard_count() {
            let mut cursor = 0;
            loop {
                let (next, entries) = self.table.scan(self.link, shard, cursor).await.map_err(tier)?;
                for entry in entries {
                    if !keys.contains(&text_of(&entry.key)) {
                        let key = entry.key.clone();
                        if !self.agrees(&key, Some(&entry), None) {
                            doubtful.push(key);
                        }
                    }
                }
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reads a row again until both sides agree; counts the difference when they do not.
    async fn settle(&mut self, key: Value) -> Result<(), Error> {
        let mut last = (None, None);
        for read in 0..READS_MAX {
            if read > 0 {
                tokio::time::sleep(READ_AGAIN).await;
            }
            self.read_positions().await?;
            let memory = self.table.entry(self.link, key.as_ref()).await.map_err(tier)?;
            let database = self.store.fetch(self.table.schema(), key.clone()).await?;
            if self.agrees(&key, memory.as_ref(), database.as_ref()) {
                return Ok(());
            }
            last = (memory.and_then(|entry| entry.row), database);
            if let (Some(memory), Some(database)) = &last {
                let pair = vec![(memory.clone(), database.clone())];
                let Some((stored, database)) =
                    still_different(self.store, self.table.schema(), pair).await?.pop()
                else {
                    self.found.compared += 1;
                    return Ok(());
                };
                last = (Some(stored), Some(database));
            }
        }
        match last {
            (_, None) => {
                self.found.missing_in_database += 1;
                self.found.example(|| Difference::MissingInDatabase(key));
            }
            (None, Some(_)) => {
                self.found.missing_in_memory += 1;
                self.found.example(|| Difference::MissingInMemory(key));
            }
            (Some(memory), Some(database)) => {
                self.found.different += 1;
                self.found.example(|| difference(self.table.schema(), &memory, &database));
            }
        }
        Ok(())
    }
}

/// A key as text: two keys are equal when their texts are.
fn text_of(key: &Value) -> String {
    match key {
        Value::Bigint(number) => number.to_string(),
        Value::Uuid(id) => id.to_string(),
        Value::Text(text) => text.to_string(),
        _ => unreachable!("Schema::new refuses other keys"),
    }
}
