//! Read-through: bringing a row from the database into memory, without ever replacing a newer state.
//!
//! **Why it cannot resurrect.** A reader of the database first notes the present drained position: the row
//! that it then reads contains every change up to there. (In a database that lost its last commits it does
//! not: the read finds a lower position beside the row, fails, and is retried.) The row is put into memory
//! only if the key's last change, in its slot or its tombstone, is at or before the noted position, and no
//! tombstone after that position is forgotten while a read is under way. Otherwise the read is repeated.
//!
//! **A followed table** is not read this way: the next poll reads the key (`follow`).
//!
//! **Bounds.** Single-flight: one read per key at a time, for all requests that wait for it. The number of
//! reads at the same time is limited, and so is the number that wait.

use super::shard::{Absence, Shard};
use super::slab::{EVICTED, REFERENCED, Slot};
use super::table::{Fetched, Table};
use crate::flights::Joined;
use crate::key::{Key, KeyRef};
use crate::limits::FETCH_TRIES;
use crate::reads::check_fetched;
use crate::source::{BoxFuture, SourceError};
use forebay_log::Position;
use forebay_value::{Row, Value};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What memory knows of a key without asking the database.
enum MemoryState {
    Present,
    Gone(Position),
    /// The row can be read once the database has everything up to this position.
    Behind(Position),
    Unknown,
}

/// The result of putting a row that was read into memory.
enum Installed {
    Present,
    Gone(Position),
    /// The key has changed since, so the row that was read may be older.
    Stale,
}

impl Table {
    /// Brings a row into memory from the database: an evicted one, or one of a shared table that is not in
    /// memory. May be dropped at any time.
    ///
    /// # Errors
    /// The source's; one that may be retried when too many reads wait, when the memory is full, and when the
    /// database does not have all increments of the row yet.
    pub fn fetch(&self, key: Value) -> BoxFuture<'static, Result<Fetched, SourceError>> {
        let table = self.this.upgrade().expect("a table lives in an Arc");
        Box::pin(async move {
            match KeyRef::of(key.as_ref()).map(KeyRef::to_owned) {
                Some(key) => table.fetch_once(&key).await,
                None => Ok(Fetched::Gone(Position(0))),
            }
        })
    }

    async fn fetch_once(&self, key: &Key) -> Result<Fetched, SourceError> {
        let mut gone = Position(0);
        for _ in 0..2 {
            let (passenger, joined) = self.flights.join(key);
            let result = passenger.flight.get_or_init(|| self.fly(key)).await.clone();
            drop(passenger);
            // A read that began before this call may have missed a row that the caller knows to exist; the
            // next read cannot.
            match result {
                Ok(Fetched::Gone(mark)) if joined == Joined::Later => gone = mark,
                result => return result,
            }
        }
        Ok(Fetched::Gone(gone))
    }

    async fn fly(&self, key: &Key) -> Result<Fetched, SourceError> {
        if let Some(follow) = &self.follow {
            return self.fetch_followed(follow, key).await;
        }
        for _ in 0..FETCH_TRIES {
            let since = match self.known(key.as_ref()) {
                MemoryState::Present => return Ok(Fetched::Present),
                MemoryState::Gone(mark) => return Ok(Fetched::Gone(mark)),
                MemoryState::Behind(position) if position > self.rows.drained() => {
                    let what = "the row has changes that the database does not have yet";
                    return Err(SourceError::later(what));
                }
                MemoryState::Behind(_) | MemoryState::Unknown => self.readers.begin(&self.rows),
            };
            let unknown_outcomes = self.intents.unknown_outcomes.load(Ordering::SeqCst);
            let permit = self.core.reads.enter().await?;
            let log = self.core.log.id().0;
            let read = self.core.source.fetch_at(self.schema(), key.to_value(), log, since.since).await;
            drop(permit);
            let why =
                read.as_ref().err().filter(|error| !error.retry).map(|error| Arc::from(&*error.message));
            self.unfit.note(key.as_ref(), why.as_ref());
            let row = read?;
            match self.install(key.as_ref(), row, since.since, unknown_outcomes)? {
                Installed::Present => return Ok(Fetched::Present),
                Installed::Gone(mark) => return Ok(Fetched::Gone(mark)),
                Installed::Stale => {}
            }
        }
        Err(SourceError::later("the row changed each time it was read"))
    }

    fn known(&self, key: KeyRef<'_>) -> MemoryState {
        let hash = self.rows.hasher.key(key);
        let shard = self.rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(slot) => match shard.slots.get(slot) {
                slot if slot.has(EVICTED) => MemoryState::Behind(slot.position()),
                _ => MemoryState::Present,
            },
            None => match shard.tombstone(key) {
                Some(tombstone) if tombstone.absence != Absence::Deleted => {
                    MemoryState::Behind(tombstone.position)
                }
                None if self.shared() => MemoryState::Unknown,
                Some(tombstone) => MemoryState::Gone(tombstone.position),
                None => MemoryState::Gone(shard.deleted),
            },
        }
    }

    /// Puts a row that was read into memory, unless memory knows a newer change, or the drain has passed an
    /// intent without an outcome since the count `unknown_outcomes` was taken: the read may be older than
    /// that intent.
    fn install(
        &self,
        key: KeyRef<'_>,
        row: Option<Row>,
        since: Position,
        unknown_outcomes: u64,
    ) -> Result<Installed, SourceError> {
        if let Some(row) = &row {
            check_fetched(self.schema(), key, row)?;
        }
        let row_bytes = row.as_ref().map_or(0, |row| row.0.len());
        let charge = self.core.reserve(row_bytes).map_err(|error| SourceError::later(error.to_string()))?;
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        let found = shard.find(self.schema(), hash, key);
        if self.intents.unknown_outcomes.load(Ordering::SeqCst) != unknown_outcomes {
            return Ok(Installed::Stale);
        }
        if row.is_some() && shard.intents.is_adding(key) {
            // The row that was read may contain an addition that memory applies again when its outcome is
            // known.
            return Ok(Installed::Stale);
        }
        if let Some(number) = found {
            let slot = shard.slots.get(number);
            if !slot.has(EVICTED) {
                return Ok(Installed::Present);
            }
            if slot.position() > since {
                return Ok(Installed::Stale);
            }
        } else if let Some(tombstone) = shard.tombstone(key)
            && tombstone.position > since
        {
            let is_deleted = tombstone.absence == Absence::Deleted;
            return Ok(if is_deleted { Installed::Gone(tombstone.position) } else { Installed::Stale });
        } else if !self.shared() && shard.tombstone(key).is_none() {
            return Ok(Installed::Gone(shard.deleted));
        }
        let Some(row) = row else {
            shard.settle(key, &self.rows.budget);
            self.drop_stub(&mut shard, found, key);
            return Ok(Installed::Gone(Position(0)));
        };
        let after = self.rows.fingerprints(row.as_ref());
        match found {
            Some(number) => {
                let slot = shard.slots.get(number);
                let position = slot.position();
                // In a shared table, others may have changed the row.
                self.rows.exchange_known(&self.rows.fingerprints_of(slot), &after, position);
                let slot = shard.slots.get_mut(number);
                self.rows.budget.give(super::budget::allocated_bytes(slot.bytes.len()));
                slot.bytes = row.0;
                slot.changed(position, REFERENCED);
            }
            None => {
                self.rows.exchange_known(&[], &after, Position(0));
                let mut slot = Slot::new(row.0, Position(0));
                slot.set(REFERENCED);
                self.rows.insert(&mut shard, hash, slot);
            }
        }
        charge.keep(&self.rows.budget);
        self.core.fetched_rows.fetch_add(1, Ordering::Relaxed);
        Ok(Installed::Present)
    }

    /// Removes a stub whose row the database no longer has, because others deleted it.
    fn drop_stub(&self, shard: &mut Shard, found: Option<u32>, key: KeyRef<'_>) {
        let Some(number) = found else {
            return;
        };
        let before = self.rows.fingerprints_of(shard.slots.get(number));
        self.rows.exchange_known(&before, &[], Position(0));
        self.rows.remove(shard, self.rows.hasher.key(key), number, Position(0));
    }
}
