//! `[[job]]`: statements that the server runs periodically.
//!
//! Promises: with several servers on one memory tier a job runs on one of them at a time, and once in each
//! period, on any server (see [`lease`]); a run never begins before the previous one has ended; the outcome
//! of the last run is shown. A failed run is logged, and not repeated before its next turn. Jobs that
//! requests start are in `crate::jobs`.

mod lease;

use crate::compile::CompileError;
use crate::jobs::JobError;
use crate::open::DatabaseKnowledge;
use crate::problem::Problem;
use crate::read_your_writes::WriteVisibility;
use crate::start_error::StartError;
use forebay_cache::Cache;
use forebay_config::model;
use forebay_database::{Kind, Statement, Store};
use forebay_table::Following;
use forebay_terminal::{error, warn};
use forebay_value::Timestamp;
use lease::Turn;
use parking_lot::Mutex;
use rand::RngExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use lease::Lease;

/// The pause after an error while taking a lease.
const LEASE_PAUSE: Duration = Duration::from_secs(5);

/// The jobs of a server. Clones share them.
#[derive(Default, Clone)]
pub struct Schedule {
    jobs: Vec<Arc<ScheduledStatement>>,
    /// Whether no further run may begin; every active job has a receiver.
    stopping: watch::Sender<bool>,
}

struct ScheduledStatement {
    name: String,
    every: Duration,
    jitter: Duration,
    store: Store,
    statement: Statement,
    /// Waits until the followed tables show what the statement wrote.
    seen: WriteVisibility,
    cache: Cache<Problem>,
    /// The tags that each run drops.
    invalidates: Vec<String>,
    state: Mutex<State>,
}

/// The state of a job.
#[derive(Default)]
struct State {
    phase: Phase,
    runs: u64,
    failures: u64,
    last: Option<Ended>,
}

#[derive(Default, Clone, Copy)]
enum Phase {
    #[default]
    Waiting,
    Running,
    /// Another server has the turn.
    Elsewhere,
}

/// One run that has ended.
struct Ended {
    began: Timestamp,
    took: Duration,
    outcome: Result<u64, JobError>,
}

impl Schedule {
    /// Prepares every job's statement, and reports every error, not only the first.
    pub async fn compile(
        jobs: &[model::Job],
        store: &Store,
        known: &DatabaseKnowledge,
        dialect: model::Dialect,
        cache: &Cache<Problem>,
        following: Option<&Following>,
    ) -> Result<Schedule, Vec<CompileError>> {
        let (mut compiled, mut errors) = (Vec::new(), Vec::new());
        for job in jobs {
            match prepare(job, store, known, dialect, cache, following).await {
                Ok(job) => compiled.push(Arc::new(job)),
                Err(what) => {
                    errors.push(CompileError { line: job.line, message: format!("job {}: {what}", job.name) })
                }
            }
        }
        if errors.is_empty() {
            Ok(Schedule { jobs: compiled, stopping: watch::Sender::new(false) })
        } else {
            Err(errors)
        }
    }

    /// Starts all jobs; without a lease they are left to other processes.
    pub fn start(&self, runtime: &Handle, lease: Option<&Lease>) {
        for job in &self.jobs {
            match lease {
                Some(lease) => {
                    drop(runtime.spawn(job.clone().run(lease.clone(), self.stopping.subscribe())));
                }
                None => job.state.lock().phase = Phase::Elsewhere,
            }
        }
    }

    /// Lets no further run begin, and waits for the running ones.
    pub async fn stop(&self, within: Duration) {
        self.stopping.send_replace(true);
        // A run that takes longer ends with the process; its lease expires.
        let _ = tokio::time::timeout(within, self.stopping.closed()).await;
    }

    /// The state of each job, for the admin listener.
    pub fn states(&self) -> Vec<Value> {
        self.jobs.iter().map(|job| job.state()).collect()
    }
}

async fn prepare(
    job: &model::Job,
    store: &Store,
    known: &DatabaseKnowledge,
    dialect: model::Dialect,
    cache: &Cache<Problem>,
    following: Option<&Following>,
) -> Result<ScheduledStatement, StartError> {
    let sql = job.statements.in_dialect(dialect);
    let sql = sql.ok_or_else(|| format!("has no SQL for {}", dialect.key()))?;
    let statement = known.statement(store, sql).await?;
    if let Some(name) = statement.params.first() {
        return Err(format!("`${name}`: a job has no parameters, since no request asks for it").into());
    }
    Ok(ScheduledStatement {
        name: job.name.clone(),
        every: Duration::from_millis(job.every_ms),
        jitter: Duration::from_millis(job.jitter_ms),
        store: store.clone(),
        seen: WriteVisibility(following.cloned()),
        // In a transaction with other statements it could not be aborted alone.
        statement: Statement { alone: true, ..statement },
        cache: cache.clone(),
        invalidates: job.invalidates.clone(),
        state: Mutex::default(),
    })
}

impl ScheduledStatement {
    async fn run(self: Arc<ScheduledStatement>, lease: Lease, mut stopping: watch::Receiver<bool>) {
        let mut wait = Duration::ZERO;
        while !is_stopped_within(wait + self.delay(), &mut stopping).await {
            let began = Instant::now();
            wait = match lease.take(&self.name, self.every).await {
                Ok(Turn::Ours) => {
                    self.state.lock().phase = Phase::Running;
                    let has_ended = self.run_once(lease.until_lost(&self.name, began)).await;
                    self.state.lock().phase = Phase::Waiting;
                    let wait = self.every.saturating_sub(began.elapsed());
                    // A statement that may still be running must keep this server and others from starting it
                    // again.
                    if has_ended {
                        lease.end(&self.name).await;
                        wait
                    } else {
                        wait.max(self.store.statement_limit())
                    }
                }
                Ok(Turn::Others { wait }) => {
                    self.state.lock().phase = Phase::Elsewhere;
                    wait
                }
                Err(error) => {
                    warn!("job {}: cannot ask whose turn it is: {error}", self.name);
                    self.every.min(LEASE_PAUSE)
                }
            };
        }
    }

    /// A random delay for the next run.
    fn delay(&self) -> Duration {
        self.jitter.mul_f64(rand::rng().random())
    }

    /// Runs the statement, unless `lost` resolves first. Returns whether the statement has ended.
    async fn run_once(&self, lost: impl Future<Output = String>) -> bool {
        let (began, clock) = (Timestamp::now(), Instant::now());
        let (outcome, has_ended) = tokio::select! {
            biased;
            why = lost => (Err(why.into()), false),
            rows = self.store.run(&self.statement, Vec::new()) => {
                let has_ended = !matches!(&rows, Err(error) if *error.kind() == Kind::UnknownOutcome);
                (rows.map(|rows| rows.changed).map_err(JobError::from), has_ended)
            }
        };
        self.seen.wait_after(&self.store, &self.statement).await;
        if let Err(why) = &outcome {
            error!("job {}: failed: {why}", self.name);
        }
        // After a failure too, because the statement may have had an effect.
        if let Err(error) = self.cache.drop_tags(&self.invalidates).await {
            warn!("job {}: other servers will drop its tags later: {error}", self.name);
        }
        let mut state = self.state.lock();
        state.runs += 1;
        state.failures += u64::from(outcome.is_err());
        state.last = Some(Ended { began, took: clock.elapsed(), outcome });
        has_ended
    }

    fn state(&self) -> Value {
        let state = self.state.lock();
        json!({
            "name": self.name,
            "every_ms": self.every.as_millis() as u64,
            "state": match state.phase {
                Phase::Waiting => "waiting",
                Phase::Running => "running",
                Phase::Elsewhere => "elsewhere",
            },
            "runs": state.runs,
            "failures": state.failures,
            "last": state.last.as_ref().map(Ended::state),
        })
    }
}

/// Waits for this time; true: the schedule stopped before.
async fn is_stopped_within(wait: Duration, stopping: &mut watch::Receiver<bool>) -> bool {
    tokio::time::timeout(wait, stopping.wait_for(|is_stopping| *is_stopping)).await.is_ok()
}

impl Ended {
    fn state(&self) -> Value {
        let mut began = Vec::new();
        self.began.write(&mut began);
        json!({
            "began": String::from_utf8_lossy(&began),
            "took_ms": self.took.as_millis() as u64,
            "changed": self.outcome.as_ref().ok(),
            "error": self.outcome.as_ref().err().map(JobError::to_string),
        })
    }
}
