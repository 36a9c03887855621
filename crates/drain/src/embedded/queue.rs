//! The data folder's log as a queue.
//!
//! A batch may end behind any record: the position that it reaches is that record's end. Records that were
//! read and not yet taken wait here, bounded by one read of the log.

use super::aside::Aside;
use crate::last_position::LastPosition;
use crate::limits::{
    AHEAD_BYTES, BATCH_BYTES, BATCH_ROWS_FIRST, CROWDED_LOG_PART, CROWDED_MEMORY_PART, HEARTBEAT,
    READ_AGAIN_MS, READ_BYTES, READ_MS,
};
use crate::queue::{IntentResult, Limit, Queue, QueuePlace, QueueRead, RowKey, Schemas, decode, op_bytes};
use crate::reached::Reached;
use crate::reconcile::{NewDatabase, Start, fenced, opening, reconcile};
use crate::stopped::StoppedTable;
use crate::{Error, Kind};
use forebay_database::{Cascades, Change, OnError, Store};
use forebay_log::{Log, Position, Reader};
use forebay_table::{Catalogue, Outcome, RereadRow, SourceError, Table, Tables};
use forebay_terminal::say;
use forebay_value::Schema;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

/// Concurrent reads of rows whose changes were undone.
const READS_AT_ONCE: usize = 64;

/// Places of the log that are read in turns.
const READERS: usize = 2;

/// The log, the tables that are told what is drained, and the reader's position.
pub(crate) struct LogQueue {
    pub log: Log,
    tables: Tables,
    /// The tables that no other server writes to.
    own: Vec<String>,
    /// The data folder, where the last position is kept.
    folder: Option<PathBuf>,
    /// When the folder was told last that this drain moves the position.
    noted_at: Option<Instant>,
    /// What was read and not yet taken, behind where the others are and behind where tables catch up.
    records: Vec<Records>,
    /// Rows that memory dropped, and from which position on they can be read again.
    undone: Vec<RereadRow>,
    /// The running reads of such rows.
    reading: FuturesUnordered<BoxFuture<'static, (Result<(), SourceError>, RereadRow)>>,
    /// When further rows are read, after a read that failed.
    read_at: Option<Instant>,
    /// Whether memory from a checkpoint was compared with the database's position.
    is_settled: bool,
    aside: Aside,
    /// Up to here the database had decided intents before the start.
    decided: Position,
}

/// Records that were read and not yet taken.
struct Records {
    reader: Reader,
    read: VecDeque<Change>,
    /// The position at which the next record to be taken begins.
    begin: Position,
    /// Behind everything in `read`.
    end: Position,
    /// Why the log cannot be read behind `end`.
    failed: Option<Error>,
}

impl LogQueue {
    pub(crate) fn new(log: Log, tables: Tables, folder: Option<PathBuf>) -> LogQueue {
        let own = tables.all().iter().filter(|table| !table.shared() && !table.followed());
        LogQueue {
            log,
            own: own.map(|table| table.schema().name.clone()).collect(),
            folder,
            noted_at: None,
            tables,
            records: Vec::new(),
            undone: Vec::new(),
            reading: FuturesUnordered::new(),
            read_at: None,
            is_settled: false,
            aside: Aside::default(),
            decided: Position(0),
        }
    }

    /// Notes in the data folder that a batch is about to move the position, or has moved it, beyond `known`:
    /// before the first batch, and from time to time.
    pub(crate) fn is_moving(&mut self, known: &Reached) -> Result<(), Error> {
        let is_due = self.noted_at.is_none_or(|noted| noted.elapsed() >= HEARTBEAT);
        if is_due && let Some(folder) = &self.folder {
            if LastPosition::write(folder, &self.log, known, false).is_err() {
                // On a full disk only the drain makes room.
                LastPosition::forget(folder)?;
            }
            self.noted_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Keeps the position in the data folder, when the drain ends and knows it.
    pub(crate) fn has_stopped(&self, known: Option<&Reached>) -> Result<(), Error> {
        match (&self.folder, known) {
            (Some(folder), Some(known)) => LastPosition::write(folder, &self.log, known, true),
            _ => Ok(()),
        }
    }

    /// Why the backlog takes too much of the log or of memory; `None`: it does not.
    pub(crate) fn crowded(&self, drained: Position) -> Option<String> {
        let waiting = self.log.end().0.saturating_sub(drained.0);
        let log_limit = self.log.limit_bytes();
        if waiting >= log_limit / CROWDED_LOG_PART {
            return Some(format!("{waiting} bytes of the log wait, and memory.log_limit is {log_limit}"));
        }
        let (used, limit) = (self.tables.used_bytes(), self.tables.limit_bytes());
        // Part of the used memory may be drained rows, which can be evicted.
        (used >= limit / 4 * 3 && waiting >= limit / CROWDED_MEMORY_PART).then(|| {
            format!("{waiting} bytes of the log wait, hot tables take {used}, and memory.limit is {limit}")
        })
    }
}

impl Queue for LogQueue {
    const ROWS_FIRST: usize = BATCH_ROWS_FIRST;
    const IS_OWN: bool = true;
    /// All changes are in the log's order: no later record can make a refused change valid.
    const ON_REFUSAL: OnError = OnError::DeadLetter;

    fn id(&self) -> u128 {
        self.log.id().0
    }

    fn opening(&self) -> String {
        opening(&self.log)
    }

    async fn locate(&mut self, database: &Store, known: Option<&Reached>) -> Result<QueuePlace, Error> {
        if !self.is_settled && self.tables.is_from_checkpoint() {
            self.check_memory(database).await?;
        }
        // Whether another database may be used was decided when the log was opened.
        let last = match (known, &self.folder) {
            (Some(known), _) => LastPosition::Exact(known.clone()),
            (None, Some(folder)) => LastPosition::read(folder, &self.log)?,
            (None, None) => LastPosition::Unknown,
        };
        let start = reconcile(&self.log, database, &self.own, NewDatabase::Refuse, &last).await?;
        if let Start::Behind { .. } | Start::PutBack(_) = start {
            start.notice(database).into_iter().for_each(|notice| say!("{notice}"));
        }
        #[cfg(feature = "planted")]
        let start =
            match self.records.is_empty() && forebay_database::planted_bugs::is("position-never-checked") {
                true => Start::Continue(self.log.whole_from()),
                false => start,
            };
        let reached = start.reached().all();
        if !self.is_settled {
            self.decided = self.log.unreleased().max(self.tables.decided_at()).max(last.at_least());
        }
        let went_back = self.tables.went_back(|table| start.reached().of(table), reached);
        went_back.map_err(|source| Error::caused(Kind::Log, source.to_string(), source))?;
        self.catch_up(database, &start)?;
        self.give_back(&start.reached()).await?;
        Ok(QueuePlace::new(Some(start.position()), start.reached()))
    }

    async fn read_after(
        &mut self,
        after: Position,
        limit: Limit,
        schemas: &mut Schemas,
    ) -> Result<QueueRead, Error> {
        let mut records = match self.records.iter().position(|records| records.begin == after) {
            Some(place) => self.records.remove(place),
            None => Records::after(&self.log, after)?,
        };
        let mut taken = records.take(&self.log, limit, &self.tables, schemas)?;
        self.records.truncate(READERS - 1);
        self.records.insert(0, records);
        for change in taken.changes.iter_mut().filter(|change| change.is_intent) {
            change.is_intent = self.is_awaited(&schemas.list[change.table].name, Position(change.position));
        }
        Ok(taken)
    }

    async fn release(&mut self, reached: &Reached) -> Result<bool, Error> {
        // Refused changes before this position have been undone.
        self.tables.settled(reached.all());
        self.give_back(reached).await?;
        Ok(true)
    }

    async fn settle(&mut self, reached: &Reached, verdict: &IntentResult) {
        let outcome = |position: Position| match verdict {
            IntentResult::Unknown => Outcome::Unknown,
            IntentResult::But(refused) => {
                match refused.binary_search_by_key(&position.0, |refused| refused.position) {
                    Err(_) => Outcome::Committed,
                    Ok(index) => match &refused[index].reason {
                        None => Outcome::Missing,
                        Some(reason) => Outcome::Refused(Arc::new(reason.clone())),
                    },
                }
            }
        };
        self.undone.extend(self.tables.settle(|table| reached.of(table), outcome));
    }

    fn catalogue(&self) -> Arc<Catalogue> {
        self.tables.catalogue()
    }

    fn set_stopped(&self, stopped: &[StoppedTable]) {
        for table in self.tables.all() {
            let own = stopped.iter().find(|stopped| stopped.table == table.schema().name);
            table.set_stopped(own.map(|stopped| stopped.reason.as_str()));
        }
        self.aside.limit(&self.log, &self.tables, stopped);
    }

    async fn undo(&mut self, rows: Vec<RowKey>) {
        for (schema, key) in rows {
            // A table that is no longer configured is not in memory.
            if let Some(table) = self.tables.get(&schema.name) {
                let from = table.undo(key.as_ref());
                // The next poll reads a row of a followed table.
                if !table.followed() {
                    self.undone.push(RereadRow::new(from, table, key));
                }
            }
        }
    }

    fn cascades(&self) -> Option<Arc<Cascades>> {
        None
    }

    async fn take_held(&mut self, _: &mut Vec<Change>, _: &[Arc<Schema>]) -> Result<Vec<Change>, Error> {
        Ok(Vec::new())
    }

    fn note_held(&mut self) {}

    fn is_long_behind(&self, position: Position) -> bool {
        self.log.durable().0.saturating_sub(position.0) >= AHEAD_BYTES
    }
}

impl LogQueue {
    /// Whether nobody was told yet whether the database took an intent. A database that has lost commits is
    /// given the others again as ordinary changes, because their clients were answered.
    fn is_awaited(&self, table: &str, position: Position) -> bool {
        // One that was not loaded knows of no intent.
        let is_known = |table: &Arc<Table>| table.is_loaded() || table.is_from_checkpoint();
        let table = self.tables.get(table).filter(is_known);
        position > self.decided && table.is_none_or(|table| table.awaits(position))
    }

    /// Blocks for `time`, or until a client waits for the database.
    pub(crate) fn linger(&self, time: Duration) {
        self.tables.wait_intent(time);
    }

    /// Tells clients that no outcome will be reported.
    pub(crate) fn answer_intents_unknown(&self) {
        self.tables.answer_intents_unknown();
    }

    /// Checks that memory from a checkpoint contains everything that was written to its tables: that no other
    /// server has taken the tables over meanwhile.
    async fn check_memory(&self, database: &Store) -> Result<(), Error> {
        let positions = database.positions().await?;
        let own = positions.iter().find(|stored| stored.log == self.log.id().0);
        match own.filter(|stored| !stored.taken_by.is_empty()) {
            None => Ok(()),
            Some(stored) => Err(fenced(&database.describe_url(), &stored.taken_by)),
        }
    }

    /// Completes a start from a checkpoint, which did not ask the database: has the rows read again whose
    /// changes the database may have refused.
    fn catch_up(&mut self, database: &Store, start: &Start) -> Result<(), Error> {
        if self.is_settled {
            self.undone.extend(self.tables.take_rereads());
            return Ok(());
        }
        if self.tables.is_from_checkpoint() && matches!(start, Start::Fresh { .. }) {
            return Err(not_from_here(&database.describe_url()));
        }
        let reached = start.reached();
        // Settles intents that a start without the database left undecided.
        self.undone.extend(self.tables.settle(|table| reached.of(table), |_| Outcome::Unknown));
        let settled = self.tables.undo_unsettled(|table| reached.of(table));
        settled
            .map_err(|source| Error::caused(Kind::Log, "cannot tell which changes were refused", source))?;
        self.undone.extend(self.tables.take_rereads());
        self.is_settled = true;
        Ok(())
    }

    /// Releases what the database has `reached` of the log, and sets aside what a stopped table holds back.
    async fn give_back(&mut self, reached: &Reached) -> Result<(), Error> {
        self.tables.drained_of(|table| reached.of(table));
        // The log stays usable after a failure, and the next release deletes what this one could not.
        let released = self.log.release(reached.all());
        released.map_err(|source| Error::caused(Kind::Log, "cannot release the log", source))?;
        self.aside.make_room(&self.log, &self.tables, &self.tables.catalogue(), reached);
        Ok(())
    }

    /// Reads the rows that memory dropped, as far as the database contains all their changes up to `drained`:
    /// for [`READ_MS`], then continues with the next call. A row that cannot be read now is read by the
    /// client that asks for it, or by a later call.
    pub(crate) async fn read_undone(&mut self, drained: Position) {
        if self.undone.is_empty() && self.reading.is_empty() {
            return;
        }
        let mut is_ready = |row: &mut RereadRow| row.from <= drained;
        if self.read_at.is_none_or(|at| at <= Instant::now()) {
            let free = READS_AT_ONCE - self.reading.len();
            let ready = self.undone.extract_if(.., &mut is_ready).take(free);
            self.reading.extend(ready.map(|row| async move { (row.read().await, row) }.boxed()));
        }
        let until = tokio::time::Instant::now() + Duration::from_millis(READ_MS);
        while let Ok(Some((read, row))) = timeout_at(until, self.reading.next()).await {
            if read.is_err() {
                self.undone.push(row);
                self.read_at = Some(Instant::now() + Duration::from_millis(READ_AGAIN_MS));
            }
        }
    }
}

impl Records {
    /// Reads from `position` on, which is the end of a record or the log's first position.
    fn after(log: &Log, position: Position) -> Result<Records, Error> {
        let reader = log.reader(position).map_err(unreadable)?;
        Ok(Records { reader, read: VecDeque::new(), begin: position, end: position, failed: None })
    }

    fn take(
        &mut self,
        log: &Log,
        limit: Limit,
        tables: &Tables,
        schemas: &mut Schemas,
    ) -> Result<QueueRead, Error> {
        let mut changes: Vec<Change> = Vec::new();
        let (mut held_bytes, mut is_end) = (0, false);
        while changes.len() < limit.rows && held_bytes < BATCH_BYTES {
            if self.read.is_empty() {
                match self.read_more(log, tables, schemas) {
                    Ok(true) => {}
                    Ok(false) => {
                        is_end = true;
                        break;
                    }
                    Err(error) if changes.is_empty() && self.read.is_empty() => return Err(error),
                    Err(error) => self.failed = Some(error),
                }
            }
            let Some(next) = self.read.front() else {
                break;
            };
            if limit.until.is_some_and(|until| next.position > until.0) {
                is_end = true;
                break;
            }
            held_bytes += op_bytes(&next.op);
            changes.extend(self.read.pop_front());
        }
        let last = changes.last().map(|change| Position(change.position));
        let next = if self.read.is_empty() { self.end } else { last.unwrap_or(self.begin) };
        let bytes = next.0 - self.begin.0;
        self.begin = next;
        Ok(QueueRead { changes, bytes, is_end, last, next })
    }

    fn read_more(&mut self, log: &Log, tables: &Tables, schemas: &mut Schemas) -> Result<bool, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let durable = log.durable();
        let batch = self.reader.next_batch(READ_BYTES).map_err(unreadable)?;
        if batch.is_empty() {
            // Only padding up to the position that was durable before the read.
            self.end = self.end.max(durable);
            return Ok(false);
        }
        // Behind the read: an id is in the catalogue before the log has it.
        let catalogue = tables.catalogue();
        for (position, bytes) in batch.iter() {
            let change = decode(position, bytes, &catalogue, schemas).map_err(|what| {
                let message = format!(
                    "the log record that ends at position {position} {what}; it was written by another version, or with another \
                     tables.json: nothing from it on is drained"
                );
                Error::new(Kind::BadRecord, message)
            })?;
            self.read.extend(change);
            self.end = position;
        }
        self.end = batch.end();
        Ok(true)
    }
}

fn not_from_here(url: &str) -> Error {
    let message = format!(
        "memory was filled from this data folder's checkpoint, and nothing was ever drained from it into {url}: that is another database. Put \
         the right one back, or start again, which reads all tables from this one"
    );
    Error::new(Kind::DatabaseReplaced, message)
}

fn unreadable(error: forebay_log::Error) -> Error {
    Error::caused(Kind::Log, "cannot read the log", error)
}
