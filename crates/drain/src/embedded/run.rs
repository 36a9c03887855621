//! The drain's thread over the data folder's log: decides when a batch is taken.
//!
//! One round: wait for durable records and for what the pace allows, then let the batcher take a batch.

use super::LogQueue;
use crate::batcher::{Batcher, Drained, Outcome, Prepared};
use crate::limits::*;
use crate::pace::{BackOff, Pace};
use crate::state::{DrainShared, Status, Stop};
use crate::{Error, Kind};
use forebay_log::{Log, Position};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// The drain's thread.
pub(crate) struct LogDrain {
    log: Log,
    batcher: Batcher<LogQueue>,
    shared: Arc<DrainShared>,
    runtime: Runtime,
    pace: Pace,
    back_off: BackOff,
    /// When the next sign of life is sent to the database, unless a batch is committed before.
    heartbeat_at: Instant,
    /// The position at which [`Stop::Finish`] ends.
    finish_at: Option<Position>,
    /// The position at which the drain waits for its window again, after an early start.
    early_until: Option<Position>,
    /// Since when the database has lacked something without a break.
    behind_since: Option<Instant>,
    /// Whether the database may say that it lacks something.
    has_pending: bool,
}

/// How the drain continues after a round that failed.
enum Trouble {
    /// Back off, then read the database's position.
    Retry(String),
    /// The drain ends: retrying cannot help.
    End(Status, String),
    /// The drain ends, and the log takes no more: what it would take could not be drained.
    Lost(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error.kind() {
            Kind::Database | Kind::Log => Trouble::Retry(error.to_string()),
            Kind::Fenced | Kind::Copied => Trouble::End(Status::Fenced, error.to_string()),
            Kind::PositionLost | Kind::DatabaseReplaced => Trouble::Lost(error.to_string()),
            Kind::Stopped => Trouble::End(Status::Stopped, error.to_string()),
            _ => Trouble::End(Status::Failed, error.to_string()),
        }
    }
}

impl LogDrain {
    pub(crate) fn new(batcher: Batcher<LogQueue>, shared: Arc<DrainShared>, runtime: Runtime) -> LogDrain {
        LogDrain {
            log: batcher.queue.log.clone(),
            batcher,
            shared,
            runtime,
            pace: Pace::new(),
            back_off: BackOff::default(),
            heartbeat_at: Instant::now() + HEARTBEAT,
            finish_at: None,
            early_until: None,
            behind_since: None,
            has_pending: true,
        }
    }

    /// Runs until the drain is stopped or cannot continue; returns the final status.
    pub(crate) fn run(mut self) -> Status {
        let status = self.rounds();
        self.batcher.queue.answer_intents_unknown();
        if let Err(error) = self.batcher.queue.has_stopped(self.batcher.known()) {
            self.shared.note(error.to_string());
        }
        status
    }

    fn rounds(&mut self) -> Status {
        loop {
            match self.round() {
                Ok(true) => {}
                Ok(false) => return Status::Stopped,
                Err(Trouble::End(status, message)) => {
                    self.shared.note(message);
                    return status;
                }
                Err(Trouble::Lost(message)) => {
                    self.log.poison(&message);
                    self.shared.note(message);
                    return Status::Failed;
                }
                Err(Trouble::Retry(message)) => {
                    if self.shared.control().stop == Some(Stop::Leave) {
                        return Status::Stopped;
                    }
                    self.back_off(message);
                }
            }
        }
    }

    /// One batch, or a wait for one. `false`: the drain was stopped.
    fn round(&mut self) -> Result<bool, Trouble> {
        let control = self.shared.control();
        if control.window.is_some() && !control.paused {
            self.judge_window();
        }
        match control.stop {
            Some(Stop::Leave) => return Ok(false),
            Some(Stop::Finish) if self.finish_at.is_none() => {
                // A log that cannot flush never gets more durable records than it has now; those are drained.
                self.finish_at = Some(self.log.flush().unwrap_or_else(|_| self.log.durable()));
            }
            Some(Stop::Finish) => {}
            None if control.paused || self.shared.awaited().is_some() => {
                self.locate()?;
                self.heartbeat()?;
                self.shared.wait(Duration::from_millis(IDLE_MS));
                return Ok(true);
            }
            None => {}
        }
        self.heartbeat()?;
        let drained = self.locate()?;
        let has_stopped_due = self.batcher.has_stopped_due();
        if let Some(end) = self.finish_at {
            // A stopped table is tried once more in the round in which the others reach the end.
            if drained.announced >= end && !has_stopped_due {
                return Ok(false);
            }
            if drained.others >= end && !has_stopped_due {
                // A lock may be released, until its table is announced as stopped.
                std::thread::sleep(Duration::from_millis(IDLE_MS));
            }
        } else if !has_stopped_due && !self.wait_for_records(drained.others)
            || !self.wait_for_pace(control.pace_rows_per_s)
        {
            return Ok(true);
        }
        let shared = self.shared.clone();
        let Some(_in_hand) = shared.begin() else { return Ok(true) };
        let pace = control.pace_rows_per_s;
        let prepared = self.runtime.block_on(shared.unless_left(self.batcher.prepare(pace)))?;
        if prepared.is_empty() {
            self.pass(&prepared);
        } else {
            if let Some(known) = self.batcher.known().cloned() {
                self.batcher.queue.is_moving(&known)?;
            }
            let apply = shared.unless_left(self.batcher.apply(prepared, pace));
            let outcome = self.runtime.block_on(apply)?;
            self.applied(outcome)?;
        }
        self.shared.set_stopped(self.batcher.stopped());
        Ok(true)
    }

    /// Starts before the window when the backlog is too large, and continues until that backlog is in the
    /// database.
    fn judge_window(&mut self) {
        self.shared.look_at_window();
        let Some(drained) = self.batcher.drained() else { return };
        // What stopped tables hold back has its own limit.
        let crowded = self.batcher.queue.crowded(drained.others);
        match (self.early_until, crowded) {
            (None, Some(why)) if self.shared.awaited().is_some() => {
                self.early_until = Some(self.log.end());
                self.shared.begin_early(why);
            }
            (Some(until), None) if drained.others >= until => {
                self.early_until = None;
                self.shared.end_early();
            }
            _ => {}
        }
    }

    /// The position that the database has reached: reads it, unless it is known.
    fn locate(&mut self) -> Result<Drained, Trouble> {
        let drained = match self.batcher.drained() {
            Some(drained) => drained,
            None => {
                self.runtime.block_on(self.shared.unless_left(self.batcher.locate()))?;
                self.batcher.drained().expect("it was just located")
            }
        };
        self.shared.set_stopped(self.batcher.stopped());
        self.shared.set_drained(drained);
        self.runtime.block_on(self.batcher.queue.read_undone(drained.all));
        // After a failure the status stays `BackingOff` until a batch succeeds, unless there is nothing to
        // drain.
        let is_idle = self.log.durable() <= drained.others;
        self.note_pending(drained)?;
        if is_idle || self.shared.progress.borrow().status == Status::Starting {
            self.shared.set_status(Status::Running);
        }
        Ok(drained)
    }

    /// Tells the database when it lacks something for longer than between two signs of life, and when it no
    /// longer does: a server that claims the tables after this one has died must know.
    fn note_pending(&mut self, drained: Drained) -> Result<(), Trouble> {
        let lacks = self.log.durable().0.saturating_sub(drained.all.0);
        self.behind_since = (lacks > 0).then(|| self.behind_since.unwrap_or_else(Instant::now));
        let is_behind = self.behind_since.is_some_and(|since| since.elapsed() >= HEARTBEAT);
        if is_behind != self.has_pending && (is_behind || lacks == 0) {
            let pending = if is_behind { lacks } else { 0 };
            self.runtime.block_on(self.shared.unless_left(self.batcher.set_pending(pending)))?;
            self.has_pending = is_behind;
        }
        Ok(())
    }

    /// Sends the database a sign of life when it is due: so a server without writes keeps its claim on the
    /// tables, and soon detects that the database has lost commits.
    fn heartbeat(&mut self) -> Result<(), Trouble> {
        if self.heartbeat_at > Instant::now() {
            return Ok(());
        }
        let outcome = self.runtime.block_on(self.shared.unless_left(self.batcher.heartbeat()))?;
        self.back_off.succeeded();
        self.applied(outcome)
    }

    /// Whether there are records behind the drained position; lets a small batch linger for more, unless a
    /// client waits for the database.
    fn wait_for_records(&mut self, drained: Position) -> bool {
        let idle = Duration::from_millis(IDLE_MS);
        if self.log.durable() <= drained && self.log.wait_durable(drained, idle) <= drained {
            // A log that has failed returns at once.
            if self.log.poisoned().is_some() {
                self.shared.wait(idle);
            }
            return false;
        }
        if self.log.durable().0 - drained.0 < LINGER_BYTES && self.shared.control().stop.is_none() {
            self.batcher.queue.linger(Duration::from_millis(LINGER_MS));
        }
        true
    }

    /// Whether the pace allows a batch now; waits a little when the pace does not.
    fn wait_for_pace(&mut self, rows_per_s: Option<f64>) -> bool {
        let Some(wait) = self.pace.wait(rows_per_s) else { return true };
        self.shared.wait(wait.min(Duration::from_millis(IDLE_MS)));
        self.pace.wait(rows_per_s).is_none()
    }

    fn pass(&mut self, empty: &Prepared) {
        if self.batcher.pass(empty) {
            self.batcher.drained().into_iter().for_each(|drained| self.shared.set_drained(drained));
        } else {
            // The durable mark is past the last record, and nothing more can be read yet.
            self.shared.wait(Duration::from_millis(IDLE_MS));
        }
    }

    fn applied(&mut self, outcome: Outcome) -> Result<(), Trouble> {
        self.heartbeat_at = Instant::now() + HEARTBEAT;
        match outcome {
            Outcome::Again => {}
            Outcome::Fenced(error) => {
                let message = format!(
                    "{error}; this one has stopped, nothing is lost. Run one server on a data folder's log"
                );
                return Err(Trouble::End(Status::Fenced, message));
            }
            Outcome::Committed(committed) => {
                self.back_off.succeeded();
                self.pace.spend(committed.changes);
                self.shared.count(&committed);
                self.shared.set_status(Status::Running);
                self.shared.set_stopped(self.batcher.stopped());
                self.batcher.drained().into_iter().for_each(|drained| self.shared.set_drained(drained));
                if let Err(error) = committed.released {
                    self.shared.note(error.to_string());
                }
            }
        }
        Ok(())
    }

    fn back_off(&mut self, message: String) {
        self.batcher.forget_place();
        self.shared.note(message);
        self.shared.set_status(Status::BackingOff);
        let until = Instant::now() + self.back_off.failed();
        while Instant::now() < until && self.shared.control().stop != Some(Stop::Leave) {
            // `Stop::Finish` does not cut the pause short: otherwise the drain would retry without a pause.
            std::thread::sleep(Duration::from_millis(IDLE_MS).min(until - Instant::now().min(until)));
        }
    }
}
