//! Background jobs: work that an endpoint starts and does not wait for. The admin listener shows each job's
//! number, progress and outcome.

use crate::problem::Problem;
use forebay_table::HotError;
use forebay_terminal::{error, say};
use parking_lot::Mutex;
use serde::Serialize;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// How many jobs may run at once.
const RUNNING_MAX: usize = 4;
/// How many ended jobs are listed.
const REMEMBERED_MAX: usize = 100;

/// All jobs of a server.
#[derive(Clone, Default)]
pub struct Jobs(Arc<Mutex<Vec<Arc<Job>>>>);

pub struct Job {
    id: u64,
    name: String,
    rows: u64,
    done: AtomicU64,
    started: Instant,
    stop: AtomicBool,
    end: Mutex<Option<Result<(), JobError>>>,
}

/// Why a job failed, as a sentence for the log and the admin listener.
#[derive(Debug)]
pub struct JobError(Box<dyn Error + Send + Sync>);

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl From<String> for JobError {
    fn from(sentence: String) -> JobError {
        JobError(sentence.into())
    }
}

impl From<&str> for JobError {
    fn from(sentence: &str) -> JobError {
        JobError(sentence.into())
    }
}

impl From<forebay_database::Error> for JobError {
    fn from(error: forebay_database::Error) -> JobError {
        JobError(Box::new(error))
    }
}

impl From<HotError> for JobError {
    fn from(error: HotError) -> JobError {
        JobError(Box::new(error))
    }
}

/// A job as the admin listener shows it.
#[derive(Debug, Serialize)]
pub struct JobState {
    /// Its number.
    pub id: u64,
    /// The description of its work.
    pub name: String,
    /// The number of rows that it will write.
    pub rows: u64,
    /// The number of rows written so far.
    pub done: u64,
    /// `running`, `done` or `failed`.
    pub state: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

impl Jobs {
    /// Starts a job on its own thread.
    pub fn start(
        &self,
        name: String,
        rows: u64,
        work: impl FnOnce(&Job) -> Result<(), JobError> + Send + 'static,
    ) -> Result<u64, Problem> {
        let mut jobs = self.0.lock();
        if jobs.iter().filter(|job| job.end.lock().is_none()).count() >= RUNNING_MAX {
            return Err(Problem::unavailable("too many jobs are running"));
        }
        if jobs.len() >= REMEMBERED_MAX
            && let Some(ended) = jobs.iter().position(|job| job.end.lock().is_some())
        {
            jobs.remove(ended);
        }
        let id = jobs.last().map_or(1, |job| job.id + 1);
        let job = Arc::new(Job {
            id,
            name,
            rows,
            done: AtomicU64::new(0),
            started: Instant::now(),
            stop: AtomicBool::new(false),
            end: Mutex::new(None),
        });
        let own = job.clone();
        let thread = std::thread::Builder::new().name(format!("job-{id}"));
        thread
            .spawn(move || own.run(work))
            .map_err(|error| Problem::unavailable(format!("no thread for the job: {error}")))?;
        jobs.push(job);
        Ok(id)
    }

    /// All running jobs and the last ended ones.
    pub fn states(&self) -> Vec<JobState> {
        self.0.lock().iter().map(|job| job.state()).collect()
    }

    /// Asks every job to end early.
    pub fn stop(&self) {
        for job in self.0.lock().iter() {
            job.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Job {
    fn run(&self, work: impl FnOnce(&Job) -> Result<(), JobError>) {
        say!("job {}: {}, {} rows", self.id, self.name, self.rows);
        let end = work(self);
        let seconds = self.started.elapsed().as_secs_f64();
        match &end {
            Ok(()) => say!("job {}: done, {} rows in {seconds:.1} s", self.id, self.rows),
            Err(why) => error!("job {}: failed after {seconds:.1} s: {why}", self.id),
        }
        *self.end.lock() = Some(end);
    }

    /// Counts written rows, and logs the progress at every tenth of the whole.
    pub fn advance(&self, rows: u64) {
        let before = self.done.fetch_add(rows, Ordering::Relaxed);
        let tenth = |done: u64| done * 10 / self.rows.max(1);
        if tenth(before) != tenth(before + rows) && before + rows < self.rows {
            say!("job {}: {} of {} rows", self.id, before + rows, self.rows);
        }
    }

    /// Whether it should end early, because the server stops.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn state(&self) -> JobState {
        let end = self.end.lock();
        JobState {
            id: self.id,
            name: self.name.clone(),
            rows: self.rows,
            done: self.done.load(Ordering::Relaxed),
            state: match *end {
                None => "running",
                Some(Ok(())) => "done",
                Some(Err(_)) => "failed",
            },
            error: end.as_ref().and_then(|end| end.as_ref().err().map(JobError::to_string)),
        }
    }
}
