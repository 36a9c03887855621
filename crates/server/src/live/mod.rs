//! A memory tier at work: loading it, draining it, comparing it with the database; the same questions to both kinds.
//!
//! What stands here is asked by the admin listener, by the server's start and stop, and by the commands that work without a server. Requests of
//! clients do not come this way (`action` does that).

mod embedded;
mod remote;

use crate::open::{Memory, Opened, StartError};
use crate::problem::Problem;
use embedded::LiveEmbedded;
use forebay_database::Store;
use forebay_drain::{Differences, DrainState, Progress, Settings, Status};
use remote::LiveRemote;
use serde_json::{Value, json};
use std::sync::Arc;

/// A memory tier at work.
pub enum Live {
    /// In this process.
    Embedded(LiveEmbedded),
    /// On Redis or Valkey.
    Remote(LiveRemote),
}

/// Rows that a command or request moved, by table.
pub type RowsByTable = Vec<(String, u64)>;

/// How full a tier is and how far behind its drain, as far as is known without asking anyone.
pub struct Gauges {
    /// Records that are not in the database.
    pub backlog_rows: Option<u64>,
    /// Bytes of them in the log; 0 for a tier over the network.
    pub backlog_bytes: u64,
    /// Memory that hot tables take.
    pub used_bytes: u64,
    /// Memory that they may take.
    pub limit_bytes: u64,
}

/// Calls the same method of whichever there is.
macro_rules! either {
    ($live:expr, $one:ident => $call:expr) => {
        match $live {
            Live::Embedded($one) => $call,
            Live::Remote($one) => $call,
        }
    };
}

impl Live {
    /// The tier that was opened; nothing is loaded and nothing drained yet.
    pub fn new(opened: Opened) -> Live {
        match opened.memory {
            Memory::Embedded(embedded) => Live::Embedded(LiveEmbedded::new(embedded, opened.store)),
            Memory::Remote(remote) => Live::Remote(LiveRemote::new(remote, opened.store)),
        }
    }

    /// Fills memory with what the database holds and memory does not. Serving waits for it table by table.
    pub async fn load(&self) -> Result<(), StartError> {
        either!(self, tier => tier.load().await)
    }

    /// Looks after what a tier may lose while it is served: loads again what a server that changed over does not have any more. Never ends.
    pub async fn watch(&self) {
        match self {
            // Memory and log of this process are not lost without the process.
            Live::Embedded(_) => std::future::pending().await,
            Live::Remote(remote) => remote.watch().await,
        }
    }

    /// Starts writing behind.
    pub fn start_drain(&self, settings: Settings) -> Result<(), StartError> {
        either!(self, tier => tier.start_drain(settings))
    }

    /// Nothing when every table is loaded and writes are taken.
    pub fn health(&self) -> Result<(), Problem> {
        either!(self, tier => tier.health())
    }

    /// Where the drain stands.
    pub async fn drain_state(&self) -> Result<Value, Problem> {
        either!(self, tier => tier.drain_state().await)
    }

    /// How full it is, and how far behind its drain.
    pub fn gauges(&self) -> Gauges {
        either!(self, tier => tier.gauges())
    }

    /// Rows drained since the start.
    pub fn drained_rows(&self) -> u64 {
        either!(self, tier => tier.drained_rows())
    }

    /// Changes that became dead letters since the start.
    pub fn dead_letters(&self) -> u64 {
        either!(self, tier => tier.dead_letters())
    }

    /// Stops the drain, or lets it go on, as soon as there is one.
    pub async fn pause_drain(&self, paused: bool) {
        either!(self, tier => tier.pause_drain(paused).await);
    }

    /// Resolves when everything that was acknowledged before this call is in the database.
    pub async fn finish_drain(&self) -> Result<(), Problem> {
        either!(self, tier => tier.finish_drain().await)
    }

    /// Whether something is not in the database yet.
    pub async fn is_behind(&self) -> Result<bool, Problem> {
        either!(self, tier => tier.is_behind().await)
    }

    /// Rows and memory.
    pub async fn tables(&self) -> Result<Value, Problem> {
        either!(self, tier => tier.tables().await)
    }

    /// Reads rows of one table, or of all, from the database into memory.
    pub async fn warm(
        &self,
        name: Option<&str>,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<RowsByTable, Problem> {
        either!(self, tier => tier.warm(name, filter, progress).await)
    }

    /// Compares memory and database, row by row, table by table.
    pub async fn check(&self) -> Result<Vec<(String, Differences)>, Problem> {
        either!(self, tier => tier.check().await)
    }

    /// Forgets every row of a table whose rows in the database were replaced. Nobody may use it meanwhile.
    pub async fn forget(&self, table: &str) -> Result<(), Problem> {
        either!(self, tier => tier.forget(table).await)
    }

    /// Ends the drain: finishes it when it can in a few seconds, else leaves the rest for the next start.
    pub async fn stop_drain(&self) {
        either!(self, tier => tier.stop_drain().await);
    }

    /// Closes what is open, after everything that used it has ended.
    pub fn close(&self) -> Result<(), StartError> {
        either!(self, tier => tier.close())
    }

    /// The database.
    pub fn store(&self) -> &Store {
        either!(self, tier => &tier.store)
    }
}

/// There is no such hot table.
fn no_table(name: &str) -> Problem {
    Problem::not_found(&format!("there is no hot table {name}"))
}

/// The drain has not begun.
fn still_loading() -> Problem {
    Problem::unavailable("memory is still being loaded")
}

/// What both tiers tell of their drain.
fn drain_json(state: &DrainState) -> Value {
    json!({
        "status": status_name(&state.status),
        "backlog_rows": state.backlog_rows,
        "rows_total": state.rows_total,
        "changes_total": state.changes_total,
        "dead_total": state.dead_total,
        "batches_total": state.batches_total,
        "rate_rows_per_s": state.rate_rows_per_s,
        "pace_rows_per_s": state.pace_rows_per_s,
        "paused": state.paused,
        "batch_in_hand": state.batch_in_hand,
        "last_error": state.last_error,
    })
}

/// A drain's status in a word.
fn status_name(status: &Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Paused => "paused",
        Status::BackingOff => "backing off",
        Status::Fenced => "fenced",
        Status::Failed => "failed",
        Status::Stopped => "stopped",
    }
}
