//! The handle to a running drain: its state, its controls, waiting for it.

use crate::run::Runner;
use crate::state::{DrainState, Settings, Shared, Status, Stop};
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_log::{Log, Position};
use forebay_table::Tables;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

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
    pub fn start(log: Log, tables: Tables, database: Store, settings: Settings) -> Result<Drain, Error> {
        let shared = Arc::new(Shared::new(&settings));
        let no_thread = |source| Error::caused(Kind::Stopped, "cannot start the drain", source);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(no_thread)?;
        let runner = Runner::new(log.clone(), tables, database, shared.clone(), runtime, &settings);
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
            batch_in_hand: self.inner.shared.has_batch_in_hand(),
            last_error: totals.last_error,
        }
    }

    /// Lets everything stay in the log. Resolves when the batch in hand has ended, or after [`crate::limits::PAUSE_WAIT`].
    pub async fn pause(&self) {
        self.inner.shared.pause().await;
    }

    /// Goes on after [`Drain::pause`].
    pub fn resume(&self) {
        self.inner.shared.change(|control| control.paused = false);
    }

    /// Rows a second that are written at most, from the next batch on; `None` (or nothing above 0): as fast as the store takes them.
    pub fn set_pace(&self, rows_per_s: Option<f64>) {
        self.inner.shared.change(|control| control.pace_rows_per_s = rows_per_s);
    }

    /// Resolves when everything before `position` is durable in the database.
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
            // A drain that panicked has told so; its position is in the database.
            let _ = thread.join();
        }
    }
}
