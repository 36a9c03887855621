//! The handle to a running drain: its state, its controls, and waiting for it. The same for a log and for the
//! queues on Redis.

use crate::batcher::Batcher;
use crate::dead_letter_file::DeadLetterFile;
use crate::embedded::{self, LogQueue};
use crate::remote;
use crate::state::{DrainProgress, DrainShared, DrainState, Settings, Status, Stop};
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_log::{Log, Position};
use forebay_redis::Client;
use forebay_table::{RemoteTables, Table, Tables};
use forebay_value::Timestamp;
use parking_lot::Mutex;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::runtime::Runtime;

/// A running drain. Clones are the same drain; when the last one is dropped it stops after the batch in hand.
#[derive(Clone)]
pub struct Drain {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<DrainShared>,
    source: DrainedQueue,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The queue that is drained.
enum DrainedQueue {
    Log(Log),
    /// The number of shards.
    Queues(u16),
}

impl Drain {
    /// Starts the drain of a data folder's log on its own thread. The drain finds out where to continue (and
    /// ends as [`Status::Failed`] when [`reconcile`](fn@crate::reconcile) refuses; call that first to refuse
    /// to start).
    ///
    /// # Errors
    /// [`Kind::Stopped`] when no thread can be started.
    pub fn start(log: Log, tables: Tables, database: Store, settings: Settings) -> Result<Drain, Error> {
        let shared = Arc::new(DrainShared::new(&settings));
        let is_own = |table: &&Arc<Table>| !table.shared() && !table.followed();
        let own = tables.all().iter().filter(is_own).map(|table| table.schema().name.clone());
        let own = Arc::new(own.collect());
        let queue = LogQueue::new(log.clone(), tables, settings.letters.clone());
        let letters =
            settings.letters.as_deref().map(|folder| Arc::new(DeadLetterFile::new(folder)) as Arc<_>);
        let batcher = Batcher::new(queue, database, settings.batch_rows_max, own, letters);
        let runner = embedded::LogDrain::new(batcher, shared.clone(), runtime()?);
        Drain::spawn(shared, DrainedQueue::Log(log), move || runner.run())
    }

    /// Starts a drain of the queues on Redis on its own thread, with its own connections. Any number of these
    /// may run: each shard is drained by one of them at a time.
    ///
    /// # Errors
    /// [`Kind::Stopped`] when no thread can be started.
    pub fn start_remote(
        client: &Client,
        tables: &RemoteTables,
        database: Store,
        settings: Settings,
    ) -> Result<Drain, Error> {
        let shared = Arc::new(DrainShared::new(&settings));
        let own =
            tables.all().iter().filter(|table| !table.shared()).map(|table| table.schema().name.clone());
        let own = Arc::new(own.collect());
        let queues = remote::Queues { queue: tables.queue(), link: client.link() };
        let mut runner = remote::StreamDrain::new(queues, database, shared.clone(), &settings, own);
        let runtime = runtime()?;
        let source = DrainedQueue::Queues(tables.shard_count());
        let own = shared.clone();
        Drain::spawn(shared, source, move || {
            runtime.block_on(async {
                let ended = own.unless_left(async { Ok(runner.run().await) }).await;
                runner.release_leases().await;
                ended.unwrap_or(Status::Stopped)
            })
        })
    }

    fn spawn(
        shared: Arc<DrainShared>,
        source: DrainedQueue,
        run: impl FnOnce() -> Status + Send + 'static,
    ) -> Result<Drain, Error> {
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("drain".into()).spawn(move || {
            // A panic must reach the callers that wait, like any other end.
            let ended = std::panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                own.note("the drain's thread panicked".into());
                Status::Failed
            });
            own.set_status(ended);
        });
        let thread = thread.map_err(no_thread)?;
        Ok(Drain { inner: Arc::new(Inner { shared, source, thread: Mutex::new(Some(thread)) }) })
    }

    /// The drain's present state.
    pub fn state(&self) -> DrainState {
        let shared = &self.inner.shared;
        let DrainProgress { drained, status, since, stopped } = shared.progress.borrow().clone();
        let position = drained.all;
        let control = shared.control();
        let totals = shared.totals.lock().clone();
        let (shards, shards_held, backlog_bytes, backlog_rows) = match &self.inner.source {
            DrainedQueue::Log(log) => {
                let bytes = log.end().0.saturating_sub(position.0);
                (1, 1, bytes, backlog_rows(bytes, totals.rows, totals.bytes))
            }
            DrainedQueue::Queues(shards) => (*shards, totals.shards_held, 0, Some(totals.backlog_rows)),
        };
        let status = match status {
            Status::Starting | Status::Running if control.elsewhere => Status::Elsewhere,
            Status::Starting | Status::Running if control.paused => Status::Paused,
            Status::Starting | Status::Running if shared.awaited().is_some() => Status::Waiting,
            status => status,
        };
        let opening = control.window.map(|window| window.opening(Timestamp::now()));
        DrainState {
            status,
            position,
            backlog_bytes,
            backlog_rows,
            held_rows: totals.held.map_or(0, |(rows, _)| rows),
            held_since: totals.held.map(|(_, since)| since),
            shards,
            shards_held,
            workers: totals.workers.clone().filter(|_| control.elsewhere),
            rows_total: totals.rows,
            changes_total: totals.changes,
            dead_total: totals.dead,
            unwritten_total: totals.unwritten,
            refused_total: totals.refused,
            batches_total: totals.batches,
            rate_rows_per_s: totals.rate_at(Instant::now()),
            pace_rows_per_s: control.pace_rows_per_s,
            paused: control.paused,
            opening,
            early: shared.early(),
            batch_in_hand: shared.has_batch_in_hand(),
            status_since: since,
            stopped_tables: stopped,
            last_error: totals.last_error,
        }
    }

    /// Pauses the drain: all records stay in the queue; other drains on Redis continue. Resolves when the
    /// batch in hand has ended, or after `limits::PAUSE_WAIT`.
    pub async fn pause(&self) {
        self.inner.shared.pause().await;
    }

    /// Continues after [`Drain::pause`].
    pub fn resume(&self) {
        self.inner.shared.change(|control| control.paused = false);
    }

    /// Sets the rows a second that are written at most, from the next batch on; `None` (or nothing above 0):
    /// as fast as the database accepts them.
    pub fn set_pace(&self, rows_per_s: Option<f64>) {
        self.inner.shared.change(|control| control.pace_rows_per_s = rows_per_s);
    }

    /// Resolves when everything before `position` of the log is durable in the database. The drain does not
    /// wait for its window.
    ///
    /// # Errors
    /// When the drain ended before: [`Kind::Fenced`] or [`Kind::Stopped`], with its last error.
    /// [`Kind::TableStopped`] when only changes of stopped tables are missing in the database.
    pub fn drain_to(&self, position: Position) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let shared = self.inner.shared.clone();
        let mut progress = shared.progress.subscribe();
        shared.want(position);
        async move {
            let is_over = |progress: &DrainProgress| {
                progress.drained.announced >= position || progress.status.has_ended()
            };
            let seen = progress.wait_for(is_over).await.expect("the sender is in `shared`").clone();
            let at = seen.drained.all;
            if at >= position {
                return Ok(());
            }
            if seen.drained.announced >= position {
                return Err(table_stopped(&seen));
            }
            Err(ended(&shared, &seen.status, format_args!("at position {at}, before {position}")))
        }
    }

    /// Resolves when everything that was acknowledged before this call is durable in the database, written by
    /// this drain or another. The drain does not wait for its window.
    ///
    /// # Errors
    /// As [`Drain::drain_to`].
    pub async fn drain_all(&self) -> Result<(), Error> {
        if let DrainedQueue::Log(log) = &self.inner.source {
            return self.drain_to(log.end()).await;
        }
        let shared = self.inner.shared.clone();
        let (request, mut answered, mut progress) =
            (shared.ask_for_all(), shared.answered(), shared.progress.subscribe());
        tokio::select! {
            // Neither fails: the senders are in `shared`.
            _ = answered.wait_for(|answered| *answered >= request) => {
                let seen = shared.progress.borrow().clone();
                if seen.stopped.is_empty() { Ok(()) } else { Err(table_stopped(&seen)) }
            }
            seen = progress.wait_for(|progress| progress.status.has_ended()) => {
                let status = seen.expect("the sender is in `shared`").status.clone();
                Err(ended(&shared, &status, format_args!("before everything was drained")))
            }
        }
    }

    /// Stops the drain and resolves when it has ended, with its last state. A further call may turn
    /// [`Stop::Finish`] into [`Stop::Leave`], when finishing takes too long.
    pub async fn stop(&self, mode: Stop) -> DrainState {
        self.inner.shared.change(|control| control.stop = Some(mode));
        let mut progress = self.inner.shared.progress.subscribe();
        // Fails only when the sender is dropped, and `self` owns it.
        let _ = progress.wait_for(|progress| progress.status.has_ended()).await;
        self.state()
    }
}

fn runtime() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)
}

fn no_thread(source: std::io::Error) -> Error {
    Error::caused(Kind::Stopped, "cannot start the drain", source)
}

fn ended(shared: &DrainShared, status: &Status, when: std::fmt::Arguments<'_>) -> Error {
    let reason = shared.totals.lock().last_error.clone().unwrap_or_else(|| "it was stopped".into());
    let kind = if *status == Status::Fenced { Kind::Fenced } else { Kind::Stopped };
    Error::new(kind, format!("the drain has ended {when}: {reason}"))
}

fn table_stopped(seen: &DrainProgress) -> Error {
    // Which tables are stopped may change until somebody looks.
    let reasons: Vec<&str> = seen.stopped.iter().map(|stopped| &*stopped.reason).collect();
    let reasons = if reasons.is_empty() { vec!["a table is stopped"] } else { reasons };
    Error::new(Kind::TableStopped, reasons.join("; "))
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
            // A drain that panicked has reported that; its position is in the database.
            let _ = thread.join();
        }
    }
}
