//! Undo: when the database refuses a change of a row, memory returns to the database's state of the row.
//!
//! Memory stores no older state of a row: the database has it, and the log has the later changes. So memory
//! drops the row, as an eviction does, and reads it again (`fetch`) once the database has every later change
//! of the key. Until then the row cannot be read. The log records that the row was dropped, for a start that
//! does not ask the database.

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

/// A row that memory dropped, and that is to be read again.
#[derive(Clone)]
pub struct RereadRow {
    /// The drained position from which on it can be read.
    pub from: Position,
    /// The table of the row.
    pub table: Arc<Table>,
    /// The key of the row.
    pub key: Value,
    /// An intent of unknown outcome that keeps its reservations until the row has been read.
    pub(super) intent: Option<Position>,
}

impl RereadRow {
    /// A row that was not dropped for an intent.
    pub fn new(from: Position, table: Arc<Table>, key: Value) -> RereadRow {
        RereadRow { from, table, key, intent: None }
    }

    /// Brings the row into memory ([`Table::fetch`]), and ends the intent that waits for it.
    ///
    /// # Errors
    /// Those of [`Table::fetch`]; one that may be retried when the row was dropped again meanwhile.
    pub async fn read(&self) -> Result<(), SourceError> {
        let Some(intent) = self.intent else {
            return self.table.fetch(self.key.clone()).await.map(drop);
        };
        let is_told = |is_read| self.table.has_outcome(self.key.as_ref(), intent, is_read);
        // An image may contain the outcome already.
        if !is_told(false) {
            let read = self.table.fetch(self.key.clone()).await;
            if !is_told(read.is_ok()) {
                read?;
                return Err(SourceError::later("the row was given up while it was read"));
            }
        }
        self.table.end_unknown(intent);
        Ok(())
    }
}

impl Table {
    /// Drops a row of which the database refused a change, or which the database does not have.
    /// [`Table::fetch`] brings back the database's row. Returns the drained position from which on it can:
    /// the key's last change.
    pub fn undo(&self, key: ValueRef<'_>) -> Position {
        KeyRef::of(key).map_or(Position(0), |key| self.undo_from(key, Position(0)))
    }

    /// [`Table::undo`], when outcomes up to the position `least` are not known either.
    pub(super) fn undo_from(&self, key: KeyRef<'_>, least: Position) -> Position {
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        self.core.log_outcome(|record| put_undone(self.id(), key, record));
        self.undo_logged(&mut shard, hash, key, least)
    }

    /// [`Table::undo`], when the log already contains the record.
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
            // A delete was refused, or the row was deleted after the refused change. Without a tombstone, the
            // shard's last delete is the latest possible position.
            let position = shard.tombstone(key).map_or(shard.deleted, |tombstone| tombstone.position);
            let is_deleted_since = shard.tombstone(key).is_some_and(|tombstone| {
                let later = self.rows.drained().max(least);
                tombstone.absence == Absence::Deleted && tombstone.position > later
            });
            if !is_deleted_since {
                shard.mark_unknown(key, position, &rows.budget);
            }
            return position;
        };
        let slot = shard.slots.get(number);
        if !slot.has(EVICTED) {
            let fingerprints = rows.fingerprints_of(slot);
            rows.replace_by_stub(shard, number, &fingerprints);
        }
        shard.slots.get(number).position()
    }
}
