//! The handle to a running drainer: its state, its controls, waiting for it.

use super::run::Runner;
use super::way::Way;
use crate::state::{Settings, Shared, Status, Stop};
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_redis::{Client, Link};
use forebay_table::RemoteTables;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether everything has been drained.
const LOOK: Duration = Duration::from_millis(10);

/// A running drainer. When it is dropped it stops after the batches in hand.
pub struct RemoteDrain {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the handle and the thread share.
pub(super) struct Inner {
    pub shared: Shared,
    pub held: AtomicUsize,
    pub backlog_rows: AtomicU64,
    shards: u16,
    /// How many wait for everything to be drained: then no batch waits for others to join it.
    waiting: AtomicUsize,
    finish: Mutex<Option<Vec<u64>>>,
}

/// A drainer's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteDrainState {
    /// What it is doing.
    pub status: Status,
    /// Shards that it works on; the others are some other drainer's.
    pub shards_held: usize,
    /// All shards.
    pub shards: u16,
    /// Records in all shards that are not in the database, as of the last look.
    pub backlog_rows: u64,
    /// Records drained since the start.
    pub rows_total: u64,
    /// Changes that they were after coalescing.
    pub changes_total: u64,
    /// Changes that became dead letters since the start.
    pub dead_total: u64,
    /// Batches committed since the start.
    pub batches_total: u64,
    /// Records drained a second, over the last seconds.
    pub rate_rows_per_s: f64,
    /// Rows a second that are written at most.
    pub pace_rows_per_s: Option<f64>,
    /// Whether it was told to wait.
    pub paused: bool,
    /// Whether a batch is being taken or written at this moment.
    pub batch_in_hand: bool,
    /// The last failure, until a batch succeeds.
    pub last_error: Option<String>,
}

impl Inner {
    pub fn note(&self, message: String) {
        self.shared.totals.lock().last_error = Some(message);
    }

    pub fn hurries(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    pub fn finish_target(&self) -> Option<Vec<u64>> {
        self.finish.lock().clone()
    }

    pub fn set_finish_target(&self, target: Vec<u64>) -> Vec<u64> {
        self.finish.lock().get_or_insert(target).clone()
    }
}

impl RemoteDrain {
    /// Starts a drainer on a thread of its own, with a way of its own to the tier.
    ///
    /// # Errors
    /// [`Kind::Stopped`] when no thread can be had.
    pub fn start(
        client: &Client,
        tables: &RemoteTables,
        database: Store,
        settings: Settings,
    ) -> Result<RemoteDrain, Error> {
        let no_thread = |source| Error::caused(Kind::Stopped, "cannot start the drain", source);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let inner = Arc::new(Inner {
            shared: Shared::new(&settings),
            held: AtomicUsize::new(0),
            backlog_rows: AtomicU64::new(0),
            shards: tables.shard_count(),
            waiting: AtomicUsize::new(0),
            finish: Mutex::new(None),
        });
        let own = inner.clone();
        let way = Way { queue: tables.queue(), link: client.link() };
        let now = Instant::now();
        let runner = Runner {
            way,
            owner: format!("{} (process {})", host_name(), std::process::id()),
            database,
            inner: own,
            rows_limit: settings.batch_rows_max.max(1),
            held: Vec::new(),
            leases_at: now,
            maintained_at: now,
            free_at: now,
        };
        let shared = inner.clone();
        let thread = std::thread::Builder::new().name("drain".into()).spawn(move || {
            let run = std::panic::AssertUnwindSafe(|| runtime.block_on(runner.run()));
            // Whoever waits must hear of a bug here as of any other end.
            if std::panic::catch_unwind(run).is_err() {
                shared.note("the drain's thread panicked".into());
                shared.shared.set_status(Status::Failed);
            }
        });
        Ok(RemoteDrain { inner, thread: Mutex::new(Some(thread.map_err(no_thread)?)) })
    }

    /// Its state now.
    pub fn state(&self) -> RemoteDrainState {
        let (_, status) = self.inner.shared.moved.borrow().clone();
        let control = self.inner.shared.control();
        let totals = self.inner.shared.totals.lock().clone();
        let is_paused = control.paused && !status.has_ended();
        RemoteDrainState {
            status: if is_paused { Status::Paused } else { status },
            shards_held: self.inner.held.load(Ordering::Relaxed),
            shards: self.inner.shards,
            backlog_rows: self.inner.backlog_rows.load(Ordering::Relaxed),
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

    /// Lets everything stay in the streams. Other drainers go on. Resolves when the batch in hand has ended, or after [`crate::limits::PAUSE_WAIT`].
    pub async fn pause(&self) {
        self.inner.shared.pause().await;
    }

    /// Goes on after [`RemoteDrain::pause`].
    pub fn resume(&self) {
        self.inner.shared.change(|control| control.paused = false);
    }

    /// Resolves when everything that is in the streams now is durable in the database, by whichever drainer.
    ///
    /// # Errors
    /// [`Kind::Stopped`] when this drainer ends before, with its last error; [`Kind::Log`] when the tier cannot be asked.
    pub async fn drain_all(&self, tables: &RemoteTables, link: &Link) -> Result<(), Error> {
        self.inner.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.inner);
        let way = Way { queue: tables.queue(), link: link.clone() };
        let target = way.last_positions().await?;
        while !way.is_drained(&target).await? {
            let state = self.state();
            if state.status.has_ended() {
                let reason = state.last_error.unwrap_or_else(|| "it was stopped".into());
                return Err(Error::new(
                    Kind::Stopped,
                    format!("the drain has ended before everything was drained: {reason}"),
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        drop(waiting);
        Ok(())
    }

    /// Ends the drainer and resolves when it has ended, with its last state.
    pub async fn stop(&self, mode: Stop) -> RemoteDrainState {
        self.inner.shared.change(|control| control.stop = Some(mode));
        let mut moved = self.inner.shared.moved.subscribe();
        // Fails only when the sender is gone, and it is part of `self`.
        let _ = moved.wait_for(|(_, status)| status.has_ended()).await;
        self.state()
    }
}

/// The machine's name, for whoever reads who holds a lease.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "unknown host".into(), |name| name.trim().to_owned())
}

/// Counts one who waits for everything, until dropped.
struct Waiting<'a>(&'a Inner);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for RemoteDrain {
    fn drop(&mut self) {
        self.inner.shared.change(|control| control.stop = Some(Stop::Leave));
        if let Some(thread) = self.thread.lock().take() {
            // A drain that panicked has told so; its positions are in the database.
            let _ = thread.join();
        }
    }
}
