//! What the drain is told, and what it tells: settings, controls, the state that the admin listener shows.

use crate::batcher::{Committed, Drained};
use crate::limits::{BATCH_ROWS_DEFAULT, IDLE_MS, LEAVE_WAIT, PAUSE_WAIT};
use crate::stopped::StoppedTable;
use crate::window::{Opening, Window};
use crate::{Error, Kind};
use forebay_log::Position;
use forebay_value::Timestamp;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How a drain begins.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rows a second that are written at most, after coalescing; `None`: as fast as the database takes them.
    pub pace_rows_per_s: Option<f64>,
    /// Whether it begins paused.
    pub paused: bool,
    /// When it works; `None`: always.
    pub window: Option<Window>,
    /// Whether other processes drain, and this one only counts what is in the queues. For queues on Redis.
    pub elsewhere: bool,
    /// Log records in one batch at most.
    pub batch_rows_max: usize,
    /// The folder for letters that the database does not take. Without it (and on Redis) the table of such a
    /// change is stopped.
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
    /// When everything appended until now is in the database, paused or not.
    Finish,
    /// After the batch in hand, if that ends soon: else the next start finds out what became of it. The rest
    /// stays in the log.
    Leave,
}

/// What a drain is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// It has not yet found out where the database stands.
    Starting,
    /// It drains, or waits for something to drain.
    Running,
    /// It was told to wait.
    Paused,
    /// It waits for its window.
    Waiting,
    /// Other processes drain, and this one never does.
    Elsewhere,
    /// The database is away: it tries again by itself. The reason is in `last_error`.
    BackingOff,
    /// Another drain of this log has taken over; this one has stopped for good.
    Fenced,
    /// It has stopped for good for another reason, which is in `last_error`.
    Failed,
    /// It was stopped.
    Stopped,
}

impl Status {
    /// Whether nothing more will be drained.
    pub fn has_ended(&self) -> bool {
        matches!(self, Status::Fenced | Status::Failed | Status::Stopped)
    }
}

/// The drain's state at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainState {
    /// What it is doing.
    pub status: Status,
    /// Everything of the log before it is durable in the database. Each shard on Redis has a position of its
    /// own; it is 0 there.
    pub position: Position,
    /// Bytes of the log behind the position; 0 on Redis.
    pub backlog_bytes: u64,
    /// Records that are not in the database. In the log by the mean size of those drained so far, `None`
    /// before the first; on Redis as counted last.
    pub backlog_rows: Option<u64>,
    /// Those of them that the database has refused so far and holds, until what they need has arrived; as
    /// counted last.
    pub held_rows: u64,
    /// Since when, if any.
    pub held_since: Option<Timestamp>,
    /// Queues that there are: 1 for a log, the shards on Redis.
    pub shards: u16,
    /// Those that this drain works on; the others are another drain's.
    pub shards_held: u16,
    /// Who drains instead of this process, when it leaves that to others and has looked.
    pub workers: Option<Workers>,
    /// Records drained since the start.
    pub rows_total: u64,
    /// Changes that they were after coalescing.
    pub changes_total: u64,
    /// Changes that became dead letters since the start.
    pub dead_total: u64,
    /// Those of them that are in the file of the data folder, because the database did not take the letter.
    pub unwritten_total: u64,
    /// Writes with `durability = "database"` that the database refused since the start.
    pub refused_total: u64,
    /// Batches committed since the start.
    pub batches_total: u64,
    /// Records drained a second, over the last seconds.
    pub rate_rows_per_s: f64,
    /// Rows a second that are written at most.
    pub pace_rows_per_s: Option<f64>,
    /// Whether it was told to wait.
    pub paused: bool,
    /// Its window of this time or the next, if it has any.
    pub opening: Option<Opening>,
    /// Why it has begun before its window without being asked to, until that begins.
    pub early: Option<String>,
    /// Whether a batch is being taken or written at this moment.
    pub batch_in_hand: bool,
    /// Since when it does that.
    pub status_since: Timestamp,
    /// Tables whose changes wait because the database would refuse all of them.
    pub stopped_tables: Vec<StoppedTable>,
    /// The last failure, until a batch succeeds.
    pub last_error: Option<String>,
}

/// Those who hold leases of queues, as it was looked last.
#[derive(Debug, Clone, PartialEq)]
pub struct Workers {
    /// As they call themselves.
    pub names: BTreeSet<String>,
    /// Since when there are any, or none.
    pub since: Timestamp,
}

/// What the drain was told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Control {
    pub paused: bool,
    pub window: Option<Window>,
    /// What lies before this in the log is drained whatever the window.
    pub wanted: Position,
    /// Whether it works before its window, because too much waits.
    pub is_early: bool,
    pub elsewhere: bool,
    pub pace_rows_per_s: Option<f64>,
    pub stop: Option<Stop>,
}

/// What has been drained so far.
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
    /// On Redis, as counted last.
    pub backlog_rows: u64,
    pub shards_held: u16,
    /// How many changes are held, and since when.
    pub held: Option<(u64, Timestamp)>,
    /// On Redis, while this drain has no shards.
    pub workers: Option<Workers>,
    rate: f64,
    rate_at: Option<Instant>,
}

/// The rate forgets what is older than about this.
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

    /// Notes who holds leases now.
    pub(crate) fn saw_workers(&mut self, names: BTreeSet<String>) {
        let before = self.workers.take().filter(|before| before.names.is_empty() == names.is_empty());
        let since = before.map_or_else(Timestamp::now, |before| before.since);
        self.workers = Some(Workers { names, since });
    }

    /// Rows a second: each row counts fully when it comes and fades with the window.
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

/// Where a drain is, and what it does.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    pub drained: Drained,
    pub status: Status,
    pub since: Timestamp,
    pub stopped: Vec<StoppedTable>,
}

impl Moved {
    /// Why what waits for a position need not wait longer, if a table is stopped.
    pub(crate) fn stopped_reason(&self) -> Option<&str> {
        self.stopped.first().map(|stopped| stopped.reason.as_str())
    }
}

/// What the thread and its handles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub control: Mutex<Control>,
    pub wake: Condvar,
    pub totals: Mutex<Totals>,
    /// Where it is and what it does: what `drain_to` and `stop` wait on.
    pub moved: watch::Sender<Moved>,
    /// Why the drain has begun before its window.
    early: Mutex<Option<String>>,
    /// Whether a batch is in hand: what `pause` waits on.
    in_hand: watch::Sender<bool>,
    /// How often everything was asked for, and up to which of these requests it is in the database: what
    /// `drain_all` waits on, on Redis.
    asked: AtomicU64,
    answered: watch::Sender<u64>,
}

/// The thread's right to take records and apply them, until it is dropped.
pub(crate) struct InHand<'a>(&'a watch::Sender<bool>);

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

impl Shared {
    pub(crate) fn new(settings: &Settings) -> Shared {
        Shared {
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
            moved: watch::Sender::new(Moved {
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

    /// The window that this drain waits for; `None`: it need not, or was asked for what is in the queue.
    pub(crate) fn awaited(&self) -> Option<Opening> {
        let control = self.control();
        let now = Timestamp::now();
        let opening = control.window?.opening(now);
        let is_asked = self.moved.borrow().drained.others < control.wanted || self.unanswered().is_some();
        let may = control.stop.is_some() || is_asked || control.is_early || opening.has_begun(now);
        (!may).then_some(opening)
    }

    /// Has what lies before this in the log drained whatever the window.
    pub(crate) fn want(&self, position: Position) {
        self.change(|control| control.wanted = control.wanted.max(position));
    }

    /// Why the drain has begun before its window, since the last one.
    pub(crate) fn early(&self) -> Option<String> {
        self.early.lock().clone()
    }

    /// Lets the drain work before its window, and says why until that begins.
    pub(crate) fn begin_early(&self, why: String) {
        *self.early.lock() = Some(why);
        self.change(|control| control.is_early = true);
    }

    /// Lets the drain wait for its window again.
    pub(crate) fn end_early(&self) {
        self.change(|control| control.is_early = false);
    }

    /// Forgets why the drain has begun early, once its window has begun.
    pub(crate) fn look_at_window(&self) {
        let now = Timestamp::now();
        if self.control().window.is_some_and(|window| window.opening(now).has_begun(now)) {
            *self.early.lock() = None;
        }
    }

    /// What a batch begins with; `None` while paused, unless it is to finish, outside of the window, and when
    /// others drain. Asked for when there is nothing more to wait for: what is appended after
    /// [`Shared::pause`] has resolved is in no batch that began before.
    pub(crate) fn begin(&self) -> Option<InHand<'_>> {
        if self.awaited().is_some() {
            return None;
        }
        let control = self.control.lock();
        let may = !control.elsewhere && (!control.paused || control.stop.is_some());
        may.then(|| {
            self.in_hand.send_replace(true);
            InHand(&self.in_hand)
        })
    }

    /// Lets no further batch begin, and resolves when the one in hand has ended, or after [`PAUSE_WAIT`].
    pub(crate) async fn pause(&self) {
        self.change(|control| control.paused = true);
        let mut in_hand = self.in_hand.subscribe();
        // It takes longer only with a database that does not answer, which is when people pause: the state
        // says so then.
        let _ = tokio::time::timeout(PAUSE_WAIT, in_hand.wait_for(|is_in_hand| !is_in_hand)).await;
    }

    pub(crate) fn has_batch_in_hand(&self) -> bool {
        *self.in_hand.borrow()
    }

    /// What work gives; [`Kind::Stopped`] when the drain is told to leave and it does not end soon after.
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

    /// Says what failed, until a batch succeeds.
    pub(crate) fn note(&self, message: String) {
        self.totals.lock().last_error = Some(message);
    }

    /// Asks for everything that is in the queues now; the number to wait for in [`Shared::answered`].
    pub(crate) fn ask_for_all(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The last request for everything, if it is not answered.
    pub(crate) fn unanswered(&self) -> Option<u64> {
        let asked = self.asked.load(Ordering::Acquire);
        (asked > *self.answered.borrow()).then_some(asked)
    }

    /// What was in the queues at this request is in the database.
    pub(crate) fn answer(&self, request: u64) {
        self.answered.send_replace(request);
    }

    pub(crate) fn answered(&self) -> watch::Receiver<u64> {
        self.answered.subscribe()
    }

    /// Says what it does now.
    pub(crate) fn set_status(&self, status: Status) {
        self.moved.send_if_modified(|moved| {
            if moved.status == status {
                return false;
            }
            (moved.status, moved.since) = (status, Timestamp::now());
            true
        });
    }

    /// Says which tables are stopped.
    pub(crate) fn set_stopped(&self, stopped: Vec<StoppedTable>) {
        self.moved.send_if_modified(|moved| {
            if moved.stopped == stopped {
                return false;
            }
            moved.stopped = stopped;
            true
        });
    }

    pub(crate) fn set_drained(&self, drained: Drained) {
        self.moved.send_modify(|moved| moved.drained = drained);
    }

    /// Waits so long, or until it is told something.
    pub(crate) fn wait(&self, time: Duration) {
        let mut control = self.control.lock();
        if control.stop.is_none() {
            self.wake.wait_for(&mut control, time);
        }
    }
}
