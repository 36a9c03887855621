//! Applies records to memory: at start, and when the database has committed an intent.

use super::budget::allocated_bytes;
use super::shard::{Absence, Shard};
use super::slab::{COUNTED, EVICTED, Slot};
use super::table::Table;
use super::write::{bigint_at, encode_changed};
use crate::hash::{Fingerprint, KeyHash};
use crate::key::KeyRef;
use crate::record::{InvalidRecord, LogRecord};
use forebay_log::Position;
use forebay_value::{RowRef, ValueRef};

/// What to do with a change of a row that is not in memory.
pub(super) enum Missing {
    /// The change creates the row.
    Put,
    /// Ignore the change: the database has no such row, because others deleted it or its insert was refused.
    Ignore,
}

impl Table {
    /// Applies a checked record that has the table's present columns.
    pub(super) fn replay_record(
        &self,
        record: &LogRecord<'_>,
        key: KeyRef<'_>,
        hash: KeyHash,
        position: Position,
    ) -> Result<(), InvalidRecord> {
        match *record {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => {
                self.replay_row(row, key, hash, position);
            }
            LogRecord::Update { columns, row, .. } => {
                let changes: Vec<_> = columns.of(row, self.schema()).collect();
                self.replay_update(&changes, key, hash, position);
            }
            LogRecord::Delete { .. } => self.replay_delete(key, hash, position),
            LogRecord::Increment { column, delta, sum, .. } => {
                self.replay_increment(key, hash, (column, delta), sum, position)?;
            }
            // The row was read after this record, or the caller (the replay) reads it.
            LogRecord::Undone { .. } | LogRecord::Committed { .. } => {}
        }
        Ok(())
    }

    pub(super) fn replay_row(&self, row: RowRef<'_>, key: KeyRef<'_>, hash: KeyHash, position: Position) {
        let rows = &*self.rows;
        let after = rows.fingerprints(row);
        rows.saw_key(key);
        // Evicts rows to make room if possible; an acknowledged row is stored in any case.
        match self.core.reserve(row.0.len()) {
            Ok(charge) => charge.keep(&rows.budget),
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
        self.wrote_whole(&mut shard, hash, key);
    }

    /// Applies the columns that an update sets to the database's row. The other columns may have changed
    /// there since.
    pub(super) fn replay_update(
        &self,
        changes: &[(usize, ValueRef<'_>)],
        key: KeyRef<'_>,
        hash: KeyHash,
        position: Position,
    ) {
        let rows = &*self.rows;
        let mut shard = rows.lock(hash.shard());
        let number = match shard.find(self.schema(), hash, key) {
            Some(number) if !shard.slots.get(number).has(EVICTED) => number,
            _ => {
                drop(shard);
                return self.replay_unseen(key, hash, changes, position, Missing::Ignore);
            }
        };
        let slot = shard.slots.get(number);
        let before = rows.fingerprints_of(slot);
        let mut bytes = Vec::with_capacity(slot.bytes.len());
        encode_changed(self.schema(), RowRef(&slot.bytes), changes, &mut bytes);
        let row = RowRef(&bytes);
        rows.exchange_known(&before, &rows.fingerprints(row), position);
        self.set_columns(&mut shard, number, changes.iter().map(|(column, _)| *column), position);
        rows.set(&mut shard, number, row, position);
    }

    /// Notes a change of a row that memory cannot show: the row can be read once the database has the change
    /// too.
    pub(super) fn replay_unseen(
        &self,
        key: KeyRef<'_>,
        hash: KeyHash,
        changes: &[(usize, ValueRef<'_>)],
        position: Position,
        missing: Missing,
    ) {
        let rows = &*self.rows;
        let mut shard = rows.lock(hash.shard());
        self.lost(&mut shard, hash, key, changes.iter().map(|(column, _)| *column), position);
        match (shard.find(self.schema(), hash, key), missing) {
            (Some(number), _) => {
                let before = rows.fingerprints_of(shard.slots.get(number));
                let after = rows.fingerprints_changed(&before, changes);
                rows.exchange_known(&before, &after, position);
                rows.replace_by_stub(&mut shard, number, &after);
                shard.slots.get_mut(number).changed(position, EVICTED);
            }
            (None, Missing::Put) => {
                rows.saw_key(key);
                let after = rows.fingerprints_changed(&rows.no_fingerprints(), changes);
                self.put_stub(&mut shard, (hash, key), &after, position);
            }
            (None, Missing::Ignore) if self.followed() => {
                // The row existed when the change was made. A poll finds out whether it still exists.
                let after = rows.fingerprints_changed(&rows.no_fingerprints(), changes);
                self.put_stub(&mut shard, (hash, key), &after, position);
                self.want([key.value().to_owned()], false);
            }
            (None, Missing::Ignore) if self.shared() => self.mark_behind(&mut shard, key, position),
            (None, Missing::Ignore) if shard.intents.last(key).is_some() => {
                // The row is the intent's: the database has lost it, and gets it again.
                shard.mark_unknown(key, position, &rows.budget);
            }
            (None, Missing::Ignore) => {}
        }
    }

    /// Inserts the stub of a row with these fingerprints, whose body is not in memory.
    pub(super) fn put_stub(
        &self,
        shard: &mut Shard,
        (hash, key): (KeyHash, KeyRef<'_>),
        after: &[Fingerprint],
        position: Position,
    ) {
        let rows = &*self.rows;
        rows.exchange_known(&[], after, position);
        let stub = rows.stub(key, after);
        rows.budget.take(allocated_bytes(stub.len()));
        let mut slot = Slot::new(stub, position);
        slot.set(EVICTED);
        rows.insert(shard, hash, slot);
    }

    /// Whether memory contains this change of a row, or a later one.
    pub(super) fn has_newer(&self, hash: KeyHash, key: KeyRef<'_>, position: Position) -> bool {
        self.last_change(hash, key).is_some_and(|last| last >= position)
    }

    /// Whether only the database knows if the row exists.
    pub(super) fn is_unknown_row(&self, hash: KeyHash, key: KeyRef<'_>) -> bool {
        self.rows.lock(hash.shard()).is_unknown_row(key)
    }

    /// The position of the last change of a row that memory contains.
    pub(super) fn last_change(&self, hash: KeyHash, key: KeyRef<'_>) -> Option<Position> {
        let shard = self.rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(slot) => Some(shard.slots.get(slot).position()),
            None => shard.tombstone(key).map(|tombstone| tombstone.position),
        }
    }

    pub(super) fn replay_delete(&self, key: KeyRef<'_>, hash: KeyHash, position: Position) {
        let rows = &*self.rows;
        let mut shard = rows.lock(hash.shard());
        if let Some(slot) = shard.find(self.schema(), hash, key) {
            let before = rows.fingerprints_of(shard.slots.get(slot));
            rows.exchange_known(&before, &[], position);
            rows.remove(&mut shard, hash, slot, position);
        }
        shard.deleted = shard.deleted.max(position);
        self.deleted(&mut shard, hash, key, position);
        if self.keeps_tombstones() {
            rows.bury(&mut shard, key, position, Absence::Deleted);
        }
    }

    /// `logged`: the sum that the record has for the column. When the row is in memory, memory's value plus
    /// `delta` counts instead.
    pub(super) fn replay_increment(
        &self,
        key: KeyRef<'_>,
        hash: KeyHash,
        (column, delta): (usize, i64),
        logged: Option<i64>,
        position: Position,
    ) -> Result<(), InvalidRecord> {
        let rows = &*self.rows;
        let mut shard = rows.lock(hash.shard());
        let number = match shard.find(self.schema(), hash, key) {
            Some(number) if !shard.slots.get(number).has(EVICTED) => number,
            _ => {
                drop(shard);
                let change = logged.map(|sum| (column, ValueRef::Bigint(sum)));
                self.replay_unseen(key, hash, change.as_slice(), position, Missing::Ignore);
                return Ok(());
            }
        };
        let slot = shard.slots.get_mut(number);
        let Some((at, value)) = bigint_at(self.schema(), RowRef(&slot.bytes), column) else {
            // Others have set the column to NULL, and may set it to a number before the database applies the
            // increment.
            if self.followed() {
                self.added(&mut shard, number, (column, delta), position);
                shard.slots.get_mut(number).changed(position, 0);
            }
            return Ok(());
        };
        let Some(sum) = value.checked_add(delta) else {
            if !self.followed() {
                return Err(InvalidRecord("counts past 64 bits"));
            }
            // Others have set the column so high that the sum overflows: the database decides about the
            // increment.
            self.lost(&mut shard, hash, key, std::iter::once(column), position);
            let fingerprints = rows.fingerprints_of(shard.slots.get(number));
            rows.replace_by_stub(&mut shard, number, &fingerprints);
            shard.slots.get_mut(number).changed(position, EVICTED);
            return Ok(());
        };
        let before = if rows.is_tracked(column) { rows.fingerprints_of(slot) } else { Default::default() };
        self.added(&mut shard, number, (column, delta), position);
        let slot = shard.slots.get_mut(number);
        slot.bytes[at..at + size_of::<i64>()].copy_from_slice(&sum.to_le_bytes());
        slot.changed(position, COUNTED);
        if !before.is_empty() {
            rows.exchange_known(&before, &rows.fingerprints_of(slot), position);
        }
        Ok(())
    }

    /// Notes a change of a row that only the database has: the row cannot be shown before the database has
    /// the change.
    fn mark_behind(&self, shard: &mut Shard, key: KeyRef<'_>, position: Position) {
        let is_deleted = shard.tombstone(key).is_some_and(|tombstone| tombstone.absence == Absence::Deleted);
        if !is_deleted {
            self.rows.bury(shard, key, position, Absence::Behind);
        }
    }
}
