//! Eviction: giving up the bodies of rows that the database has, when the memory limit is reached.
//!
//! A clock over all shards of all tables: a row that was read since the hand last passed is spared once.
//! Only rows whose last change is drained (and seen in the database, when tables are followed) can go, and
//! none that an intent is about; what stays of one is its stub. It runs in the request that needs the room,
//! one at a time, with one shard locked at a time.
//!
//! **Cost.** Rows drain in the order in which they were written, which is roughly the order of their slots,
//! so the hand rests where the undrained ones begin and each visit is short. When the visits yield nothing,
//! everything is looked at twice; and if that yields nothing either, it is done again only when half of
//! what was undrained then has been drained, or enough rows have been read back: otherwise each insert into
//! a full memory would walk through all of it. Between, an insert may be refused although some row could
//! go; it is told to come back, and the drain makes room.

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

/// What a visit of a shard looked for, and how far it may go.
struct Visit {
    drained: Position,
    want_bytes: usize,
    slots_max: u32,
    run_max: u32,
}

/// What it found.
#[derive(Default)]
struct Found {
    freed_bytes: usize,
    /// Rows that were spared because they had been read.
    spared: u32,
    seen: u32,
}

impl Core {
    /// Reserves memory for a row of so many bytes, evicting others when the limit is reached. No shard may be
    /// locked by the caller.
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

    /// Evicts about `want_bytes`; false when nothing went.
    fn evict(&self, evictor: &mut Evictor, want_bytes: usize) -> bool {
        let Some(tables) = self.rows.get() else {
            return false;
        };
        let now = (self.evictable(), self.fetched_rows.load(Ordering::Relaxed));
        if evictor.barren == Some(now) {
            return false;
        }
        // Twice: the first round may only find rows that were read.
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

    /// Visits each shard once, until enough is free.
    fn round(&self, evictor: &mut Evictor, tables: &[Arc<Rows>], want_bytes: usize) -> Found {
        let mut total = Found::default();
        for _ in 0..tables.len() * SHARDS {
            let turn = evictor.turn % (tables.len() * SHARDS);
            evictor.turn = turn + 1;
            let visit = Visit {
                drained: self.evictable(),
                want_bytes: want_bytes - total.freed_bytes,
                slots_max: EVICT_VISIT_SLOTS,
                run_max: EVICT_RUN_SLOTS,
            };
            let rows = &tables[turn / SHARDS];
            let found = visit.run(rows, &mut rows.lock(turn % SHARDS));
            total.freed_bytes += found.freed_bytes;
            total.spared += found.spared;
            if total.freed_bytes >= want_bytes {
                break;
            }
        }
        total
    }

    /// Looks at every row twice, unless that was in vain not long ago.
    fn search(&self, evictor: &mut Evictor, tables: &[Arc<Rows>], want_bytes: usize) -> bool {
        let drained = self.evictable();
        if let Some(searched) = &evictor.searched {
            let fetched = self.fetched_rows.load(Ordering::Relaxed) - searched.fetched_rows;
            let is_worth_it = drained >= searched.again_at
                || fetched.saturating_mul(EVICT_SCAN_SLOTS_PER_ROW) >= searched.slots.max(1);
            if !is_worth_it {
                return false;
            }
        }
        let fetched_rows = self.fetched_rows.load(Ordering::Relaxed);
        let end = self.log.end().0.max(drained.0);
        let mut slots = 0;
        for rows in tables {
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
        // One more than half: when nothing was undrained, something must change first.
        let again_at = Position(drained.0 + (end - drained.0) / 2 + 1);
        evictor.searched = Some(Searched { again_at, slots, fetched_rows });
        false
    }
}

impl Visit {
    /// Moves the shard's hand on.
    fn run(&self, rows: &Rows, shard: &mut Shard) -> Found {
        let mut found = Found::default();
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
                    // Back to where they began: that is what drains next.
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

/// Leaves a stub; how many bytes that freed, 0 when the stub would be as large.
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
