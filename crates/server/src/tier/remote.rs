//! The tier on Redis or Valkey: connecting, checking that it can keep what the config promises, and loading.
//! Other servers and drainers may use it at the same time.

use super::claim::wait_for;
use crate::condition::{Condition, State};
use crate::problem::Problem;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::source::DatabaseSource;
use crate::start_error::StartError;
use forebay_config::model::{self, Durability};
use forebay_database::{Store, UpdateAction};
use forebay_drain::{
    Differences, Drain, DrainState, HEARTBEAT, Loaded, Progress, Settings, backlog_remote, claim_remote,
    load_remote, verify_remote, warm_remote,
};
use forebay_redis::{Client, Command, Link, Slot};
use forebay_table::{HotError, Others, RemoteOptions, RemoteTable, RemoteTables, Repairing, TableSpec};
use forebay_terminal::{say, warn};
use forebay_value::Schema;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How often each shard is checked for lost rows, which are then loaded again.
const WATCH: Duration = Duration::from_secs(1);
/// How long every primary may take to respond before the tier counts as unreachable: shorter than the timeout
/// of a readiness probe.
const ANSWER_LIMIT: Duration = Duration::from_millis(500);
/// How long abandoning a load may take.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);

/// The connection to a tier, and its hot tables.
pub(super) struct Remote {
    client: Client,
    pub(super) tables: RemoteTables,
    /// For work that no client waits for; its connections belong to the runtime that opened the tier.
    pub(super) link: Link,
    pub(super) trouble: RetryReason,
}

impl Remote {
    /// Connects, checks that the servers offer the configured durability, and opens or creates the tables.
    /// `undeclared`: the tables whose columns the config leaves to the database.
    pub async fn open(
        at: &model::Remote,
        memory: &model::Memory,
        specs: Vec<TableSpec>,
        undeclared: Vec<String>,
        store: &Store,
        trouble: &RetryReason,
    ) -> Result<Remote, StartError> {
        if let Some(spec) = specs.iter().find(|spec| spec.others == Others::Followed) {
            let name = &spec.schema.name;
            return Err(StartError::from(format!(
                "table {name}: only memory in this process can follow other writers' changes; write `follow = false`"
            )));
        }
        let options = forebay_redis::Options {
            durability: match memory.durability {
                // `Database` is refused when the config is read: writes here do not wait for a database.
                Durability::Sync | Durability::Database => forebay_redis::Durability::Sync,
                Durability::Async => forebay_redis::Durability::Async,
                Durability::Replicated(model::Replicas::All) => {
                    forebay_redis::Durability::Replicated(forebay_redis::Replicas::All)
                }
                Durability::Replicated(model::Replicas::Count(count)) => {
                    forebay_redis::Durability::Replicated(forebay_redis::Replicas::Count(count))
                }
            },
            read_from: match at.read_from {
                model::ReadFrom::Primary => forebay_redis::ReadFrom::Primary,
                model::ReadFrom::Replicas => forebay_redis::ReadFrom::Replicas,
            },
            ..forebay_redis::Options::default()
        };
        let shown = memory.describe();
        let failed = |error: &dyn std::fmt::Display| format!("the memory tier {shown}: {error}");
        let client = Client::connect(&at.url, options).await.map_err(|error| failed(&error))?;
        let link = client.link();
        let source = Arc::new(DatabaseSource(store.clone()));
        let trouble = trouble.clone();
        let database =
            retry_while_unavailable(&trouble, "opening the memory tier", || store.identity()).await;
        let options = RemoteOptions {
            name: memory.name.clone(),
            database: database?,
            shards: at.shards,
            undeclared,
            limit_bytes: memory.limit_bytes,
        };
        let schemas: Vec<_> = specs.iter().map(|spec| Arc::new(spec.schema.clone())).collect();
        let tables = retry_while_unavailable(&trouble, "opening the memory tier", || {
            let (specs, options) = (specs.clone(), options.clone());
            RemoteTables::open(&client, &link, specs, options, source.clone(), source.clone())
        });
        let tables = tables.await.map_err(|error| failed(&error))?;
        tables.lacking().iter().for_each(|lacking| warn!("{lacking}"));
        refuse_update_actions(&schemas, store, &trouble).await?;
        let claim = || claim_remote(&tables, store, None);
        wait_for(async || retry_while_unavailable(&trouble, "claiming the tables", claim).await).await?;
        Ok(Remote { client, tables, link, trouble })
    }

    /// Takes over tables that other servers have used with other columns.
    pub async fn inherit(&self) -> Result<(), StartError> {
        let succeeded = retry_while_unavailable(&self.trouble, "taking the tables over", || {
            self.tables.inherit(&self.link)
        })
        .await;
        succeeded.map_err(|error| format!("taking the tables over: {error}").into())
    }

    /// Fills the tier with the database's rows, unless another server has done so.
    pub async fn load(&self, store: &Store) -> Result<(), StartError> {
        tokio::select! {
            loaded = self.load_tables(store) => loaded,
            lost = self.stay_alive(store) => Err(lost),
        }
    }

    /// Renews the claim on the tables; returns when it is lost.
    async fn stay_alive(&self, store: &Store) -> StartError {
        let mut before = 0;
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            // A backlog that is there twice in turn: a momentary one is drained when the next server claims.
            let now = self.backlog().await.ok();
            let pending = now.map(|now| now.min(before));
            before = now.unwrap_or(before);
            match claim_remote(&self.tables, store, pending).await {
                Err(error) if !error.may_retry() => return StartError::from(error),
                // An unreachable database is tried again.
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// Stores how much the database lacks of the queues, when the server stops.
    pub async fn note_backlog(&self, store: &Store, within: Duration) {
        let note = async {
            let pending = self.backlog().await.map_err(|problem| problem.detail)?;
            claim_remote(&self.tables, store, Some(pending)).await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(within, note).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => warn!("the database was not told what it lacks: {why}"),
            Err(_) => warn!("the database was not told what it lacks: no answer within {within:?}"),
        }
    }

    /// Leaves tables that are being loaded to other servers.
    pub async fn leave(&self, within: Duration) {
        // A load that does not end runs until the process ends; its lease then expires.
        let _ = tokio::time::timeout(within.min(LEAVE_LIMIT), self.tables.leave()).await;
    }

    async fn load_tables(&self, store: &Store) -> Result<(), StartError> {
        for table in self.tables.all() {
            let name = &table.schema().name;
            let doing = format!("loading {name}");
            let progress = Progress::default();
            let loaded = retry_while_unavailable(&self.trouble, &doing, || {
                load_remote(table, &self.link, store, &progress)
            });
            let loaded = loaded.await.map_err(|error| format!("{doing}: {error}"))?;
            if loaded.rows > 0 {
                let (rows, seconds) = (loaded.rows, loaded.took.as_secs_f64());
                say!("loaded {rows} rows of {name} from the database in {seconds:.1} s");
            }
        }
        Ok(())
    }

    /// The conditions of the tier: whether every primary takes writes.
    pub async fn conditions(&self) -> Vec<Condition> {
        let asked = self.client.primaries().into_iter().filter_map(|node| {
            let (first, _) = *node.slots.first()?;
            let mut ping = Command::new();
            ping.arg("PING");
            Some(self.link.change(Slot(first), ping))
        });
        let why = match tokio::time::timeout(ANSWER_LIMIT, try_join_all(asked)).await {
            Ok(Ok(_)) => {
                let full = self.tables.memory_troubles().await.into_iter().map(full);
                return self.tables.repairing().map(repair).into_iter().chain(full).collect();
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {ANSWER_LIMIT:?}"),
        };
        vec![Condition::new(State::TierUnreachable, why)]
    }

    /// Loads again the rows that a failover has lost, until the future is dropped.
    pub async fn watch(&self, store: &Store) {
        tokio::join!(self.watch_rows(store), async {
            // The drain of each shard detects the loss by itself.
            let lost = self.stay_alive(store).await;
            warn!("the tables of the memory tier are no longer its own: {lost}");
        });
    }

    async fn watch_rows(&self, store: &Store) {
        loop {
            tokio::time::sleep(WATCH).await;
            for table in self.tables.all() {
                if matches!(table.check_loaded(&self.link).await, Ok(true)) {
                    continue;
                }
                if let Ok(loaded) = load_remote(table, &self.link, store, &Progress::default()).await {
                    let name = &table.schema().name;
                    warn!("the memory tier had lost rows of {name}; {} were loaded again", loaded.rows);
                }
            }
        }
    }

    pub fn start_drain(&self, store: Store, settings: Settings) -> Result<Drain, forebay_drain::Error> {
        Drain::start_remote(&self.client, &self.tables, store, settings)
    }

    /// The records of all queues that the database has not applied.
    pub async fn backlog(&self) -> Result<u64, Problem> {
        let rows = backlog_remote(self.tables.queue(), &self.link).await;
        rows.map_err(|error| Problem::unavailable(error.to_string()))
    }

    /// Adds the drain state that only a drain of queues has.
    pub async fn add_drain_state(&self, state: &DrainState, value: &mut Value) -> Result<(), Problem> {
        // Null: a server of the tier does not respond.
        value["backlog_rows"] = self.backlog().await.ok().into();
        value["shards"] = state.shards.into();
        value["shards_held"] = state.shards_held.into();
        Ok(())
    }

    /// Rows and memory of the tables, as JSON.
    pub async fn describe(&self) -> Result<Value, Problem> {
        let mut tables = Vec::new();
        for table in self.tables.all() {
            let rows = table.count(&self.link).await.map_err(|error| unavailable(&error))?;
            tables.push(json!({ "table": table.schema().name, "rows": rows, "loaded": table.is_loaded() }));
        }
        let used_bytes = self.tables.used_bytes().await.map_err(|error| unavailable(&error))?;
        Ok(json!({ "tables": tables, "used_bytes": used_bytes, "limit_bytes": self.tables.limit_bytes() }))
    }

    pub async fn warm(
        &self,
        table: &Arc<RemoteTable>,
        store: &Store,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<Loaded, forebay_drain::Error> {
        warm_remote(table, &self.link, store, filter, progress).await
    }

    pub async fn verify(
        &self,
        table: &Arc<RemoteTable>,
        store: &Store,
    ) -> Result<Differences, forebay_drain::Error> {
        verify_remote(&self.tables, table, &self.link, store, &Progress::default()).await
    }

    /// Reads a row again from the database.
    pub async fn refresh(&self, table: &str, key: forebay_value::Value) -> Result<(), Problem> {
        match self.tables.queue().undo(&self.link, table, key.as_ref(), None).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Problem::unavailable("later changes of the row are not drained yet")),
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Forgets every row of a table. A table that is not in memory has nothing to forget.
    pub async fn forget(&self, name: &str) -> Result<(), Problem> {
        let Some(table) = self.tables.get(name) else { return Ok(()) };
        table.clear(&self.link).await.map_err(|error| unavailable(&error))
    }
}

/// Refuses foreign keys with ON UPDATE actions: the database alone changes the referring rows, and the queues
/// cannot order their own writes to these rows with that change.
async fn refuse_update_actions(
    schemas: &[Arc<Schema>],
    store: &Store,
    trouble: &RetryReason,
) -> Result<(), StartError> {
    let cascades =
        retry_while_unavailable(trouble, "opening the memory tier", || store.cascades(schemas)).await;
    let Some(action) = cascades?.updates().first().cloned() else { return Ok(()) };
    let UpdateAction { from, columns, to } = action;
    let columns = columns.join(", ");
    Err(StartError::from(format!(
        "table {to}: its rows follow {columns} of {from} by ON UPDATE, which memory on Redis or Valkey is not told of; \
         make the foreign key ON UPDATE NO ACTION, let it refer to the key of {from}, or keep memory in the process"
    )))
}

fn full(why: String) -> Condition {
    Condition::new(State::TierFull, why)
}

fn repair(repairing: Repairing) -> Condition {
    let Repairing { shards, takes_writes, since, rows } = repairing;
    let seconds = since.elapsed().as_secs();
    let what = if takes_writes { "new unique values" } else { "writes" };
    let why = format!(
        "{shards} shards take no {what} since {seconds} s, because their server has changed over; {rows} rows were looked \
         through for unique values that it has lost"
    );
    Condition::new(State::Repair, why)
}

fn unavailable(error: &HotError) -> Problem {
    Problem::unavailable(format!("the memory tier cannot be read or written: {error}"))
}
