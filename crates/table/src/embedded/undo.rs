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
use crate::source::SourceError;
use forebay_log::Position;
use forebay_value::{Value, ValueRef};
use std::sync::Arc;

/// A row that was given up, and is to be read again.
#[derive(Clone)]
pub struct Again {
    /// From which drained position on it can be.
    pub from: Position,
    /// Which brings it back.
    pub table: Arc<Table>,
    /// Which row.
    pub key: Value,
    /// The intent of unknown outcome that keeps what it took until then.
    pub(super) intent: Option<Position>,
}

impl Again {
    /// A row that no intent waits for.
    pub fn new(from: Position, table: Arc<Table>, key: Value) -> Again {
        Again { from, table, key, intent: None }
    }

    /// Brings the row into memory ([`Table::fetch`]), and ends the intent that waits for it.
    ///
    /// # Errors
    /// Those of [`Table::fetch`], also when the row was given up once more meanwhile.
    pub async fn read(&self) -> Result<(), SourceError> {
        let Some(intent) = self.intent else {
            return self.table.fetch(self.key.clone()).await.map(drop);
        };
        let is_told = |is_read| self.table.is_told(self.key.as_ref(), intent, is_read);
        // An image may have told it already.
        if !is_told(false) {
            let read = self.table.fetch(self.key.clone()).await;
            if !is_told(read.is_ok()) {
                read?;
                return Err(SourceError::later("the row was given up while it was read"));
            }
        }
        self.table.heard(intent);
        Ok(())
    }
}

impl Table {
    /// Gives up what memory has of a row of which the database refused a change, or has no row to change.
    /// [`Table::fetch`] brings back what the database has. From which position on it can: the last change
    /// of the key.
    pub fn undo(&self, key: ValueRef<'_>) -> Position {
        KeyRef::of(key).map_or(Position(0), |key| self.undo_from(key, Position(0)))
    }

    /// The same; what the database did up to `least` is not known either.
    pub(super) fn undo_from(&self, key: KeyRef<'_>, least: Position) -> Position {
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        self.core.log_outcome(|record| put_undone(self.id, key, record));
        self.undo_logged(&mut shard, hash, key, least)
    }

    /// The same, when the log says so already.
    pub(super) fn undo_logged(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: KeyRef<'_>,
        least: Position,
    ) -> Position {
        let rows = &*self.rows;
        if self.followed() {
            return self.undo_followed(shard, hash, key, least);
        }
        let Some(number) = shard.find(self.schema(), hash, key) else {
            // A delete was refused, or a delete came after what was. Without a tombstone the shard's last
            // delete is the latest it can be.
            let position = shard.tombstone(key).map_or(shard.deleted, |tombstone| tombstone.position);
            let is_deleted_since = shard.tombstone(key).is_some_and(|tombstone| {
                let later = self.core.drained().max(least);
                tombstone.absence == Absence::Deleted && tombstone.position > later
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
