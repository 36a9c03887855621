//! The rows of one table in memory: shards, unique values, counters, lengths. This module does not know the
//! log.
//!
//! What must stay true: a row's shard is locked first, then the stripes of its unique values, then (for an
//! addition each) the stripes of its counters; only [`Rows::clear`] holds two shards, and it locks them in
//! ascending order. For every row in a shard, stub or not, the unique values are claimed, the indexed values
//! are counted, the key is in the ordered set (if there is one), and the table's length includes the row.

mod claims;

use crate::embedded::budget::{Budget, allocated_bytes};
use crate::embedded::counters::Counters;
use crate::embedded::shard::{Absence, Shard, Tombstone, key_of};
use crate::embedded::slab::{EVICTED, REFERENCED, Slot};
use crate::embedded::unique::{Claims, Unique};
use crate::hash::{Fingerprint, Hasher, KeyHash, NO_VALUE};
use crate::key::KeyRef;
use crate::limits::{RANDOM_DRAWS, SHARDS};
use crate::record::{put_key, split_key};
use forebay_log::Position;
use forebay_value::{RowRef, Schema, ValueRef};
use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Pads a value to whole cache lines, because different cores lock shards at the same time.
#[repr(align(128))]
struct Padded<T>(T);

/// The fingerprints of a row's tracked columns, in their order; empty for no row.
pub(crate) type Fingerprints = SmallVec<[Fingerprint; 4]>;

/// Unique values that are claimed a second time, beside the claim of the row that has them.
pub(crate) type Held = Claims;

/// Unique values that an intent is to take.
pub(crate) type Reserved = Claims;

/// A column whose value matters beyond its row: it is unique, it is indexed, or it is part of a unique set.
struct Tracked {
    column: usize,
    is_unique: bool,
    is_indexed: bool,
}

/// Columns that are unique together; `members` are indexes into the tracked columns.
struct UniqueSet {
    /// As [`Schema::unique_rule`] counts.
    rule: usize,
    members: Box<[usize]>,
}

pub(crate) struct Rows {
    pub schema: Arc<Schema>,
    pub budget: Arc<Budget>,
    pub hasher: Hasher,
    pub counters: Counters,
    unique: Unique,
    tracked: Box<[Tracked]>,
    unique_sets: Box<[UniqueSet]>,
    has_unique: bool,
    shards: Box<[Padded<Mutex<Shard>>]>,
    /// The shards' lengths, readable without their locks, four cache lines in all.
    lengths: Padded<[AtomicU32; SHARDS]>,
    /// A power of two that no shard's length has exceeded.
    length_bound: AtomicU32,
    total: AtomicU64,
    /// The position of the last insert or delete.
    membership: AtomicU64,
    tombstones: AtomicUsize,
    /// The highest bigint key that came from the database or the log.
    highest_key: AtomicI64,
    /// All of the table's changes at or before this are durable in the database. Other tables may be further,
    /// or not as far: this one, or they, may be stopped.
    drained: AtomicU64,
    /// The position from which on the database has lost drained changes and gets them again.
    lost_behind: AtomicU64,
    /// The drained position at the start.
    began: AtomicU64,
    /// Of a followed table: the same at the last applied poll. `u64::MAX` when the table is not followed.
    seen: AtomicU64,
}

impl Rows {
    pub fn new(schema: Arc<Schema>, budget: Arc<Budget>, hasher: Hasher, is_ordered: bool) -> Rows {
        let tracked: Box<[Tracked]> = (0..schema.columns.len())
            .map(|column| Tracked {
                column,
                is_unique: schema.columns[column].unique && column != schema.key,
                is_indexed: schema.columns[column].indexed,
            })
            .filter(|tracked| {
                let is_member = schema.unique_sets.iter().any(|set| set.contains(&tracked.column));
                tracked.is_unique || tracked.is_indexed || is_member
            })
            .collect();
        let place = |column: &usize| tracked.iter().position(|tracked| tracked.column == *column);
        let sets = schema.unique_sets.iter().enumerate();
        let unique_sets: Box<[UniqueSet]> = sets
            .map(|(index, set)| UniqueSet {
                rule: schema.columns.len() + index,
                members: set.iter().filter_map(place).collect(),
            })
            .collect();
        Rows {
            schema,
            budget,
            hasher,
            counters: Counters::new(),
            unique: Unique::new(),
            has_unique: !unique_sets.is_empty() || tracked.iter().any(|tracked| tracked.is_unique),
            tracked,
            unique_sets,
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(Shard::new(is_ordered)))).collect(),
            lengths: Padded(std::array::from_fn(|_| AtomicU32::new(0))),
            length_bound: AtomicU32::new(1),
            total: AtomicU64::new(0),
            membership: AtomicU64::new(0),
            tombstones: AtomicUsize::new(0),
            highest_key: AtomicI64::new(0),
            drained: AtomicU64::new(0),
            lost_behind: AtomicU64::new(u64::MAX),
            began: AtomicU64::new(0),
            seen: AtomicU64::new(u64::MAX),
        }
    }

    pub fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    pub fn is_tracked(&self, column: usize) -> bool {
        self.tracked.iter().any(|tracked| tracked.column == column)
    }

    pub fn is_indexed(&self, column: usize) -> bool {
        self.tracked.iter().any(|tracked| tracked.column == column && tracked.is_indexed)
    }

    /// The tracked columns: number, unique, indexed.
    pub fn tracked(&self) -> impl Iterator<Item = (usize, bool, bool)> {
        self.tracked.iter().map(|tracked| (tracked.column, tracked.is_unique, tracked.is_indexed))
    }

    /// The number of rows, and the position of the last insert or delete.
    pub fn count(&self) -> (u64, Position) {
        // The order matters: a writer stores the position before the total that includes its change.
        let total = self.total.load(Ordering::Acquire);
        (total, Position(self.membership.load(Ordering::Acquire)))
    }

    /// Fingerprints of a row's tracked columns.
    pub fn fingerprints(&self, row: RowRef<'_>) -> Fingerprints {
        let mut fingerprints = Fingerprints::new();
        let mut tracked = self.tracked.iter().peekable();
        if tracked.peek().is_none() {
            return fingerprints;
        }
        for (column, value) in row.values(&self.schema).enumerate() {
            match tracked.peek() {
                Some(next) if next.column == column => {
                    fingerprints.push(self.hasher.fingerprint(column, value));
                    tracked.next();
                }
                Some(_) => {}
                None => break,
            }
        }
        fingerprints
    }

    /// Fingerprints of a slot's row, which may be a stub.
    pub fn fingerprints_of(&self, slot: &Slot) -> Fingerprints {
        if !slot.has(EVICTED) {
            return self.fingerprints(RowRef(&slot.bytes));
        }
        let (_, rest) = split_key(&slot.bytes).expect("a stub begins with its key");
        rest.as_chunks::<16>().0.iter().map(|bytes| Fingerprint::from_le_bytes(*bytes)).collect()
    }

    /// The fingerprints of a row after some of its columns have changed.
    pub fn fingerprints_changed(
        &self,
        before: &[Fingerprint],
        changes: &[(usize, ValueRef<'_>)],
    ) -> Fingerprints {
        let tracked = self.tracked.iter().enumerate();
        let changed = tracked.map(|(index, tracked)| {
            let change = changes.iter().rev().find(|(column, _)| *column == tracked.column);
            change.map_or(before[index], |(column, value)| self.hasher.fingerprint(*column, *value))
        });
        changed.collect()
    }

    /// The fingerprints of a row of which nothing is known: [`NO_VALUE`] for each tracked column.
    pub fn no_fingerprints(&self) -> Fingerprints {
        SmallVec::from_elem(NO_VALUE, self.tracked.len())
    }

    /// Replaces a slot's row by a stub with these fingerprints.
    pub fn replace_by_stub(&self, shard: &mut Shard, number: u32, fingerprints: &[Fingerprint]) {
        let slot = shard.slots.get(number);
        let stub = self.stub(key_of(slot, &self.schema), fingerprints);
        self.budget.resize(allocated_bytes(slot.bytes.len()), allocated_bytes(stub.len()));
        let slot = shard.slots.get_mut(number);
        slot.bytes = stub;
        slot.set(EVICTED);
    }

    /// The stub of an evicted row: its key as in a log record, then its fingerprints, 16 bytes each.
    pub fn stub(&self, key: KeyRef<'_>, fingerprints: &[Fingerprint]) -> Box<[u8]> {
        let mut stub = Vec::with_capacity(32 + 16 * fingerprints.len());
        put_key(key, &mut stub);
        for fingerprint in fingerprints {
            stub.extend_from_slice(&fingerprint.to_le_bytes());
        }
        stub.into_boxed_slice()
    }

    /// Bytes of the stub of a row with this key.
    pub fn stub_bytes(&self, key: KeyRef<'_>) -> usize {
        let key = match key {
            KeyRef::Bigint(_) => 8,
            KeyRef::Uuid(_) => 16,
            KeyRef::Text(text) => 4 + text.len(),
        };
        1 + key + 16 * self.tracked.len()
    }

    fn recount(&self, before: &[Fingerprint], after: &[Fingerprint], position: Position) {
        for (index, tracked) in self.tracked.iter().enumerate() {
            if tracked.is_indexed {
                self.counters.change(nth(before, index), nth(after, index), position, &self.budget);
            }
        }
    }

    /// The number of rows with a value in an indexed column, and the position of that number's last change.
    pub fn count_by(&self, column: usize, value: ValueRef<'_>) -> (u64, Position) {
        match self.hasher.fingerprint(column, value) {
            NO_VALUE => (0, Position(0)),
            fingerprint => self.counters.get(fingerprint),
        }
    }

    /// Inserts a row into its locked shard; the caller has counted its bytes and its values.
    pub fn insert(&self, shard: &mut Shard, hash: KeyHash, slot: Slot) {
        let position = slot.position();
        if shard.has_tombstones() {
            shard.settle(key_of(&slot, &self.schema), &self.budget);
        }
        shard.insert(&self.schema, hash, slot, &self.budget);
        self.joined_or_left(hash, shard.slots.len(), position, 1);
    }

    /// Replaces the row in a slot of a locked shard by another with the same key; the caller has exchanged
    /// the values.
    pub fn set(&self, shard: &mut Shard, slot: u32, row: RowRef<'_>, position: Position) {
        let slot = shard.slots.get_mut(slot);
        if slot.bytes.len() == row.0.len() {
            slot.bytes.copy_from_slice(row.0);
        } else {
            self.budget.resize(allocated_bytes(slot.bytes.len()), allocated_bytes(row.0.len()));
            slot.bytes = row.0.into();
        }
        slot.changed(position, REFERENCED);
    }

    /// Removes a row from its locked shard, and releases its bytes. The caller has freed its values.
    pub fn remove(&self, shard: &mut Shard, hash: KeyHash, slot: u32, position: Position) {
        shard.remove(&self.schema, &self.hasher, hash, slot, &self.budget);
        self.joined_or_left(hash, shard.slots.len(), position, -1);
    }

    fn joined_or_left(&self, hash: KeyHash, length: u32, position: Position, change: i64) {
        self.lengths.0[hash.shard()].store(length, Ordering::Relaxed);
        if length > self.length_bound.load(Ordering::Relaxed) {
            self.length_bound.fetch_max(length.next_power_of_two(), Ordering::Relaxed);
        }
        self.membership.fetch_max(position.0, Ordering::Release);
        self.total.fetch_add(change as u64, Ordering::Release);
    }

    /// Raises the highest key to a key that came from the database or the log.
    pub fn saw_key(&self, key: KeyRef<'_>) {
        if let KeyRef::Bigint(key) = key
            && key > self.highest_key.load(Ordering::Relaxed)
        {
            self.saw_number(key);
        }
    }

    /// [`Rows::saw_key`] for a bigint.
    pub fn saw_number(&self, key: i64) {
        self.highest_key.fetch_max(key, Ordering::Relaxed);
    }

    /// The highest bigint key that came from the database or the log; 0 when there was none.
    pub fn highest_key(&self) -> i64 {
        self.highest_key.load(Ordering::Relaxed)
    }

    /// Leaves a tombstone for a key that is not in memory.
    pub fn bury(&self, shard: &mut Shard, key: KeyRef<'_>, position: Position, absence: Absence) {
        self.tombstones.fetch_add(1, Ordering::Relaxed);
        shard.bury(key, Tombstone { position, absence }, &self.budget);
    }

    /// Forgets tombstones at or before `floor`.
    pub fn forget(&self, floor: Position) {
        if self.tombstones.load(Ordering::Relaxed) == 0 {
            return;
        }
        for shard in 0..SHARDS {
            let forgotten = self.lock(shard).forget(floor, &self.budget);
            self.tombstones.fetch_sub(forgotten, Ordering::Relaxed);
        }
    }

    /// The locked shard and slot of a random row, each row equally likely; `None` when there is no row.
    ///
    /// It draws a shard and a number below the bound of all lengths, until the number is below the shard's
    /// length: rows are then equally likely, whatever the lengths. When most rows were deleted, the bound is
    /// far above the lengths; after `RANDOM_DRAWS` draws it walks the lengths instead.
    pub fn random(&self) -> Option<(MutexGuard<'_, Shard>, u32)> {
        loop {
            for _ in 0..RANDOM_DRAWS {
                let bits: u64 = rand::random();
                let mask = self.length_bound.load(Ordering::Relaxed) - 1;
                let (shard, slot) = (bits as usize % SHARDS, (bits >> 32) as u32 & mask);
                if slot < self.lengths.0[shard].load(Ordering::Relaxed)
                    && let Some(found) = self.slot_in(shard, slot)
                {
                    return Some(found);
                }
            }
            let lengths: [u32; SHARDS] =
                std::array::from_fn(|shard| self.lengths.0[shard].load(Ordering::Relaxed));
            let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
            if total == 0 {
                return None;
            }
            let mut number = rand::random_range(0..total);
            for (shard, &length) in lengths.iter().enumerate() {
                if number < u64::from(length) {
                    if let Some(found) = self.slot_in(shard, number as u32) {
                        return Some(found);
                    }
                    break;
                }
                number -= u64::from(length);
            }
        }
    }

    /// The slot, unless the shard has become shorter.
    fn slot_in(&self, shard: usize, slot: u32) -> Option<(MutexGuard<'_, Shard>, u32)> {
        let shard = self.lock(shard);
        (slot < shard.slots.len()).then_some((shard, slot))
    }

    /// All of the table's changes at or before this are durable in the database.
    pub fn drained(&self) -> Position {
        Position(self.drained.load(Ordering::SeqCst))
    }

    pub fn set_drained(&self, position: Position) {
        if self.drained.fetch_max(position.0, Ordering::SeqCst) <= position.0 {
            self.lost_behind.store(u64::MAX, Ordering::SeqCst);
        }
    }

    /// Whether the database has lost changes when it has those up to `reached`, and this is not known yet.
    pub fn has_lost_behind(&self, reached: Position) -> bool {
        reached < self.drained() && reached.0 < self.lost_behind.load(Ordering::SeqCst)
    }

    /// The rows of what the database has lost behind `reached` are to be read again.
    pub fn set_lost_behind(&self, reached: Position) {
        self.lost_behind.store(reached.0, Ordering::SeqCst);
    }

    /// The start read the rows from the database, or from a checkpoint, with all changes up to here.
    pub fn set_began(&self, position: Position) {
        self.began.store(position.0, Ordering::SeqCst);
    }

    /// Up to here the log may not say what the database has refused.
    pub fn began(&self) -> Position {
        Position(self.began.load(Ordering::SeqCst))
    }

    /// The table is followed, and no poll has been applied yet.
    pub fn begin_seeing(&self) {
        self.seen.store(0, Ordering::SeqCst);
    }

    pub fn set_seen(&self, position: Position) {
        self.seen.fetch_max(position.0, Ordering::SeqCst);
    }

    /// Rows whose last change is at or before this may be evicted: the database has it, and every later image
    /// of the row contains it.
    pub fn evictable(&self) -> Position {
        self.drained().min(Position(self.seen.load(Ordering::SeqCst)))
    }

    /// Forgets everything and returns true; returns false when that would lose a change after `drained`.
    pub fn clear(&self, drained: Position) -> bool {
        let mut shards: Vec<_> = (0..SHARDS).map(|shard| self.lock(shard)).collect();
        if shards.iter().any(|shard| shard.has_undrained(drained)) {
            return false;
        }
        for shard in &mut shards {
            shard.clear(&self.budget);
        }
        self.unique.clear(&self.budget);
        self.counters.clear(&self.budget);
        for length in &self.lengths.0 {
            length.store(0, Ordering::Relaxed);
        }
        self.length_bound.store(1, Ordering::Relaxed);
        self.tombstones.store(0, Ordering::Relaxed);
        self.highest_key.store(0, Ordering::Relaxed);
        self.total.store(0, Ordering::Release);
        true
    }
}

impl Rows {
    /// Forgets everything, before anything is served.
    pub fn clear_all(&self) {
        let is_cleared = self.clear(Position::MAX);
        debug_assert!(is_cleared, "no change lies behind all positions");
    }
}

fn nth(fingerprints: &[Fingerprint], index: usize) -> Fingerprint {
    fingerprints.get(index).copied().unwrap_or(NO_VALUE)
}
