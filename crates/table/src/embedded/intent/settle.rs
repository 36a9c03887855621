//! Applies the outcomes of intents that the drain reports.

use super::{Adds, Intent};
use crate::embedded::budget::allocated_bytes;
use crate::embedded::slab::EVICTED;
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::embedded::undo::RereadRow;
use crate::error::{HotError, HotKind};
use crate::key::KeyRef;
use crate::record::{LogRecord, put_committed};
use forebay_log::Position;
use forebay_value::ValueRef;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The outcome of an intent.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The database has committed it.
    Committed,
    /// The database has no row that it could change.
    Missing,
    /// The database refused it.
    Refused(Arc<dyn Error + Send + Sync>),
    /// The drain has passed it without learning whether the database has it.
    Unknown,
}

impl Tables {
    /// Applies the outcomes of all intents up to the position that the database has `reached` for each table,
    /// and answers the clients that wait. `outcome` is called with each position, within a table in the order
    /// of the log. Returns the rows that memory no longer knows: they were dropped ([`Table::undo`]) and are
    /// to be read again.
    pub fn settle(
        &self,
        reached: impl Fn(&str) -> Position,
        outcome: impl Fn(Position) -> Outcome,
    ) -> Vec<RereadRow> {
        let tables = self.all().iter();
        tables.flat_map(|table| table.settle(reached(&table.schema().name), &outcome)).collect()
    }

    /// Tells clients that wait for the database that no outcome will be reported any more.
    pub fn answer_intents_unknown(&self) {
        self.all().iter().for_each(|table| table.answer_intents_unknown());
    }

    /// Blocks until an intent is under way, at most for `time`.
    pub fn wait_intent(&self, time: std::time::Duration) {
        self.inner.core.awaited.wait(time);
    }
}

impl Table {
    fn settle(self: &Arc<Self>, reached: Position, outcome: &impl Fn(Position) -> Outcome) -> Vec<RereadRow> {
        let _settling = self.intents.settling.lock();
        let settled: Vec<_> = {
            let mut pending = self.intents.pending.lock();
            pending.extract_if(..=reached, |_, intent| !intent.is_outcome_unknown).collect()
        };
        if settled.is_empty() {
            return Vec::new();
        }
        // Under this lock no image is applied between the check whether an image contains the outcome and
        // applying it.
        let _applying = self.follow.as_ref().map(|follow| follow.applying.lock());
        let (count, mut unread) = (settled.len(), Vec::new());
        for (position, mut intent) in settled {
            let outcome = outcome(position);
            let is_known = match outcome {
                Outcome::Committed => self.reveal(&intent, position),
                Outcome::Unknown => false,
                Outcome::Missing | Outcome::Refused(_) => true,
            };
            let answer = intent.answer.take();
            if is_known {
                self.end(&intent, position);
            } else {
                unread.push(self.await_row_read(intent, position));
            }
            if let Some(answer) = answer {
                // Fails only when the client has gone.
                let _ = answer.send(answer_of(outcome));
            }
        }
        self.intents.settled.send_modify(|settled| *settled = reached.max(*settled));
        self.core.awaited.end(count);
        unread
    }

    /// The outcome of this intent can only be seen in its row: memory drops the row, and the intent keeps its
    /// key and unique values until the row has been read. An addition ends at once: it takes no values, and
    /// would prevent the row from being read.
    fn await_row_read(self: &Arc<Self>, mut intent: Intent, position: Position) -> RereadRow {
        self.intents.unknown_outcomes.fetch_add(1, Ordering::SeqCst);
        let from = self.undo_from(intent.key.as_ref(), position);
        let key = intent.key.to_value();
        let record = LogRecord::decode(&intent.record).expect("it was checked when it was noted");
        let adds = self.adds(&record);
        let is_over = matches!(adds, Adds::Beside(..));
        if is_over {
            self.end(&intent, position);
        } else {
            self.rows.lock(intent.hash.shard()).intents.doubt(&intent.key, adds);
            intent.is_outcome_unknown = true;
            self.intents.pending.lock().insert(position, intent);
        }
        RereadRow { from, table: self.clone(), key, intent: (!is_over).then_some(position) }
    }

    /// Whether memory now contains the outcome of the intent at `position`: through an image of the row, or
    /// because the row `is_read` and was not dropped again.
    pub(crate) fn has_outcome(&self, key: ValueRef<'_>, position: Position, is_read: bool) -> bool {
        let Some(key) = KeyRef::of(key) else { return true };
        let hash = self.rows.hasher.key(key);
        let shard = self.rows.lock(hash.shard());
        let is_there = || match shard.find(self.schema(), hash, key) {
            Some(number) => !shard.slots.get(number).has(EVICTED),
            None => !shard.is_unknown_row(key),
        };
        shard.intents.has_seen(&key.to_owned(), position) || is_read && is_there()
    }

    /// Ends an intent of unknown outcome whose row has been read: the row has its unique values, or they are
    /// free.
    pub(crate) fn end_unknown(&self, position: Position) {
        let Some(intent) = self.intents.pending.lock().remove(&position) else { return };
        self.end(&intent, position);
        // Wakes the writes that wait for this intent.
        self.intents.settled.send_modify(|_| ());
    }

    /// Applies a committed write to memory; false when memory cannot determine what the row is.
    fn reveal(&self, intent: &Intent, position: Position) -> bool {
        let (key, hash) = (intent.key.as_ref(), intent.hash);
        let shard = self.rows.lock(hash.shard());
        if shard.intents.has_seen(&intent.key, position) {
            self.log_committed(key, position);
            return true;
        }
        // The log holds later changes of the key only when the database has lost commits.
        let slot = shard.find(self.schema(), hash, key).map(|number| shard.slots.get(number).position());
        let tombstone = shard.tombstone(key).map(|tombstone| tombstone.position);
        if slot.max(tombstone).is_some_and(|last| last > position) {
            return false;
        }
        drop(shard);
        let record = LogRecord::decode(&intent.record).expect("it was checked when it was noted");
        let is_shown = self.replay_record(&record, key, hash, position).is_ok();
        if is_shown {
            self.log_committed(key, position);
        }
        is_shown
    }

    /// Logs the outcome for a start from a checkpoint, whose state of the row may be older.
    fn log_committed(&self, key: KeyRef<'_>, position: Position) {
        if self.is_checkpointed() {
            self.core.log_outcome(|record| put_committed(self.id(), position, key, record));
        }
    }

    /// Releases the reservations of an intent, so that competing writes may continue.
    pub(super) fn end(&self, intent: &Intent, position: Position) {
        let record = LogRecord::decode(&intent.record).expect("it was checked when it was noted");
        let mut shard = self.rows.lock(intent.hash.shard());
        let adds = if intent.is_outcome_unknown { Adds::Nothing } else { self.adds(&record) };
        shard.intents.end(&intent.key, position, adds);
        self.rows.unreserve(&intent.reserved, position);
        self.rows.budget.give(allocated_bytes(intent.charged_bytes));
    }
}

fn answer_of(outcome: Outcome) -> Result<(), HotError> {
    match outcome {
        Outcome::Committed => Ok(()),
        Outcome::Missing => Err(HotError::missing()),
        Outcome::Refused(reason) => Err(HotError::refused(reason)),
        Outcome::Unknown => {
            let what = "the database did not report whether the write was committed";
            Err(HotError::new(HotKind::UnknownOutcome, what))
        }
    }
}
