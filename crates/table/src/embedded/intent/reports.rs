//! Reports of a table's intents: to competing writes, and to clients for which no outcome will come.

use crate::embedded::table::Table;
use crate::error::{HotError, HotKind};
use crate::key::KeyRef;
use crate::source::BoxFuture;
use forebay_log::Position;
use forebay_value::ValueRef;
use std::sync::Arc;

impl Table {
    /// Resolves when the outcome of the intent at `position` is known.
    pub(crate) fn outcome_of(&self, position: Position) -> BoxFuture<'static, Result<(), HotError>> {
        let mut settled = self.intents.settled.subscribe();
        let table = self.this.upgrade().expect("a table lives in an Arc");
        Box::pin(async move {
            let is_pending = || table.intents.pending.lock().contains_key(&position);
            let known = settled.wait_for(|settled| *settled >= position && !is_pending()).await;
            known.map(drop).map_err(|_| HotError::unavailable("the table was closed"))
        })
    }

    /// Whether an intent up to `position` has no outcome yet.
    pub(crate) fn has_intent_until(&self, position: Position) -> bool {
        let _settling = self.intents.settling.lock();
        self.intents.pending.lock().range(..=position).next().is_some()
    }

    /// Whether the intent at `position` has no outcome yet.
    pub fn awaits(&self, position: Position) -> bool {
        self.intents.pending.lock().contains_key(&position)
    }

    /// Whether the outcome of an intent for this key is not known yet.
    pub fn has_intent(&self, key: ValueRef<'_>) -> bool {
        let Some(key) = KeyRef::of(key) else { return false };
        let hash = self.rows.hasher.key(key);
        self.rows.lock(hash.shard()).intents.last(key).is_some()
    }

    /// Notes why the drain has stopped the table, or with `None` that the drain writes to it again. While it
    /// is stopped, new intents are refused. Those in the log will be decided later: clients that wait for one
    /// are told that its outcome is unknown, and why.
    pub fn set_stopped(&self, reason: Option<&str>) {
        let mut stopped = self.intents.stopped.lock();
        if stopped.as_deref() != reason {
            *stopped = reason.map(Arc::from);
        }
        drop(stopped);
        // Also when nothing has changed: an intent may have been appended meanwhile.
        if let Some(reason) = reason {
            self.intents.answer_all(&HotError::logged(reason));
        }
    }

    /// Tells clients that wait for the database that no outcome will be reported any more.
    pub fn answer_intents_unknown(&self) {
        let what = "the drain has ended; whether the write is in the database is unknown";
        self.intents.answer_all(&HotError::new(HotKind::UnknownOutcome, what));
    }
}
