//! Operations of a followed table that the database does not have yet, by key. They are folded over each
//! image of the row.
//!
//! Values are not stored. An operation is pending when its position lies behind the image's, so the pending
//! operations are always the last ones: if one of them set a column, the column's value in memory is the one
//! that it set. The write of a whole row needs no entry: a row without an entry whose position lies behind
//! the image's was written as a whole.
//!
//! Only of additions does each one count. Neighbouring additions to a column are merged when a key has too
//! many operations. An image whose position falls between merged additions cannot be folded; it is skipped,
//! and the row is read again.

use crate::embedded::budget::{Budget, allocated_bytes};
use crate::hash::KeyHash;
use crate::key::{Key, KeyRef};
use crate::limits::{PENDING_ADDS_MAX, PENDING_ADDS_TIGHT};
use forebay_log::Position;
use hashbrown::HashTable;
use smallvec::SmallVec;

/// The operation before the changes of single columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    /// The whole row was written: the row in memory counts, whatever the image shows.
    Whole,
    /// The row was deleted.
    Deleted,
}

/// The pending operations of a key.
#[derive(Debug)]
pub(crate) struct Pending {
    reset: Option<(Position, Reset)>,
    ops: Vec<Op>,
    /// When set, memory does not know what the row is: only an image that contains everything up to this
    /// position decides it.
    unknown: Option<Position>,
    /// The position of the last operation.
    last: Position,
    /// Whether the row is to be read again when no operation is pending.
    read_again: bool,
}

#[derive(Debug, Clone, Copy)]
struct Op {
    /// The position of the first of the operations that were merged into this one.
    first: Position,
    last: Position,
    column: u16,
    change: Change,
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Set,
    Add(i64),
}

impl Change {
    /// Merges two additions into one, if their sum fits.
    fn plus(self, later: Change) -> Option<Change> {
        match (self, later) {
            (Change::Add(sum), Change::Add(delta)) => sum.checked_add(delta).map(Change::Add),
            _ => None,
        }
    }
}

/// Where the value of one column of an image comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    /// It comes from the image.
    Image,
    /// It comes from the row in memory.
    Memory,
    /// It is the image's value plus this sum.
    Add(i128),
}

impl Pending {
    fn new() -> Pending {
        Pending { reset: None, ops: Vec::new(), unknown: None, last: Position(0), read_again: false }
    }

    pub fn reset(&self) -> Option<Reset> {
        self.reset.map(|(_, reset)| reset)
    }

    /// Whether memory does not know what the row is.
    pub fn is_unknown(&self) -> bool {
        self.unknown.is_some()
    }

    pub fn last(&self) -> Position {
        self.last
    }

    /// Whether an image at `at` lies between operations that were merged.
    pub fn is_between(&self, at: Position) -> bool {
        self.ops.iter().any(|op| op.first <= at && at < op.last)
    }

    /// Where the value of a column comes from.
    pub fn fold(&self, column: usize) -> Fold {
        let mut sum = 0i128;
        let mut is_added = false;
        for op in self.ops.iter().filter(|op| usize::from(op.column) == column) {
            match op.change {
                Change::Set => return Fold::Memory,
                Change::Add(delta) => (sum, is_added) = (sum + i128::from(delta), true),
            }
        }
        if is_added { Fold::Add(sum) } else { Fold::Image }
    }

    /// Has the row read again when no operation is pending.
    pub fn read_again(&mut self) {
        self.read_again = true;
    }

    /// Forgets the operations that the database has. Returns whether none is pending.
    fn pop(&mut self, at: Position) -> bool {
        if self.last <= at {
            return true;
        }
        self.reset = self.reset.filter(|(position, _)| *position > at);
        self.ops.retain(|op| op.last > at);
        self.unknown = self.unknown.filter(|position| *position > at);
        false
    }

    fn set(&mut self, column: u16, position: Position) {
        self.ops.retain(|op| op.column != column);
        self.push(Op { first: position, last: position, column, change: Change::Set });
    }

    fn add(&mut self, column: u16, delta: i64, position: Position, adds_max: usize) {
        if self.ops.len() >= adds_max {
            self.merge();
        }
        self.push(Op { first: position, last: position, column, change: Change::Add(delta) });
    }

    fn push(&mut self, op: Op) {
        if self.ops.capacity() == 0 {
            self.ops.reserve_exact(1);
        }
        self.ops.push(op);
    }

    /// Merges pairs of neighbouring additions to the same column.
    fn merge(&mut self) {
        let mut merged: Vec<Op> = Vec::with_capacity(self.ops.len() / 2 + 1);
        // For each column, the index in `merged` of an addition that has no partner yet.
        let mut halves: SmallVec<[(u16, usize); 4]> = SmallVec::new();
        for op in self.ops.drain(..) {
            let half = halves.iter().position(|(column, _)| *column == op.column);
            let half = half.map(|half| halves.swap_remove(half).1);
            match half.and_then(|half| Some((half, merged[half].change.plus(op.change)?))) {
                Some((half, sum)) => (merged[half].last, merged[half].change) = (op.last, sum),
                None => {
                    if matches!(op.change, Change::Add(_)) {
                        halves.push((op.column, merged.len()));
                    }
                    merged.push(op);
                }
            }
        }
        self.ops = merged;
    }

    fn heap_bytes(&self) -> usize {
        allocated_bytes(self.ops.capacity() * size_of::<Op>())
    }
}

#[derive(Debug)]
struct PendingRow {
    hash: u32,
    key: Key,
    pending: Pending,
}

impl PendingRow {
    fn heap_bytes(&self) -> usize {
        let key = if let Key::Text(text) = &self.key { allocated_bytes(text.len()) } else { 0 };
        key + self.pending.heap_bytes()
    }
}

/// The pending operations of all keys of a shard.
#[derive(Debug, Default)]
pub(crate) struct Pendings {
    entries: HashTable<PendingRow>,
    /// The position of the last operation of any key.
    end: Position,
    /// The position from which on a sweep pays: the database then has half of what was pending at the last
    /// one.
    sweep_at: Position,
}

impl Pendings {
    /// The pending operations of a key, when the database has everything up to `at`.
    pub fn left(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        at: Position,
        budget: &Budget,
    ) -> Option<&mut Pending> {
        if self.entries.is_empty() {
            return None;
        }
        let entry = self.entries.find_mut(hash.spread(), |entry| entry.is(hash, key))?;
        let before = entry.heap_bytes();
        if entry.pending.pop(at) {
            self.remove(hash, key, budget);
            return None;
        }
        budget.resize(before, entry.heap_bytes());
        self.entries.find_mut(hash.spread(), |entry| entry.is(hash, key)).map(|entry| &mut entry.pending)
    }

    /// The position of the last operation of a key that has an entry.
    pub fn last(&self, hash: KeyHash, key: KeyRef<'_>) -> Option<Position> {
        self.entries.find(hash.spread(), |entry| entry.is(hash, key)).map(|entry| entry.pending.last)
    }

    /// The whole row was written: earlier operations no longer count, and the row's position replaces the
    /// entry.
    pub fn whole(&mut self, hash: KeyHash, key: KeyRef<'_>, budget: &Budget) {
        if !self.entries.is_empty() {
            self.remove(hash, key, budget);
        }
    }

    /// The whole row was written, or deleted.
    pub fn reset(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        position: Position,
        reset: Reset,
        budget: &Budget,
    ) {
        self.change(hash, key, position, budget, |pending, _| {
            (pending.reset, pending.ops) = (Some((position, reset)), Vec::new());
            pending.unknown = None;
        });
    }

    /// Memory no longer knows the row. Its operations up to `position` stay pending, with `columns` set at
    /// `position`. `whole` as in [`Pendings::set`].
    pub fn lose(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        whole: Option<Position>,
        columns: impl Iterator<Item = usize>,
        position: Position,
        budget: &Budget,
    ) {
        self.set(hash, key, whole, columns, position, budget);
        self.change(hash, key, position, budget, |pending, _| pending.unknown = Some(position));
    }

    /// Columns were set. `whole` is the position of the row if it was written as a whole and the database
    /// does not have that write yet.
    pub fn set(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        whole: Option<Position>,
        columns: impl Iterator<Item = usize>,
        position: Position,
        budget: &Budget,
    ) {
        self.change(hash, key, position, budget, |pending, is_new| {
            pending.reset = pending.reset.or(whole.filter(|_| is_new).map(|at| (at, Reset::Whole)));
            columns.for_each(|column| pending.set(number(column), position));
        });
    }

    /// A column was incremented. `whole` as in [`Pendings::set`].
    pub fn add(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        whole: Option<Position>,
        (column, delta): (usize, i64),
        position: Position,
        budget: &Budget,
    ) {
        let is_tight = budget.is_reached();
        let adds_max = if is_tight { PENDING_ADDS_TIGHT } else { PENDING_ADDS_MAX };
        self.change(hash, key, position, budget, |pending, is_new| {
            pending.reset = pending.reset.or(whole.filter(|_| is_new).map(|at| (at, Reset::Whole)));
            pending.add(number(column), delta, position, adds_max);
        });
    }

    fn change(
        &mut self,
        hash: KeyHash,
        key: KeyRef<'_>,
        position: Position,
        budget: &Budget,
        change: impl FnOnce(&mut Pending, bool),
    ) {
        self.end = self.end.max(position);
        if let Some(entry) = self.entries.find_mut(hash.spread(), |entry| entry.is(hash, key)) {
            let before = entry.heap_bytes();
            change(&mut entry.pending, false);
            entry.pending.last = entry.pending.last.max(position);
            budget.resize(before, entry.heap_bytes());
            return;
        }
        let mut entry = PendingRow { hash: hash.low(), key: key.to_owned(), pending: Pending::new() };
        change(&mut entry.pending, true);
        entry.pending.last = position;
        budget.take(entry.heap_bytes());
        let before = self.entries.allocation_size();
        self.entries.insert_unique(hash.spread(), entry, |entry| KeyHash::spread_low(entry.hash));
        budget.resize(before, self.entries.allocation_size());
    }

    fn remove(&mut self, hash: KeyHash, key: KeyRef<'_>, budget: &Budget) {
        if let Ok(entry) = self.entries.find_entry(hash.spread(), |entry| entry.is(hash, key)) {
            let (entry, _) = entry.remove();
            budget.give(entry.heap_bytes());
        }
    }

    /// Forgets the operations that the database has, when that pays. Returns the keys to be read again.
    pub fn sweep(&mut self, at: Position, budget: &Budget) -> Vec<Key> {
        let mut again = Vec::new();
        if self.entries.is_empty() || at < self.sweep_at {
            return again;
        }
        let mut change = 0isize;
        self.entries.retain(|entry| {
            let before = entry.heap_bytes();
            let is_done = entry.pending.pop(at);
            if is_done && entry.pending.read_again {
                again.push(entry.key.clone());
            }
            let after = if is_done { 0 } else { entry.heap_bytes() };
            change += after as isize - before as isize;
            !is_done
        });
        budget.resize(change.min(0).unsigned_abs(), change.max(0).unsigned_abs());
        if self.entries.is_empty() {
            budget.give(self.entries.allocation_size());
            self.entries = HashTable::new();
        }
        self.sweep_at = Position(at.0 + self.end.0.saturating_sub(at.0).div_ceil(2));
        again
    }

    /// The keys whose rows are to be read again when no operation is pending.
    pub fn to_read_again(&self) -> impl Iterator<Item = &Key> {
        self.entries.iter().filter(|entry| entry.pending.read_again).map(|entry| &entry.key)
    }

    /// Forgets everything.
    pub fn clear(&mut self, budget: &Budget) {
        let heap: usize = self.entries.iter().map(PendingRow::heap_bytes).sum();
        budget.give(heap + self.entries.allocation_size());
        *self = Pendings::default();
    }
}

impl PendingRow {
    fn is(&self, hash: KeyHash, key: KeyRef<'_>) -> bool {
        self.hash == hash.low() && self.key.as_ref() == key
    }
}

fn number(column: usize) -> u16 {
    u16::try_from(column).expect("a table has no 65,536 columns: opening refuses it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn delta() -> impl Strategy<Value = i64> {
        prop_oneof![19 => -9i64..9, 1 => Just(i64::MAX)]
    }

    proptest! {
        /// Additions to two columns, some set columns between them, merged repeatedly: an image is folded as
        /// if none had been merged, or is not folded.
        #[test]
        fn merged_additions_add_up(
            ops in proptest::collection::vec((0u16..2, proptest::option::weighted(0.9, delta())), 1..60),
            at in 0u64..60,
        ) {
            let mut pending = Pending::new();
            for (position, (column, delta)) in (1..).map(Position).zip(&ops) {
                match delta {
                    Some(delta) => pending.add(*column, *delta, position, 6),
                    None => pending.set(*column, position),
                }
                pending.last = position;
            }
            // Two additions whose sum does not fit stay two.
            let large = ops.iter().filter(|(_, delta)| *delta == Some(i64::MAX)).count();
            prop_assert!(pending.ops.len() <= 8 + large, "{pending:?}");
            let is_done = pending.pop(Position(at));
            prop_assert_eq!(is_done, at >= ops.len() as u64);
            if is_done || pending.is_between(Position(at)) {
                return Ok(());
            }
            for column in 0..2 {
                let mut expected = Fold::Image;
                for (_, (_, delta)) in (1..).zip(&ops).filter(|(number, (other, _))| *number > at && *other == column) {
                    expected = match (expected, delta) {
                        (Fold::Memory, _) | (_, None) => Fold::Memory,
                        (Fold::Add(sum), Some(delta)) => Fold::Add(sum + i128::from(*delta)),
                        (Fold::Image, Some(delta)) => Fold::Add((*delta).into()),
                    };
                }
                prop_assert_eq!(pending.fold(usize::from(column)), expected);
            }
        }
    }
}
