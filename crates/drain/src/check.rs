//! Compares a hot table with the database, row by row, beside a server that goes on.
//!
//! The database's rows are read in one snapshot, together with the drain position `P` of that same snapshot. So each row has an exact
//! rule: a row of memory whose last change is at or before `P` must be there and be the same; one that changed later is not drained yet
//! and says nothing. What a row looks like in the store is the store's own business (a `char(4)` pads, a `numeric(10,2)` rounds, `jsonb` puts in order): one that
//! differs is compared again as the store would give it back. Of the store's rows only 8 bytes each are kept, to find those that memory has and the store has not.

use crate::limits::{EXAMPLES, STORED_ROWS};
use crate::{Error, Kind, Progress};
use forebay_database::Store;
use forebay_log::LogId;
use forebay_table::{Counters, Read, Table};
use forebay_value::{Row, RowRef, Schema, Value, ValueRef};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What differs between memory and the database.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Differences {
    /// Rows that were compared, value by value.
    pub compared: u64,
    /// Rows of which memory has only the key, because they were evicted: the store has them.
    pub evicted: u64,
    /// Rows that changed after the snapshot's position: they are in the log, not yet in the store.
    pub undrained: u64,
    /// Rows that only the store has, of a table that others write to (`shared`): as it should be.
    pub only_in_database: u64,
    /// Rows that memory has and the store has not.
    pub missing_in_database: u64,
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
    MissingInDatabase(Value),
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
        database: Value,
    },
}

impl Differences {
    /// Whether memory and store hold the same, as far as it is drained.
    pub fn is_clean(&self) -> bool {
        self.missing_in_database == 0 && self.missing_in_memory == 0 && self.different == 0 && self.dead == 0
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
/// [`Kind::Database`].
pub async fn check(
    table: &Arc<Table>,
    store: &Store,
    log: LogId,
    progress: &Arc<Progress>,
) -> Result<Differences, Error> {
    progress.set_total(store.count(table.schema()).await?);
    let dead = store.dead_letter_count_of(log.0, &table.schema().name).await?;
    let scan = store.scan_at(table.schema(), None, log.0).await?;
    let (table, store, progress) = (table.clone(), store.clone(), progress.clone());
    let runtime = tokio::runtime::Handle::current();
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("check".into())
        .spawn(move || {
            let found = Differences { dead, ..Differences::default() };
            // When nobody waits any more nobody needs the result.
            let _ = answer.send(compare_all(&table, scan, found, &progress, |pairs| {
                runtime.block_on(still_different(&store, table.schema(), pairs))
            }));
        })
        .map_err(|source| Error::caused(Kind::Stopped, "cannot start a thread", source))?;
    answered.await.map_err(|_| Error::new(Kind::Stopped, "the thread that checks has panicked"))?
}

fn compare_all(
    table: &Table,
    mut scan: forebay_database::Scan,
    mut found: Differences,
    progress: &Progress,
    still_different: impl Fn(Vec<Pair>) -> Result<Vec<Pair>, Error>,
) -> Result<Differences, Error> {
    let drained = scan.position.unwrap_or(0);
    let hasher = RandomState::new();
    let mut stored: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    while let Some(message) = scan.rows.blocking_recv() {
        let message = message?;
        let mut differing = Vec::new();
        for row in &message {
            stored.insert(hash_key(&hasher, row.as_ref().key(table.schema())));
            differing.extend(compare(table, row, drained, &mut found));
        }
        for (memory, database) in still_different(differing)? {
            found.different += 1;
            found.example(|| difference(table.schema(), &memory, &database));
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
            found.missing_in_database += 1;
            found.example(|| Difference::MissingInDatabase(entry.key.to_owned()));
        }
    });
    Ok(found)
}

/// One row of the store against memory; both when they differ.
fn compare(table: &Table, stored: &Row, drained: u64, found: &mut Differences) -> Option<Pair> {
    let schema = table.schema();
    let database = stored.as_ref();
    let key = database.key(schema);
    let read =
        table.get(
            key,
            Counters::Shown,
            |memory| {
                if memory.0 == database.0 { None } else { Some(memory.0.to_vec()) }
            },
        );
    match read {
        Read::Found(_, position) if position.0 > drained => found.undrained += 1,
        Read::Found(None, _) => found.compared += 1,
        Read::Found(Some(memory), _) => {
            found.compared += 1;
            if first_difference(schema, RowRef(&memory), database).is_some() {
                return Some((Row(memory.into()), stored.clone()));
            }
        }
        // Deleted after the snapshot, as far as is known.
        Read::Missing(position) if position.0 > drained => found.undrained += 1,
        Read::Missing(_) => {
            found.missing_in_memory += 1;
            found.example(|| Difference::MissingInMemory(key.to_owned()));
        }
        Read::Fetch(_) if table.shared() => found.only_in_database += 1,
        Read::Fetch(_) => found.evicted += 1,
    }
    None
}

/// A row as memory has it, and as the store has it.
pub(crate) type Pair = (Row, Row);

/// Those of the pairs that also differ when the store has made of memory's row what its columns make of any, and as it made it.
pub(crate) async fn still_different(
    store: &Store,
    schema: &Schema,
    pairs: Vec<Pair>,
) -> Result<Vec<Pair>, Error> {
    let mut still = Vec::new();
    for some in pairs.chunks(STORED_ROWS) {
        let memory = some.iter().map(|(memory, _)| memory.clone()).collect();
        let stored = store.as_stored(schema, memory).await?;
        let pairs = stored.into_iter().zip(some.iter().map(|(_, database)| database.clone()));
        still.extend(pairs.filter(|(stored, database)| !is_same(schema, stored, database)));
    }
    Ok(still)
}

/// Whether two rows are the same, by value.
pub(crate) fn is_same(schema: &Schema, memory: &Row, database: &Row) -> bool {
    memory.0 == database.0 || first_difference(schema, memory.as_ref(), database.as_ref()).is_none()
}

/// What to say of a pair that differs.
pub(crate) fn difference(schema: &Schema, memory: &Row, database: &Row) -> Difference {
    let key = database.as_ref().key(schema).to_owned();
    match first_difference(schema, memory.as_ref(), database.as_ref()) {
        Some((column, memory, database)) => Difference::Different { key, column, memory, database },
        None => unreachable!("rows that are the same are no difference"),
    }
}

/// By value: stores forget the sign of a zero and how a decimal was written, and that is no difference.
fn first_difference(
    schema: &Schema,
    memory: RowRef<'_>,
    database: RowRef<'_>,
) -> Option<(String, Value, Value)> {
    let mut pairs = memory.values(schema).zip(database.values(schema)).zip(&schema.columns);
    let ((memory, database), column) =
        pairs.find(|((memory, database), _)| !is_same_value(*memory, *database))?;
    Some((column.name.clone(), memory.to_owned(), database.to_owned()))
}

fn is_same_value(memory: ValueRef<'_>, database: ValueRef<'_>) -> bool {
    match (memory, database) {
        (ValueRef::Numeric(memory), ValueRef::Numeric(database)) => {
            memory == database || decimal(memory).is_some_and(|number| Some(number) == decimal(database))
        }
        _ => memory == database,
    }
}

/// A decimal as its sign, its digits without zeros around them, and the power of ten that these stand for; `None` for one that is out of bounds.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let without_tail = digits.trim_end_matches('0');
    let power = exponent.parse::<i32>().ok()? as i64 - fraction.len() as i64;
    let power = power + (digits.len() - without_tail.len()) as i64;
    match without_tail.trim_start_matches('0') {
        "" => Some((false, String::new(), 0)),
        digits => Some((is_negative, digits.to_owned(), power)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_compared_by_value() {
        for (one, other, same) in [
            ("7.50", "7.5", true),
            ("75e-1", "7.5", true),
            ("-0.0", "0", true),
            ("1E+3", "1000", true),
            ("0.00100", "1e-3", true),
            ("7.5", "-7.5", false),
            ("7.5", "75", false),
            ("12345678901234567890.1", "12345678901234567890.2", false),
            ("1e99999999999", "1e99999999998", false),
        ] {
            let (one, other) = (ValueRef::Numeric(one), ValueRef::Numeric(other));
            assert_eq!(is_same_value(one, other), same, "{one:?} {other:?}");
        }
    }
}
