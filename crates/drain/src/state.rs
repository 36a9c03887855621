//! A drain's settings, its controls, and the state that the admin listener shows.

use crate::batcher::{Committed, Drained};
use crate::limits::{BATCH_ROWS_DEFAULT, IDLE_MS, LEAVE_WAIT, PAUSE_WAIT};
use crate::stopped::StoppedTable;
use crate::window::{DailyWindow, Window};
use crate::{Error, Kind};
use forebay_log::Position;
use forebay_value::Timestamp;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The settings with which a drain starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rows a second that are written at most, after coalescing; `None`: as fast as the database accepts
    /// them.
    pub pace_rows_per_s: Option<f64>,
    /// Whether the drain starts paused.
    pub paused: bool,
    /// The window in which the drain works; `None`: always.
    pub window: Option<Window>,
    /// Whether other processes drain, and this one only counts the records in the queues. For queues on
    /// Redis.
    pub elsewhere: bool,
    /// Log records in one batch at most.
    pub batch_rows_max: usize,
    /// The folder for dead letters that the database does not accept. Without it (and on Redis) the table of
    /// such a change is stopped.
    pub letters: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            pace_rows_per_s: None,
            paused: false,
            window: None,
            elsewhere: false,
            batch_rows_max: BATCH_ROWS_DEFAULT,
            letters: None,
        }
    }
}

/// How a drain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// When everything appended until now is in the database, even if the drain is paused.
    Finish,
    /// After the batch in hand, if that ends soon; otherwise the next start finds out its outcome. The rest
    /// stays in the log.
    Leave,
}

/// What a drain is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The drain has not yet read the database's position.
    Starting,
    /// The drain is writing batches, or waits for records.
    Running,
    /// The drain was told to pause.
    Paused,
    /// The drain waits for its window.
    Waiting,
    /// Other processes drain, and this one never does.
    Elsewhere,
    /// The database is unreachable: the drain retries by itself. The reason is in `last_error`.
    BackingOff,
    /// Another drain of this log has taken over; this one has stopped and does not restart.
    Fenced,
    /// The drain has stopped for another reason, which is in `last_error`, and does not restart.
    Failed,
    /// The drain was stopped.
    Stopped,
}

impl Status {
    /// Whether the drain has ended and drains nothing more.
    pub fn has_ended(&self) -> bool {
        matches!(self, Status::Fenced | Status::Failed | Status::Stopped)
    }
}

/// The drain's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainState {
    /// What the drain is doing.
    pub status: Status,
    /// Everything before this position of the log is durable in the database. Always 0 on Redis, where each
    /// shard has its own position.
    pub position: Position,
    /// Bytes of the log behind `position`; 0 on Redis.
    pub backlog_bytes: u64,
    /// Records that are not in the database. For the log an estimate from the mean size of the records
    /// drained so far, `None` before the first; on Redis the last count.
    pub backlog_rows: Option<u64>,
    /// Those of them that the database has refused so far and holds until the rows that they need have
    /// arrived; the last count.
    pub held_rows: u64,
    /// When the oldest held change was held, if any is held.
    pub held_since: Option<Timestamp>,
    /// The number of queues: 1 for a log, the shards on Redis.
    pub shards: u16,
    /// Shards that this drain holds; other drains hold the others.
    pub shards_held: u16,
    /// The drains that work instead of this process, once it has read their names; `None` when this process
    /// drains.
    pub workers: Option<Workers>,
    /// Records drained since the start.
    pub rows_total: u64,
    /// Changes written since the start, after coalescing.
    pub changes_total: u64,
    /// Changes that became dead letters since the start.
    pub dead_total: u64,
    /// Those of them that are in the data folder's file, because the database did not accept the dead letter.
    pub unwritten_total: u64,
    /// Writes with `durability = "database"` that the database refused since the start.
    pub refused_total: u64,
    /// Batches committed since the start.
    pub batches_total: u64,
    /// Records drained a second, over the last seconds.
    pub rate_rows_per_s: f64,
    /// Rows a second that are written at most.
    pub pace_rows_per_s: Option<f64>,
    /// Whether the drain was told to pause.
    pub paused: bool,
    /// Its current or next window, if it has one.
    pub opening: Option<DailyWindow>,
    /// Why the drain has started before its window on its own, until that window begins.
    pub early: Option<String>,
    /// Whether a batch is being taken or written at this moment.
    pub batch_in_hand: bool,
    /// When the drain last changed its status by itself; a pause or a window does not count as a change.
    pub status_since: Timestamp,
    /// Tables whose changes wait because the database would refuse all of them.
    pub stopped_tables: Vec<StoppedTable>,
    /// The last failure, until a batch succeeds.
    pub last_error: Option<String>,
}

/// The holders of the queues' leases, as last read.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// Their names, as they stand in the leases.
    pub names: BTreeSet<String>,
    /// Since when there have been any, or none.
    pub since: Timestamp,
}

/// The controls of a drain.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub paused: bool,
    pub window: Option<Window>,
    /// Records before this position of the log are drained regardless of the window.
    pub wanted: Position,
    /// Whether the drain works before its window, because the backlog is too large.
    pub is_early: bool,
    pub elsewhere: bool,
    pub pace_rows_per_s: Option<f64>,
    pub stop: Option<Stop>,
}

/// Counters of what has been drained so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    pub rows: u64,
    pub bytes: u64,
    pub changes: u64,
    pub dead: u64,
    pub unwritten: u64,
    pub refused: u64,
    pub batches: u64,
    pub last_error: Option<String>,
    /// On Redis: the last count.
    pub backlog_rows: u64,
    pub shards_held: u16,
    /// The number of held changes, and since when there are any.
    pub held: Option<(u64, Timestamp)>,
    /// On Redis, while this drain holds no shards.
    pub workers: Option<Workers>,
    rate: f64,
    rate_at: Option<Instant>,
}

/// The time constant of the rate: older batches fade.
const RATE_WINDOW: Duration = Duration::from_secs(2);

impl Totals {
    fn count(&mut self, committed: &Committed) {
        self.rows += committed.rows as u64;
        self.bytes += committed.bytes;
        self.changes += committed.changes as u64;
        self.dead += committed.dead;
        self.unwritten += committed.unwritten;
        self.refused += committed.refused;
        self.batches += 1;
        self.last_error = None;
        let now = Instant::now();
        self.rate = self.rate_at(now) + committed.rows as f64 / RATE_WINDOW.as_secs_f64();
        self.rate_at = Some(now);
    }

    /// Records the present holders of leases.
    pub(crate) fn saw_workers(&mut self, names: BTreeSet<String>) {
        let before = self.workers.take().filter(|before| before.names.is_empty() == names.is_empty());
        let since = before.map_or_else(Timestamp::now, |before| before.since);
        self.workers = Some(Workers { names, since });
    }

    /// Rows a second: each row counts fully when it arrives and fades with [`RATE_WINDOW`].
    pub(crate) fn rate_at(&self, now: Instant) -> f64 {
        match self.rate_at {
            Some(at) => {
                let age = now.saturating_duration_since(at).as_secs_f64() / RATE_WINDOW.as_secs_f64();
                self.rate * (-age).exp()
            }
            None => 0.0,
        }
    }
}

/// The drain's position and status.
#[derive(Debug, Clone)]
pub(crate) struct DrainProgress {
    pub drained: Drained,
    pub status: Status,
    pub since: Timestamp,
    pub stopped: Vec<StoppedTable>,
}

/// The state that the drain's thread and its handles share.
#[derive(Debug)]
pub(crate) struct DrainShared {
    pub control: Mutex<Control>,
    pub wake: Condvar,
    pub totals: Mutex<Totals>,
    /// Position and status: `drain_to` and `stop` wait on it.
    pub progress: watch::Sender<DrainProgress>,
    /// Why the drain has started before its window.
    early: Mutex<Option<String>>,
    /// Whether a batch is in hand: what `pause` waits on.
    in_hand: watch::Sender<bool>,
    /// How often a caller asked for everything to be drained, and the last of these requests that is
    /// fulfilled: `drain_all` waits on them, on Redis.
    asked: AtomicU64,
    answered: watch::Sender<u64>,
}

/// The thread's permission to take records and apply them, until it is dropped.
pub(crate) struct InHand<'a>(&'a watch::Sender<bool>);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl DrainShared {
    pub(crate) fn new(settings: &Settings) -> DrainShared {
        DrainShared {
            control: Mutex::new(Control {
                paused: settings.paused,
                window: settings.window,
                wanted: Position(0),
                is_early: false,
                elsewhere: settings.elsewhere,
                pace_rows_per_s: settings.pace_rows_per_s,
                stop: None,
            }),
            wake: Condvar::new(),
            totals: Mutex::default(),
            progress: watch::Sender::new(DrainProgress {
                drained: Drained::default(),
                status: Status::Starting,
                since: Timestamp::now(),
                stopped: Vec::new(),
            }),
            early: Mutex::default(),
            in_hand: watch::Sender::new(false),
            asked: AtomicU64::new(0),
            answered: watch::Sender::new(0),
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control.lock());
        self.wake.notify_all();
    }

    pub(crate) fn control(&self) -> Control {
        *self.control.lock()
    }

    /// The window that this drain waits for; `None`: it need not wait, or was asked to drain what is in the
    /// queue.
    pub(crate) fn awaited(&self) -> Option<DailyWindow> {
        let control = self.control();
        let now = Timestamp::now();
        let opening = control.window?.opening(now);
        let is_asked =
            self.progress.borrow().drained.announced < control.wanted || self.unanswered().is_some();
        let may = control.stop.is_some() || is_asked || control.is_early || opening.has_begun(now);
        (!may).then_some(opening)
    }

    /// Has all records before this position of the log drained regardless of the window.
    pub(crate) fn want(&self, position: Position) {
        self.change(|control| control.wanted = control.wanted.max(position));
    }

    /// Why the drain has started before its window, since the last window.
    pub(crate) fn early(&self) -> Option<String> {
        self.early.lock().clone()
    }

    /// Lets the drain work before its window; `why` is shown until the window begins.
    pub(crate) fn begin_early(&self, why: String) {
        *self.early.lock() = Some(why);
        self.change(|control| control.is_early = true);
    }

    /// Lets the drain wait for its window again.
    pub(crate) fn end_early(&self) {
        self.change(|control| control.is_early = false);
    }

    /// Clears the reason for an early start, once the window has begun.
    pub(crate) fn look_at_window(&self) {
        let now = Timestamp::now();
        if self.control().window.is_some_and(|window| window.opening(now).has_begun(now)) {
            *self.early.lock() = None;
        }
    }

    /// Starts a batch. `None` when the drain is to leave, while paused (unless it is to finish), outside the
    /// window, and when other processes drain. Called only when nothing else is to be waited for: what is
    /// appended after [`DrainShared::pause`] has resolved is in no batch that began before.
    pub(crate) fn begin(&self) -> Option<InHand<'_>> {
        if self.awaited().is_some() {
            return None;
        }
        let control = self.control.lock();
        let may = match control.stop {
            Some(Stop::Leave) => false,
            Some(Stop::Finish) => !control.elsewhere,
            None => !control.elsewhere && !control.paused,
        };
        may.then(|| {
            self.in_hand.send_replace(true);
            InHand(&self.in_hand)
        })
    }

    /// Lets no further batch begin, and resolves when the batch in hand has ended, or after [`PAUSE_WAIT`].
    pub(crate) async fn pause(&self) {
        self.change(|control| control.paused = true);
        let mut in_hand = self.in_hand.subscribe();
        // Longer than the limit only when the database does not answer, and that is when an operator pauses:
        // the state still shows the batch in hand.
        let _ = tokio::time::timeout(PAUSE_WAIT, in_hand.wait_for(|is_in_hand| !is_in_hand)).await;
    }

    pub(crate) fn has_batch_in_hand(&self) -> bool {
        *self.in_hand.borrow()
    }

    /// The result of `work`; [`Kind::Stopped`] when the drain is told to leave and `work` does not end within
    /// [`LEAVE_WAIT`].
    pub(crate) async fn unless_left<T>(
        &self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let left = async {
            while self.control().stop != Some(Stop::Leave) {
                tokio::time::sleep(Duration::from_millis(IDLE_MS)).await;
            }
            tokio::time::sleep(LEAVE_WAIT).await;
        };
        tokio::select! {
            biased;
            done = work => done,
            () = left => Err(Error::new(Kind::Stopped, "it was stopped before the database had answered")),
        }
    }

    /// Counts a committed batch.
    pub(crate) fn count(&self, committed: &Committed) {
        self.totals.lock().count(committed);
    }

    /// Records a failure, shown until a batch succeeds.
    pub(crate) fn note(&self, message: String) {
        self.totals.lock().last_error = Some(message);
    }

    /// Asks for everything in the queues to be drained; returns the number to wait for in
    /// [`DrainShared::answered`].
    pub(crate) fn ask_for_all(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last request for everything, if it is not yet fulfilled.
    pub(crate) fn unanswered(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Acquire);
        (asked > *self.answered.borrow()).then_some(asked)
    }

    /// Reports that what was in the queues at this request is in the database.
    pub(crate) fn answer(&self, request: u64) {
        self.answered.send_replace(request);
    }

    pub(crate) fn answered(&self) -> watch::Receiver<u64> {
        self.answered.subscribe()
    }

    /// Publishes what the drain does now.
    pub(crate) fn set_status(&self, status: Status) {
        self.progress.send_if_modified(|progress| {
            if progress.status == status {
                return false;
            }
            (progress.status, progress.since) = (status, Timestamp::now());
            true
        });
    }

    /// Publishes which tables are stopped.
    pub(crate) fn set_stopped(&self, stopped: Vec<StoppedTable>) {
        self.progress.send_if_modified(|progress| {
            if progress.stopped == stopped {
                return false;
            }
            progress.stopped = stopped;
            true
        });
    }

    pub(crate) fn set_drained(&self, drained: Drained) {
        self.progress.send_if_modified(|progress| {
            let is_new = progress.drained != drained;
            progress.drained = drained;
            is_new
        });
    }

    /// Waits for `time`, or until a control changes.
    pub(crate) fn wait(&self, time: Duration) {
        let mut control = self.control.lock();
        if control.stop.is_none() {
            self.wake.wait_for(&mut control, time);
        }
    }
}
