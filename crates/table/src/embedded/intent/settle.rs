//! Outcomes: the drain has found out what became of intents.

use super::Intent;
use crate::embedded::budget::allocated_bytes;
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::embedded::undo::Again;
use crate::error::{HotError, HotKind};
use crate::key::KeyRef;
use crate::record::{LogRecord, put_committed};
use forebay_log::Position;
use std::error::Error;
use std::mem;
use std::sync::Arc;

/// What became of an intent.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The database has it.
    Committed,
    /// The database has no row that it could change.
    Missing,
    /// The database refused it.
    Refused(Arc<dyn Error + Send + Sync>),
    /// It is passed by, and whether the database has it was not heard.
    Unknown,
}

impl Tables {
    /// Applies the outcomes of all intents up to where the database has each table's changes, and answers
    /// those who wait. `outcome` is asked by position, in the order of the log within a table. The rows that
    /// memory cannot tell afterwards: they were given up ([`Table::undo`]).
    pub fn settle(
        &self,
        reached: impl Fn(&str) -> Position,
        outcome: impl Fn(Position) -> Outcome,
    ) -> Vec<Again> {
        let tables = self.all().iter();
        tables.flat_map(|table| table.settle(reached(&table.schema().name), &outcome)).collect()
    }

    /// Tells clients that wait for the database that no outcome will be reported any more.
    pub fn forsake_intents(&self) {
        self.all().iter().for_each(|table| table.forsake_intents());
    }

    /// Blocks so long, or until a client waits for the database.
    pub fn wait_intent(&self, time: std::time::Duration) {
        self.inner.core.awaited.wait(time);
    }
}

impl Table {
    fn settle(self: &Arc<Self>, reached: Position, outcome: &impl Fn(Position) -> Outcome) -> Vec<Again> {
        let settled = {
            let mut pending = self.intents.pending.lock();
            let later = pending.split_off(&Position(reached.0.saturating_add(1)));
            mem::replace(&mut *pending, later)
        };
        if settled.is_empty() {
            return Vec::new();
        }
        // No image comes between the look whether one has told the outcome and the outcome itself.
        let _applying = self.follow.as_ref().map(|follow| follow.applying.lock());
        let (count, mut unread) = (settled.len(), Vec::new());
        for (position, mut intent) in settled {
            let outcome = outcome(position);
            let is_told = match outcome {
                Outcome::Committed => self.reveal(&intent, position),
                Outcome::Unknown => false,
                Outcome::Missing | Outcome::Refused(_) => true,
            };
            if !is_told {
                let key = intent.key.to_value();
                unread.push((self.undo(key.as_ref()), self.clone(), key));
            }
            self.end(&intent, position);
            if let Some(answer) = intent.answer.take() {
                // A client that has gone hears nothing.
                let _ = answer.send(told(outcome));
            }
        }
        self.intents.settled.send_modify(|settled| *settled = reached.max(*settled));
        self.core.awaited.end(count);
        unread
    }

    /// Memory shows a write that was committed; false when it cannot tell what the row is.
    fn reveal(&self, intent: &Intent, position: Position) -> bool {
        let (key, hash) = (intent.key.as_ref(), intent.hash);
        let shard = self.rows.lock(hash.shard());
        if shard.intents.has_seen(&intent.key, position) {
            self.log_committed(key, position);
            return true;
        }
        // Only when the database has lost commits does the log hold later changes of the key.
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

    /// For a start from a checkpoint: what that has of the row may be older.
    fn log_committed(&self, key: KeyRef<'_>, position: Position) {
        if self.is_checkpointed() {
            self.core.log_outcome(|record| put_committed(self.id, position, key, record));
        }
    }

    /// What an intent has taken is free, and those who compete may go on.
    pub(super) fn end(&self, intent: &Intent, position: Position) {
        let record = LogRecord::decode(&intent.record).expect("it was checked when it was noted");
        let mut shard = self.rows.lock(intent.hash.shard());
        shard.intents.end(&intent.key, self.addition(&record));
        self.rows.unreserve(&intent.reserved, position);
        self.rows.budget.give(allocated_bytes(intent.charged_bytes));
    }
}

fn told(outcome: Outcome) -> Result<(), HotError> {
    match outcome {
        Outcome::Committed => Ok(()),
        Outcome::Missing => Err(HotError::missing()),
        Outcome::Refused(reason) => Err(HotError::refused(reason)),
        Outcome::Unknown => {
            let what = "the database did not tell whether it has the write";
            Err(HotError::new(HotKind::UnknownOutcome, what))
        }
    }
}
