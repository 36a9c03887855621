//! Compares a hot table in this process with the database, while a server is running.
//!
//! The database's rows are read in one snapshot, together with the drain position `P` of that same snapshot.
//! So each row has an exact rule: a row of memory whose last change is at or before `P` must be in the
//! database with the same values; a row that changed later is not drained yet and is not compared. Of each
//! database row only an 8-byte hash is retained, to find the rows that memory contains and the database does
//! not. Rows of a followed table that differ are compared again (`again`): memory is a moment behind what
//! other programs write.

use super::recheck;
use crate::reached::Reached;
use crate::verify::{Difference, Differences, Pair, difference, first_difference, still_different};
use crate::{Error, Kind, Progress};
use forebay_database::Store;
use forebay_log::LogId;
use forebay_table::{Counters, Read, Table};
use forebay_value::{Row, RowRef, Value, ValueRef};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Compares all rows of a table. `log` is the log that receives the table's writes.
///
/// # Errors
/// [`Kind::Database`]: it cannot be reached.
pub async fn verify(
    table: &Arc<Table>,
    store: &Store,
    log: LogId,
    progress: &Arc<Progress>,
) -> Result<Differences, Error> {
    Differences::judged(verify_rows(table, store, log, progress).await, table.schema())
}

async fn verify_rows(
    table: &Arc<Table>,
    store: &Store,
    log: LogId,
    progress: &Arc<Progress>,
) -> Result<Differences, Error> {
    let dead = store.dead_letter_count_of(log.0, &table.schema().name).await?;
    let scan = store.scan_at(table.schema(), None, log.0).await?;
    let (own, database) = (table.clone(), store.clone());
    let (table, store, progress) = (table.clone(), store.clone(), progress.clone());
    let runtime = tokio::runtime::Handle::current();
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("verify".into())
        .spawn(move || {
            let found = Differences { dead, ..Differences::default() };
            // The caller may have been dropped.
            let _ = answer.send(compare_all(&table, scan, found, &progress, |pairs| {
                runtime.block_on(still_different(&store, table.schema(), pairs))
            }));
        })
        .map_err(|source| Error::caused(Kind::Stopped, "cannot start a thread", source))?;
    let (found, doubtful) =
        answered.await.map_err(|_| Error::new(Kind::Stopped, "the thread that compares has panicked"))??;
    recheck::compare(&own, &database, found, doubtful).await
}

fn compare_all(
    table: &Table,
    mut scan: forebay_database::Scan,
    mut found: Differences,
    progress: &Progress,
    still_different: impl Fn(Vec<Pair>) -> Result<Vec<Pair>, Error>,
) -> Result<(Differences, Vec<Value>), Error> {
    let mut doubtful = Vec::new();
    let reached = Reached::noted(scan.position.unwrap_or(0), &scan.note)?;
    let drained = reached.of(&table.schema().name).0;
    let hasher = RandomState::new();
    let mut stored: HashSet<u64, BuildHasherDefault<AsIs>> = HashSet::default();
    while let Some(message) = scan.rows.blocking_recv() {
        let message = message?;
        let mut differing = Vec::new();
        for unfit in &message.unfit {
            let Some(key) = &unfit.key else { continue };
            stored.insert(hash_key(&hasher, key.as_ref()));
            match table.get(key.as_ref(), Counters::Shown, |_| ()) {
                Read::Fetch(_) => found.evicted += 1,
                Read::Found((), position) | Read::Missing(position) if position.0 > drained => {
                    found.undrained += 1;
                }
                Read::Found(..) | Read::Missing(_) => doubtful.push(key.clone()),
            }
        }
        for row in &message.rows {
            stored.insert(hash_key(&hasher, row.as_ref().key(table.schema())));
            differing.extend(compare(table, row, drained, &mut found, &mut doubtful));
        }
        for (memory, database) in still_different(differing)? {
            if table.followed() {
                found.compared -= 1;
                doubtful.push(database.as_ref().key(table.schema()).to_owned());
                continue;
            }
            found.different += 1;
            found.example(|| difference(table.schema(), &memory, &database));
        }
        progress.add(message.len() as u64);
    }
    // Under each shard's lock, one lookup in the set for each row: some ten milliseconds a shard at
    // 10,000,000 rows.
    table.for_each(|entry| {
        if stored.contains(&hash_key(&hasher, entry.key)) {
            return;
        }
        if entry.position.0 > drained {
            found.undrained += 1;
        } else if table.followed() {
            doubtful.push(entry.key.to_owned());
        } else {
            found.missing_in_database += 1;
            found.example(|| Difference::MissingInDatabase(entry.key.to_owned()));
        }
    });
    Ok((found, doubtful))
}

/// Compares one database row with memory; returns both when they differ.
fn compare(
    table: &Table,
    stored: &Row,
    drained: u64,
    found: &mut Differences,
    doubtful: &mut Vec<Value>,
) -> Option<Pair> {
    let schema = table.schema();
    let database = stored.as_ref();
    let key = database.key(schema);
    if table.has_intent(key) {
        found.undrained += 1;
        return None;
    }
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
        // Deleted after the snapshot, as far as memory knows.
        Read::Missing(position) if position.0 > drained => found.undrained += 1,
        Read::Missing(_) if table.followed() => doubtful.push(key.to_owned()),
        Read::Missing(_) => {
            found.missing_in_memory += 1;
            found.example(|| Difference::MissingInMemory(key.to_owned()));
        }
        Read::Fetch(_) if table.shared() => found.only_in_database += 1,
        Read::Fetch(_) => found.evicted += 1,
    }
    None
}

fn hash_key(hasher: &RandomState, key: ValueRef<'_>) -> u64 {
    match key {
        ValueRef::Bigint(v) => hasher.hash_one(v),
        ValueRef::Uuid(v) => hasher.hash_one(v.as_u128()),
        ValueRef::Text(v) => hasher.hash_one(v),
        _ => unreachable!("Schema::new refuses other keys"),
    }
}

/// A hasher that returns its input: the set's members are hashes already.
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
