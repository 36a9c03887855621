//! Listing: rows in the order of their keys, starting after any key.
//!
//! Each shard has its own ordered keys, so that inserts do not contend for one set; a list merges them,
//! reading a few keys of each shard at a time.

use super::slab::EVICTED;
use super::table::Table;
use crate::key::{Key, KeyRef};
use crate::limits::SHARDS;
use forebay_log::Position;
use forebay_value::{RowRef, Value, ValueRef};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

/// What a list found.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The position that an answer with these rows waits for.
    pub mark: Position,
    /// Keys of rows on this page that are not in memory: [`Table::fetch`] them, then list again. Empty when
    /// the page is whole.
    pub evicted: Vec<Value>,
    /// The last key of the page; the next page starts after it. `None` when the page is empty.
    pub last: Option<Value>,
}

/// The keys of one shard that were read and not merged yet.
struct ShardKeys {
    keys: std::vec::IntoIter<Key>,
    /// The last key read, when the shard may have more keys.
    more_after: Option<Key>,
}

struct Merge<'a> {
    table: &'a Table,
    runs: Vec<ShardKeys>,
    /// The first key of each run.
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    batch: usize,
    mark: Position,
}

impl Merge<'_> {
    fn read(&mut self, shard: usize, after: Option<Key>) -> ShardKeys {
        let locked = self.table.rows.lock(shard);
        // A key may be missing from the page because of a delete, so the page waits for the last one.
        self.mark = self.mark.max(locked.deleted);
        let ordered = locked.ordered.as_ref().expect("a table that is listed is ordered");
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let keys: Vec<Key> = ordered.range((from, Bound::Unbounded)).take(self.batch).cloned().collect();
        let more_after = if keys.len() == self.batch { keys.last().cloned() } else { None };
        ShardKeys { keys: keys.into_iter(), more_after }
    }

    fn advance(&mut self, shard: usize) {
        if let Some(key) = self.runs[shard].keys.next() {
            self.heads.push(Reverse((key, shard)));
        } else if let Some(after) = self.runs[shard].more_after.take() {
            self.runs[shard] = self.read(shard, Some(after));
            if let Some(key) = self.runs[shard].keys.next() {
                self.heads.push(Reverse((key, shard)));
            }
        }
    }

    fn next(&mut self) -> Option<Key> {
        let Reverse((key, shard)) = self.heads.pop()?;
        self.advance(shard);
        Some(key)
    }
}

impl Table {
    /// Shows up to `limit` rows after a key, or from the beginning, in order. Rows that are inserted or
    /// deleted meanwhile may or may not be on the page. `show` as in [`Table::get`]; once a row of the page
    /// was found to be evicted, no more are shown.
    ///
    /// # Panics
    /// When the table was not opened as ordered: what is configured must be checked at start.
    pub fn list(&self, after: Option<ValueRef<'_>>, limit: usize, mut show: impl FnMut(RowRef<'_>)) -> List {
        let after = after.and_then(KeyRef::of).map(KeyRef::to_owned);
        let mut merge = Merge {
            table: self,
            runs: Vec::with_capacity(SHARDS),
            heads: BinaryHeap::with_capacity(SHARDS),
            // More than one shard's average share, so that few runs must be read twice.
            batch: limit / SHARDS * 2 + 4,
            mark: Position(0),
        };
        for shard in 0..SHARDS {
            let run = merge.read(shard, after.clone());
            merge.runs.push(run);
            merge.advance(shard);
        }
        let mut list = List { mark: Position(0), evicted: Vec::new(), last: None };
        let mut rows = 0;
        while rows < limit
            && let Some(key) = merge.next()
        {
            if self.list_row(key.as_ref(), &mut list, &mut show) {
                rows += 1;
                list.last = Some(key.to_value());
            }
        }
        list.mark = list.mark.max(merge.mark);
        list
    }

    /// Adds one row to the list; false when the row was deleted meanwhile.
    fn list_row(&self, key: KeyRef<'_>, list: &mut List, show: &mut impl FnMut(RowRef<'_>)) -> bool {
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        let Some(number) = shard.find(self.schema(), hash, key) else {
            list.mark = list.mark.max(shard.deleted);
            return false;
        };
        let slot = shard.slots.get_mut(number);
        slot.set(super::slab::REFERENCED);
        if slot.has(EVICTED) {
            list.evicted.push(key.value().to_owned());
        } else if list.evicted.is_empty() {
            list.mark = list.mark.max(slot.position());
            show(RowRef(&slot.bytes));
        }
        true
    }
}
