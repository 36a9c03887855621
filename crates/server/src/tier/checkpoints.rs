//! When checkpoints are taken: after a start that had to read the database, then each time the log has grown
//! by as much as the last one is long, or more was told of followed tables than they have rows, when an
//! operator asks, and at a stop.
//!
//! So a start reads no more of the log than of the checkpoint, and what checkpoints write is no more than
//! what the log does. One that fails is told, and taken again after a pause; serving goes on, and the one
//! before still counts.

use crate::condition::{Condition, State};
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

/// Log behind a checkpoint after which the next one is taken, at least and at most. A replay of the one takes
/// half a second, of the other some fifteen.
const EVERY_BYTES_MIN: u64 = 256 << 20;
/// See [`EVERY_BYTES_MIN`].
const EVERY_BYTES_MAX: u64 = 8 << 30;

/// A stop takes one when the log has grown by this part of the last one, or when that is small.
const STOP_PART: u64 = 8;
/// See [`STOP_PART`]: written within a tenth of a second.
const STOP_SMALL_BYTES: u64 = 64 << 20;

/// How often it is looked whether one is due, and written down what the database has taken.
const LOOK: Duration = Duration::from_secs(1);

/// The pause after one that failed.
const PAUSE: Duration = Duration::from_secs(10);

/// The thread that takes checkpoints.
pub(super) struct Checkpoints {
    requests: Mutex<mpsc::Sender<Request>>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    /// The one under way is to be given up.
    is_given_up: AtomicBool,
    /// Why there is none that is as new as it should be.
    failed: Mutex<Option<String>>,
}

/// What the thread is asked.
enum Request {
    /// To take one now.
    Take(oneshot::Sender<Result<Saved, String>>),
    /// To take one if that is worth it, and to end.
    Finish(oneshot::Sender<()>),
}

impl Checkpoints {
    /// Begins, once memory is loaded: `last` is what it came from.
    pub fn start(log: Log, tables: Tables, last: Option<Saved>) -> io::Result<Checkpoints> {
        let (requests, requested) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        // A table that it did not have is not in it.
        let last = last.filter(|_| !tables.lacks_checkpoint());
        let taken_at = last.map(|last| last.begin).unwrap_or_default();
        let taker = Taker { log, tables, last, taken_at, failed_at: None, shared: shared.clone() };
        let thread = std::thread::Builder::new().name("checkpoint".into());
        let thread = Mutex::new(Some(thread.spawn(move || taker.run(&requested))?));
        Ok(Checkpoints { requests: Mutex::new(requests), shared, thread })
    }

    /// Takes one now.
    pub async fn take(&self) -> Result<Saved, String> {
        let (answer, answered) = oneshot::channel();
        // Without a thread the answer is dropped.
        let _ = self.requests.lock().send(Request::Take(answer));
        answered.await.unwrap_or_else(|_| Err("the server is stopping".into()))
    }

    /// Ends: takes a last one if that is worth it and done within this time.
    pub async fn finish(&self, within: Duration) {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.lock().send(Request::Finish(answer));
        // Not in time, or there is no thread any more: then it is given up.
        let _ = tokio::time::timeout(within, answered).await;
        self.shared.is_given_up.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }

    /// What is wrong with them.
    pub fn condition(&self) -> Option<Condition> {
        let failed = self.shared.failed.lock();
        failed.as_ref().map(|why| Condition::new(State::CheckpointFailed, why.clone()))
    }
}

/// What the thread knows.
struct Taker {
    log: Log,
    tables: Tables,
    last: Option<Saved>,
    /// Where the log ended when the last one was begun.
    taken_at: Position,
    failed_at: Option<Instant>,
    shared: Arc<Shared>,
}

impl Taker {
    fn run(mut self, requests: &mpsc::Receiver<Request>) {
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
                Some(Request::Take(answer)) => {
                    // The client that asked may have gone.
                    let _ = answer.send(self.take());
                }
                Some(Request::Finish(answer)) => {
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

    /// Whether a stop takes one.
    fn is_worth_it(&self) -> bool {
        let grown_bytes = self.log.end().0 - self.taken_at.0;
        let is_enough = |last: Saved| last.bytes <= STOP_SMALL_BYTES || grown_bytes >= last.bytes / STOP_PART;
        self.last.is_none_or(|last| grown_bytes > 0 && is_enough(last))
    }

    fn take(&mut self) -> Result<Saved, String> {
        if !self.tables.has_checkpoints() {
            return Err("no table is one that only this server writes to, or that it follows".into());
        }
        let taken_at = self.log.end();
        let shared = self.shared.clone();
        let goes_on = || !shared.is_given_up.load(Ordering::Relaxed);
        match self.tables.save_checkpoint(goes_on) {
            Ok(Some(saved)) => {
                (self.last, self.taken_at, self.failed_at) = (Some(saved), taken_at, None);
                *self.shared.failed.lock() = None;
                Ok(saved)
            }
            Ok(None) if goes_on() => {
                Err("a table is not loaded or not followed yet, or the outcome of a write is unknown".into())
            }
            Ok(None) => Err("the server is stopping".into()),
            Err(error) => {
                self.failed(&error);
                Err(error.to_string())
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
