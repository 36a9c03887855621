//! Compares a hot table with the record store, row by row, beside a server that goes on.
//!
//! The record store's rows are read in one snapshot, together with the drain position `P` of that same snapshot. So each row has an exact
//! rule: a row of memory whose last change is at or before `P` must be there and be the same; one that changed later is not drained yet
//! and says nothing. Of the store's rows only 8 bytes each are kept, to find those that memory has and the store has not.

use crate::limits::EXAMPLES;
use crate::{Error, Kind, Progress};
use forebay_log::LogId;
use forebay_record::Store;
use forebay_table::{Counters, Read, Table};
use forebay_value::{RowRef, Schema, Value, ValueRef};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What differs between memory and the record store.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Differences {
    /// Rows that were compared, value by value.
    pub compared: u64,
    /// Rows of which memory has only the key, because they were evicted: the store has them.
    pub evicted: u64,
    /// Rows that changed after the snapshot's position: they are in the log, not yet in the store.
    pub undrained: u64,
    /// Rows that only the store has, of a table that others write to (`shared`): as it should be.
    pub only_in_record: u64,
    /// Rows that memory has and the store has not.
    pub missing_in_record: u64,
    /// Rows that the store has and memory has not.
    pub missing_in_memory: u64,
    /// Rows that both have, with different values.
    pub different: u64,
    /// Changes of this table, from this log, that are in `forebay_dead_letter`.
    pub dead: u64,
    /// The first few differences.
    pub examples: Vec<Difference>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// Memory has the row, the store has not.
    MissingInRecord(Value),
    /// The store has the row, memory has not.
    MissingInMemory(Value),
    /// They differ.
    Different {
        /// The key.
        key: Value,
        /// The first column that differs.
        column: String,
        /// In memory.
        memory: Value,
        /// In the store.
        record: Value,
    },
}

impl Differences {
    /// Whether memory and store hold the same, as far as it is drained.
    pub fn is_clean(&self) -> bool {
        self.missing_in_record == 0 && self.missing_in_memory == 0 && self.different == 0 && self.dead == 0
    }

    pub(crate) fn example(&mut self, example: impl FnOnce() -> Difference) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }
}

/// Compares all rows of a table. `log` is the log that the table is written to.
///
/// # Errors
/// [`Kind::Record`].
pub async fn check(
    table: &Arc<Table>,
    store: &Store,
    log: LogId,
    progress: &Arc<Progress>,
) -> Result<Differences, Error> {
    progress.set_total(store.count(table.schema()).await?);
    let dead = store.dead_letter_count_of(log.0, &table.schema().name).await?;
    let scan = store.scan_at(table.schema(), None, log.0).await?;
    let (table, progress) = (table.clone(), progress.clone());
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("check".into())
        .spawn(move || {
            let found = Differences { dead, ..Differences::default() };
            // When nobody waits any more nobody needs the result.
            let _ = answer.send(compare_all(&table, scan, found, &progress));
        })
        .map_err(|source| Error::caused(Kind::Stopped, "cannot start a thread", source))?;
    answered.await.map_err(|_| Error::new(Kind::Stopped, "the thread that checks has panicked"))?
}

fn compare_all(
    table: &Table,
    mut scan: forebay_record::Scan,
    mut found: Differences,
    progress: &Progress,
) -> Result<Differences, Error> {
    let drained = scan.position.unwrap_or(0);
    let hasher = RandomState::new();
    let mut stored: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    while let Some(message) = scan.rows.blocking_recv() {
        let message = message?;
        for row in &message {
            stored.insert(hash_key(&hasher, row.as_ref().key(table.schema())));
            compare(table, row.as_ref(), drained, &mut found);
        }
        progress.add(message.len() as u64);
    }
    // Under each shard's lock one look into the set for each row: some ten milliseconds a shard at 10,000,000 rows.
    table.for_each(|entry| {
        if stored.contains(&hash_key(&hasher, entry.key)) {
            return;
        }
        if entry.position.0 > drained {
            found.undrained += 1;
        } else {
            found.missing_in_record += 1;
            found.example(|| Difference::MissingInRecord(entry.key.to_owned()));
        }
    });
    Ok(found)
}

/// One row of the store against memory.
fn compare(table: &Table, record: RowRef<'_>, drained: u64, found: &mut Differences) {
    let schema = table.schema();
    let key = record.key(schema);
    let read =
        table.get(
            key,
            Counters::Shown,
            |memory| {
                if memory.0 == record.0 { None } else { Some(memory.0.to_vec()) }
            },
        );
    match read {
        Read::Found(_, position) if position.0 > drained => found.undrained += 1,
        Read::Found(None, _) => found.compared += 1,
        Read::Found(Some(memory), _) => {
            found.compared += 1;
            if let Some((column, memory, record)) = first_difference(schema, RowRef(&memory), record) {
                found.different += 1;
                found.example(|| Difference::Different { key: key.to_owned(), column, memory, record });
            }
        }
        // Deleted after the snapshot, as far as is known.
        Read::Missing(position) if position.0 > drained => found.undrained += 1,
        Read::Missing(_) => {
            found.missing_in_memory += 1;
            found.example(|| Difference::MissingInMemory(key.to_owned()));
        }
        Read::Fetch(_) if table.shared() => found.only_in_record += 1,
        Read::Fetch(_) => found.evicted += 1,
    }
}

/// By value: stores forget the sign of a zero, and that is no difference.
pub(crate) fn first_difference(
    schema: &Schema,
    memory: RowRef<'_>,
    record: RowRef<'_>,
) -> Option<(String, Value, Value)> {
    let mut pairs = memory.values(schema).zip(record.values(schema)).zip(&schema.columns);
    let ((memory, record), column) = pairs.find(|((memory, record), _)| memory != record)?;
    Some((column.name.clone(), memory.to_owned(), record.to_owned()))
}

fn hash_key(hasher: &RandomState, key: ValueRef<'_>) -> u64 {
    match key {
        ValueRef::Bigint(v) => hasher.hash_one(v),
        ValueRef::Uuid(v) => hasher.hash_one(v.as_u128()),
        ValueRef::Text(v) => hasher.hash_one(v),
        _ => unreachable!("Schema::new refuses other keys"),
    }
}

/// The set's members are hashes already.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only u64s are put in");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}
