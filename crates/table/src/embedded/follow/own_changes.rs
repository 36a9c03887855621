//! Notes this process's changes to rows of a followed table, for images that do not contain them yet.
//!
//! All of these run under the lock of the row's shard, together with the change. For a table that is not
//! followed each costs one branch.

use super::pending::Reset;
use crate::embedded::shard::{Shard, key_of};
use crate::embedded::slab::EVICTED;
use crate::embedded::table::Table;
use crate::hash::KeyHash;
use crate::key::KeyRef;
use crate::record::LogRecord;
use forebay_log::Position;

impl Table {
    /// The loaded rows contain all of this table's changes up to `drained`.
    pub(crate) fn begin_following(&self, drained: Position) {
        if let Some(follow) = &self.follow {
            follow.reached(drained);
        }
    }

    /// Notes that a whole row was written.
    #[inline]
    pub(crate) fn wrote_whole(&self, shard: &mut Shard, hash: KeyHash, key: KeyRef<'_>) {
        if self.follow.is_some() {
            shard.pending.whole(hash, key, &self.rows.budget);
        }
    }

    /// Notes that a row was deleted.
    #[inline]
    pub(crate) fn deleted(&self, shard: &mut Shard, hash: KeyHash, key: KeyRef<'_>, position: Position) {
        if self.follow.is_some() {
            shard.pending.reset(hash, key, position, Reset::Deleted, &self.rows.budget);
        }
    }

    /// Notes that columns were set of a row whose body memory does not have.
    pub(crate) fn lost(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: KeyRef<'_>,
        columns: impl Iterator<Item = usize>,
        position: Position,
    ) {
        let Some(follow) = &self.follow else { return };
        let number = shard.find(self.schema(), hash, key);
        let whole = number.map(|number| shard.slots.get(number).position());
        let whole = whole.filter(|whole| *whole > follow.position());
        shard.pending.lose(hash, key, whole, columns, position, &self.rows.budget);
    }

    /// Notes that columns of a row are set; the slot must still have the position of the change before.
    #[inline]
    pub(crate) fn set_columns(
        &self,
        shard: &mut Shard,
        number: u32,
        columns: impl Iterator<Item = usize>,
        position: Position,
    ) {
        let Some(follow) = &self.follow else { return };
        let Shard { slots, pending, .. } = shard;
        let slot = slots.get(number);
        let key = key_of(slot, self.schema());
        let hash = self.rows.hasher.key(key);
        let whole = Some(slot.position()).filter(|whole| *whole > follow.position());
        pending.set(hash, key, whole, columns, position, &self.rows.budget);
    }

    /// Notes an increment of a column; the slot must still have the position of the change before.
    #[inline]
    pub(crate) fn added(&self, shard: &mut Shard, number: u32, added: (usize, i64), position: Position) {
        let Some(follow) = &self.follow else { return };
        let Shard { slots, pending, .. } = shard;
        let slot = slots.get(number);
        let key = key_of(slot, self.schema());
        let hash = self.rows.hasher.key(key);
        let whole = Some(slot.position()).filter(|whole| *whole > follow.position());
        pending.add(hash, key, whole, added, position, &self.rows.budget);
    }

    /// Notes an operation of the log that the row in memory already contains, from a checkpoint.
    pub(crate) fn note_logged(
        &self,
        record: &LogRecord<'_>,
        key: KeyRef<'_>,
        hash: KeyHash,
        position: Position,
    ) {
        if self.follow.is_none() {
            return;
        }
        let budget = &self.rows.budget;
        let pending = &mut self.rows.lock(hash.shard()).pending;
        match *record {
            LogRecord::Insert { .. } | LogRecord::Put { .. } => {
                // The row in memory may be newer, so its position does not show that this record wrote a
                // whole row.
                pending.reset(hash, key, position, Reset::Whole, budget);
            }
            LogRecord::Update { columns, row, .. } => {
                let set = columns.of(row, self.schema()).map(|(column, _)| column);
                pending.set(hash, key, None, set, position, budget);
            }
            LogRecord::Increment { column, delta, .. } => {
                pending.add(hash, key, None, (column, delta), position, budget);
            }
            LogRecord::Delete { .. } => pending.reset(hash, key, position, Reset::Deleted, budget),
            LogRecord::Undone { .. } | LogRecord::Committed { .. } => {}
        }
    }

    /// Drops what memory has of a row of which the database refused a change. The next image that contains
    /// all operations of the key decides what the row is. Returns the key's last change in memory.
    pub(crate) fn undo_followed(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        key: KeyRef<'_>,
        least: Position,
    ) -> Position {
        let follow = self.follow.as_ref().expect("a followed table");
        let number = shard.find(self.schema(), hash, key);
        let pending = shard.pending.last(hash, key);
        let slot = number.map(|number| shard.slots.get(number).position());
        let own = pending.max(slot).unwrap_or_default();
        let last = own.max(least);
        if last > follow.position() {
            self.lost(shard, hash, key, std::iter::empty(), last);
        }
        self.drop_body(shard, number, key, last);
        follow.want(key.to_owned(), true);
        own
    }

    /// Drops the body of a row, or the knowledge that the row does not exist: the next read asks the
    /// database.
    pub(super) fn drop_body(
        &self,
        shard: &mut Shard,
        number: Option<u32>,
        key: KeyRef<'_>,
        position: Position,
    ) {
        let rows = &*self.rows;
        match number {
            Some(number) if !shard.slots.get(number).has(EVICTED) => {
                let fingerprints = rows.fingerprints_of(shard.slots.get(number));
                rows.replace_by_stub(shard, number, &fingerprints);
            }
            Some(_) => {}
            None => shard.mark_unknown(key, position, &rows.budget),
        }
    }
}
