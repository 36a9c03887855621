//! Begins an intent: it is checked against memory like any write, appended to the log, and noted with the
//! values that it takes. The row in memory stays unchanged.

use super::{Adds, Intent};
use crate::embedded::core::Charge;
use crate::embedded::error::WriteError;
use crate::embedded::rows::Fingerprints;
use crate::embedded::shard::{Absence, Shard};
use crate::embedded::table::{Fetched, Table};
use crate::embedded::write::{bigint_at, conflict, encode_changed, growth_bytes};
use crate::error::{HotError, HotKind};
use crate::hash::KeyHash;
use crate::key::{KeyRef, row_key};
use crate::limits::{INTENT_BYTES, PROMISE_LOOK};
use crate::record;
use forebay_log::Position;
use forebay_value::{Row, RowRef, Type, Value, ValueRef};
use tokio::sync::oneshot;

/// A write that is answered when the database has committed it.
pub(crate) enum StrictWrite {
    Insert(Row),
    Upsert(Row),
    Update { key: Value, changes: Vec<(usize, Value)> },
    Increment { key: Value, column: usize, delta: i64 },
    Delete(Value),
}

/// How far a write got.
enum Begun {
    /// The intent is in the log; its outcome comes later. `row`: the row as it will be, or for a delete as it
    /// was.
    Waits { outcome: oneshot::Receiver<Result<(), HotError>>, row: Option<Row> },
    /// There is nothing to write. The row as it is, and the position that an answer with it waits for.
    Nothing { row: Row, mark: Position },
}

/// The key of an intent, and what the intent changes.
struct Subject<'a> {
    key: KeyRef<'a>,
    hash: KeyHash,
    /// Fingerprints of unique and counted values, before and after the intent.
    before: Fingerprints,
    after: Fingerprints,
    adds: Adds,
}

impl Table {
    /// Appends the write, and resolves when the database has committed it, with the row: as it is then, or
    /// for a delete as it was. `None` for an insert or upsert. If the future is dropped, the write still
    /// continues, and its outcome is discarded.
    ///
    /// # Errors
    /// [`HotKind::Refused`] when the database refuses the write; [`HotKind::Missing`] when there is no such
    /// row; [`HotKind::UnknownOutcome`]; those of a write to memory.
    ///
    /// # Panics
    /// As [`Table::update`] and [`Table::increment`].
    pub(crate) async fn commit(&self, write: &StrictWrite) -> Result<Option<Row>, HotError> {
        loop {
            match self.intend(write) {
                Ok(Begun::Waits { outcome, row }) => {
                    let known = outcome.await.unwrap_or_else(|_| {
                        let what = "it is unknown whether the write is in the database";
                        Err(HotError::new(HotKind::UnknownOutcome, what))
                    });
                    return known.map(|()| row);
                }
                Ok(Begun::Nothing { row, mark }) => {
                    while !self.is_promised(mark) {
                        tokio::time::sleep(PROMISE_LOOK).await;
                    }
                    return Ok(Some(row));
                }
                Err(WriteError::Fetch(key)) => match self.fetch(key).await? {
                    Fetched::Present => {}
                    Fetched::Gone(_) if matches!(write, StrictWrite::Upsert(_)) => {}
                    Fetched::Gone(mark) => return Err(HotError::missing().held_until(mark)),
                },
                Err(WriteError::Pending(position)) => self.outcome_of(position).await?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn intend(&self, write: &StrictWrite) -> Result<Begun, WriteError> {
        if let Some(reason) = self.intents.stopped() {
            return Err(WriteError::Stopped { table: self.schema().name.clone(), reason });
        }
        let mut record = Vec::new();
        match write {
            StrictWrite::Insert(row) => {
                record::put_insert(self.id(), row.as_ref(), &mut record);
                self.intend_row(row.as_ref(), record, false)
            }
            StrictWrite::Upsert(row) => {
                record::begin_put(self.id(), &mut record);
                record.extend_from_slice(&row.0);
                self.intend_row(row.as_ref(), record, true)
            }
            StrictWrite::Update { key, changes } => {
                let changes: Vec<_> =
                    changes.iter().map(|(column, value)| (*column, value.as_ref())).collect();
                self.intend_update(key_of(key)?, &changes, record)
            }
            StrictWrite::Increment { key, column, delta } => {
                self.intend_increment(key_of(key)?, *column, *delta, record)
            }
            StrictWrite::Delete(key) => self.intend_delete(key_of(key)?, record),
        }
    }

    fn intend_row(&self, row: RowRef<'_>, record: Vec<u8>, may_replace: bool) -> Result<Begun, WriteError> {
        let key = row_key(row, self.schema());
        let hash = self.rows.hasher.key(key);
        let after = self.rows.fingerprints(row);
        let charge = self.charge(record.len())?;
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let found = shard.find(self.schema(), hash, key);
        let before = match found {
            Some(number) if may_replace => self.rows.fingerprints_of(shard.slots.get(number)),
            Some(number) => {
                let mark = shard.slots.get(number).row_mark();
                return Err(WriteError::Conflict { rule: self.schema().key, mark });
            }
            None => Fingerprints::new(),
        };
        self.unless_doubtful(&shard, found, &before, &after)?;
        let is_unknown_row =
            shard.tombstone(key).is_some_and(|tombstone| tombstone.absence == Absence::Refused);
        if is_unknown_row && !may_replace {
            return Err(WriteError::Busy);
        }
        let subject = Subject { key, hash, before, after, adds: Adds::Nothing };
        let outcome = self.begin(&mut shard, subject, record, charge)?;
        Ok(Begun::Waits { outcome, row: None })
    }

    fn intend_update(
        &self,
        key: KeyRef<'_>,
        changes: &[(usize, ValueRef<'_>)],
        mut record: Vec<u8>,
    ) -> Result<Begun, WriteError> {
        let schema = self.schema();
        assert!(changes.iter().all(|(column, _)| *column != schema.key), "a key is never updated");
        let hash = self.rows.hasher.key(key);
        let row_bytes = {
            let shard = self.rows.lock(hash.shard());
            shard.unless_intended(key)?;
            shard.slots.get(self.present(&shard, hash, key)?).bytes.len()
        };
        let growth: usize = changes.iter().map(|(_, value)| growth_bytes(*value)).sum();
        let charge = self.charge(row_bytes + growth)?;
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let number = self.present(&shard, hash, key)?;
        let old = RowRef(&shard.slots.get(number).bytes);
        let columns = changes.iter().map(|(column, _)| *column);
        let start = record::begin_update(self.id(), schema.columns.len(), columns, &mut record);
        encode_changed(schema, old, changes, &mut record);
        let row = Row(record[start..].into());
        let (before, after) = (self.rows.fingerprints(old), self.rows.fingerprints(row.as_ref()));
        let subject = Subject { key, hash, before, after, adds: Adds::Nothing };
        let outcome = self.begin(&mut shard, subject, record, charge)?;
        Ok(Begun::Waits { outcome, row: Some(row) })
    }

    fn intend_increment(
        &self,
        key: KeyRef<'_>,
        column: usize,
        delta: i64,
        mut record: Vec<u8>,
    ) -> Result<Begun, WriteError> {
        let schema = self.schema();
        let is_counter = schema.columns[column].ty == Type::Bigint && column != schema.key;
        assert!(is_counter, "only bigints are counted up");
        let hash = self.rows.hasher.key(key);
        let is_tracked = self.rows.is_tracked(column);
        record::put_increment(self.id(), key, (column, delta), is_tracked.then_some(0), &mut record);
        let charge = self.charge(record.len())?;
        let mut shard = self.rows.lock(hash.shard());
        let waiting = shard.intents.added(key, column).map_err(WriteError::Pending)?;
        let slot = shard.slots.get(self.present(&shard, hash, key)?);
        let old = RowRef(&slot.bytes);
        let Some((_, value)) = bigint_at(schema, old, column) else {
            return Ok(Begun::Nothing { row: Row(old.0.into()), mark: slot.position() });
        };
        let sum = value.checked_add(waiting).and_then(|value| value.checked_add(delta));
        let sum = sum.filter(|sum| self.rules.allows(column, *sum));
        let sum = sum.ok_or(WriteError::Overflow { column })?;
        let mut bytes = Vec::with_capacity(old.0.len());
        encode_changed(schema, old, &[(column, ValueRef::Bigint(sum))], &mut bytes);
        let row = Row(bytes.into());
        // An increment of a tracked column competes, like any other change of the row.
        let (adds, before, after) = if is_tracked {
            record::put_increment(self.id(), key, (column, delta), Some(sum), &mut record);
            (Adds::Alone, self.rows.fingerprints(old), self.rows.fingerprints(row.as_ref()))
        } else {
            (Adds::Beside(column, delta), Fingerprints::new(), Fingerprints::new())
        };
        let subject = Subject { key, hash, before, after, adds };
        let outcome = self.begin(&mut shard, subject, record, charge)?;
        Ok(Begun::Waits { outcome, row: Some(row) })
    }

    fn intend_delete(&self, key: KeyRef<'_>, mut record: Vec<u8>) -> Result<Begun, WriteError> {
        let hash = self.rows.hasher.key(key);
        record::put_delete(self.id(), key, &mut record);
        let charge = self.charge(record.len())?;
        let mut shard = self.rows.lock(hash.shard());
        shard.unless_intended(key)?;
        let number = self.present(&shard, hash, key)?;
        let row = Row(shard.slots.get(number).bytes.clone());
        let subject = Subject {
            key,
            hash,
            before: Fingerprints::new(),
            after: Fingerprints::new(),
            adds: Adds::Nothing,
        };
        let outcome = self.begin(&mut shard, subject, record, charge)?;
        Ok(Begun::Waits { outcome, row: Some(row) })
    }

    /// Reserves memory for an intent whose record has `record_bytes`. The caller must not hold a shard's
    /// lock.
    fn charge(&self, record_bytes: usize) -> Result<(Charge<'_>, usize), WriteError> {
        let bytes = record_bytes + INTENT_BYTES;
        Ok((self.core.reserve(bytes)?, bytes))
    }

    /// Appends an intent, and notes the values that it takes; the channel delivers its outcome.
    fn begin(
        &self,
        shard: &mut Shard,
        subject: Subject<'_>,
        mut record: Vec<u8>,
        (charge, charged_bytes): (Charge<'_>, usize),
    ) -> Result<oneshot::Receiver<Result<(), HotError>>, WriteError> {
        let Subject { key, hash, before, after, adds } = subject;
        if !matches!(adds, Adds::Beside(..)) {
            shard.unless_intended(key)?;
        }
        record::mark_intent(&mut record);
        let record = record.into_boxed_slice();
        let (answer, outcome) = oneshot::channel();
        let position = self.rows.reserve(&before, &after, conflict, |reserved| {
            let mut pending = self.intents.pending.lock();
            let position = self.append(&record)?;
            let (key, answer) = (key.to_owned(), Some(answer));
            pending.insert(
                position,
                Intent { key, hash, record, reserved, charged_bytes, answer, is_outcome_unknown: false },
            );
            Ok(position)
        })?;
        shard.intents.begin(key.to_owned(), position, adds);
        charge.keep(&self.rows.budget);
        self.core.awaited.begin();
        Ok(outcome)
    }
}

fn key_of(key: &Value) -> Result<KeyRef<'_>, WriteError> {
    KeyRef::of(key.as_ref()).ok_or(WriteError::Missing { mark: Position(0) })
}
