//! How the next batch is read and coalesced.

use super::{Batcher, Prepared, tables_of};
use crate::Error;
use crate::coalesce::coalesce;
use crate::limits::{BATCH_ROWS_FIRST, CATCH_UP_READ, PACE_SLICE_S, UNCOALESCED_ROWS};
use crate::queue::{Limit, Queue, QueueRead};
use crate::uncoalesced::Uncoalesced;
use forebay_database::{Basis, OnError};
use forebay_log::Position;
use std::collections::BTreeSet;

impl<Q: Queue> Batcher<Q> {
    /// The next batch, of no more rows than the pace allows at a time. Empty when the queue has no records.
    pub(crate) async fn prepare(&mut self, pace: Option<f64>) -> Result<Prepared, Error> {
        if !self.stopped.knows_references() || self.stopped.must_begin() {
            self.learn_references().await?;
            self.stopped.begin();
        }
        loop {
            let place = self.locate().await?;
            let is_first = self.stopped.take_turn();
            if !is_first {
                let prepared = match self.ahead.take() {
                    Some(prepared) => prepared?,
                    None => self.read(None, place.drained, Q::ROWS_FIRST, pace).await?,
                };
                if self.must_wait(&prepared) {
                    continue;
                }
                if !prepared.is_empty() || self.stopped.catching_up().is_none() {
                    return Ok(prepared);
                }
            }
            let Some(own) = self.stopped.catching_up() else { continue };
            let (of, after) = (own.tables.clone(), place.reached.last_of(&own.tables));
            let prepared = self.read(Some(of), after, CATCH_UP_READ, pace).await?;
            if !self.must_wait(&prepared) {
                return Ok(prepared);
            }
        }
    }

    /// Skips an empty batch. It is not worth a commit: the database's position stays, and the queue can be
    /// read from there again. Returns whether the known position has moved.
    pub(crate) fn pass(&mut self, empty: &Prepared) -> bool {
        let Some(place) = &mut self.place else { return false };
        let before = (place.drained, place.reached.clone());
        match &empty.of {
            Some(tables) => place.reached.advance(tables, empty.to),
            None => {
                place.drained = place.drained.max(empty.next);
                place.reached.others = empty.to.unwrap_or(place.reached.others);
            }
        }
        before != (place.drained, place.reached.clone())
    }

    /// Reads and coalesces the records behind `after`: of stopped tables, or of all others.
    async fn read(
        &mut self,
        of: Option<BTreeSet<String>>,
        after: Position,
        rows_max: usize,
        pace: Option<f64>,
    ) -> Result<Prepared, Error> {
        let alters = std::mem::take(self.alters(of.is_some()));
        if alters {
            self.schemas.acting = None;
        }
        let paced = pace.map_or(usize::MAX, |rows_per_s| (rows_per_s * PACE_SLICE_S) as usize);
        let own = self.stopped.catching_up().filter(|_| of.is_some());
        let (rows_now, uncoalesced) = match own {
            Some(own) => (own.rows, own.uncoalesced.clone()),
            None => (self.rows_now, self.uncoalesced.clone()),
        };
        let mut rows = rows_now.min(paced).min(rows_max).max(1);
        if uncoalesced.is_some() || self.refuses_intents {
            rows = rows.min(UNCOALESCED_ROWS);
        }
        // Stopped tables catch up with where the others are, and few records are theirs.
        let others = self.place.as_ref().map(|place| place.drained).filter(|_| of.is_some());
        let until = uncoalesced.as_ref().map(Uncoalesced::until).into_iter().chain(others).min();
        let limit = Limit { rows: if of.is_some() { rows_max } else { rows }, until };
        let taken = self.queue.read_after(after, limit, &mut self.schemas).await?;
        let QueueRead { mut changes, mut bytes, mut is_end, mut last, mut next } = taken;
        let read = changes.len();
        if let Some(place) = &self.place {
            self.stopped.retain(of.as_ref(), &place.reached, &mut changes, &self.schemas.list);
        }
        if of.is_some() {
            // They were counted when the others passed them.
            bytes = 0;
        }
        if of.is_some() && changes.len() > rows {
            changes.truncate(rows);
            is_end = false;
            last = changes.last().map(|change| Position(change.position));
            next = last.unwrap_or(next);
        }
        let rows = changes.len();
        let is_passing = of.is_none() && rows < read;
        self.schemas.acting(&self.database).await?;
        self.schemas.fit(&mut changes);
        let held = self.queue.take_held(&mut changes, &self.schemas.list).await?;
        let acting = self.schemas.acting(&self.database).await?;
        let judged = uncoalesced.as_ref().map(|uncoalesced| uncoalesced.judged.clone()).unwrap_or_default();
        let basis = Basis { acting: acting.clone(), tables: tables_of(&changes), alters, judged };
        let (changes, on_error) = match uncoalesced {
            Some(_) => (Some(changes), Q::ON_REFUSAL),
            None if self.refuses_intents && changes.iter().all(|change| change.is_intent) => {
                (Some(changes), Q::ON_REFUSAL)
            }
            None if self.schemas.mixes(&changes) => (None, OnError::Fail),
            None => (coalesce(changes, &self.schemas.list, &self.schemas.is_shared, &acting), OnError::Fail),
        };
        let is_end = is_end && (of.is_none() || until == others);
        Ok(Prepared { changes, basis, held, on_error, rows, is_passing, is_end, of, bytes, to: last, next })
    }

    /// Prepares the next batch, when the backlog behind the current batch is long: at most twice as many
    /// rows, so that the database does not wait for a large batch while a small one would do.
    pub(super) async fn prepare_ahead(&mut self, rows: usize, next: Position, pace: Option<f64>) {
        if self.uncoalesced.is_some() || !self.stopped.is_empty() || !self.queue.is_long_behind(next) {
            return;
        }
        let prepared = self.read(None, next, rows.saturating_mul(2).max(BATCH_ROWS_FIRST), pace).await;
        self.ahead = (!prepared.as_ref().is_ok_and(Prepared::is_empty)).then_some(prepared);
    }
}
