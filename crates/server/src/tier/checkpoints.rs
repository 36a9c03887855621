//! When checkpoints are written: after a start that had to read the database; each time the log has grown by
//! the size of the last checkpoint, or more changes of followed tables were reported than they have rows;
//! when an operator asks; and at a stop.
//!
//! So a start reads no more log than checkpoint, and checkpoints write no more than the log does. A failed
//! checkpoint is reported and retried after a pause; serving continues, and the previous checkpoint stays
//! valid.

use crate::condition::{Condition, State};
use crate::problem::Problem;
use forebay_log::{Log, Position};
use forebay_table::{Error, Saved, Tables};
use forebay_terminal::warn;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The growth of the log after which the next checkpoint is due, at least and at most. Replaying the minimum
/// takes half a second, replaying the maximum some fifteen seconds.
const EVERY_BYTES_MIN: u64 = 256 << 20;
/// See [`EVERY_BYTES_MIN`].
const EVERY_BYTES_MAX: u64 = 8 << 30;

/// A stop writes a checkpoint when the log has grown by this fraction of the last one, or when that is small.
const STOP_PART: u64 = 8;
/// See [`STOP_PART`]: a checkpoint of this size is written within a tenth of a second.
const STOP_SMALL_BYTES: u64 = 64 << 20;

/// How often the thread checks whether a checkpoint is due, and records what the database has taken.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after a failed checkpoint.
const PAUSE: Duration = Duration::from_secs(10);

/// The thread that writes checkpoints.
pub(super) struct Checkpoints {
    requests: Mutex<mpsc::Sender<CheckpointRequest>>,
    shared: Arc<CheckpointStatus>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct CheckpointStatus {
    /// Whether to abandon the checkpoint that is being written.
    is_abandoned: AtomicBool,
    /// Why the last checkpoint is older than it should be.
    failed: Mutex<Option<String>>,
}

/// A request to the thread.
enum CheckpointRequest {
    /// Write a checkpoint now.
    Take(oneshot::Sender<Result<Saved, Problem>>),
    /// Write a checkpoint if it is worthwhile, and end.
    Finish(oneshot::Sender<()>),
}

impl Checkpoints {
    /// Starts the thread after memory is loaded; `last` is the checkpoint that it was loaded from.
    pub fn start(log: Log, tables: Tables, last: Option<Saved>) -> io::Result<Checkpoints> {
        let (requests, requested) = mpsc::channel();
        let shared = Arc::new(CheckpointStatus::default());
        // A table that the checkpoint lacks needs a new checkpoint.
        let last = last.filter(|_| !tables.lacks_checkpoint());
        let taken_at = last.map(|last| last.begin).unwrap_or_default();
        let taker = CheckpointWriter { log, tables, last, taken_at, failed_at: None, shared: shared.clone() };
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let thread = Mutex::new(Some(thread.spawn(move || taker.run(&requested))?));
        Ok(Checkpoints { requests: Mutex::new(requests), shared, thread })
    }

    /// Writes a checkpoint now.
    pub async fn take(&self) -> Result<Saved, Problem> {
        let (answer, answered) = oneshot::channel();
        // Without a thread the answer is dropped.
        let _ = self.requests.lock().send(CheckpointRequest::Take(answer));
        answered.await.unwrap_or_else(|_| Err(Problem::unavailable("the server is stopping")))
    }

    /// Ends the thread: it writes a last checkpoint if that is worthwhile and done within this time.
    pub async fn finish(&self, within: Duration) {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.lock().send(CheckpointRequest::Finish(answer));
        // Too late, or the thread has ended: the checkpoint is abandoned.
        let _ = tokio::time::timeout(within, answered).await;
        self.shared.is_abandoned.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            // A panic was reported by the thread already.
            let _ = thread.join();
        }
    }

    /// The condition to report when the last checkpoint failed.
    pub fn condition(&self) -> Option<Condition> {
        let failed = self.shared.failed.lock();
        failed.as_ref().map(|why| Condition::new(State::CheckpointFailed, why.clone()))
    }
}

/// The state of the thread.
struct CheckpointWriter {
    log: Log,
    tables: Tables,
    last: Option<Saved>,
    /// The end of the log when the last checkpoint was begun.
    taken_at: Position,
    failed_at: Option<Instant>,
    shared: Arc<CheckpointStatus>,
}

impl CheckpointWriter {
    fn run(mut self, requests: &mpsc::Receiver<CheckpointRequest>) {
        loop {
            let asked = match requests.recv_timeout(LOOK) {
                Ok(request) => Some(request),
                Err(mpsc::RecvTimeoutError::Timeout) => None,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = self.tables.save_settled() {
                self.failed(&error);
            }
            match asked {
                None if self.is_due() => drop(self.take()),
                None => {}
                Some(CheckpointRequest::Take(answer)) => {
                    // The client may have disconnected.
                    let _ = answer.send(self.take());
                }
                Some(CheckpointRequest::Finish(answer)) => {
                    if self.is_worth_it() {
                        drop(self.take());
                    }
                    let _ = answer.send(());
                    return;
                }
            }
        }
    }

    fn is_due(&self) -> bool {
        if let Some(failed) = self.failed_at {
            return failed.elapsed() >= PAUSE;
        }
        self.tables.is_checkpoint_due()
            || self.last.is_none_or(|last| {
                self.log.end().0 - self.taken_at.0 >= last.bytes.clamp(EVERY_BYTES_MIN, EVERY_BYTES_MAX)
            })
    }

    /// Whether a stop writes a checkpoint.
    fn is_worth_it(&self) -> bool {
        let grown_bytes = self.log.end().0 - self.taken_at.0;
        let is_enough = |last: Saved| last.bytes <= STOP_SMALL_BYTES || grown_bytes >= last.bytes / STOP_PART;
        self.last.is_none_or(|last| grown_bytes > 0 && is_enough(last))
    }

    fn take(&mut self) -> Result<Saved, Problem> {
        if !self.tables.has_checkpoints() {
            let why = "no table is one that only this server writes to, or that it follows";
            return Err(Problem::unavailable(why));
        }
        let taken_at = self.log.end();
        let shared = self.shared.clone();
        let goes_on = || !shared.is_abandoned.load(Ordering::Relaxed);
        match self.tables.save_checkpoint(goes_on) {
            Ok(Some(saved)) => {
                (self.last, self.taken_at, self.failed_at) = (Some(saved), taken_at, None);
                *self.shared.failed.lock() = None;
                Ok(saved)
            }
            Ok(None) if goes_on() => {
                let why = "a table is not loaded or not followed yet, or the outcome of a write is unknown";
                Err(Problem::unavailable(why))
            }
            Ok(None) => Err(Problem::unavailable("the server is stopping")),
            Err(error) => {
                self.failed(&error);
                Err(Problem::unavailable(error.to_string()))
            }
        }
    }

    fn failed(&mut self, error: &Error) {
        self.failed_at = Some(Instant::now());
        let why = format!("no checkpoint of memory could be written: {error}; it is tried again");
        let mut failed = self.shared.failed.lock();
        if failed.as_ref() != Some(&why) {
            warn!("{why}");
            *failed = Some(why);
        }
    }
}
