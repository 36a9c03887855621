//! One shard of a table's rows: slots, the index from keys to slots, tombstones, and the ordered keys of a
//! table that is listed.
//!
//! A shard knows nothing of the log, of unique values and of counters; [`Rows`](super::rows::Rows) keeps them
//! together. Everything here runs under the shard's lock.

use super::budget::{Budget, allocated_bytes};
use super::error::WriteError;
use super::follow::Pendings;
use super::intent::KeyIntents;
use super::slab::{EVICTED, Slab, Slot};
use crate::hash::{Hasher, KeyHash};
use crate::key::{Key, KeyRef, row_key};
use crate::record::split_key;
use forebay_log::Position;
use forebay_value::{RowRef, Schema};
use hashbrown::{HashMap, HashTable};
use std::collections::{BTreeSet, VecDeque};

/// Finds the slot of a key. Small, and contains the hash, so that growing the index touches no row.
struct IndexEntry {
    hash: u32,
    slot: u32,
}

/// Why a key that is not in memory is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The row was deleted; the database may not have the delete yet.
    Deleted,
    /// The row is only in the database, which does not have all of its changes yet.
    Behind,
    /// The database refused a change of the row. Only the database knows whether the row exists. The
    /// tombstone stays until the row has been read.
    Refused,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tombstone {
    pub position: Position,
    pub absence: Absence,
}

#[derive(Default)]
pub(crate) struct Shard {
    pub slots: Slab,
    index: HashTable<IndexEntry>,
    tombstones: HashMap<Key, Tombstone, std::hash::RandomState>,
    /// Tombstones in the order in which they can be forgotten. An entry whose position differs from the map's
    /// was replaced.
    tombstone_order: VecDeque<(Position, Key)>,
    /// All keys in order, when the table is listed.
    pub ordered: Option<BTreeSet<Key>>,
    /// The last delete. An answer that says that a key does not exist waits for it.
    pub deleted: Position,
    /// The slot at which eviction continues.
    pub hand: u32,
    /// Of a followed table: the operations that the database does not have yet.
    pub pending: Pendings,
    /// Writes that memory does not show before the database has committed them.
    pub intents: KeyIntents,
}

/// Bytes of a key in the ordered set: the key, and its share of the B-tree's nodes and slack (nodes are at
/// least half full, 3/4 on average).
fn ordered_bytes(key: KeyRef<'_>) -> usize {
    size_of::<Key>() * 4 / 3 + 2 + heap_bytes(key)
}

/// Bytes of a tombstone: its entry in the map at the map's lowest load, and its entry in the queue.
fn tombstone_bytes(key: KeyRef<'_>) -> usize {
    2 * (size_of::<(Key, Tombstone)>() + 1) + 2 * size_of::<(Position, Key)>() + 2 * heap_bytes(key)
}

fn heap_bytes(key: KeyRef<'_>) -> usize {
    if let KeyRef::Text(text) = key { allocated_bytes(text.len()) } else { 0 }
}

/// The key of a row or stub.
pub(crate) fn key_of<'a>(slot: &'a Slot, schema: &Schema) -> KeyRef<'a> {
    if slot.has(EVICTED) {
        return split_key(&slot.bytes).expect("a stub begins with its key").0;
    }
    row_key(RowRef(&slot.bytes), schema)
}

impl Shard {
    pub fn new(is_ordered: bool) -> Shard {
        Shard { ordered: is_ordered.then(BTreeSet::new), ..Shard::default() }
    }

    /// The slot of a key.
    pub fn find(&self, schema: &Schema, hash: KeyHash, key: KeyRef<'_>) -> Option<u32> {
        let low = hash.low();
        let is_it =
            |entry: &IndexEntry| entry.hash == low && key_of(self.slots.get(entry.slot), schema) == key;
        self.index.find(KeyHash::spread_low(low), is_it).map(|entry| entry.slot)
    }

    /// Inserts a row whose key is not in the shard. The caller has counted the bytes of the row.
    pub fn insert(&mut self, schema: &Schema, hash: KeyHash, slot: Slot, budget: &Budget) {
        if let Some(ordered) = &mut self.ordered {
            let key = key_of(&slot, schema);
            budget.take(ordered_bytes(key));
            ordered.insert(key.to_owned());
        }
        let before = self.index.allocation_size() + self.slots.allocated_bytes();
        let slot = self.slots.push(slot);
        let entry = IndexEntry { hash: hash.low(), slot };
        self.index.insert_unique(hash.spread(), entry, |entry| KeyHash::spread_low(entry.hash));
        budget.resize(before, self.index.allocation_size() + self.slots.allocated_bytes());
    }

    /// Makes room in the index for `rows` more rows.
    pub fn reserve(&mut self, rows: usize, budget: &Budget) {
        let before = self.index.allocation_size();
        self.index.reserve(rows, |entry| KeyHash::spread_low(entry.hash));
        budget.resize(before, self.index.allocation_size());
    }

    /// Removes a row, and releases its bytes.
    pub fn remove(&mut self, schema: &Schema, hasher: &Hasher, hash: KeyHash, slot: u32, budget: &Budget) {
        let before = self.slots.allocated_bytes();
        let last = self.slots.len() - 1;
        if let Ok(entry) = self.index.find_entry(hash.spread(), |entry| entry.slot == slot) {
            entry.remove();
        }
        if slot != last {
            let moved = hasher.key(key_of(self.slots.get(last), schema)).low();
            let entry = self.index.find_mut(KeyHash::spread_low(moved), |entry| entry.slot == last);
            entry.expect("every slot is in the index").slot = slot;
        }
        let removed = self.slots.swap_remove(slot);
        let key = key_of(&removed, schema);
        if let Some(ordered) = &mut self.ordered {
            budget.give(ordered_bytes(key));
            ordered.remove(&key.to_owned());
        }
        budget.give(allocated_bytes(removed.bytes.len()));
        budget.resize(before, self.slots.allocated_bytes());
    }

    /// Remembers that a key is not in memory, and why.
    pub fn bury(&mut self, key: KeyRef<'_>, tombstone: Tombstone, budget: &Budget) {
        budget.take(tombstone_bytes(key));
        self.tombstone_order.push_back((tombstone.position, key.to_owned()));
        let before = self.tombstones.insert(key.to_owned(), tombstone);
        if before.is_some_and(|before| before.absence == Absence::Refused) {
            // Only this releases those bytes: a doubtful key is not in `tombstone_order`.
            budget.give(tombstone_bytes(key));
        }
    }

    /// Remembers that only the database knows whether a key exists. A read of the database that contains
    /// everything up to `position` decides it.
    pub fn mark_unknown(&mut self, key: KeyRef<'_>, position: Position, budget: &Budget) {
        let tombstone = Tombstone { position, absence: Absence::Refused };
        if self.tombstones.insert(key.to_owned(), tombstone).is_none_or(|old| old.absence != Absence::Refused)
        {
            budget.take(tombstone_bytes(key));
        }
    }

    /// Ends what [`Shard::mark_unknown`] began.
    pub fn settle(&mut self, key: KeyRef<'_>, budget: &Budget) {
        if self.is_unknown_row(key) {
            self.tombstones.remove(&key.to_owned());
            budget.give(tombstone_bytes(key));
        }
    }

    /// Whether only the database knows if a key exists.
    pub fn is_unknown_row(&self, key: KeyRef<'_>) -> bool {
        self.tombstone(key).is_some_and(|tombstone| tombstone.absence == Absence::Refused)
    }

    /// Refuses a write to a row whose state an intent may change.
    pub fn unless_intended(&self, key: KeyRef<'_>) -> Result<(), WriteError> {
        self.intents.last(key).map_or(Ok(()), |last| Err(WriteError::Pending(last)))
    }

    /// Whether the shard has any tombstone. Most shards have none, and then no lookup is needed.
    pub fn has_tombstones(&self) -> bool {
        !self.tombstones.is_empty()
    }

    /// The tombstones with their keys, in no particular order.
    pub fn tombstones(&self) -> impl Iterator<Item = (&Key, &Tombstone)> {
        self.tombstones.iter()
    }

    /// The tombstone of a key.
    pub fn tombstone(&self, key: KeyRef<'_>) -> Option<Tombstone> {
        if !self.has_tombstones() {
            return None;
        }
        self.tombstones.get(&key.to_owned()).copied()
    }

    /// Forgets the tombstones at or before `floor`; returns how many.
    pub fn forget(&mut self, floor: Position, budget: &Budget) -> usize {
        let mut forgotten = 0;
        while let Some((position, _)) = self.tombstone_order.front()
            && *position <= floor
        {
            let Some((position, key)) = self.tombstone_order.pop_front() else {
                break;
            };
            budget.give(tombstone_bytes(key.as_ref()));
            forgotten += 1;
            let is_it = |old: &Tombstone| old.position == position && old.absence != Absence::Refused;
            if self.tombstones.get(&key).is_some_and(is_it) {
                self.tombstones.remove(&key);
            }
        }
        forgotten
    }

    /// Whether a change of a row, a delete or an intent lies after `drained`.
    pub fn has_undrained(&self, drained: Position) -> bool {
        !self.intents.is_empty()
            || self.deleted > drained
            || self.slots.iter().any(|slot| slot.position() > drained)
    }

    /// Forgets all rows and tombstones.
    pub fn clear(&mut self, budget: &Budget) {
        let rows: usize = self.slots.iter().map(|slot| allocated_bytes(slot.bytes.len())).sum();
        budget.give(rows + self.index.allocation_size() + self.slots.allocated_bytes());
        for (_, key) in &self.tombstone_order {
            budget.give(tombstone_bytes(key.as_ref()));
        }
        let doubted = self.tombstones.iter().filter(|(_, tombstone)| tombstone.absence == Absence::Refused);
        for (key, _) in doubted {
            budget.give(tombstone_bytes(key.as_ref()));
        }
        for key in self.ordered.iter().flatten() {
            budget.give(ordered_bytes(key.as_ref()));
        }
        self.pending.clear(budget);
        *self = Shard { deleted: self.deleted, ..Shard::new(self.ordered.is_some()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delete_of_a_doubted_key_gives_back_what_the_doubt_took() {
        let (mut shard, budget, key) = (Shard::new(false), Budget::new(1 << 20), KeyRef::Bigint(1));
        shard.mark_unknown(key, Position(5), &budget);
        shard.bury(key, Tombstone { position: Position(7), absence: Absence::Deleted }, &budget);
        assert_eq!(shard.forget(Position(7), &budget), 1);
        assert_eq!((budget.used_bytes(), shard.tombstones().count()), (0, 0));
    }
}
