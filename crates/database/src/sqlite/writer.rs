//! The writer thread: the only connection that changes the database.
//!
//! It takes all direct statements that have arrived as one group: one transaction, a savepoint for each, one
//! commit (so one fsync), then the answers. Between two groups at most one bulk job (drain, seed) gets its
//! slice. A group that loses its transaction (a statement that was interrupted, a full disk, a constraint
//! violation at the commit) is retried without the statement that caused it, which then runs alone: no caller
//! pays for another caller's statement.

use super::acting::{self, SchemaFacts};
use super::errors::map;
use super::open::{Deadline, Identity};
use super::statement;
use crate::limits::*;
use crate::{Error, Kind, ResultColumn, Rows};
use forebay_value::Value;
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A queued statement.
pub(super) struct Direct {
    pub(super) sql: Arc<str>,
    pub(super) params: Vec<Value>,
    pub(super) columns: Arc<[ResultColumn]>,
    pub(super) arrived: Instant,
    pub(super) answer: oneshot::Sender<Result<Rows, Error>>,
}

/// A separate transaction: key blocks, table creation; drain and bulk jobs.
type Job = Box<dyn FnOnce(&mut Session) + Send>;

enum Urgent {
    Statement(Direct),
    Job(Job),
}

/// The state that a job uses.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) deadline: Deadline,
    identity: Identity,
    shared: Arc<WriterShared>,
    timeout: Duration,
    /// Whether `forebay_position` and `forebay_dead_letter` exist.
    pub(super) has_drain_tables: bool,
    /// The triggers and foreign keys, as last read.
    facts: Option<SchemaFacts>,
}

#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<WriterShared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct WriterShared {
    queue: Mutex<WriterQueue>,
    arrived: Condvar,
    /// Whether direct work waits; read by a bulk job between two rows.
    direct_waits: AtomicBool,
    queue_max: usize,
}

impl std::fmt::Debug for WriterShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("queue_max", &self.queue_max).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct WriterQueue {
    direct: VecDeque<Urgent>,
    bulk: VecDeque<Job>,
    closed: bool,
}

impl Writer {
    pub(super) fn start(
        (connection, deadline): (Connection, Deadline),
        identity: Identity,
        queue_max: usize,
        timeout: Duration,
    ) -> Result<Writer, Error> {
        let shared = Arc::new(WriterShared {
            queue: Mutex::default(),
            arrived: Condvar::new(),
            direct_waits: AtomicBool::new(false),
            queue_max,
        });
        let mut session = Session {
            connection,
            deadline,
            identity,
            shared: shared.clone(),
            timeout,
            has_drain_tables: false,
            facts: None,
        };
        let thread =
            std::thread::Builder::new().name("database-write".into()).spawn(move || session.run()).map_err(
                |source| Error::new(Kind::Unavailable, "cannot start a thread").with_source(source),
            )?;
        Ok(Writer { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Queues a statement; its answer is sent to its channel, also when it cannot be queued.
    pub(super) fn submit(&self, direct: Direct) {
        let mut queue = self.shared.queue.lock();
        let refused = if queue.closed {
            stopped()
        } else if queue.direct.len() >= self.shared.queue_max {
            let message = format!("{} writes to the database are waiting already", self.shared.queue_max);
            Error::new(Kind::Busy, message)
        } else {
            queue.direct.push_back(Urgent::Statement(direct));
            self.shared.direct_waits.store(true, Ordering::Relaxed);
            drop(queue);
            self.shared.arrived.notify_one();
            return;
        };
        drop(queue);
        // The caller may have stopped waiting.
        let _ = direct.answer.send(Err(refused));
    }

    /// Queues a job that takes turns with direct statements, in the order of arrival.
    pub(super) fn urgent<T, F>(&self, job: F) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    {
        let (job, answered) = with_answer(job);
        let queued = self.push(|queue| &mut queue.direct, Urgent::Job(job), self.shared.queue_max);
        answer(queued, answered)
    }

    /// Queues a job that direct statements precede.
    pub(super) fn bulk<T, F>(&self, job: F) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
    {
        let (job, answered) = with_answer(job);
        let queued = self.push(|queue| &mut queue.bulk, job, BULK_QUEUE);
        answer(queued, answered)
    }

    fn push<J>(
        &self,
        lane: impl FnOnce(&mut WriterQueue) -> &mut VecDeque<J>,
        job: J,
        jobs_max: usize,
    ) -> Result<(), Error> {
        let mut queue = self.shared.queue.lock();
        let closed = queue.closed;
        let jobs = lane(&mut queue);
        let queued = if closed {
            Err(stopped())
        } else if jobs.len() >= jobs_max {
            Err(Error::new(Kind::Busy, format!("{jobs_max} jobs are waiting for the database already")))
        } else {
            jobs.push_back(job);
            Ok(())
        };
        self.shared.direct_waits.store(!queue.direct.is_empty(), Ordering::Relaxed);
        drop(queue);
        self.shared.arrived.notify_one();
        queued
    }

    /// Runs the queued work, then ends the thread and closes its connection.
    pub(super) fn stop(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A writer that panicked has reported that; nothing is left to close.
            let _ = thread.join();
        }
    }
}

fn stopped() -> Error {
    Error::new(Kind::Unavailable, "the database was closed")
}

/// The writer died during a job: whether the job was committed is unknown.
pub(super) fn lost() -> Error {
    Error::new(Kind::UnknownOutcome, "the database's writer stopped before it answered")
}

fn with_answer<T: Send + 'static>(
    job: impl FnOnce(&mut Session) -> Result<T, Error> + Send + 'static,
) -> (Job, oneshot::Receiver<Result<T, Error>>) {
    let (answer, answered) = oneshot::channel();
    let job: Job = Box::new(move |session| {
        // The caller of a bulk job may have stopped waiting; the job runs all the same, because its effect
        // matters.
        let _ = answer.send(job(session));
    });
    (job, answered)
}

async fn answer<T>(
    queued: Result<(), Error>,
    answered: oneshot::Receiver<Result<T, Error>>,
) -> Result<T, Error> {
    queued?;
    answered.await.unwrap_or_else(|_| Err(lost()))
}

/// Why a group was not committed.
enum Broken {
    /// This statement aborted the transaction.
    By(usize),
    /// The commit failed because of one of them; which one is unknown.
    AtCommit,
    /// The database failed for every caller.
    Store(Error),
}

impl Session {
    fn run(&mut self) {
        loop {
            {
                let mut queue = self.shared.queue.lock();
                while queue.direct.is_empty() && queue.bulk.is_empty() && !queue.closed {
                    self.shared.arrived.wait(&mut queue);
                }
                if queue.direct.is_empty() && queue.bulk.is_empty() {
                    return;
                }
            }
            self.serve_direct();
            let bulk = self.shared.queue.lock().bulk.pop_front();
            if let Some(job) = bulk {
                self.guarded(job);
            }
        }
    }

    /// Runs the direct work that has arrived. A bulk job calls this between two slices.
    pub(super) fn serve_direct(&mut self) {
        let direct: Vec<Urgent> = {
            let mut queue = self.shared.queue.lock();
            let count = queue.direct.len().min(GROUP_STATEMENTS);
            let direct = queue.direct.drain(..count).collect();
            self.shared.direct_waits.store(!queue.direct.is_empty(), Ordering::Relaxed);
            direct
        };
        if !direct.is_empty() {
            self.guarded(Box::new(move |session| session.run_direct(direct)));
        }
    }

    fn run_direct(&mut self, direct: Vec<Urgent>) {
        let mut group = Vec::with_capacity(direct.len());
        for urgent in direct {
            match urgent {
                Urgent::Statement(direct) => group.push(direct),
                Urgent::Job(job) => {
                    self.run_group(std::mem::take(&mut group));
                    self.guarded(job);
                }
            }
        }
        self.run_group(group);
    }

    /// Runs a job; a panic in it (a bug) rolls back and closes the channel of its caller, and the writer
    /// continues.
    fn guarded(&mut self, job: Job) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(self)));
        self.deadline.clear();
        if ended.is_err() {
            self.rollback();
        }
    }

    fn run_group(&mut self, mut group: Vec<Direct>) {
        // Twice: a caller that arrives while another caller's statement uses up its timeout must outlive that
        // statement.
        let timeout = self.timeout * 2;
        group.retain(|direct| !direct.answer.is_closed());
        let late = group.extract_if(.., |direct| direct.arrived.elapsed() > timeout);
        for direct in late {
            let message = "the write waited too long for its turn";
            let _ = direct.answer.send(Err(Error::new(Kind::Timeout, message)));
        }
        let mut alone = Vec::new();
        let mut attempts = 0;
        while group.len() > 1 {
            attempts += 1;
            match self.try_group(&group) {
                Ok(results) => {
                    let rest = group.split_off(results.len());
                    for (direct, result) in std::mem::replace(&mut group, rest).into_iter().zip(results) {
                        // A caller that has stopped waiting does not learn that its write was committed.
                        let _ = direct.answer.send(result);
                    }
                    attempts = 0;
                }
                Err(Broken::By(index)) if attempts < GROUP_ATTEMPTS => alone.push(group.remove(index)),
                Err(Broken::By(_) | Broken::AtCommit) => alone.append(&mut group),
                Err(Broken::Store(error)) => {
                    for direct in group.drain(..) {
                        let _ = direct.answer.send(Err(error.clone()));
                    }
                }
            }
        }
        for direct in group.into_iter().chain(alone) {
            let result = self.run_alone(&direct);
            let _ = direct.answer.send(result);
        }
    }

    /// Runs as many statements of the group as fit one slice; returns their results once they are committed.
    fn try_group(&mut self, group: &[Direct]) -> Result<Vec<Result<Rows, Error>>, Broken> {
        self.begin(self.timeout).map_err(Broken::Store)?;
        let began = Instant::now();
        let mut results = Vec::with_capacity(group.len());
        for (index, direct) in group.iter().enumerate() {
            if index > 0 && began.elapsed() > Duration::from_millis(SLICE_MS) {
                break;
            }
            self.deadline.set(Duration::from_millis(SHARED_STATEMENT_MS));
            results.push(self.in_savepoint(direct));
            if self.connection.is_autocommit() {
                self.deadline.clear();
                return Err(Broken::By(index));
            }
        }
        match self.commit() {
            Ok(()) => Ok(results),
            Err(error) => Err(match error.kind() {
                Kind::Check => Broken::AtCommit,
                _ => Broken::Store(error),
            }),
        }
    }

    fn in_savepoint(&self, direct: &Direct) -> Result<Rows, Error> {
        let control = |sql: &str| self.connection.prepare_cached(sql).and_then(|mut s| s.raw_execute());
        control("SAVEPOINT statement").map_err(map)?;
        let result = statement::execute(&self.connection, &direct.sql, &direct.params, &direct.columns);
        if result.is_err() && !self.connection.is_autocommit() {
            control("ROLLBACK TO statement").map_err(map)?;
        }
        if !self.connection.is_autocommit() {
            control("RELEASE statement").map_err(map)?;
        }
        result
    }

    fn run_alone(&mut self, direct: &Direct) -> Result<Rows, Error> {
        self.begin(self.timeout)?;
        self.deadline.set(self.timeout);
        match statement::execute(&self.connection, &direct.sql, &direct.params, &direct.columns) {
            Ok(rows) => self.commit().map(|()| rows),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// Begins a transaction that holds the write lock, waiting for other processes at most `lock_wait`.
    pub(super) fn begin(&mut self, lock_wait: Duration) -> Result<(), Error> {
        self.identity.check()?;
        self.deadline.set(lock_wait);
        let begun =
            self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.raw_execute());
        self.deadline.clear();
        begun.map(drop).map_err(map)
    }

    /// Commits durably. When the commit fails, no transaction stays open.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        self.deadline.clear();
        let committed = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.raw_execute());
        committed.map(drop).map_err(|error| {
            let error = map(error);
            self.rollback();
            match error.kind() {
                Kind::Unavailable => {
                    // The commit may have reached the disk although the sync failed.
                    let message =
                        format!("the commit failed; the change may be stored or not: {}", error.message());
                    Error::new(Kind::UnknownOutcome, message).with_source(error)
                }
                _ => error,
            }
        })
    }

    /// The triggers and foreign keys. In an open transaction, which no other process can alter the schema
    /// beside.
    pub(super) fn schema_facts(&mut self) -> Result<&SchemaFacts, Error> {
        let version = acting::version(&self.connection)?;
        let known = self.facts.take().filter(|facts| facts.is_of(version));
        let facts = known.map_or_else(|| SchemaFacts::read_in_transaction(&self.connection), Ok)?;
        Ok(self.facts.insert(facts))
    }

    /// Rolls the open transaction back, if there is one. It may have created the drain's tables.
    pub(super) fn rollback(&mut self) {
        self.has_drain_tables = false;
        // The version that the transaction gave the schema can be given again, to another schema.
        self.facts = None;
        self.deadline.clear();
        if !self.connection.is_autocommit() {
            // A ROLLBACK that fails has rolled back nevertheless (SQLite: "if the transaction has already
            // been rolled back").
            let _ =
                self.connection.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.raw_execute());
        }
    }

    /// One transaction around `work`, under the statement timeout; rolled back when it fails.
    pub(super) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.begin(self.timeout)?;
        self.deadline.set(self.timeout);
        match work(self) {
            Ok(value) => self.commit().map(|()| value),
            Err(error) => {
                self.rollback();
                Err(error)
            }
        }
    }

    /// Whether direct statements wait for the writer.
    pub(super) fn others_wait(&self) -> bool {
        self.shared.direct_waits.load(Ordering::Relaxed)
    }
}
