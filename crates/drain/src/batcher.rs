//! The path of a batch, from whichever queue it comes: read, make one change a key, apply it with the position that it reaches, release.
//!
//! ```text
//! locate ─▶ prepare ─▶ coalesce ─▶ apply ─▶ committed ─▶ release
//!    ▲         ▲                     │
//!    │         ├── gave way ◀────────┤   smaller batches
//!    │         ├── refused ◀─────────┤   the same records uncoalesced, the refused ones to the dead letters
//!    │         └── refused again ◀───┤   half as many, until the guilty record is alone
//!    └──────────── away ◀────────────┘   after a pause
//! ```
//! Whatever goes wrong, the next batch begins by asking the database where it stands, and the records are read from there again: a crash or a
//! lost answer anywhere repeats nothing and skips nothing. When a batch may be taken, how long a small one waits for others and what a pace
//! allows is decided by the callers (`embedded`, `remote`).

use crate::Error;
use crate::coalesce::coalesce;
use crate::limits::*;
use crate::queue::{Limit, Place, Queue, RowKey, Schemas, Taken, replaced_while_open};
use forebay_database::{Applied, Batch, Change, Kind as DatabaseKind, OnError, Priority, Store};
use forebay_log::Position;
use std::time::Duration;

/// Takes batches from one queue into the database.
pub(crate) struct Batcher<Q> {
    pub queue: Q,
    database: Store,
    schemas: Schemas,
    rows_limit: usize,
    /// The size of the next batch, between the limits by how long the last one took.
    rows_now: usize,
    /// `None`: to be asked of the database.
    place: Option<Place>,
    /// The batch behind the one that the database was given last, or why there is none.
    ahead: Option<Result<Prepared, Error>>,
    /// A batch was refused: up to here the records are applied one by one.
    uncoalesced_until: Option<Position>,
    /// The last position that the database was known to have.
    confirmed: Option<Position>,
    /// The rows of a batch with refused changes whose commit is not known to have succeeded, and the position that it reaches.
    doubtful: Option<(Position, Vec<RowKey>)>,
}

/// A batch that is ready to be applied.
pub(crate) struct Prepared {
    /// `None`: the records do not add up to one change a key.
    changes: Option<Vec<Change>>,
    on_error: OnError,
    /// Records in it.
    pub rows: usize,
    /// Whether it may be joined by records that come later.
    pub has_room: bool,
    bytes: u64,
    to: Position,
    next: Position,
}

/// What became of a batch.
pub(crate) enum Outcome {
    /// It is in the database.
    Committed(Committed),
    /// To be tried again at once, smaller or one by one.
    Again,
    /// The position in the database is another drain's.
    Fenced(forebay_database::Error),
}

/// A batch that is in the database.
pub(crate) struct Committed {
    pub rows: usize,
    pub bytes: u64,
    /// After coalescing.
    pub changes: usize,
    pub dead: u64,
    /// Everything before it is in the database.
    pub drained: Position,
    /// Whether the queue has released it; false: another drain has the queue now.
    pub released: Result<bool, Error>,
}

impl<Q: Queue> Batcher<Q> {
    pub(crate) fn new(queue: Q, database: Store, rows_limit: usize) -> Batcher<Q> {
        let rows_limit = rows_limit.max(1);
        Batcher {
            queue,
            database,
            schemas: Schemas::default(),
            rows_limit,
            rows_now: rows_limit,
            place: None,
            ahead: None,
            uncoalesced_until: None,
            confirmed: None,
            doubtful: None,
        }
    }

    /// Everything before it is in the database, as far as is known.
    pub(crate) fn drained(&self) -> Option<Position> {
        self.place.map(|place| place.drained)
    }

    /// Has the database asked where it stands before anything else is done: after an error.
    pub(crate) fn forget_place(&mut self) {
        self.place = None;
        self.ahead = None;
    }

    /// Where the database stands: asks it, unless that is known.
    pub(crate) async fn locate(&mut self) -> Result<Place, Error> {
        if let Some(place) = self.place {
            return Ok(place);
        }
        let place = self.queue.locate(&self.database).await?;
        if let Some(before) = self.confirmed.filter(|before| place.stored.is_none_or(|now| now < *before)) {
            return Err(replaced_while_open(&self.database, before));
        }
        self.confirmed = place.stored;
        if let Some((to, rows)) = self.doubtful.take()
            && place.stored == Some(to)
        {
            self.queue.undo(rows).await;
        }
        self.uncoalesced_until = self.uncoalesced_until.filter(|until| *until > place.drained);
        self.place = Some(place);
        Ok(place)
    }

    /// The next batch, of no more rows than the pace allows at a time. Empty when there is nothing.
    pub(crate) async fn prepare(&mut self, pace: Option<f64>) -> Result<Prepared, Error> {
        let place = self.locate().await?;
        match self.ahead.take() {
            Some(prepared) => prepared,
            None => self.read(place.drained, Q::ROWS_FIRST, pace).await,
        }
    }

    /// There is no record in it. Not worth a commit: the database's position stays where it is, and the queue can be read from there again.
    /// Whether it reached further than what was known.
    pub(crate) fn pass(&mut self, empty: &Prepared) -> bool {
        let Some(place) = &mut self.place else { return false };
        let is_further = empty.next > place.drained;
        place.drained = place.drained.max(empty.next);
        is_further
    }

    /// Reads and coalesces what lies behind `after`.
    async fn read(&mut self, after: Position, rows_max: usize, pace: Option<f64>) -> Result<Prepared, Error> {
        let paced = pace.map_or(usize::MAX, |rows_per_s| (rows_per_s * PACE_SLICE_S) as usize);
        let limit = self.rows_now.min(paced).min(rows_max).max(1);
        let until = self.uncoalesced_until;
        let taken = self.queue.read_after(after, Limit { rows: limit, until }, &mut self.schemas).await?;
        let Taken { mut changes, bytes, to, next } = taken;
        let rows = changes.len();
        let (changes, on_error) = match until {
            Some(_) => (Some(changes), OnError::DeadLetter),
            None if self.schemas.mixes(&changes) => (None, OnError::Fail),
            None => (coalesce(&mut changes, &self.schemas.list), OnError::Fail),
        };
        Ok(Prepared { changes, on_error, rows, has_room: rows < limit, bytes, to, next })
    }

    /// Makes the next batch ready, when there is much behind the one in hand: at most twice as many rows, so that the database does not wait
    /// for a large one while a small one would do.
    async fn prepare_ahead(&mut self, rows: usize, next: Position, pace: Option<f64>) {
        if self.uncoalesced_until.is_some() || !self.queue.is_long_behind(next) {
            return;
        }
        let prepared = self.read(next, rows.saturating_mul(2).max(BATCH_ROWS_FIRST), pace).await;
        self.ahead = (!prepared.as_ref().is_ok_and(|prepared| prepared.rows == 0)).then_some(prepared);
    }

    /// Applies a batch, with the position that it reaches, in one transaction.
    pub(crate) async fn apply(&mut self, prepared: Prepared, pace: Option<f64>) -> Result<Outcome, Error> {
        let place = self.locate().await?;
        let Prepared { changes, on_error, rows, bytes, to, next, .. } = prepared;
        let Some(changes) = changes else {
            return Ok(self.one_by_one(to));
        };
        let count = changes.len();
        let priority = if rows <= BATCH_ROWS_MIN { Priority::Holds } else { Priority::Yields };
        let batch = Batch {
            log: self.queue.id(),
            from: place.stored.map(|position| position.0),
            to: to.0,
            schemas: self.schemas.list.clone(),
            changes,
            on_error,
            priority,
        };
        // Which of them are refused is in the answer, and the answer to a commit can be lost.
        let touched = (on_error == OnError::DeadLetter).then(|| rows_of(&batch));
        let database = self.database.clone();
        // Polled in this order: the batch is on its way before the next one is made ready.
        let ahead = self.prepare_ahead(rows, next, pace);
        let (applied, ()) = tokio::join!(biased; database.apply(batch), ahead);
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => {
                let is_unknown = matches!(error.kind(), DatabaseKind::UnknownOutcome);
                self.doubtful = touched.filter(|_| is_unknown).map(|touched| (to, touched));
                return self.refused(to, rows, error);
            }
        };
        self.committed(to, next, rows, &applied);
        if !applied.differing.is_empty() {
            let schemas = &self.schemas.list;
            let rows = applied.differing.into_iter().map(|(table, key)| (schemas[table].clone(), key));
            self.queue.undo(rows.collect()).await;
        }
        let released = self.queue.release(next).await;
        if !matches!(released, Ok(true)) {
            self.forget_place();
        }
        let dead = applied.dead;
        Ok(Outcome::Committed(Committed { rows, bytes, changes: count, dead, drained: next, released }))
    }

    fn committed(&mut self, to: Position, next: Position, rows: usize, applied: &Applied) {
        self.place = Some(Place { stored: Some(to), drained: next });
        self.confirmed = Some(to);
        self.uncoalesced_until = self.uncoalesced_until.filter(|until| to < *until);
        let slice_ms = if applied.others_waited { SLICE_MS } else { BATCH_MS_MAX };
        self.rows_now = next_size(rows, self.rows_now, self.rows_limit, applied.took, slice_ms);
        let rows_now = self.rows_now;
        if self.ahead.as_ref().is_some_and(|ahead| ahead.as_ref().is_ok_and(|ahead| ahead.rows > rows_now)) {
            // It would only give way: smaller ones are read from where the database is now.
            self.ahead = None;
        }
    }

    fn refused(
        &mut self,
        to: Position,
        rows: usize,
        error: forebay_database::Error,
    ) -> Result<Outcome, Error> {
        self.forget_place();
        match error.kind() {
            DatabaseKind::Fenced => Ok(Outcome::Fenced(error)),
            DatabaseKind::Yielded { done } => {
                self.rows_now = (*done).min(rows / 2).max(BATCH_ROWS_MIN);
                Ok(Outcome::Again)
            }
            _ if error.is_data() && self.uncoalesced_until.is_none() => Ok(self.one_by_one(to)),
            // Refused at the commit (a deferred foreign key), which names no change: split until the guilty record is the only one.
            _ if error.is_data() && rows > 1 => {
                self.rows_now = rows / 2;
                Ok(Outcome::Again)
            }
            _ => Err(error.into()),
        }
    }

    /// Has everything up to `to` applied again as it stands in the queue; refused changes become dead letters.
    fn one_by_one(&mut self, to: Position) -> Outcome {
        self.uncoalesced_until = Some(to);
        self.forget_place();
        Outcome::Again
    }
}

/// The rows that a batch changes.
fn rows_of(batch: &Batch) -> Vec<RowKey> {
    let row = |change: &Change| {
        let schema = &batch.schemas[change.table];
        (schema.clone(), change.op.key(schema).to_owned())
    };
    batch.changes.iter().map(row).collect()
}

/// The next batch's size from how long `rows` took: as many as fit the slice, growing at most twofold.
fn next_size(rows: usize, now: usize, limit: usize, took: Duration, slice_ms: u64) -> usize {
    let fit = rows as f64 * (slice_ms as f64 / 1e3) / took.as_secs_f64().max(1e-6);
    let grown = (fit as usize).min(now.saturating_mul(2));
    // A small batch says little about a large one: it may not shrink what it did not fill, unless it was too slow.
    let floored =
        if rows < now && grown < now && took < Duration::from_millis(slice_ms) { now } else { grown };
    floored.clamp(BATCH_ROWS_MIN.min(limit), limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_time_that_batches_take() {
        let ms = Duration::from_millis;
        for (rows, now, took, slice_ms, expected) in [
            (10_000, 10_000, ms(100), 20, 2_000),
            (10_000, 10_000, ms(100), 500, 20_000),
            (50_000, 50_000, ms(100), 500, 50_000),
            (1, 50_000, ms(10), 500, 50_000),
            (1, 50_000, ms(30), 20, BATCH_ROWS_MIN),
            (300, 300, ms(1000), 20, BATCH_ROWS_MIN),
        ] {
            assert_eq!(next_size(rows, now, 50_000, took, slice_ms), expected, "{rows} {now} {took:?}");
        }
        assert_eq!(next_size(5, 5, 10, ms(1), 20), 10);
    }
}
