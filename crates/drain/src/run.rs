//! The drain's thread and the handle to it.
//!
//! One round: wait for something durable, take a batch, coalesce it, apply it with its position, tell the tables, release the log. Whatever
//! goes wrong in between, the next round begins by asking the record store where it stands and reading the log from there.

use crate::batch::{Records, Schemas, Taken};
use crate::coalesce::coalesce;
use crate::limits::*;
use crate::reconcile::reconcile;
use crate::state::{DrainState, Settings, Shared, Status, Stop};
use crate::{Error, Kind};
use forebay_log::{Log, Position};
use forebay_record::{Applied, Batch, Change, Kind as RecordKind, OnError, Priority, Store};
use forebay_table::{Catalogue, Tables};
use parking_lot::Mutex;
use rand::RngExt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A running drain. Clones are the same drain; when the last one is dropped it stops after the batch in hand.
#[derive(Clone)]
pub struct Drain {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    log: Log,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drain {
    /// Starts the drain on a thread of its own. It finds out by itself where to go on (and ends as [`Status::Failed`] when
    /// [`reconcile`] refuses; call that first to refuse to start).
    ///
    /// # Errors
    /// [`Kind::Stopped`] when no thread can be had.
    pub fn start(log: Log, tables: Tables, record: Store, settings: Settings) -> Result<Drain, Error> {
        let shared = Arc::new(Shared::new(&settings));
        let no_thread = |source| Error::caused(Kind::Stopped, "cannot start the drain", source);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(no_thread)?;
        let runner = Runner {
            catalogue: tables.catalogue(),
            log: log.clone(),
            tables,
            record,
            shared: shared.clone(),
            runtime: Arc::new(runtime),
            new_record: settings.new_record,
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
        };
        let thread = std::thread::Builder::new()
            .name("drain".into())
            .spawn(move || runner.run())
            .map_err(no_thread)?;
        Ok(Drain { inner: Arc::new(Inner { shared, log, thread: Mutex::new(Some(thread)) }) })
    }

    /// Its state now.
    pub fn state(&self) -> DrainState {
        let (position, status) = self.inner.shared.moved.borrow().clone();
        let control = self.inner.shared.control();
        let totals = self.inner.shared.totals.lock().clone();
        let backlog_bytes = self.inner.log.end().0.saturating_sub(position.0);
        let is_paused = control.paused && status == Status::Running;
        DrainState {
            status: if is_paused { Status::Paused } else { status },
            position,
            backlog_bytes,
            backlog_rows: backlog_rows(backlog_bytes, totals.rows, totals.bytes),
            rows_total: totals.rows,
            changes_total: totals.changes,
            dead_total: totals.dead,
            batches_total: totals.batches,
            rate_rows_per_s: totals.rate_at(Instant::now()),
            pace_rows_per_s: control.pace_rows_per_s,
            paused: control.paused,
            last_error: totals.last_error,
        }
    }

    /// Lets everything stay in the log from the next batch on.
    pub fn pause(&self) {
        self.inner.shared.change(|control| control.paused = true);
    }

    /// Goes on after [`Drain::pause`].
    pub fn resume(&self) {
        self.inner.shared.change(|control| control.paused = false);
    }

    /// Rows a second that are written at most, from the next batch on; `None` (or nothing above 0): as fast as the store takes them.
    pub fn set_pace(&self, rows_per_s: Option<f64>) {
        self.inner.shared.change(|control| control.pace_rows_per_s = rows_per_s);
    }

    /// Resolves when everything before `position` is durable in the record store.
    ///
    /// # Errors
    /// When the drain ended before: [`Kind::Fenced`] or [`Kind::Stopped`], with its last error.
    pub fn drain_to(&self, position: Position) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let shared = self.inner.shared.clone();
        let mut moved = shared.moved.subscribe();
        async move {
            let seen = moved.wait_for(|(at, status)| *at >= position || status.has_ended()).await;
            let (at, status) = seen.expect("the sender is in `shared`").clone();
            if at >= position {
                return Ok(());
            }
            let reason = shared.totals.lock().last_error.clone().unwrap_or_else(|| "it was stopped".into());
            let kind = if status == Status::Fenced { Kind::Fenced } else { Kind::Stopped };
            Err(Error::new(
                kind,
                format!("the drain has ended at position {at}, before {position}: {reason}"),
            ))
        }
    }

    /// Ends the drain and resolves when it has ended, with its last state. Further calls may turn [`Stop::Finish`] into
    /// [`Stop::Leave`], when finishing takes too long.
    pub async fn stop(&self, mode: Stop) -> DrainState {
        self.inner.shared.change(|control| control.stop = Some(mode));
        let mut moved = self.inner.shared.moved.subscribe();
        // Fails only when the sender is gone, and it is part of `self`.
        let _ = moved.wait_for(|(_, status)| status.has_ended()).await;
        self.state()
    }
}

fn backlog_rows(backlog_bytes: u64, rows: u64, bytes: u64) -> Option<u64> {
    if backlog_bytes == 0 {
        return Some(0);
    }
    (bytes > 0).then(|| (backlog_bytes as f64 * rows as f64 / bytes as f64).ceil() as u64)
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.change(|control| control.stop = Some(Stop::Leave));
        if let Some(thread) = self.thread.lock().take() {
            // A drain that panicked has told so; its position is in the record store.
            let _ = thread.join();
        }
    }
}

/// Where the drain reads, and what the record store is expected to say.
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

struct Runner {
    log: Log,
    tables: Tables,
    catalogue: Arc<Catalogue>,
    record: Store,
    shared: Arc<Shared>,
    runtime: Arc<Runtime>,
    new_record: crate::NewRecord,
    rows_limit: usize,
    /// The size of the next batch, between the limits by how long the last one took.
    rows_now: usize,
    schemas: Schemas,
    /// `None`: to be asked of the record store.
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
            Kind::Record | Kind::Log => Trouble::Retry(error.to_string()),
            _ => Trouble::End(Status::Failed, error.to_string()),
        }
    }
}

impl Runner {
    fn run(mut self) {
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
        let prepared = match self.place().ahead.take() {
            Some(prepared) => prepared,
            None => self.prepare(control.pace_rows_per_s)?,
        };
        if prepared.rows == 0 {
            self.pass(prepared.next);
        } else {
            self.apply(prepared, control.pace_rows_per_s)?;
        }
        Ok(true)
    }

    /// Asks the record store where it stands, unless that is known.
    fn locate(&mut self) -> Result<(), Trouble> {
        if self.place.is_some() {
            return Ok(());
        }
        let start = self.runtime.block_on(reconcile(&self.log, &self.record, self.new_record))?;
        let drained = start.position();
        let stored = match start {
            crate::Start::Fresh { .. } => None,
            crate::Start::Continue(position) => Some(position),
        };
        if let Some(before) = self.confirmed.filter(|before| stored.is_none_or(|stored| stored < *before)) {
            let url = self.record.describe_url();
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

    /// Reads and coalesces the next batch.
    fn prepare(&mut self, pace: Option<f64>) -> Result<Prepared, Error> {
        let paced = pace.map_or(usize::MAX, |rows_per_s| (rows_per_s * PACE_SLICE_S) as usize);
        let rows_max = self.rows_now.min(paced).max(1);
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

    /// Makes the next batch ready, when there is much behind the one in hand, which ends at `next`.
    fn prepare_ahead(&mut self, next: Position, pace: Option<f64>) {
        if self.uncoalesced_until.is_some() || self.log.durable().0.saturating_sub(next.0) < AHEAD_BYTES {
            return;
        }
        let prepared = self.prepare(pace);
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
        let (record, runtime) = (self.record.clone(), self.runtime.clone());
        // Polled in this order: the batch is on its way before the next one is made ready.
        let ahead = async { self.prepare_ahead(next, pace) };
        let (applied, ()) = runtime.block_on(async { tokio::join!(biased; record.apply(batch), ahead) });
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

    /// The record store has made everything before `position` durable: the tables may forget, the log may let go.
    fn advance(&mut self, position: Position) {
        self.tables.drained(position);
        if let Err(error) = self.log.release(position) {
            // The log is well, and the next release deletes what this one could not.
            self.shared.totals.lock().last_error = Some(format!("cannot release the log: {error}"));
        }
        self.shared.set_position(position);
    }

    fn refused(&mut self, to: Position, rows: usize, error: forebay_record::Error) -> Result<(), Trouble> {
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
