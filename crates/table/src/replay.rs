//! Replay: the changes that are in the log and not in the record store, applied to memory at start.
//!
//! Nothing is refused that was acknowledged: unique values are claimed without asking, and the memory limit may be passed.

use crate::budget::allocated_bytes;
use crate::error::{Error, Kind};
use crate::key::KeyRef;
use crate::limits::{REPLAY_BATCH_BYTES, REPLAY_BATCHES};
use crate::record::{InvalidRecord, LogRecord, TableId};
use crate::shard::{Absence, Shard, row_key};
use crate::slab::{COUNTED, EVICTED, Slot};
use crate::table::Table;
use crate::tables::Tables;
use crate::write::bigint_at;
use forebay_log::{Batch, Position, Reader};
use forebay_value::{KeyKind, RowRef};
use std::sync::{Arc, mpsc};
use std::thread;

/// What a replay did.
pub struct Replayed {
    /// Changes read from the log.
    pub records: u64,
    /// Those of tables that are no longer configured: only the drain has a use for them.
    pub skipped: u64,
    /// Where it ended.
    pub end: Position,
    /// Tables with serial keys and the highest key that they have, from the log or loaded before; 0 when they have no row. The record
    /// store's sequence must not lie below it.
    pub highest_keys: Vec<(Arc<Table>, i64)>,
}

/// What is done with the records of a table id.
enum Target {
    Apply(Arc<Table>),
    /// The table still exists, with other columns.
    OldColumns(String),
    Skip,
}

impl Tables {
    /// Applies every change after `from`, up to which the record store has everything: after its rows were loaded, before serving.
    ///
    /// # Errors
    /// [`Kind::BadRecord`] with the position; [`Kind::OldColumns`]; [`Kind::Log`].
    pub fn replay(&self, from: Position) -> Result<Replayed, Error> {
        self.drained(from);
        let mut replayed = Replayed { records: 0, skipped: 0, end: from, highest_keys: Vec::new() };
        let targets = self.targets();
        let reader = self.inner.core.log.reader(from).map_err(unreadable)?;
        let (sender, batches) = mpsc::sync_channel(REPLAY_BATCHES);
        thread::scope(|scope| {
            // Reading and its checksums go on a core of their own if there is one.
            scope.spawn(move || read_batches(reader, &sender));
            for batch in batches {
                let batch = batch.map_err(unreadable)?;
                for (position, bytes) in batch.iter() {
                    replayed.records += 1;
                    if !apply(&targets, position, bytes)? {
                        replayed.skipped += 1;
                    }
                }
                replayed.end = batch.end();
            }
            Ok::<(), Error>(())
        })?;
        let serial = self.all().iter().filter(|table| table.schema().key_kind == KeyKind::Serial);
        replayed.highest_keys = serial.map(|table| (table.clone(), table.rows.highest_key())).collect();
        Ok(replayed)
    }

    /// By table id.
    fn targets(&self) -> Vec<Option<Target>> {
        let mut targets = Vec::new();
        for (id, schema) in self.inner.catalogue.tables() {
            let target = match self.get(&schema.name) {
                Some(table) if table.id() == id => Target::Apply(table),
                Some(_) => Target::OldColumns(schema.name.clone()),
                None => Target::Skip,
            };
            targets.resize_with(usize::from(id.0), || None);
            targets.push(Some(target));
        }
        targets
    }
}

fn unreadable(error: forebay_log::Error) -> Error {
    Error::caused(Kind::Log, "cannot read the log", error)
}

/// Sends what the log holds, until its end, an error, or nobody wants more.
fn read_batches(mut reader: Reader, batches: &mpsc::SyncSender<Result<Batch, forebay_log::Error>>) {
    loop {
        let batch = reader.next_batch(REPLAY_BATCH_BYTES);
        let is_last = batch.as_ref().map_or(true, Batch::is_empty);
        if batches.send(batch).is_err() || is_last {
            return;
        }
    }
}

/// Applies one record; false when its table is no longer configured.
fn apply(targets: &[Option<Target>], position: Position, bytes: &[u8]) -> Result<bool, Error> {
    let record = LogRecord::decode(bytes).map_err(|error| bad(position, error))?;
    let TableId(id) = record.table();
    let table = match targets.get(usize::from(id)) {
        Some(Some(Target::Apply(table))) => table,
        Some(Some(Target::OldColumns(table))) => return Err(old_columns(table, position)),
        Some(Some(Target::Skip)) => return Ok(false),
        _ => return Err(bad(position, InvalidRecord("is of a table that is not in the catalogue"))),
    };
    record.check(table.schema()).map_err(|error| bad(position, error))?;
    let key = |value| KeyRef::of(value).expect("a checked record");
    match record {
        LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => table.replay_row(row, position),
        LogRecord::Delete { key: deleted, .. } => table.replay_delete(key(deleted), position),
        LogRecord::Increment { key: counted, column, delta, .. } => table
            .replay_increment(key(counted), column, delta, position)
            .map_err(|error| bad(position, error))?,
    }
    Ok(true)
}

fn bad(position: Position, error: InvalidRecord) -> Error {
    Error::caused(
        Kind::BadRecord { position },
        format!("the log's record that ends at {position} is damaged"),
        error,
    )
}

fn old_columns(table: &str, position: Position) -> Error {
    let what = format!(
        "table {table} has other columns than when the change at log position {position} was written: \
         drain with the old columns first"
    );
    Error::new(Kind::OldColumns { table: table.to_owned() }, what)
}

impl Table {
    fn replay_row(&self, row: RowRef<'_>, position: Position) {
        let rows = &*self.rows;
        let key = row_key(row, self.schema());
        let hash = rows.hasher.key(key);
        let after = rows.fingerprints(row);
        rows.saw_key(key);
        // Makes room if there is some to be made; what was acknowledged is kept in any case.
        match self.core.reserve(row.0.len()) {
            Ok(charge) => charge.keep(),
            Err(_) => rows.budget.take(allocated_bytes(row.0.len())),
        }
        let mut shard = rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(slot) => {
                let before = rows.fingerprints_of(shard.slots.get(slot));
                rows.exchange_known(&before, &after, position);
                rows.budget.give(allocated_bytes(row.0.len()));
                rows.set(&mut shard, slot, row, position);
            }
            None => {
                rows.exchange_known(&[], &after, position);
                rows.insert(&mut shard, hash, Slot::new(row.0.into(), position));
            }
        }
    }

    fn replay_delete(&self, key: KeyRef<'_>, position: Position) {
        let rows = &*self.rows;
        let hash = rows.hasher.key(key);
        let mut shard = rows.lock(hash.shard());
        if let Some(slot) = shard.find(self.schema(), hash, key) {
            let before = rows.fingerprints_of(shard.slots.get(slot));
            rows.exchange_known(&before, &[], position);
            rows.remove(&mut shard, hash, slot, position);
        }
        shard.deleted = position;
        if self.keeps_tombstones() {
            rows.bury(&mut shard, key, position, Absence::Deleted);
        }
    }

    fn replay_increment(
        &self,
        key: KeyRef<'_>,
        column: usize,
        delta: i64,
        position: Position,
    ) -> Result<(), InvalidRecord> {
        let rows = &*self.rows;
        let hash = rows.hasher.key(key);
        let mut shard = rows.lock(hash.shard());
        let Some(number) = shard.find(self.schema(), hash, key) else {
            if self.shared() {
                self.mark_behind(&mut shard, key, position);
            }
            return Ok(());
        };
        let slot = shard.slots.get_mut(number);
        if slot.has(EVICTED) {
            // It can be read again when the record store has the increment as well.
            slot.changed(position, EVICTED);
            return Ok(());
        }
        let Some((at, value)) = bigint_at(self.schema(), RowRef(&slot.bytes), column) else {
            return Ok(());
        };
        let sum = value.checked_add(delta).ok_or(InvalidRecord("counts past 64 bits"))?;
        let before = if rows.is_tracked(column) { rows.fingerprints_of(slot) } else { Default::default() };
        let slot = shard.slots.get_mut(number);
        slot.bytes[at..at + size_of::<i64>()].copy_from_slice(&sum.to_le_bytes());
        slot.changed(position, COUNTED);
        if !before.is_empty() {
            rows.exchange_known(&before, &rows.fingerprints_of(slot), position);
        }
        Ok(())
    }

    /// A row that only the record store has was incremented: it cannot be shown before the record store has that too.
    fn mark_behind(&self, shard: &mut Shard, key: KeyRef<'_>, position: Position) {
        let is_deleted = shard.tombstone(key).is_some_and(|tombstone| tombstone.absence == Absence::Deleted);
        if !is_deleted {
            self.rows.bury(shard, key, position, Absence::Behind);
        }
    }
}
