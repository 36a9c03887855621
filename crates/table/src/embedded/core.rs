//! What all tables of a data folder share: the log, the memory budget, the drained position, the source, and
//! the eviction.

use super::budget::{Budget, allocated_bytes};
use super::follow::{Stream, Waiters};
use super::intent::Awaited;
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
    /// Bounds the reads through the source.
    pub reads: Reads,
    /// Everything at or before this is durable in the database.
    drained: AtomicU64,
    /// The same, of followed tables, in what memory has seen of the database; the highest number when no
    /// table is followed.
    followed: AtomicU64,
    /// What the database made of changes at or before this is in memory, and in the log where it refused one.
    settled: AtomicU64,
    /// The log did not take that a change was refused: nothing more is settled.
    is_unsettled: AtomicBool,
    /// What of it is on the disk. Taken to write that. `None`: memory has outcomes that the log does not
    /// tell, so that only the next checkpoint may say more.
    pub saved_settled: Mutex<Option<Position>>,
    /// Taken to write a checkpoint.
    pub checkpointing: Mutex<()>,
    /// Of all tables.
    pub hasher: Hasher,
    /// Who waits for the next look at the database.
    pub waiters: Waiters,
    /// The place in the database's changes that memory has reached.
    pub stream: Stream,
    /// How many writes wait for the database.
    pub awaited: Awaited,
    /// The rows of all tables, for eviction. Set when they are opened.
    pub rows: OnceLock<Vec<Arc<Rows>>>,
    pub evictor: Mutex<Evictor>,
    /// Rows that came back from the database since the evictor last looked everywhere.
    pub fetched_rows: AtomicU64,
}

/// Where the clock stands, and when it makes sense to look everywhere again.
#[derive(Default)]
pub(crate) struct Evictor {
    /// The next shard, counted through all tables.
    pub turn: usize,
    /// What the last complete search that found nothing looked at; `None` after one that did.
    pub searched: Option<Searched>,
    /// The drained position and the rows read back when nothing was found, short of a complete search: the
    /// same again until one changes.
    pub barren: Option<(Position, u64)>,
}

pub(crate) struct Searched {
    /// Half of what was undrained is drained when this is.
    pub again_at: Position,
    pub slots: u64,
    pub fetched_rows: u64,
}

/// Memory that was reserved for a row. Given back when dropped, unless kept.
pub(crate) struct Charge<'a> {
    budget: &'a Budget,
    bytes: usize,
}

impl Charge<'_> {
    /// The row is in memory: its bytes are counted from now on, as those of its table.
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
            drained: AtomicU64::new(0),
            followed: AtomicU64::new(u64::MAX),
            settled: AtomicU64::new(0),
            is_unsettled: AtomicBool::new(false),
            saved_settled: Mutex::new(Some(Position(0))),
            checkpointing: Mutex::default(),
            hasher,
            waiters: Waiters::default(),
            stream: Stream::default(),
            awaited: Awaited::default(),
            rows: OnceLock::new(),
            evictor: Mutex::default(),
            fetched_rows: AtomicU64::new(0),
        }
    }

    pub fn drained(&self) -> Position {
        Position(self.drained.load(Ordering::SeqCst))
    }

    pub fn set_drained(&self, position: Position) {
        self.drained.fetch_max(position.0, Ordering::SeqCst);
    }

    pub fn settled(&self) -> Position {
        Position(self.settled.load(Ordering::SeqCst))
    }

    pub fn set_settled(&self, position: Position) {
        if !self.is_unsettled.load(Ordering::SeqCst) {
            self.settled.fetch_max(position.0, Ordering::SeqCst);
        }
    }

    /// Has the log say what the database made of a change: the record that `put` makes.
    pub fn log_outcome(&self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut record = Vec::new();
        put(&mut record);
        if self.log.append_later(&record).is_err() {
            self.is_unsettled.store(true, Ordering::SeqCst);
        }
    }

    /// Rows whose last change is at or before this may be evicted: it is in the database, and in every image
    /// that memory will get of it.
    pub fn evictable(&self) -> Position {
        self.drained().min(Position(self.followed.load(Ordering::SeqCst)))
    }

    /// There are followed tables: nothing is seen yet.
    pub fn follow(&self) {
        self.followed.store(0, Ordering::SeqCst);
    }

    pub fn set_followed(&self, position: Position) {
        self.followed.fetch_max(position.0, Ordering::SeqCst);
    }

    /// Reserves memory for so many bytes if it is there.
    pub fn try_reserve(&self, row_bytes: usize) -> Option<Charge<'_>> {
        let bytes = allocated_bytes(row_bytes);
        self.budget.try_take(bytes).then(|| self.taken(bytes))
    }

    /// Bytes that were taken from the budget, to be given back unless they are kept.
    pub fn taken(&self, bytes: usize) -> Charge<'_> {
        Charge { budget: &self.budget, bytes }
    }
}
