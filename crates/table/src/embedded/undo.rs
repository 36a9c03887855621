//! Undo: when the database refused a change of a row, memory goes back to what the database has.
//!
//! Memory keeps no older state of a row: the database has it, and the log has what came after. So memory
//! gives the row up, as an eviction does, and reads it again (`fetch`) once the database has every later
//! change of the key. Until then nothing of the row is shown. The log says that it was given up, for a
//! start that does not ask the database.

use super::shard::{Absence, Shard};
use super::slab::EVICTED;
use super::table::Table;
use crate::hash::KeyHash;
use crate::key::KeyRef;
use crate::record::put_undone;
use forebay_log::Position;
use forebay_value::{Value, ValueRef};
use std::sync::Arc;

/// A row that was given up, and from which drained position on it can be read again.
pub type Again = (Position, Arc<Table>, Value);

impl Table {
    /// Gives up what memory has of a row of which the database refused a change, or has no row to change.
    /// [`Table::fetch`] brings back what the database has. From which position on it can: the last change
    /// of the key.
    pub fn undo(&self, key: ValueRef<'_>) -> Position {
        let Some(key) = KeyRef::of(key) else {
            return Position(0);
        };
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        self.core.log_outcome(|record| put_undone(self.id, key, record));
        self.undo_logged(&mut shard, hash, key)
    }

    /// The same, when the log says so already.
    pub(super) fn undo_logged(&self, shard: &mut Shard, hash: KeyHash, key: KeyRef<'_>) -> Position {
        let rows = &*self.rows;
        if self.followed() {
            return self.undo_followed(shard, hash, key);
        }
        let Some(number) = shard.find(self.schema(), hash, key) else {
            // A delete was refused, or a delete came after what was. Without a tombstone the shard's last
            // delete is the latest it can be.
            let position = shard.tombstone(key).map_or(shard.deleted, |tombstone| tombstone.position);
            let is_deleted_since = shard.tombstone(key).is_some_and(|tombstone| {
                tombstone.absence == Absence::Deleted && tombstone.position > self.core.drained()
            });
            if !is_deleted_since {
                shard.doubt(key, position, &rows.budget);
            }
            return position;
        };
        let slot = shard.slots.get(number);
        if !slot.has(EVICTED) {
            let fingerprints = rows.fingerprints_of(slot);
            rows.hollow(shard, number, &fingerprints);
        }
        shard.slots.get(number).position()
    }
}
