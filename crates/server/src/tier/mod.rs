//! The memory tier of a running server: loading it, draining it, comparing it with the database; with one
//! interface for both kinds.
//!
//! The admin listener, the server's start and stop, and commands that work without a server use this file.
//! Client requests do not pass here (see `action`).

/// Calls the same method on either kind.
macro_rules! either {
    ($memory:expr, $one:ident => $call:expr) => {
        match $memory {
            Memory::Embedded($one) => $call,
            Memory::Remote($one) => $call,
        }
    };
}

mod checkpoints;
mod claim;
mod compared;
mod conditions;
mod dead_letters;
mod early_following;
mod embedded;
mod fill;
mod following;
mod gauges;
mod lag;
mod left_behind;
mod remote;
mod undrained;

pub use compared::Compared;
pub(crate) use early_following::EarlyFollowing;
pub(crate) use following::Listener;

use crate::condition::{Condition, State};
use crate::problem::Problem;
use crate::retry::RetryReason;
use crate::schedule::Lease;
use crate::start_error::StartError;
use claim::GIVE_BACK;
use embedded::Embedded;
use forebay_config::{Config, model};
use forebay_database::Store;
use forebay_drain::{
    DailyWindow, Drain, DrainState, Follow, NewDatabase, Progress, Settings, Status, Stop, StoppedTable,
};
use forebay_http::Gate;
use forebay_table::{Following, HotTables, TableSpec};
use forebay_terminal::say;
use forebay_value::Timestamp;
use lag::Lag;
use remote::Remote;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::SetOnce;

/// A memory tier: its hot tables, the queue behind them, and the drain once it is running.
pub struct Tier {
    memory: Memory,
    store: Store,
    /// Set when memory is loaded.
    drain: SetOnce<Drain>,
    /// Set when memory is loaded and a table is followed.
    follow: SetOnce<Follow>,
    lag: Lag,
}

/// Where the rows are stored.
enum Memory {
    /// In this process.
    Embedded(Box<Embedded>),
    /// On Redis or Valkey.
    Remote(Remote),
}

/// Numbers of rows that a command or request moved, by table.
pub type RowsByTable = Vec<(String, u64)>;

impl Tier {
    /// Opens the tier. Nothing is loaded or drained yet. `trouble` records why it waits.
    pub(crate) async fn open(
        config: &Config,
        specs: Vec<TableSpec>,
        store: Store,
        new_database: NewDatabase,
        trouble: &RetryReason,
    ) -> Result<Tier, StartError> {
        let memory = &config.memory;
        let keep = Duration::from_millis(config.drain.keep_ms);
        let memory = match &memory.tier {
            model::Tier::Embedded => {
                let opened = Embedded::open(memory, keep, specs, &store, new_database, trouble).await?;
                Memory::Embedded(Box::new(opened))
            }
            model::Tier::Remote(at) => {
                left_behind::refuse_left_behind(memory, keep, &store, trouble).await?;
                let undeclared = config.tables.iter().filter(|table| table.columns.is_none());
                let undeclared = undeclared.map(|table| table.name.clone()).collect();
                Memory::Remote(Remote::open(at, memory, specs, undeclared, &store, trouble).await?)
            }
        };
        Ok(Tier { memory, store, drain: SetOnce::new(), follow: SetOnce::new(), lag: Lag::default() })
    }

    /// The hot tables.
    pub fn tables(&self) -> HotTables {
        either!(&self.memory, memory => HotTables::from(&memory.tables))
    }

    /// How servers that share this tier decide which of them runs a job.
    pub(crate) fn lease(&self) -> Lease {
        match &self.memory {
            Memory::Embedded(_) => Lease::Alone,
            Memory::Remote(remote) => {
                let link = remote.link.clone();
                Lease::shared(link, remote.tables.root(), self.store.statement_limit())
            }
        }
    }

    /// Prints what opening found, and connects the gate with the durability that answers wait for.
    pub(crate) fn prepare(&self, memory: &model::Memory, gate: &Arc<Gate>) {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.prepare(memory, gate),
            // A write on Redis or Valkey returns only when it is as durable as configured.
            Memory::Remote(_) => gate.advance(u64::MAX),
        }
    }

    /// Background work while a tier is served: notes the position of the log; for a remote tier, loads again
    /// the rows that a failover has lost. Never returns.
    pub async fn watch(&self) {
        match &self.memory {
            Memory::Embedded(_) => loop {
                if let Some((end, drained)) = self.drain.get().map(lag::ends) {
                    self.lag.note(Instant::now(), end, drained);
                }
                tokio::time::sleep(lag::EVERY).await;
            },
            Memory::Remote(remote) => remote.watch(&self.store).await,
        }
    }

    /// The followed tables, if there are any.
    pub fn following(&self) -> Option<Following> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.tables.following(),
            Memory::Remote(_) => None,
        }
    }

    /// Has the database report from now on what others commit: before memory is loaded, so that no change is
    /// missed.
    pub(crate) async fn begin_following(
        &self,
        listener: &Listener,
    ) -> Result<Option<EarlyFollowing>, StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.begin_following(&self.store, listener).await,
            Memory::Remote(_) => Ok(None),
        }
    }

    /// Starts applying reported changes to memory.
    pub(crate) fn start_following(
        &self,
        begun: EarlyFollowing,
        listener: Listener,
    ) -> Result<(), StartError> {
        let Memory::Embedded(embedded) = &self.memory else { return Ok(()) };
        match embedded.start_following(begun, self.store.clone(), listener)? {
            Some(follow) => self.follow.set(follow).map_err(|_| "a follower runs already".into()),
            None => Ok(()),
        }
    }

    /// The state of following; `None`: no table is followed, or memory is not loaded.
    pub fn follow_state(&self) -> Option<Value> {
        let state = self.follow.get()?.state();
        Some(json!({
            "status": following::status_name(state.status),
            "since": state.since.to_string(),
            "told_by": state.reporting_by,
            "idle_slots": state.idle_slots,
            "rows_total": state.rows_total,
            "last_error": state.last_error,
        }))
    }

    /// How changes are reported, by followed table; and the replication slots that no server uses.
    pub(crate) fn followed(&self) -> Option<(Value, Vec<String>)> {
        let state = self.follow.get()?.state();
        let following = self.following().filter(|_| !state.reporting_by.is_empty())?;
        let names = following.tables().iter().map(|table| table.schema().name.clone());
        let reporting_by = || Value::from(state.reporting_by.as_str());
        Some((names.map(|name| (name, reporting_by())).collect(), state.idle_slots))
    }

    /// Starts writing checkpoints of memory, once it is loaded.
    pub(crate) fn start_checkpoints(&self) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.start_checkpoints(),
            Memory::Remote(_) => Ok(()),
        }
    }

    /// Does what a start without the database could not do, once the database is reachable.
    pub(crate) async fn catch_up(&self) {
        if let Memory::Embedded(embedded) = &self.memory {
            embedded.catch_up_following().await;
            embedded.catch_up(&self.store).await;
        }
    }

    /// Starts writing queued changes to the database.
    pub fn start_drain(&self, settings: Settings) -> Result<(), StartError> {
        let drain = either!(&self.memory, memory => memory.start_drain(self.store.clone(), settings));
        self.drain.set(drain?).map_err(|_| "the drain runs already".into())
    }

    /// The conditions of memory, the drain and the database. Takes no longer than a remote tier may take to
    /// respond.
    pub async fn conditions(&self) -> Vec<Condition> {
        let (mut found, trouble) = match &self.memory {
            Memory::Embedded(embedded) => (embedded.conditions(), &embedded.trouble),
            Memory::Remote(remote) => (remote.conditions().await, &remote.trouble),
        };
        let loading: Vec<_> =
            self.tables().all().iter().filter_map(|table| conditions::of_loading(trouble, table)).collect();
        match self.drain.get() {
            Some(drain) => found.extend(conditions::of_drain(&drain.state())),
            None if loading.is_empty() => {
                found.push(Condition::new(State::Loading, "the drain has not begun"));
            }
            None => {}
        }
        found.extend(loading);
        if let Some(follow) = self.follow.get() {
            found.extend(following::conditions(&follow.state()));
        }
        if let Err(error) = self.store.availability() {
            found.push(Condition::new(State::DatabaseUnreachable, error.to_string()));
        }
        found
    }

    /// The state of the drain.
    pub async fn drain_state(&self) -> Result<Value, Problem> {
        let state = self.drain.get().ok_or_else(still_loading)?.state();
        let mut value = drain_json(&state);
        either!(&self.memory, memory => memory.add_drain_state(&state, &mut value).await?);
        Ok(value)
    }

    /// The processes that drain instead of this one, if it leaves the drain to others.
    pub(crate) fn workers(&self) -> Option<Value> {
        let workers = self.drain.get()?.state().workers?;
        Some(workers.names.into_iter().collect())
    }

    /// Pauses or resumes the drain, as soon as it has started.
    pub async fn pause_drain(&self, paused: bool) -> Result<(), Problem> {
        let drain = self.drain.wait().await;
        if drain.state().status == Status::Elsewhere {
            return Err(Problem::new(
                409,
                "this server leaves the drain to other processes (--without drain)",
            ));
        }
        if paused {
            drain.pause().await
        } else {
            drain.resume()
        }
        Ok(())
    }

    /// Whether the database lacks some change.
    pub async fn is_behind(&self) -> Result<bool, Problem> {
        match &self.memory {
            Memory::Embedded(embedded) => Ok(embedded.is_behind(self.drain.get())),
            Memory::Remote(remote) => Ok(remote.backlog().await? > 0),
        }
    }

    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<Value, Problem> {
        let Memory::Embedded(embedded) = &self.memory else {
            return Err(Problem::new(409, "a tier over the network keeps its rows itself"));
        };
        let saved = embedded.checkpoints.wait().await.take().await?;
        Ok(json!({ "rows": saved.rows, "bytes": saved.bytes, "begin": saved.begin.0 }))
    }

    /// Rows and memory of the tables, as JSON.
    pub async fn describe(&self) -> Result<Value, Problem> {
        either!(&self.memory, memory => memory.describe().await)
    }

    /// Reads rows of one table, or of all, from the database into memory.
    pub async fn warm(
        &self,
        name: Option<&str>,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<RowsByTable, Problem> {
        either!(&self.memory, memory => {
            let tables = match name {
                Some(name) => vec![memory.tables.get(name).ok_or_else(|| no_table(name))?],
                None => memory.tables.all().to_vec(),
            };
            let mut loaded = Vec::new();
            for table in tables {
                let warmed = memory.warm(&table, &self.store, filter, progress).await;
                let rows = warmed.map_err(|error| Problem::new(422, error.to_string()))?.rows;
                loaded.push((table.schema().name.clone(), rows));
            }
            Ok(loaded)
        })
    }

    /// Parses a key of a table.
    pub fn key_of(&self, table: &str, text: &str) -> Result<forebay_value::Value, Problem> {
        let schema = match &self.memory {
            Memory::Embedded(embedded) => embedded.tables.get(table).map(|table| table.schema().clone()),
            Memory::Remote(remote) => remote.tables.get(table).map(|table| table.schema().clone()),
        };
        let ty = schema.ok_or_else(|| no_table(table))?.key_column().ty;
        forebay_value::from_text(ty, text).map_err(|error| Problem::parameter("key", error.to_string()))
    }

    /// Reads a row again from the database, after a replayed dead letter has changed it there. A table that
    /// is not in memory needs nothing.
    pub async fn refresh(&self, table: &str, key: forebay_value::Value) -> Result<(), Problem> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.refresh(table, key).await,
            Memory::Remote(remote) => remote.refresh(table, key).await,
        }
    }

    /// Forgets every row of a table whose rows in the database were replaced. No request may use the table
    /// meanwhile.
    pub async fn forget(&self, table: &str) -> Result<(), Problem> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.forget(),
            Memory::Remote(remote) => remote.forget(table).await,
        }
    }

    /// Stops following, then the drain, which finishes if it can within this time. What it does not finish
    /// stays in the queue for the next start, or for another drainer; with `leaves`, so does everything. The
    /// rest of the time is for a checkpoint.
    pub async fn stop_drain(&self, within: Duration, leaves: bool) {
        if let Some(follow) = self.follow.get() {
            follow.stop();
        }
        let deadline = Instant::now() + within;
        if let Memory::Remote(remote) = &self.memory {
            remote.leave(within).await;
        }
        let Some(drain) = self.drain.get() else {
            // Stopped while memory was loaded.
            if let Memory::Embedded(embedded) = &self.memory {
                embedded.release_claim(&self.store, embedded.reached().all()).await;
            }
            return;
        };
        let now = drain.state();
        // A drain that is paused or waits for its window must leave everything where it is.
        let leaves = leaves || now.paused || matches!(now.status, Status::Waiting | Status::Elsewhere);
        let mode = if leaves { Stop::Leave } else { Stop::Finish };
        let state = match tokio::time::timeout(within, drain.stop(mode)).await {
            Ok(state) => state,
            Err(_) => drain.stop(Stop::Leave).await,
        };
        if let Memory::Embedded(embedded) = &self.memory {
            embedded.release_claim(&self.store, state.position).await;
            if let Some(checkpoints) = embedded.checkpoints.get() {
                checkpoints.finish(deadline.saturating_duration_since(Instant::now())).await;
            }
        }
        if let Memory::Remote(remote) = &self.memory {
            remote.note_backlog(&self.store, GIVE_BACK).await;
        }
        match &self.memory {
            Memory::Embedded(_) if state.backlog_bytes > 0 => say!(
                "{} bytes of the log are not drained; they will be after the next start",
                state.backlog_bytes
            ),
            Memory::Remote(_) if mode == Stop::Finish && state.backlog_rows != Some(0) => {
                say!("some rows are not drained; they are in the memory tier for the next drainer");
            }
            _ => {}
        }
    }

    /// Closes the tier, after everything that uses it has ended.
    pub fn close(&self) -> Result<(), StartError> {
        match &self.memory {
            Memory::Embedded(embedded) => embedded.close(),
            Memory::Remote(_) => Ok(()),
        }
    }

    /// The database.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// The problem for an unknown hot table.
fn no_table(name: &str) -> Problem {
    Problem::not_found(&format!("there is no hot table {name}"))
}

/// The problem while the drain has not started.
fn still_loading() -> Problem {
    Problem::unavailable("memory is still being loaded")
}

/// The drain state that both tiers have.
fn drain_json(state: &DrainState) -> Value {
    json!({
        "status": status_name(&state.status),
        "backlog_rows": state.backlog_rows,
        "held_rows": state.held_rows,
        "rows_total": state.rows_total,
        "changes_total": state.changes_total,
        "dead_total": state.dead_total,
        "refused_total": state.refused_total,
        "unwritten_total": state.unwritten_total,
        "batches_total": state.batches_total,
        "rate_rows_per_s": state.rate_rows_per_s,
        "pace_rows_per_s": state.pace_rows_per_s,
        "paused": state.paused,
        "window": state.opening.map(window_json),
        "batch_in_hand": state.batch_in_hand,
        "status_since": state.status_since.to_string(),
        "stopped_tables": state.stopped_tables.iter().map(stopped_json).collect::<Vec<_>>(),
        "last_error": state.last_error,
    })
}

/// The window that is open, or the next one.
fn window_json(opening: DailyWindow) -> Value {
    let is_open = opening.has_begun(Timestamp::now());
    json!({ "open": is_open, "begins": opening.begins.to_string(), "ends": opening.ends.to_string() })
}

/// A table whose changes wait, with the reason.
fn stopped_json(stopped: &StoppedTable) -> Value {
    json!({ "table": stopped.table, "reason": stopped.reason, "since": stopped.since.to_string() })
}

/// The name of a drain's status.
fn status_name(status: &Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Paused => "paused",
        Status::Waiting => "waiting",
        Status::Elsewhere => "elsewhere",
        Status::BackingOff => "backing off",
        Status::Fenced => "fenced",
        Status::Failed => "failed",
        Status::Stopped => "stopped",
    }
}
