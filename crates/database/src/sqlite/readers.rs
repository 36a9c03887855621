//! The reader threads: one connection each, one bounded queue for all.
//!
//! A job must start within its timeout, and then run within it; a job whose caller has stopped waiting is
//! skipped.

use super::open::{Deadline, Role, connect};
use crate::{Error, Kind};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// A job, called with a connection, or with `Err` when it waited too long or the pool has stopped.
type Job = Box<dyn FnOnce(Result<&Connection, Error>) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<ReadersShared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct ReadersShared {
    queue: Mutex<ReaderQueue>,
    arrived: Condvar,
    queue_max: usize,
    timeout: Duration,
}

impl std::fmt::Debug for ReadersShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("queue_max", &self.queue_max).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct ReaderQueue {
    jobs: VecDeque<(Instant, Job)>,
    closed: bool,
}

impl Readers {
    /// Opens the connections (so that an error is reported at start) and starts the threads.
    pub(super) fn start(
        path: &Path,
        threads: usize,
        queue_max: usize,
        timeout: Duration,
    ) -> Result<Readers, Error> {
        let shared =
            Arc::new(ReadersShared { queue: Mutex::default(), arrived: Condvar::new(), queue_max, timeout });
        let readers = Readers { shared: shared.clone(), threads: Mutex::default() };
        for index in 0..threads.max(1) {
            let (connection, deadline) = connect(path, Role::Reader)?;
            let shared = shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("database-read-{index}"))
                .spawn(move || shared.run(&connection, &deadline))
                .map_err(|source| {
                    Error::new(Kind::Unavailable, "cannot start a thread").with_source(source)
                })?;
            readers.threads.lock().push(thread);
        }
        Ok(readers)
    }

    /// Queues a read. [`Kind::Busy`] at once when the queue is full.
    pub(super) fn submit<T, F>(&self, read: F) -> impl Future<Output = Result<T, Error>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            if !answer.is_closed() {
                // The caller may have stopped waiting: then the answer is dropped.
                let _ = answer.send(connection.and_then(read));
            }
        });
        let queued = self.shared.push(job);
        async move {
            queued?;
            answered.await.unwrap_or_else(|_| Err(stopped()))
        }
    }

    /// Runs the queued jobs, then ends the threads and closes their connections.
    pub(super) fn stop(&self) {
        self.shared.queue.lock().closed = true;
        self.shared.arrived.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A reader that panicked has reported that; nothing is left to close.
            let _ = thread.join();
        }
    }
}

fn stopped() -> Error {
    Error::new(Kind::Unavailable, "the database was closed")
}

impl ReadersShared {
    fn push(&self, job: Job) -> Result<(), Error> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Err(stopped());
        }
        if queue.jobs.len() >= self.queue_max {
            let message = format!("{} reads of the database are waiting already", self.queue_max);
            return Err(Error::new(Kind::Busy, message));
        }
        queue.jobs.push_back((Instant::now(), job));
        drop(queue);
        self.arrived.notify_one();
        Ok(())
    }

    fn take(&self) -> Option<(Instant, Job)> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            self.arrived.wait(&mut queue);
        }
    }

    fn run(&self, connection: &Connection, deadline: &Deadline) {
        while let Some((arrived, job)) = self.take() {
            if arrived.elapsed() > self.timeout {
                job(Err(Error::new(Kind::Timeout, "the read waited too long for its turn")));
                continue;
            }
            deadline.set(self.timeout);
            // A panic in a job must not take a reader away from all others; the job's caller sees the closed
            // channel.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(Ok(connection))));
            deadline.clear();
            drop(ended);
        }
    }
}
