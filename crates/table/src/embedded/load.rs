//! Loading: rows from the database in bulk, at start or (warming) while the table is served.

use super::budget::allocated_bytes;
use super::readers::Reading;
use super::slab::{EVICTED, Slot};
use super::table::Table;
use crate::key::{KeyRef, row_key};
use forebay_log::Position;
use forebay_value::{RowRef, ValueRef};
use std::sync::Arc;

/// A scan of the database that began after this was made: see [`Table::begin_load`].
pub struct Load<'a> {
    table: &'a Table,
    reading: Reading<'a>,
}

impl Load<'_> {
    /// The position up to which the scan must contain all changes.
    pub fn since(&self) -> Position {
        self.reading.since
    }

    /// Puts a row of the scan into memory, unless memory knows a newer change of its key. Past the memory
    /// limit only its stub is stored.
    pub fn row(&self, row: RowRef<'_>) {
        self.table.load_since(row, self.reading.since);
    }

    /// The same for a row that memory cannot hold, with the reason.
    pub fn unfit(&self, key: ValueRef<'_>, why: &Arc<str>) {
        self.table.load_unfit(key, why, self.reading.since);
    }
}

impl Table {
    /// For warming a table while it is served. To be called before the scan of the database begins; the
    /// result must live until the last row was passed to [`Load::row`]. Until then no tombstone after its
    /// position is forgotten.
    pub fn begin_load(&self) -> Load<'_> {
        Load { table: self, reading: self.readers.begin(&self.rows) }
    }

    /// Puts a row of the database into memory at start: before [`Table::set_loaded`], and before the log is
    /// replayed. Past the memory limit only its stub is stored.
    ///
    /// A row that is already in memory is not replaced, and a deleted row stays deleted. After
    /// [`Table::set_loaded`] use [`Table::begin_load`].
    pub fn load(&self, row: RowRef<'_>) {
        self.load_since(row, Position(0));
    }

    /// The same for a row that memory cannot hold, with the reason.
    pub fn load_unfit_row(&self, key: ValueRef<'_>, why: &Arc<str>) {
        self.load_unfit(key, why, Position(0));
    }

    fn load_since(&self, row: RowRef<'_>, since: Position) {
        let rows = &*self.rows;
        let key = row_key(row, self.schema());
        let hash = rows.hasher.key(key);
        let after = rows.fingerprints(row);
        rows.saw_key(key);
        let mut shard = rows.lock(hash.shard());
        if shard.intents.is_adding(key) {
            // The row that was read may contain an addition that memory applies again when its outcome is
            // known.
            return;
        }
        match shard.find(self.schema(), hash, key) {
            Some(number) => {
                let slot = shard.slots.get(number);
                let position = slot.position();
                if !slot.has(EVICTED)
                    || position > since
                    || !rows.budget.try_take(allocated_bytes(row.0.len()))
                {
                    return;
                }
                rows.exchange_known(&rows.fingerprints_of(slot), &after, position);
                let slot = shard.slots.get_mut(number);
                rows.budget.give(allocated_bytes(slot.bytes.len()));
                slot.bytes = row.0.into();
                slot.changed(position, 0);
            }
            None => {
                // A loaded table that is not shared has all its rows: this row was deleted since, or another
                // process wrote it.
                let is_complete = !self.shared() && self.is_loaded();
                if is_complete || shard.tombstone(key).is_some_and(|tombstone| tombstone.position > since) {
                    return;
                }
                rows.exchange_known(&[], &after, Position(0));
                let slot = self.loaded_slot(row, &after);
                rows.insert(&mut shard, hash, slot);
            }
        }
    }

    /// Takes a row of the database that memory cannot hold, of a scan that contains all changes up to
    /// `since`: its stub, unless memory knows a newer change.
    pub(super) fn load_unfit(&self, key: ValueRef<'_>, why: &Arc<str>, since: Position) {
        let rows = &*self.rows;
        let Some(key) = KeyRef::of(key) else { return };
        let hash = rows.hasher.key(key);
        rows.saw_key(key);
        let mut shard = rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(number) if !shard.slots.get(number).has(EVICTED) => return,
            Some(_) => {}
            None => {
                let is_complete = !self.shared() && self.is_loaded();
                if is_complete || shard.tombstone(key).is_some_and(|tombstone| tombstone.position > since) {
                    return;
                }
                self.put_stub(&mut shard, (hash, key), &rows.no_fingerprints(), Position(0));
            }
        }
        drop(shard);
        self.unfit.note(key, Some(why));
    }

    /// A slot with the row, or past the memory limit with its stub.
    pub(super) fn loaded_slot(&self, row: RowRef<'_>, fingerprints: &[crate::hash::Fingerprint]) -> Slot {
        let rows = &*self.rows;
        let full = allocated_bytes(row.0.len());
        if rows.budget.try_take(full) {
            return Slot::new(row.0.into(), Position(0));
        }
        let key = row_key(row, self.schema());
        let small = allocated_bytes(rows.stub_bytes(key));
        rows.budget.take(small.min(full));
        if small >= full {
            return Slot::new(row.0.into(), Position(0));
        }
        let mut slot = Slot::new(rows.stub(key, fingerprints), Position(0));
        slot.set(EVICTED);
        slot
    }
}
