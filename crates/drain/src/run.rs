//! The drain's thread.
//!
//! One round: wait for something durable, take a batch, coalesce it, apply it with its position, tell the tables, release the log. Whatever
//! goes wrong in between, the next round begins by asking the database where it stands and reading the log from there.

use crate::batch::{Records, Schemas, Taken};
use crate::coalesce::coalesce;
use crate::limits::*;
use crate::reconcile::reconcile;
use crate::state::{Settings, Shared, Status, Stop};
use crate::{Error, Kind};
use forebay_database::{Applied, Batch, Change, Kind as RecordKind, OnError, Priority, Store};
use forebay_log::{Log, Position};
use forebay_table::{Catalogue, Tables};
use rand::RngExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Where the drain reads, and what the database is expected to say.
struct Place {
    records: Records,
    /// What the store has for this log; `None`: nothing yet.
    stored: Option<Position>,
    /// Everything before it is in the store.
    drained: Position,
    /// The batch after the one in the store's hands.
    ahead: Option<Prepared>,
}

/// A batch that is ready to be applied.
struct Prepared {
    /// `None`: the records do not add up to one change a key.
    changes: Option<Vec<Change>>,
    on_error: OnError,
    /// Log records in it.
    rows: usize,
    to: Position,
    next: Position,
}

/// The drain's thread.
pub(crate) struct Runner {
    log: Log,
    tables: Tables,
    catalogue: Arc<Catalogue>,
    database: Store,
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    new_database: crate::NewDatabase,
    rows_limit: usize,
    /// The size of the next batch, between the limits by how long the last one took.
    rows_now: usize,
    schemas: Schemas,
    /// `None`: to be asked of the database.
    place: Option<Place>,
    /// A batch was refused: up to here the records are applied one by one.
    uncoalesced_until: Option<Position>,
    /// In a row.
    failures: u32,
    /// When the pace allows the next batch.
    free_at: Instant,
    /// What `free_at` was reckoned with.
    pace: Option<f64>,
    /// The last position that the store was known to have.
    confirmed: Option<Position>,
    /// Where [`Stop::Finish`] ends.
    finish_at: Option<Position>,
}

/// How a round that did not succeed goes on.
enum Trouble {
    /// Wait, and ask the store where it stands.
    Retry(String),
    /// Nothing can be done here.
    End(Status, String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error.kind() {
            Kind::Database | Kind::Log => Trouble::Retry(error.to_string()),
            _ => Trouble::End(Status::Failed, error.to_string()),
        }
    }
}

impl Runner {
    pub(crate) fn new(
        log: Log,
        tables: Tables,
        database: Store,
        shared: Arc<Shared>,
        runtime: Runtime,
        settings: &Settings,
    ) -> Runner {
        Runner {
            catalogue: tables.catalogue(),
            log,
            tables,
            database,
            shared,
            runtime: Arc::new(runtime),
            new_database: settings.new_database,
            rows_limit: settings.batch_rows_max.max(1),
            rows_now: settings.batch_rows_max.max(1),
            schemas: Schemas::default(),
            place: None,
            uncoalesced_until: None,
            failures: 0,
            free_at: Instant::now(),
            pace: settings.pace_rows_per_s,
            confirmed: None,
            finish_at: None,
        }
    }

    /// Until it is stopped, or nothing can be done any more.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            loop {
                match self.round() {
                    Ok(true) => {}
                    Ok(false) => return Status::Stopped,
                    Err(Trouble::End(status, message)) => {
                        self.shared.totals.lock().last_error = Some(message);
                        return status;
                    }
                    Err(Trouble::Retry(message)) => {
                        if self.shared.control().stop == Some(Stop::Leave) {
                            return Status::Stopped;
                        }
                        self.back_off(message);
                    }
                }
            }
        }));
        // Whoever waits must hear of a bug here as of any other end.
        let status = ended.unwrap_or_else(|_| {
            shared.totals.lock().last_error = Some("the drain's thread panicked".into());
            Status::Failed
        });
        shared.set_status(status);
    }

    /// One batch, or one look at whether there is any. `false`: it was stopped.
    fn round(&mut self) -> Result<bool, Trouble> {
        let control = self.shared.control();
        match control.stop {
            Some(Stop::Leave) => return Ok(false),
            Some(Stop::Finish) if self.finish_at.is_none() => {
                // A log that cannot flush will never have more than it has made durable; that is drained.
                self.finish_at = Some(self.log.flush().unwrap_or_else(|_| self.log.durable()));
            }
            Some(Stop::Finish) => {}
            None if control.paused => {
                self.locate()?;
                self.shared.wait(Duration::from_millis(IDLE_MS));
                return Ok(true);
            }
            None => {}
        }
        self.locate()?;
        if let Some(end) = self.finish_at {
            if self.place().drained >= end {
                return Ok(false);
            }
        } else if !self.wait_for_records() || !self.wait_for_pace(control.pace_rows_per_s) {
            return Ok(true);
        }
        let shared = self.shared.clone();
        let Some(_in_hand) = shared.begin() else { return Ok(true) };
        let prepared = match self.place().ahead.take() {
            Some(prepared) => prepared,
            None => self.prepare(0, control.pace_rows_per_s)?,
        };
        if prepared.rows == 0 {
            self.pass(prepared.next);
        } else {
            self.apply(prepared, control.pace_rows_per_s)?;
        }
        Ok(true)
    }

    /// Asks the database where it stands, unless that is known.
    fn locate(&mut self) -> Result<(), Trouble> {
        if self.place.is_some() {
            return Ok(());
        }
        let start = self.runtime.block_on(reconcile(&self.log, &self.database, self.new_database))?;
        let drained = start.position();
        let stored = match start {
            crate::Start::Fresh { .. } => None,
            crate::Start::Continue(position) => Some(position),
        };
        if let Some(before) = self.confirmed.filter(|before| stored.is_none_or(|stored| stored < *before)) {
            let url = self.database.describe_url();
            let message = format!(
                "{url} was at position {before} and is not any more: it was replaced while it was open"
            );
            return Err(Trouble::End(Status::Failed, message));
        }
        self.confirmed = stored;
        let records = Records::from(&self.log, drained)?;
        self.place = Some(Place { records, stored, drained, ahead: None });
        self.uncoalesced_until = self.uncoalesced_until.filter(|until| *until > drained);
        // An answer may have been lost after its commit.
        self.advance(drained);
        self.shared.set_status(Status::Running);
        Ok(())
    }

    fn place(&mut self) -> &mut Place {
        self.place.as_mut().expect("every round begins with locate")
    }

    /// Whether there is something behind the drained position; lets others join what has just come.
    fn wait_for_records(&mut self) -> bool {
        let drained = self.place().drained;
        let idle = Duration::from_millis(IDLE_MS);
        if self.log.durable() <= drained && self.log.wait_durable(drained, idle) <= drained {
            // A log that has ended returns at once.
            if self.log.poisoned().is_some() {
                self.shared.wait(idle);
            }
            return false;
        }
        if self.log.durable().0 - drained.0 < LINGER_BYTES {
            self.shared.wait(Duration::from_millis(LINGER_MS));
        }
        true
    }

    /// Whether the pace allows a batch now; waits a little when it does not.
    fn wait_for_pace(&mut self, pace: Option<f64>) -> bool {
        let now = Instant::now();
        if pace != self.pace {
            (self.pace, self.free_at) = (pace, now);
        }
        if self.free_at > now {
            self.shared.wait((self.free_at - now).min(Duration::from_millis(IDLE_MS)));
        }
        self.free_at <= Instant::now()
    }

    /// Reads and coalesces the next batch, while the store is busy with one of `in_hand` rows: at most twice as many, so that it does not wait
    /// for a large one while a small one would do.
    fn prepare(&mut self, in_hand: usize, pace: Option<f64>) -> Result<Prepared, Error> {
        let paced = pace.map_or(usize::MAX, |rows_per_s| (rows_per_s * PACE_SLICE_S) as usize);
        let meanwhile = in_hand.saturating_mul(2).max(BATCH_ROWS_FIRST);
        let rows_max = self.rows_now.min(paced).min(meanwhile).max(1);
        let until = self.uncoalesced_until;
        let place = self.place.as_mut().expect("every round begins with locate");
        let taken = place.records.take(rows_max, until, &self.catalogue, &mut self.schemas)?;
        let Taken { mut changes, to, next } = taken;
        let rows = changes.len();
        Ok(match until {
            Some(_) => Prepared { changes: Some(changes), on_error: OnError::DeadLetter, rows, to, next },
            None => {
                let changes = coalesce(&mut changes, &self.schemas.list);
                Prepared { changes, on_error: OnError::Fail, rows, to, next }
            }
        })
    }

    /// Makes the next batch ready, when there is much behind the one in hand, which has `in_hand` rows and ends at `next`.
    fn prepare_ahead(&mut self, in_hand: usize, next: Position, pace: Option<f64>) {
        if self.uncoalesced_until.is_some() || self.log.durable().0.saturating_sub(next.0) < AHEAD_BYTES {
            return;
        }
        let prepared = self.prepare(in_hand, pace);
        let place = self.place();
        match prepared {
            Ok(prepared) => place.ahead = (prepared.rows > 0).then_some(prepared),
            // Said when it is these records' turn.
            Err(error) => place.records.fail_later(error),
        }
    }

    /// There is no record up to here. Not worth a commit: the store's position stays where it is, and the log can be read
    /// from there again.
    fn pass(&mut self, to: Position) {
        let place = self.place();
        if to > place.drained {
            place.drained = to;
            self.shared.set_position(to);
        } else {
            // The durable mark is past the last record, and nothing more can be read yet.
            self.shared.wait(Duration::from_millis(IDLE_MS));
        }
    }

    fn apply(&mut self, prepared: Prepared, pace: Option<f64>) -> Result<(), Trouble> {
        let Prepared { changes, on_error, rows, to, next } = prepared;
        let Some(changes) = changes else {
            return self.one_by_one(to);
        };
        let count = changes.len();
        let log = self.log.id().0;
        let from = self.place().stored.map(|position| position.0);
        let priority = if rows <= BATCH_ROWS_MIN { Priority::Holds } else { Priority::Yields };
        let schemas = self.schemas.list.clone();
        let batch = Batch { log, from, to: to.0, schemas, changes, on_error, priority };
        let (database, runtime) = (self.database.clone(), self.runtime.clone());
        // Polled in this order: the batch is on its way before the next one is made ready.
        let ahead = async { self.prepare_ahead(rows, next, pace) };
        let (applied, ()) = runtime.block_on(async { tokio::join!(biased; database.apply(batch), ahead) });
        match applied {
            Ok(applied) => {
                self.committed(to, next, rows, count, applied);
                self.settle(count, pace);
                Ok(())
            }
            Err(error) => self.refused(to, rows, error),
        }
    }

    fn committed(&mut self, to: Position, next: Position, rows: usize, changes: usize, applied: Applied) {
        let place = self.place();
        let bytes = next.0 - place.drained.0;
        (place.stored, place.drained) = (Some(to), next);
        self.confirmed = Some(to);
        if self.uncoalesced_until.is_some_and(|until| to >= until) {
            self.uncoalesced_until = None;
        }
        self.failures = 0;
        self.shared.totals.lock().count(rows as u64, bytes, changes as u64, applied.dead);
        self.shared.set_status(Status::Running);
        let slice_ms = if applied.others_waited { SLICE_MS } else { ALONE_MS };
        self.rows_now = next_size(rows, self.rows_now, self.rows_limit, applied.took, slice_ms);
        let rows_now = self.rows_now;
        if self.place().ahead.as_ref().is_some_and(|ahead| ahead.rows > rows_now) {
            // It would only give way: smaller ones are read from where the store is now.
            self.place = None;
        }
        self.advance(next);
    }

    /// The database has made everything before `position` durable: the tables may forget, the log may let go.
    fn advance(&mut self, position: Position) {
        self.tables.drained(position);
        if let Err(error) = self.log.release(position) {
            // The log is well, and the next release deletes what this one could not.
            self.shared.totals.lock().last_error = Some(format!("cannot release the log: {error}"));
        }
        self.shared.set_position(position);
    }

    fn refused(&mut self, to: Position, rows: usize, error: forebay_database::Error) -> Result<(), Trouble> {
        match error.kind() {
            RecordKind::Fenced => {
                let message = format!(
                    "{error}; this one has stopped, nothing is lost. Run one server on a data folder's log"
                );
                Err(Trouble::End(Status::Fenced, message))
            }
            RecordKind::Yielded { done } => {
                self.rows_now = (*done).min(rows / 2).max(BATCH_ROWS_MIN);
                self.place = None;
                Ok(())
            }
            _ if error.is_data() && self.uncoalesced_until.is_none() => self.one_by_one(to),
            // Refused at the commit (a deferred foreign key), which names no change: split until it is alone.
            _ if error.is_data() && rows > 1 => {
                self.rows_now = rows / 2;
                self.place = None;
                Ok(())
            }
            _ => Err(Trouble::Retry(error.to_string())),
        }
    }

    /// Has everything up to `to` applied again as it stands in the log; refused changes become dead letters.
    fn one_by_one(&mut self, to: Position) -> Result<(), Trouble> {
        self.uncoalesced_until = Some(to);
        self.place = None;
        Ok(())
    }

    /// After `changes` were written: when the next batch may be.
    fn settle(&mut self, changes: usize, pace: Option<f64>) {
        if let Some(rows_per_s) = pace.filter(|rows_per_s| *rows_per_s > 0.0) {
            let earned = Duration::from_secs_f64((changes as f64 / rows_per_s).min(PACE_PAUSE_S_MAX));
            self.free_at = self.free_at.max(Instant::now()) + earned;
        }
    }

    fn back_off(&mut self, message: String) {
        self.place = None;
        self.shared.totals.lock().last_error = Some(message);
        self.shared.set_status(Status::BackingOff);
        let doubled = BACK_OFF_FIRST_MS << self.failures.min(16);
        self.failures += 1;
        // Half of it at random, so that servers that lost the same database do not come back in step.
        let jitter = rand::rng().random_range(0.5..=1.0);
        let pause = Duration::from_millis(doubled.min(BACK_OFF_LAST_MS)).mul_f64(jitter);
        let until = Instant::now() + pause;
        while Instant::now() < until && self.shared.control().stop != Some(Stop::Leave) {
            // Stopping with `Finish` does not cut the pause short, or it would ask without pause.
            std::thread::sleep(Duration::from_millis(IDLE_MS).min(until - Instant::now().min(until)));
        }
    }
}

/// The next batch's size from how long `rows` took: as many as fit the slice, growing at most twofold.
pub(crate) fn next_size(rows: usize, now: usize, limit: usize, took: Duration, slice_ms: u64) -> usize {
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
