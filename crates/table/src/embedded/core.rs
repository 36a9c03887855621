//! What all tables of a data folder share: the log, the memory budget, the source, and eviction.

use super::budget::{Budget, allocated_bytes};
use super::follow::{Stream, Waiters};
use super::intent::IntentCount;
use super::rows::Rows;
use crate::hash::Hasher;
use crate::reads::Reads;
use crate::source::Source;
use forebay_log::{Log, Position};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

pub(crate) struct Core {
    pub log: Log,
    pub budget: Arc<Budget>,
    pub source: Arc<dyn Source>,
    /// Limits how many reads of the source run and wait at the same time.
    pub reads: Reads,
    /// The database's outcomes of changes at or before this are in memory; each refusal is also in the log.
    settled: AtomicU64,
    /// The settled position of a checkpoint that was forgotten, because the database has lost changes.
    pub forgotten: AtomicU64,
    /// The log refused the record of an outcome: `settled` advances no further.
    is_unsettled: AtomicBool,
    /// The `settled` position that is on the disk; locked while it is written. `None`: memory has outcomes
    /// that the log does not contain, so only the next checkpoint may store a higher position.
    pub saved_settled: Mutex<Option<Position>>,
    /// Locked while a checkpoint is written; the count of [`Core::removals`] at the last one.
    pub checkpointing: Mutex<u64>,
    /// How often a checkpoint was removed while serving, because the database had lost changes.
    pub removals: AtomicU64,
    /// Hashes the keys and values of all tables.
    pub hasher: Hasher,
    /// Requests that wait for the next poll of the database.
    pub waiters: Waiters,
    /// The place in the database's changes that memory has reached.
    pub stream: Stream,
    /// The number of intents without an outcome.
    pub awaited: IntentCount,
    /// The rows of all tables, for eviction. Set when they are opened.
    pub rows: OnceLock<Vec<Arc<Rows>>>,
    pub evictor: Mutex<Evictor>,
    /// Rows that were read back from the database since the start.
    pub fetched_rows: AtomicU64,
}

/// Where the eviction clock stands, and when another complete search makes sense.
#[derive(Default)]
pub(crate) struct Evictor {
    /// The next shard, counted through all tables.
    pub turn: usize,
    /// What the last complete search looked at when it found nothing to evict; `None` after a search that
    /// found a row.
    pub searched: Option<Searched>,
    /// The sum of the tables' evictable positions and the number of rows read back when nothing was found:
    /// eviction finds nothing again until one of the two changes.
    pub barren: Option<(u64, u64)>,
}

pub(crate) struct Searched {
    /// The evictable position at which half of what was undrained then is drained.
    pub again_at: Position,
    pub slots: u64,
    pub fetched_rows: u64,
}

/// Memory that was reserved for a row. Released on drop, unless [`Charge::keep`] was called.
pub(crate) struct Charge<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Charge<'_> {
    /// The row is in memory: its bytes now count as used by its table.
    pub fn keep(mut self, table: &Budget) {
        table.take_over(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give(self.bytes);
        }
    }
}

impl Core {
    pub fn new(log: Log, limit_bytes: u64, source: Arc<dyn Source>, hasher: Hasher) -> Core {
        Core {
            log,
            budget: Arc::new(Budget::new(limit_bytes)),
            source,
            reads: Reads::default(),
            settled: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            is_unsettled: AtomicBool::new(false),
            saved_settled: Mutex::new(Some(Position(0))),
            checkpointing: Mutex::default(),
            removals: AtomicU64::new(0),
            hasher,
            waiters: Waiters::default(),
            stream: Stream::default(),
            awaited: IntentCount::default(),
            rows: OnceLock::new(),
            evictor: Mutex::default(),
            fetched_rows: AtomicU64::new(0),
        }
    }

    pub fn settled(&self) -> Position {
        Position(self.settled.load(Ordering::SeqCst))
    }

    pub fn set_settled(&self, position: Position) {
        if !self.lacks_outcomes() {
            self.settled.fetch_max(position.0, Ordering::SeqCst);
        }
    }

    /// Lowers [`Core::settled`].
    pub fn unsettle(&self, position: Position) {
        self.settled.fetch_min(position.0, Ordering::SeqCst);
    }

    /// Whether the log refused the record of an outcome.
    pub fn lacks_outcomes(&self) -> bool {
        self.is_unsettled.load(Ordering::SeqCst)
    }

    /// Appends the outcome of a change to the log: the record that `put` writes.
    pub fn log_outcome(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut record = Vec::new();
        put(&mut record);
        if self.log.append_later(&record).is_err() {
            self.is_unsettled.store(true, Ordering::SeqCst);
        }
    }

    /// Reserves memory for `row_bytes` if the limit allows it.
    pub fn try_reserve(&self, row_bytes: usize) -> Option<Charge<'_>> {
        let bytes = allocated_bytes(row_bytes);
        self.budget.try_take(bytes).then(|| self.taken(bytes))
    }

    /// A charge for bytes that were already taken from the budget.
    pub fn taken(&self, bytes: usize) -> Charge<'_> {
        Charge { budget: &self.budget, bytes }
    }
}
