//! Writing: every operation takes one shard's lock, appends one record, and changes memory only if the log
//! accepts the record.

use super::error::WriteError;
use super::rows::Fingerprints;
use super::shard::{Absence, Shard, key_of};
use super::slab::{COUNTED, EVICTED, REFERENCED, Slot};
use super::table::{Read, Table};
use super::unique::Taken;
use crate::key::{KeyRef, row_key};
use crate::record;
use forebay_log::Position;
use forebay_value::{RowRef, Schema, Type, ValueRef, encode_row};
use std::cell::RefCell;

/// The result of an increment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incremented<R> {
    /// What `show` returned for the row after the increment.
    pub shown: R,
    /// The position for an answer that shows the row but no counter.
    pub row_mark: Position,
    /// The position for an answer that shows the counter, or confirms the increment.
    pub mark: Position,
}

/// How the log records a change of some columns.
enum Logged {
    /// As the new values of the columns.
    Columns,
    /// As an addition to one column: the database adds `delta` to the value that the column has there.
    Increment { column: usize, delta: i64, sum: i64 },
}

thread_local! {
    /// The buffer in which records are encoded. It stays as long as the longest record so far, so that
    /// encoding soon allocates nothing.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The longest encoding of a value's length in a row.
const LENGTH_BYTES_MAX: usize = 5;

impl Table {
    /// Inserts a row; its key and unique values must be free. Returns what the answer waits for.
    ///
    /// # Errors
    /// [`WriteError::Conflict`]; [`WriteError::Pending`]; [`WriteError::MemoryFull`]; those of the log.
    pub fn insert(&self, row: RowRef<'_>) -> Result<Position, WriteError> {
        let key = row_key(row, self.schema());
        let hash = self.rows.hasher.key(key);
        let fingerprints = self.rows.fingerprints(row);
        let charge = self.core.reserve(row.0.len())?;
        let bytes: Box<[u8]> = row.0.into();
        SCRATCH.with_borrow_mut(|scratch| {
            record::put_insert(self.id(), row, scratch);
            let mut shard = self.rows.lock(hash.shard());
            shard.unless_intended(key)?;
            if let Some(slot) = shard.find(self.schema(), hash, key) {
                let mark = shard.slots.get(slot).row_mark();
                return Err(WriteError::Conflict { rule: self.schema().key, mark });
            }
            if shard.tombstone(key).is_some_and(|tombstone| tombstone.absence == Absence::Refused) {
                return Err(WriteError::Busy);
            }
            let append = || self.append(scratch);
            let position = self.rows.exchange(&[], &fingerprints, conflict, append)?;
            self.rows.insert(&mut shard, hash, Slot::new(bytes, position));
            self.wrote_whole(&mut shard, hash, key);
            charge.keep(&self.rows.budget);
            Ok(position)
        })
    }

    /// Inserts a row, or replaces the one with its key. Returns what the answer waits for.
    ///
    /// # Errors
    /// As [`Table::insert`]; the key is never the conflict.
    pub fn upsert(&self, row: RowRef<'_>) -> Result<Position, WriteError> {
        let key = row_key(row, self.schema());
        let hash = self.rows.hasher.key(key);
        let after = self.rows.fingerprints(row);
        let charge = self.core.reserve(row.0.len())?;
        let bytes: Box<[u8]> = row.0.into();
        SCRATCH.with_borrow_mut(|scratch| {
            record::begin_put(self.id(), scratch);
            scratch.extend_from_slice(row.0);
            let mut shard = self.rows.lock(hash.shard());
            shard.unless_intended(key)?;
            let found = shard.find(self.schema(), hash, key);
            let before =
                found.map(|slot| self.rows.fingerprints_of(shard.slots.get(slot))).unwrap_or_default();
            self.unless_doubtful(&shard, found, &before, &after)?;
            let position = self.rows.exchange(&before, &after, conflict, || self.append(scratch))?;
            match found {
                Some(slot) => {
                    let slot = shard.slots.get_mut(slot);
                    self.rows.budget.give(super::budget::allocated_bytes(slot.bytes.len()));
                    slot.bytes = bytes;
                    slot.changed(position, 0);
                }
                None => self.rows.insert(&mut shard, hash, Slot::new(bytes, position)),
            }
            self.wrote_whole(&mut shard, hash, key);
            charge.keep(&self.rows.budget);
            Ok(position)
        })
    }

    /// Has an evicted row read before it is replaced, when another row has a unique value that it would keep:
    /// in the database only one of the two has that value.
    pub(super) fn unless_doubtful(
        &self,
        shard: &Shard,
        found: Option<u32>,
        before: &Fingerprints,
        after: &Fingerprints,
    ) -> Result<(), WriteError> {
        match found.map(|number| shard.slots.get(number)).filter(|slot| slot.has(EVICTED)) {
            Some(slot) if self.rows.has_twin(before, after) => {
                Err(WriteError::Fetch(key_of(slot, self.schema()).value().to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Changes columns of a row (index and new value; the key is not among them), and shows it as it is
    /// then. `show` as in [`Table::get`].
    ///
    /// # Errors [`WriteError::Missing`], [`WriteError::Fetch`], [`WriteError::Conflict`],
    /// [`WriteError::MemoryFull`]; those of the log.
    ///
    /// # Panics When a change is to the key, or of another type than its column: what is configured must be
    /// checked at start.
    pub fn update<R>(
        &self,
        key: ValueRef<'_>,
        changes: &[(usize, ValueRef<'_>)],
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<(R, Position), WriteError> {
        assert!(changes.iter().all(|(column, _)| *column != self.schema().key), "a key is never updated");
        let Some(key) = KeyRef::of(key) else {
            return Err(WriteError::Missing { mark: Position(0) });
        };
        let hash = self.rows.hasher.key(key);
        // The most that the row can grow. The real growth is counted when the row has changed.
        let growth = changes.iter().map(|(_, value)| growth_bytes(*value)).sum();
        let mut reserved = self.core.try_reserve(growth);
        let is_tight = reserved.is_none();
        if is_tight {
            // Checked first, so that no row is evicted for a row that does not exist.
            self.present(&self.rows.lock(hash.shard()), hash, key)?;
            reserved = Some(self.core.reserve(growth)?);
        }
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let slot = match self.present(&shard, hash, key) {
            // The reservation evicted this very row: fetching it would only repeat that.
            Err(WriteError::Fetch(_)) if is_tight => return Err(WriteError::MemoryFull),
            found => found?,
        };
        let _reserved = reserved;
        self.change(&mut shard, slot, changes, Logged::Columns, show)
    }

    /// Adds to a bigint column of a row, and shows it as it is then. NULL stays NULL, as in SQL, and
    /// nothing is written. `show` as in [`Table::get`].
    ///
    /// # Errors [`WriteError::Overflow`], [`WriteError::Missing`], [`WriteError::Fetch`];
    /// [`WriteError::Conflict`] when the column is unique; those of the log.
    ///
    /// # Panics When the column is the key or no bigint: what is configured must be checked at start.
    pub fn increment<R>(
        &self,
        key: ValueRef<'_>,
        column: usize,
        delta: i64,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<Incremented<R>, WriteError> {
        self.add(key, column, delta, show, |record| self.append(record))
    }

    /// [`Table::increment`] for callers whose answer does not wait until it is durable: it does not hurry the
    /// log.
    ///
    /// # Errors
    /// As [`Table::increment`].
    ///
    /// # Panics
    /// As [`Table::increment`].
    pub fn increment_later(&self, key: ValueRef<'_>, column: usize, delta: i64) -> Result<(), WriteError> {
        let append = |record: &[u8]| {
            self.has_room()?;
            Ok(self.core.log.append_later(record)?)
        };
        self.add(key, column, delta, |_| (), append).map(|_| ())
    }

    fn add<R>(
        &self,
        key: ValueRef<'_>,
        column: usize,
        delta: i64,
        show: impl FnOnce(RowRef<'_>) -> R,
        append: impl FnOnce(&[u8]) -> Result<Position, WriteError>,
    ) -> Result<Incremented<R>, WriteError> {
        let schema = self.schema();
        assert!(
            schema.columns[column].ty == Type::Bigint && column != schema.key,
            "only bigints are counted up"
        );
        let Some(key) = KeyRef::of(key) else {
            return Err(WriteError::Missing { mark: Position(0) });
        };
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let number = self.present(&shard, hash, key)?;
        let slot = shard.slots.get(number);
        let Some((at, value)) = bigint_at(schema, RowRef(&slot.bytes), column) else {
            let (row_mark, mark) = (slot.row_mark(), slot.position());
            return Ok(Incremented { shown: show(RowRef(&slot.bytes)), row_mark, mark });
        };
        let sum = value.checked_add(delta).filter(|sum| self.rules.allows(column, *sum));
        let sum = sum.ok_or(WriteError::Overflow { column })?;
        if self.rows.is_tracked(column) {
            // The column's value matters beyond the row, so memory treats the increment like any update.
            let changes = [(column, ValueRef::Bigint(sum))];
            let logged = Logged::Increment { column, delta, sum };
            let (shown, mark) = self.change(&mut shard, number, &changes, logged, show)?;
            return Ok(Incremented { shown, row_mark: mark, mark });
        }
        let row_mark = if self.is_promised(slot.position()) { Position(0) } else { slot.row_mark() };
        SCRATCH.with_borrow_mut(|scratch| {
            record::put_increment(self.id(), key, (column, delta), None, scratch);
            let mark = append(scratch)?;
            self.added(&mut shard, number, (column, delta), mark);
            let slot = shard.slots.get_mut(number);
            slot.bytes[at..at + size_of::<i64>()].copy_from_slice(&sum.to_le_bytes());
            let counted = if row_mark == Position(0) { COUNTED } else { 0 };
            slot.changed(mark, counted | REFERENCED);
            Ok(Incremented { shown: show(RowRef(&slot.bytes)), row_mark, mark })
        })
    }

    /// Deletes a row, and shows it as it was. `show` as in [`Table::get`].
    ///
    /// # Errors
    /// [`WriteError::Missing`], [`WriteError::Fetch`]; those of the log.
    pub fn delete<R>(
        &self,
        key: ValueRef<'_>,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<(R, Position), WriteError> {
        let Some(key) = KeyRef::of(key) else {
            return Err(WriteError::Missing { mark: Position(0) });
        };
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let slot = self.present(&shard, hash, key)?;
        let row = RowRef(&shard.slots.get(slot).bytes);
        let before = self.rows.fingerprints(row);
        let position = SCRATCH.with_borrow_mut(|scratch| {
            record::put_delete(self.id(), key, scratch);
            self.rows.exchange(&before, &[], conflict, || self.append(scratch))
        })?;
        let shown = show(row);
        self.rows.remove(&mut shard, hash, slot, position);
        shard.deleted = position;
        self.deleted(&mut shard, hash, key, position);
        if self.keeps_tombstones() {
            self.rows.bury(&mut shard, key, position, Absence::Deleted);
        }
        Ok((shown, position))
    }

    /// The slot of a row that exists and whose body is in memory.
    pub(super) fn present(
        &self,
        shard: &Shard,
        hash: crate::hash::KeyHash,
        key: KeyRef<'_>,
    ) -> Result<u32, WriteError> {
        match shard.find(self.schema(), hash, key) {
            Some(slot) if shard.slots.get(slot).has(EVICTED) => {
                Err(WriteError::Fetch(key.value().to_owned()))
            }
            Some(slot) => Ok(slot),
            None => Err(match self.absent::<()>(shard, key) {
                Read::Fetch(key) => WriteError::Fetch(key),
                Read::Missing(mark) | Read::Found((), mark) => WriteError::Missing { mark },
            }),
        }
    }

    /// Appends a change of some columns, stores the changed row in the slot, and shows it.
    fn change<R>(
        &self,
        shard: &mut Shard,
        slot: u32,
        changes: &[(usize, ValueRef<'_>)],
        logged: Logged,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> Result<(R, Position), WriteError> {
        if changes.is_empty() {
            let slot = shard.slots.get(slot);
            return Ok((show(RowRef(&slot.bytes)), slot.position()));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let schema = self.schema();
            let old = RowRef(&shard.slots.get(slot).bytes);
            let added = match logged {
                Logged::Columns => None,
                Logged::Increment { column, delta, .. } => Some((column, delta)),
            };
            let (row_start, record_end) = match logged {
                Logged::Columns => {
                    let columns = changes.iter().map(|(column, _)| *column);
                    let start = record::begin_update(self.id(), schema.columns.len(), columns, scratch);
                    encode_changed(schema, old, changes, scratch);
                    (start, scratch.len())
                }
                Logged::Increment { column, delta, sum } => {
                    let key = row_key(old, schema);
                    record::put_increment(self.id(), key, (column, delta), Some(sum), scratch);
                    let end = scratch.len();
                    encode_changed(schema, old, changes, scratch);
                    (end, end)
                }
            };
            let row = RowRef(&scratch[row_start..]);
            let (before, after) = (self.rows.fingerprints(old), self.rows.fingerprints(row));
            let append = || self.append(&scratch[..record_end]);
            let position = self.rows.exchange(&before, &after, conflict, append)?;
            match added {
                Some(added) => self.added(shard, slot, added, position),
                None => self.set_columns(shard, slot, changes.iter().map(|(column, _)| *column), position),
            }
            self.rows.set(shard, slot, row, position);
            Ok((show(row), position))
        })
    }

    pub(super) fn append(&self, record: &[u8]) -> Result<Position, WriteError> {
        self.has_room()?;
        Ok(self.core.log.append(record)?)
    }

    fn has_room(&self) -> Result<(), WriteError> {
        match self.no_room() {
            None => Ok(()),
            Some(reason) => Err(WriteError::Stopped { table: self.schema().name.clone(), reason }),
        }
    }
}

pub(super) fn conflict(taken: Taken) -> WriteError {
    match taken.intent {
        Some(position) => WriteError::Pending(position),
        None => WriteError::Conflict { rule: taken.rule, mark: taken.mark },
    }
}

pub(crate) fn encode_changed(
    schema: &Schema,
    old: RowRef<'_>,
    changes: &[(usize, ValueRef<'_>)],
    out: &mut Vec<u8>,
) {
    let values = old.values(schema).enumerate().map(|(column, value)| {
        // If a column is named twice, the last value counts.
        changes.iter().rev().find(|(changed, _)| *changed == column).map_or(value, |(_, value)| *value)
    });
    encode_row(schema, values, out);
}

/// The most bytes that a value takes in a row.
fn encoded_bytes(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Null => 0,
        ValueRef::Bool(_) => 1,
        ValueRef::Bigint(_) | ValueRef::Double(_) | ValueRef::Timestamp(_) | ValueRef::Local(_) => 8,
        ValueRef::Uuid(_) => 16,
        ValueRef::Numeric(v) | ValueRef::Text(v) | ValueRef::Json(v) => LENGTH_BYTES_MAX + v.len(),
        ValueRef::Bytes(v) => LENGTH_BYTES_MAX + v.len(),
    }
}

/// The most bytes by which a row grows, except the few of a NULL that becomes a number.
pub(super) fn growth_bytes(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Numeric(_) | ValueRef::Text(_) | ValueRef::Json(_) | ValueRef::Bytes(_) => {
            encoded_bytes(value)
        }
        _ => 0,
    }
}

/// The byte offset and the value of a bigint in a row; `None` when it is NULL.
pub(crate) fn bigint_at(schema: &Schema, row: RowRef<'_>, column: usize) -> Option<(usize, i64)> {
    let mut at = schema.columns.len().div_ceil(8);
    for (index, value) in row.values(schema).enumerate() {
        if index == column {
            let ValueRef::Bigint(number) = value else {
                return None;
            };
            debug_assert_eq!(row.0[at..at + 8], number.to_le_bytes());
            return Some((at, number));
        }
        at += match value {
            ValueRef::Numeric(v) | ValueRef::Text(v) | ValueRef::Json(v) => prefixed_bytes(v.len()),
            ValueRef::Bytes(v) => prefixed_bytes(v.len()),
            fixed => encoded_bytes(fixed),
        };
    }
    None
}

/// Bytes of a value of `length` bytes and of its length in LEB128.
fn prefixed_bytes(length: usize) -> usize {
    (length.max(1).ilog2() as usize / 7 + 1) + length
}
