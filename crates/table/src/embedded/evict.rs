//! Eviction: dropping the bodies of rows that the database has, when the memory limit is reached.
//!
//! A clock over all shards of all tables: a row that was read since the hand last passed is spared once. Only
//! rows whose last change is drained (and was contained in a poll, when tables are followed) can be evicted,
//! and no row with an intent under way; the stub stays in memory. Eviction runs in the request that needs the
//! room, in one request at a time, with one shard locked at a time.
//!
//! **Cost.** Rows drain in the order in which they were written, which is roughly the order of their slots,
//! so the hand rests where the undrained rows begin and each visit is short. When the visits free nothing, a
//! search looks at every row twice. If the search frees nothing either, it is repeated only when half of what
//! was undrained then has been drained, or enough rows have been read back: otherwise each insert into a full
//! memory would scan all rows. In between, an insert may be refused although some row could be evicted; the
//! client may retry, and the drain makes room.

use super::budget::allocated_bytes;
use super::core::{Charge, Core, Evictor, Searched};
use super::error::WriteError;
use super::rows::Rows;
use super::shard::{Shard, key_of};
use super::slab::{EVICTED, REFERENCED};
use crate::limits::{EVICT_AHEAD_PART, EVICT_RUN_SLOTS, EVICT_SCAN_SLOTS_PER_ROW, EVICT_VISIT_SLOTS, SHARDS};
use forebay_log::Position;
use forebay_value::RowRef;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The limits of a visit to a shard.
struct Visit {
    drained: Position,
    want_bytes: usize,
    slots_max: u32,
    run_max: u32,
}

/// The result of visits.
#[derive(Default)]
struct VisitResult {
    freed_bytes: usize,
    /// Rows that were spared because they had been read.
    spared: u32,
    seen: u32,
}

impl Core {
    /// Reserves memory for a row of `row_bytes`, evicting others when the limit is reached. The caller must
    /// not hold a shard's lock.
    pub fn reserve(&self, row_bytes: usize) -> Result<Charge<'_>, WriteError> {
        if let Some(charge) = self.try_reserve(row_bytes) {
            return Ok(charge);
        }
        let bytes = allocated_bytes(row_bytes);
        self.make_room(bytes).then(|| self.taken(bytes)).ok_or(WriteError::MemoryFull)
    }

    /// Takes `bytes` from the budget, evicting rows until they fit. False: nothing is left to evict.
    pub fn make_room(&self, bytes: usize) -> bool {
        let mut evictor = self.evictor.lock();
        // Another thread may have made room while this one waited.
        while !self.budget.try_take(bytes) {
            let over = (self.budget.used_bytes() + bytes as u64).saturating_sub(self.budget.limit_bytes());
            let ahead = self.budget.limit_bytes() / EVICT_AHEAD_PART;
            let want = usize::try_from(over + ahead).unwrap_or(usize::MAX);
            if !self.evict(&mut evictor, want) {
                return false;
            }
        }
        true
    }

    /// Evicts rows of about `want_bytes`; false when none could be evicted.
    fn evict(&self, evictor: &mut Evictor, want_bytes: usize) -> bool {
        let Some(tables) = self.rows.get() else {
            return false;
        };
        let sum = tables.iter().fold(0, |sum: u64, rows| sum.wrapping_add(rows.evictable().0));
        let now = (sum, self.fetched_rows.load(Ordering::Relaxed));
        if evictor.barren == Some(now) {
            return false;
        }
        // Two rounds, because the first may find only rows that were read.
        for _ in 0..2 {
            let found = self.round(evictor, tables, want_bytes);
            if found.freed_bytes > 0 {
                return true;
            }
            if found.spared == 0 {
                break;
            }
        }
        let is_found = self.search(evictor, tables, want_bytes);
        evictor.barren = (!is_found).then_some(now);
        is_found
    }

    /// Visits each shard once, until enough bytes are free.
    fn round(&self, evictor: &mut Evictor, tables: &[Arc<Rows>], want_bytes: usize) -> VisitResult {
        let mut total = VisitResult::default();
        for _ in 0..tables.len() * SHARDS {
            let turn = evictor.turn % (tables.len() * SHARDS);
            evictor.turn = turn + 1;
            let rows = &tables[turn / SHARDS];
            let visit = Visit {
                drained: rows.evictable(),
                want_bytes: want_bytes - total.freed_bytes,
                slots_max: EVICT_VISIT_SLOTS,
                run_max: EVICT_RUN_SLOTS,
            };
            let found = visit.run(rows, &mut rows.lock(turn % SHARDS));
            total.freed_bytes += found.freed_bytes;
            total.spared += found.spared;
            if total.freed_bytes >= want_bytes {
                break;
            }
        }
        total
    }

    /// Looks at every row twice, unless a recent search freed nothing.
    fn search(&self, evictor: &mut Evictor, tables: &[Arc<Rows>], want_bytes: usize) -> bool {
        // A stopped table stays behind the others.
        let most = tables.iter().map(|rows| rows.evictable()).max().unwrap_or_default();
        if let Some(searched) = &evictor.searched {
            let fetched = self.fetched_rows.load(Ordering::Relaxed) - searched.fetched_rows;
            let is_worth_it = most >= searched.again_at
                || fetched.saturating_mul(EVICT_SCAN_SLOTS_PER_ROW) >= searched.slots.max(1);
            if !is_worth_it {
                return false;
            }
        }
        let fetched_rows = self.fetched_rows.load(Ordering::Relaxed);
        let end = self.log.end().0.max(most.0);
        let mut slots = 0;
        for rows in tables {
            let drained = rows.evictable();
            for shard in 0..SHARDS {
                let mut left = rows.lock(shard).slots.len().saturating_mul(2);
                slots += u64::from(left) / 2;
                while left > 0 {
                    let visit =
                        Visit { drained, want_bytes, slots_max: EVICT_VISIT_SLOTS, run_max: u32::MAX };
                    let found = visit.run(rows, &mut rows.lock(shard));
                    if found.freed_bytes > 0 {
                        evictor.searched = None;
                        return true;
                    }
                    left = left.saturating_sub(found.seen.max(1));
                }
            }
        }
        // One more than half, so that when nothing was undrained, another search needs a later change.
        let again_at = Position(most.0 + (end - most.0) / 2 + 1);
        evictor.searched = Some(Searched { again_at, slots, fetched_rows });
        false
    }
}

impl Visit {
    /// Advances the shard's hand, and evicts rows that it passes.
    fn run(&self, rows: &Rows, shard: &mut Shard) -> VisitResult {
        let mut found = VisitResult::default();
        let mut run = 0;
        let length = shard.slots.len();
        while found.seen < self.slots_max.min(length) && found.freed_bytes < self.want_bytes {
            if shard.hand >= length {
                shard.hand = 0;
            }
            let number = shard.hand;
            shard.hand += 1;
            found.seen += 1;
            let slot = shard.slots.get(number);
            if slot.position() > self.drained {
                run += 1;
                if run >= self.run_max {
                    // Moves the hand back to the first undrained row, because that one drains next.
                    shard.hand = (number + 1).saturating_sub(run);
                    break;
                }
                continue;
            }
            run = 0;
            if slot.has(EVICTED) || shard.intents.last(key_of(slot, &rows.schema)).is_some() {
                continue;
            }
            if slot.has(REFERENCED) {
                shard.slots.get_mut(number).clear(REFERENCED);
                found.spared += 1;
                continue;
            }
            found.freed_bytes += evict_row(rows, shard, number);
        }
        found
    }
}

/// Replaces a row by its stub; returns the bytes freed, 0 when the stub would be as large as the row.
fn evict_row(rows: &Rows, shard: &mut Shard, number: u32) -> usize {
    let slot = shard.slots.get(number);
    let key = key_of(slot, &rows.schema);
    let before = allocated_bytes(slot.bytes.len());
    let after = allocated_bytes(rows.stub_bytes(key));
    if after >= before {
        return 0;
    }
    let stub = rows.stub(key, &rows.fingerprints(RowRef(&slot.bytes)));
    debug_assert_eq!(allocated_bytes(stub.len()), after);
    let slot = shard.slots.get_mut(number);
    slot.bytes = stub;
    slot.set(EVICTED);
    rows.budget.give(before - after);
    before - after
}
