//! A tier on Redis or Valkey at work. Other servers and drainers may be at work on it at the same time.

use super::{Gauges, RowsByTable, drain_json, no_table, still_loading};
use crate::open::StartError;
use crate::open::remote::Remote;
use crate::problem::Problem;
use forebay_database::Store;
use forebay_drain::{
    Differences, Drain, Progress, Settings, Stop, backlog_remote, load_remote, verify_remote, warm_remote,
};
use forebay_table::{HotError, RemoteTable};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SetOnce;

/// How long a stop lets the drain finish. What it does not finish is in the tier for whoever drains next.
const DRAIN_STOP: Duration = Duration::from_secs(10);
/// How long to wait before a tier or database that is away is asked again, while loading.
const LOAD_PAUSE: Duration = Duration::from_secs(1);
/// How often it is looked whether a shard lost its rows and must be loaded again.
const WATCH: Duration = Duration::from_secs(1);

/// Tables, queues and drain of a tier.
pub struct LiveRemote {
    remote: Remote,
    pub(super) store: Store,
    /// Once memory is loaded.
    drain: SetOnce<Drain>,
}

impl LiveRemote {
    pub(super) fn new(remote: Remote, store: Store) -> LiveRemote {
        LiveRemote { remote, store, drain: SetOnce::new() }
    }

    pub(super) async fn load(&self) -> Result<(), StartError> {
        for table in self.remote.tables.all() {
            let name = &table.schema().name;
            loop {
                match load_remote(table, &self.remote.link, &self.store, &Progress::default()).await {
                    Ok(loaded) if loaded.rows == 0 => break,
                    Ok(loaded) => {
                        let seconds = loaded.took.as_secs_f64();
                        eprintln!(
                            "loaded {} rows of {name} from the database in {seconds:.1} s",
                            loaded.rows
                        );
                        break;
                    }
                    Err(error) if error.is_transient() => {
                        eprintln!("loading {name}: {error}; trying again");
                        tokio::time::sleep(LOAD_PAUSE).await;
                    }
                    Err(error) => return Err(StartError(format!("loading {name}: {error}"))),
                }
            }
        }
        Ok(())
    }

    pub(super) fn start_drain(&self, settings: Settings) -> Result<(), StartError> {
        let Remote { client, tables, .. } = &self.remote;
        let drain = Drain::start_remote(client, tables, self.store.clone(), settings);
        let drain = drain.map_err(StartError::from)?;
        self.drain.set(drain).map_err(|_| StartError("the drain runs already".into()))
    }

    /// Loads again what a server that changed over has lost, until it is dropped.
    pub(super) async fn watch(&self) {
        loop {
            tokio::time::sleep(WATCH).await;
            for table in self.remote.tables.all() {
                let is_loaded = table.check_loaded(&self.remote.link).await;
                if matches!(is_loaded, Ok(true)) {
                    continue;
                }
                let loaded = load_remote(table, &self.remote.link, &self.store, &Progress::default()).await;
                if let Ok(loaded) = loaded {
                    let name = &table.schema().name;
                    eprintln!("the memory tier had lost rows of {name}; {} were loaded again", loaded.rows);
                }
            }
        }
    }

    pub(super) fn health(&self) -> Result<(), Problem> {
        self.drain.get().map(drop).ok_or_else(still_loading)
    }

    pub(super) async fn drain_state(&self) -> Result<Value, Problem> {
        let state = self.drain.get().ok_or_else(still_loading)?.state();
        let backlog_rows = self.backlog().await?;
        let mut value = drain_json(&state);
        value["backlog_rows"] = backlog_rows.into();
        value["shards"] = state.shards.into();
        value["shards_held"] = state.shards_held.into();
        Ok(value)
    }

    pub(super) fn gauges(&self) -> Gauges {
        let backlog_rows = self.drain.get().and_then(|drain| drain.state().backlog_rows);
        Gauges {
            backlog_rows,
            backlog_bytes: 0,
            used_bytes: 0,
            limit_bytes: self.remote.tables.limit_bytes(),
        }
    }

    pub(super) fn drained_rows(&self) -> u64 {
        self.drain.get().map_or(0, |drain| drain.state().rows_total)
    }

    pub(super) fn dead_letters(&self) -> u64 {
        self.drain.get().map_or(0, |drain| drain.state().dead_total)
    }

    pub(super) async fn pause_drain(&self, paused: bool) {
        let drain = self.drain.wait().await;
        if paused { drain.pause().await } else { drain.resume() }
    }

    pub(super) async fn finish_drain(&self) -> Result<(), Problem> {
        let drain = self.drain.wait().await;
        drain.drain_all().await.map_err(|error| Problem::unavailable(error.to_string()))
    }

    pub(super) async fn is_behind(&self) -> Result<bool, Problem> {
        Ok(self.backlog().await? > 0)
    }

    async fn backlog(&self) -> Result<u64, Problem> {
        let Remote { tables, link, .. } = &self.remote;
        let rows = backlog_remote(tables.queue(), link).await;
        rows.map_err(|error| Problem::unavailable(error.to_string()))
    }

    pub(super) async fn tables(&self) -> Result<Value, Problem> {
        let mut tables = Vec::new();
        for table in self.remote.tables.all() {
            let rows = table.count(&self.remote.link).await.map_err(|error| unavailable(&error))?;
            tables.push(json!({ "table": table.schema().name, "rows": rows, "loaded": table.is_loaded() }));
        }
        let used_bytes = self.remote.tables.used_bytes().await.map_err(|error| unavailable(&error))?;
        Ok(json!({
            "tables": tables,
            "used_bytes": used_bytes,
            "limit_bytes": self.remote.tables.limit_bytes(),
        }))
    }

    pub(super) async fn warm(
        &self,
        name: Option<&str>,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<RowsByTable, Problem> {
        let tables = match name {
            Some(name) => vec![self.table(name)?],
            None => self.remote.tables.all().to_vec(),
        };
        let mut loaded = Vec::new();
        for table in tables {
            let warmed = warm_remote(&table, &self.remote.link, &self.store, filter, progress).await;
            let rows = warmed.map_err(|error| Problem::new(422, error.to_string()))?.rows;
            loaded.push((table.schema().name.clone(), rows));
        }
        Ok(loaded)
    }

    fn table(&self, name: &str) -> Result<Arc<RemoteTable>, Problem> {
        self.remote.tables.get(name).ok_or_else(|| no_table(name))
    }

    pub(super) async fn check(&self) -> Result<Vec<(String, Differences)>, Problem> {
        let mut checks = Vec::new();
        let Remote { tables, link, .. } = &self.remote;
        for table in tables.all() {
            let found = verify_remote(tables, table, link, &self.store, &Progress::default()).await;
            let found = found.map_err(|error| Problem::unavailable(error.to_string()))?;
            checks.push((table.schema().name.clone(), found));
        }
        Ok(checks)
    }

    pub(super) async fn forget(&self, name: &str) -> Result<(), Problem> {
        // A table that is not kept in memory has nothing to forget.
        let Some(table) = self.remote.tables.get(name) else { return Ok(()) };
        table.clear(&self.remote.link).await.map_err(|error| unavailable(&error))
    }

    pub(super) async fn stop_drain(&self) {
        let Some(drain) = self.drain.get() else { return };
        let mode = if drain.state().paused { Stop::Leave } else { Stop::Finish };
        let state = match tokio::time::timeout(DRAIN_STOP, drain.stop(mode)).await {
            Ok(state) => state,
            Err(_) => drain.stop(Stop::Leave).await,
        };
        if mode == Stop::Finish && state.backlog_rows != Some(0) {
            eprintln!("some rows are not drained; they are in the memory tier for whoever drains next");
        }
    }

    pub(super) fn close(&self) -> Result<(), StartError> {
        Ok(())
    }
}

fn unavailable(error: &HotError) -> Problem {
    Problem::unavailable(format!("the memory tier does not answer: {error}"))
}
