//! The embedded tier at work.

use super::{Gauges, RowsByTable, drain_json, no_table, still_loading};
use crate::open::StartError;
use crate::open::embedded::{Embedded, load};
use crate::problem::Problem;
use forebay_database::Store;
use forebay_drain::{Differences, Drain, Progress, Settings, Stop, verify, warm};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SetOnce;

/// How long a stop lets the drain finish what the log holds. What it does not finish stays in the log for the next start.
const DRAIN_STOP: Duration = Duration::from_secs(10);

/// Log, tables and drain of a data folder.
pub struct LiveEmbedded {
    embedded: Embedded,
    pub(super) store: Store,
    /// Once memory is loaded.
    drain: SetOnce<Drain>,
}

impl LiveEmbedded {
    pub(super) fn new(embedded: Embedded, store: Store) -> LiveEmbedded {
        LiveEmbedded { embedded, store, drain: SetOnce::new() }
    }

    pub(super) async fn load(&self) -> Result<(), StartError> {
        load(&self.embedded, &self.store).await?;
        self.embedded.tables.drained(self.embedded.start);
        Ok(())
    }

    pub(super) fn start_drain(&self, settings: Settings) -> Result<(), StartError> {
        let (log, tables) = (self.embedded.log.clone(), self.embedded.tables.clone());
        let drain = Drain::start(log, tables, self.store.clone(), settings).map_err(StartError::from)?;
        self.drain.set(drain).map_err(|_| StartError("the drain runs already".into()))
    }

    pub(super) fn health(&self) -> Result<(), Problem> {
        if let Some(error) = self.embedded.log.poisoned() {
            return Err(Problem::new(503, format!("the log has failed: {error}")));
        }
        self.drain.get().map(drop).ok_or_else(still_loading)
    }

    pub(super) async fn drain_state(&self) -> Result<Value, Problem> {
        let state = self.drain.get().ok_or_else(still_loading)?.state();
        let mut value = drain_json(&state);
        value["position"] = state.position.0.into();
        value["backlog_bytes"] = state.backlog_bytes.into();
        value["durable"] = self.embedded.log.durable().0.into();
        value["log"] = self.embedded.log.id().to_string().into();
        Ok(value)
    }

    pub(super) fn gauges(&self) -> Gauges {
        let drain = self.drain.get().map(Drain::state);
        Gauges {
            backlog_rows: drain.as_ref().and_then(|state| state.backlog_rows),
            backlog_bytes: drain.as_ref().map_or(0, |state| state.backlog_bytes),
            used_bytes: self.embedded.tables.used_bytes(),
            limit_bytes: self.embedded.tables.limit_bytes(),
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
        let target = self.embedded.log.end();
        let drain = self.drain.wait().await;
        drain.drain_to(target).await.map_err(|error| Problem::unavailable(error.to_string()))
    }

    pub(super) async fn is_behind(&self) -> Result<bool, Problem> {
        let drained = self.drain.get().map_or(self.embedded.start, |drain| drain.state().position);
        Ok(self.embedded.log.end() > drained)
    }

    pub(super) async fn tables(&self) -> Result<Value, Problem> {
        let all = self.embedded.tables.all().iter();
        let tables: Vec<_> = all
            .map(|table| {
                json!({ "table": table.schema().name, "rows": table.count().0, "loaded": table.is_loaded() })
            })
            .collect();
        Ok(json!({
            "tables": tables,
            "used_bytes": self.embedded.tables.used_bytes(),
            "limit_bytes": self.embedded.tables.limit_bytes(),
            "reserved_bytes": self.embedded.tables.reserved_bytes(),
        }))
    }

    pub(super) async fn warm(
        &self,
        name: Option<&str>,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<RowsByTable, Problem> {
        let tables = match name {
            Some(name) => vec![self.embedded.tables.get(name).ok_or_else(|| no_table(name))?],
            None => self.embedded.tables.all().to_vec(),
        };
        let mut loaded = Vec::new();
        for table in tables {
            let warmed = warm(&table, &self.store, filter, progress).await;
            let rows = warmed.map_err(|error| Problem::new(422, error.to_string()))?.rows;
            loaded.push((table.schema().name.clone(), rows));
        }
        Ok(loaded)
    }

    pub(super) async fn check(&self) -> Result<Vec<(String, Differences)>, Problem> {
        let mut checks = Vec::new();
        for table in self.embedded.tables.all() {
            let found =
                verify(table, &self.store, self.embedded.log.id(), &Arc::new(Progress::default())).await;
            let found = found.map_err(|error| Problem::unavailable(error.to_string()))?;
            checks.push((table.schema().name.clone(), found));
        }
        Ok(checks)
    }

    /// Nothing is kept in memory between two processes.
    pub(super) async fn forget(&self, _table: &str) -> Result<(), Problem> {
        Ok(())
    }

    pub(super) async fn stop_drain(&self) {
        let Some(drain) = self.drain.get() else { return };
        // A paused drain was told to leave everything where it is.
        let mode = if drain.state().paused { Stop::Leave } else { Stop::Finish };
        let state = match tokio::time::timeout(DRAIN_STOP, drain.stop(mode)).await {
            Ok(state) => state,
            Err(_) => drain.stop(Stop::Leave).await,
        };
        if state.backlog_bytes > 0 {
            eprintln!(
                "{} bytes of the log are not drained; they will be after the next start",
                state.backlog_bytes
            );
        }
    }

    pub(super) fn close(&self) -> Result<(), StartError> {
        self.embedded.log.clone().close().map_err(StartError::from)
    }
}
