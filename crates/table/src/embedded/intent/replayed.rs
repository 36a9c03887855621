//! Intents that are in the log behind the drained position when the process starts. No client waits for them,
//! and they keep their reservations until the drain has found their outcomes.

use super::{Adds, Intent};
use crate::embedded::budget::allocated_bytes;
use crate::embedded::replay_record::Missing;
use crate::embedded::rows::Fingerprints;
use crate::embedded::table::Table;
use crate::hash::KeyHash;
use crate::key::KeyRef;
use crate::limits::INTENT_BYTES;
use crate::record::LogRecord;
use forebay_log::Position;
use forebay_value::ValueRef;

impl Table {
    /// Reserves what an intent takes, as if it had just begun, without a client.
    pub(crate) fn note_intent(
        &self,
        record: &LogRecord<'_>,
        bytes: &[u8],
        key: KeyRef<'_>,
        hash: KeyHash,
        position: Position,
    ) {
        let charged_bytes = bytes.len() + INTENT_BYTES;
        self.rows.budget.take(allocated_bytes(charged_bytes));
        self.rows.saw_key(key);
        let mut shard = self.rows.lock(hash.shard());
        let after = match *record {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } | LogRecord::Update { row, .. } => {
                self.rows.fingerprints(row)
            }
            LogRecord::Increment { column, sum: Some(sum), .. } => {
                let found = shard.find(self.schema(), hash, key);
                let before = found.map(|number| self.rows.fingerprints_of(shard.slots.get(number)));
                let before = before.unwrap_or_else(|| self.rows.no_fingerprints());
                self.rows.fingerprints_changed(&before, &[(column, ValueRef::Bigint(sum))])
            }
            LogRecord::Increment { sum: None, .. }
            | LogRecord::Delete { .. }
            | LogRecord::Undone { .. }
            | LogRecord::Committed { .. } => Fingerprints::new(),
        };
        let reserved = self.rows.reserve_known(&after, position);
        shard.intents.begin(key.to_owned(), position, self.adds(record));
        let (key, record) = (key.to_owned(), bytes.into());
        let intent =
            Intent { key, hash, record, reserved, charged_bytes, answer: None, is_outcome_unknown: false };
        self.intents.pending.lock().insert(position, intent);
        self.core.awaited.begin();
    }

    /// Ends an intent of an earlier run that was committed according to the log; returns its record.
    pub(crate) fn take_noted(&self, position: Position) -> Option<Box<[u8]>> {
        let intent = self.intents.pending.lock().remove(&position)?;
        self.end(&intent, position);
        self.core.awaited.end(1);
        Some(intent.record)
    }

    /// What a record adds to a column.
    pub(crate) fn adds(&self, record: &LogRecord<'_>) -> Adds {
        match *record {
            LogRecord::Increment { column, .. } if self.rows.is_tracked(column) => Adds::Alone,
            LogRecord::Increment { column, delta, .. } => Adds::Beside(column, delta),
            _ => Adds::Nothing,
        }
    }

    /// Notes an intent of a table that has other columns now. Only the database will know what the row is,
    /// once it has decided about this position.
    pub(crate) fn doubt_intent(&self, key: KeyRef<'_>, hash: KeyHash, position: Position) {
        let mut shard = self.rows.lock(hash.shard());
        if shard.find(self.schema(), hash, key).is_none() {
            return shard.mark_unknown(key, position, &self.rows.budget);
        }
        drop(shard);
        self.replay_unseen(key, hash, &[], position, Missing::Ignore);
    }
}
