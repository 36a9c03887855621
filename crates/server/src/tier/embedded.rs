//! The tier in this process: the log, the drain's position in the database, and loading memory from both.

use super::checkpoints::Checkpoints;
use super::claim::{GIVE_BACK, wait_for};
use super::conditions;
use super::early_following::EarlyFollowing;
use crate::condition::{Condition, State};
use crate::problem::Problem;
use crate::retry::{RetryReason, retry_while_unavailable};
use crate::source::DatabaseSource;
use crate::start_error::StartError;
use forebay_config::model;
use forebay_database::Store;
use forebay_drain::{
    Differences, Drain, DrainState, HEARTBEAT, LastPosition, NewDatabase, Progress, Reached, Settings, Start,
    heartbeat, reconcile, release_claim, verify, warm,
};
use forebay_http::Gate;
use forebay_log::{Log, Position, Recovery, Verify};
use forebay_table::{Loaded, Others, Replayed, RowId, Saved, Table, TableSpec, Tables};
use forebay_terminal::{say, warn};
use futures_util::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

/// The number of single-row reads at a time.
const READS_AT_ONCE: usize = 64;

/// From this many rows on, a table is announced before it is loaded, because loading takes about a second.
const ROWS_SAID: u64 = 500_000;

/// The log and the hot tables of a data folder.
pub(super) struct Embedded {
    pub(super) log: Log,
    recovery: Recovery,
    /// The drain's position in the database, once it was read.
    start: SetOnce<Start>,
    /// Serial keys that the database's sequences must be raised to, when the database is reachable again.
    highest_keys: Mutex<Vec<(Arc<Table>, i64)>>,
    pub(super) data_dir: PathBuf,
    /// The checkpoint that memory was loaded from; set when memory is loaded.
    loaded: SetOnce<Option<Saved>>,
    pub(super) checkpoints: SetOnce<Checkpoints>,
    pub(super) tables: Tables,
    pub(super) trouble: RetryReason,
}

impl Embedded {
    /// Opens the log and the tables.
    pub async fn open(
        memory: &model::Memory,
        keep: Duration,
        specs: Vec<TableSpec>,
        store: &Store,
        new_database: NewDatabase,
        trouble: &RetryReason,
    ) -> Result<Embedded, StartError> {
        let (log, recovery) = open_log(memory, keep)?;
        let own = specs.iter().filter(|spec| spec.others == Others::None);
        let own: Vec<_> = own.map(|spec| spec.schema.name.clone()).collect();
        if !store.was_away() && !has_exclusive_history(&log, store, trouble).await? {
            // Removed before the tables are claimed: after a crash from here on nothing else would show that
            // it is stale.
            Tables::remove_checkpoint(&memory.data_dir)?;
        }
        let start = match store.was_away() {
            true => SetOnce::new(),
            false => {
                let folder = &memory.data_dir;
                SetOnce::new_with(Some(
                    find_drain_start(&log, folder, store, &own, new_database, trouble).await?,
                ))
            }
        };
        let source = Arc::new(DatabaseSource(store.clone()));
        let tables = Tables::open(log.clone(), &memory.data_dir, memory.limit_bytes, specs, source)?;
        if let Some(start) = start.get().map(Start::reached)
            && tables.forget_beyond(|table| start.of(table))?
        {
            say!(
                "note: {} has lost changes that the checkpoint contains: the tables are read from it",
                store.describe_url()
            );
        }
        let (trouble, loaded, checkpoints) = (trouble.clone(), SetOnce::new(), SetOnce::new());
        let data_dir = memory.data_dir.clone();
        let highest_keys = Mutex::default();
        Ok(Embedded { log, recovery, start, highest_keys, data_dir, loaded, checkpoints, tables, trouble })
    }

    /// Whether the start continues without the database: the database was unreachable, and a suitable
    /// checkpoint exists.
    pub(super) fn starts_without_database(&self) -> bool {
        self.start.get().is_none() && self.tables.checkpoint_fits()
    }

    /// Up to where the database has applied the log, as far as is known.
    pub(super) fn reached(&self) -> Reached {
        let known = || Reached::even(self.tables.settled_at());
        self.start.get().map_or_else(known, Start::reached)
    }

    /// Reads a row again from the database, once the database has all its changes.
    pub async fn refresh(&self, table: &str, key: forebay_value::Value) -> Result<(), Problem> {
        let Some(table) = self.tables.get(table) else { return Ok(()) };
        table.undo(key.as_ref());
        table.fetch(key).await.map(drop).map_err(|error| Problem::unavailable(error.to_string()))
    }

    /// Makes the next start read the tables from the database.
    pub fn forget(&self) -> Result<(), Problem> {
        let removed = Tables::remove_checkpoint(&self.data_dir);
        removed.map_err(|error| Problem::unavailable(format!("the checkpoint cannot be removed: {error}")))
    }

    /// Prints what opening found, connects the gate with the log, and reserves memory if that is configured.
    pub fn prepare(&self, memory: &model::Memory, gate: &Arc<Gate>) {
        let cut_bytes = self.recovery.cut_bytes;
        if cut_bytes > 0 {
            say!(
                "note: the log ended in {cut_bytes} bytes of a write that was never finished nor acknowledged; they were cut off"
            );
        }
        connect_gate(&self.log, memory.durability, gate);
        if !memory.huge_pages
            && let Err(error) = rustix::thread::disable_transparent_huge_pages(true)
        {
            warn!("note: memory comes in huge pages all the same, the kernel said: {error}");
        }
        if memory.reserve_bytes > 0 {
            // The start waits for the reservation, because requests served meanwhile would pay for it.
            let began = Instant::now();
            self.tables.reserve_memory(memory.reserve_bytes);
            let (mebibytes, seconds) = (memory.reserve_bytes >> 20, began.elapsed().as_secs_f64());
            say!("note: took {mebibytes} MiB of memory ahead of use in {seconds:.1} s (memory.reserve)");
        }
    }

    /// Fills memory: the rows of the checkpoint, then those of the other tables from the database, then the
    /// records of the log beyond them. Each table is served when it is loaded.
    pub async fn load(&self, store: &Store, begun: Option<&EarlyFollowing>) -> Result<(), StartError> {
        let started = Instant::now();
        let loaded = self.load_checkpoint(begun).await?;
        if self.start.get().is_none() {
            if !self.tables.lacks_checkpoint() {
                return self.load_without_database(loaded, started).await;
            }
            let start = self.find_start(store).await?;
            self.start.set(start).map_err(|_| "the tables are loaded already")?;
        }
        let reached = self.reached();
        let rows = tokio::select! {
            rows = self.load_rows(store) => rows?,
            lost = stay_alive(&self.log, store, &reached) => return Err(lost),
        };
        // The position has not moved, so the rows that were read agree with it.
        let stands = || heartbeat(&self.log, store, &reached);
        retry_while_unavailable(&self.trouble, "the drain's position", stands).await?;
        let doubted = self.restore_unconfirmed(store, &reached).await?;
        let replayed = self.replay(&reached).await?;
        for (table, key) in &doubted {
            self.tables.undo_followed_row(table, key.as_ref());
        }
        for (table, highest) in &replayed.highest_keys {
            let doing = loading(table);
            let raised =
                retry_while_unavailable(&self.trouble, &doing, || store.raise_keys(table.schema(), *highest));
            raised.await.map_err(|error| format!("{doing}: {error}"))?;
        }
        // Followed tables from a checkpoint have not received the changes since the checkpoint yet.
        for table in self.tables.all() {
            if !(table.followed() && table.is_from_checkpoint()) {
                table.set_loaded();
            }
        }
        if rows + loaded.rows + replayed.records > 0 {
            let seconds = started.elapsed().as_secs_f64();
            let (saved, records) = (loaded.rows, replayed.records);
            let saved = if saved > 0 { format!(", {saved} from the checkpoint") } else { String::new() };
            say!(
                "loaded {rows} rows from the database{saved} and {records} records from the log in {seconds:.1} s"
            );
        }
        self.tables.drained(reached.all());
        self.tables.settled(reached.all());
        self.loaded.set(loaded.saved).map_err(|_| "the tables are loaded already".into())
    }

    /// The drain's position in a database that was away when the start began.
    async fn find_start(&self, store: &Store) -> Result<Start, StartError> {
        if !has_exclusive_history(&self.log, store, &self.trouble).await? {
            Tables::remove_checkpoint(&self.data_dir)?;
            let message = "another server has served these tables meanwhile: start again to read them from the database";
            return Err(message.into());
        }
        let own: Vec<_> = self.tables.all().iter().map(|table| table.schema().name.clone()).collect();
        let (log, store, trouble) = (self.log.clone(), store.clone(), self.trouble.clone());
        let folder = self.data_dir.clone();
        // On its own thread, because the future need not be `Send`.
        let find_drain_start = move || {
            Handle::current().block_on(find_drain_start(
                &log,
                &folder,
                &store,
                &own,
                NewDatabase::Refuse,
                &trouble,
            ))
        };
        let start = tokio::task::spawn_blocking(find_drain_start).await??;
        let reached = start.reached();
        if self.tables.forget_beyond(|table| reached.of(table))? {
            let message = "the database has lost changes that the checkpoint contains: start again to read the tables from it";
            return Err(message.into());
        }
        Ok(start)
    }

    async fn replay(&self, reached: &Reached) -> Result<Replayed, StartError> {
        let (tables, reached) = (self.tables.clone(), reached.clone());
        let replay = move || tables.replay_uneven(reached.all(), |table| reached.of(table));
        tokio::task::spawn_blocking(replay).await?.map_err(StartError::from)
    }

    /// The rest of a start while the database is unreachable: the rows of the checkpoint, and the log.
    async fn load_without_database(&self, loaded: Loaded, started: Instant) -> Result<(), StartError> {
        let reached = self.reached();
        let replayed = self.replay(&reached).await?;
        self.tables.take_saved_keys();
        for table in self.tables.all() {
            table.set_loaded();
        }
        let (seconds, rows) = (started.elapsed().as_secs_f64(), loaded.rows);
        let records = replayed.records;
        say!(
            "the database is unreachable; loaded {rows} rows from the checkpoint and {records} records from the log in {seconds:.1} s"
        );
        self.tables.drained(reached.all());
        *self.highest_keys.lock() = replayed.highest_keys;
        self.loaded.set(loaded.saved).map_err(|_| "the tables are loaded already".into())
    }

    /// Raises the sequences of a database that is reachable again after a start without it.
    pub async fn catch_up(&self, store: &Store) {
        let highest_keys = std::mem::take(&mut *self.highest_keys.lock());
        for (table, highest) in highest_keys {
            let raise = || store.raise_keys(table.schema(), highest);
            if let Err(error) = retry_while_unavailable(&self.trouble, "raising serial keys", raise).await {
                warn!("the sequence of table {} could not be raised: {error}", table.schema().name);
            }
        }
    }

    /// Starts writing checkpoints, once memory is loaded.
    pub fn start_checkpoints(&self) -> Result<(), StartError> {
        let last = self.loaded.get().copied().flatten();
        let checkpoints = Checkpoints::start(self.log.clone(), self.tables.clone(), last)?;
        self.checkpoints.set(checkpoints).map_err(|_| "checkpoints are taken already".into())
    }

    /// Loads the checkpoint, unless it belongs to another database.
    async fn load_checkpoint(&self, begun: Option<&EarlyFollowing>) -> Result<Loaded, StartError> {
        if matches!(self.start.get(), Some(Start::Fresh { .. })) {
            return Ok(Loaded::default());
        }
        let tables = self.tables.clone();
        let followed = tables.all().iter().map(|table| table.schema().name.clone());
        let goes_on: Vec<_> =
            followed.filter(|name| begun.is_some_and(|begun| begun.is_continuous(name))).collect();
        let alone = self.starts_without_database();
        let load = move || tables.load_checkpoint_of(|name| goes_on.iter().any(|other| other == name), alone);
        let loaded = tokio::task::spawn_blocking(load).await?;
        loaded.notes.iter().for_each(|note| say!("note: {note}"));
        Ok(loaded)
    }

    /// Reads again the rows whose last changes the database may or may not have applied: those of the last
    /// second before a crash. Rows of followed tables are not read but returned.
    async fn restore_unconfirmed(&self, store: &Store, reached: &Reached) -> Result<Vec<RowId>, StartError> {
        let unheard = self.tables.unsettled_rows(|table| reached.of(table))?;
        let (followed, own): (Vec<_>, Vec<_>) = unheard.into_iter().partition(|(table, _)| table.followed());
        for rows in own.chunks(READS_AT_ONCE) {
            let read = rows.iter().map(async |(table, key)| {
                let fetch = || store.fetch(table.schema(), key.clone());
                retry_while_unavailable(&self.trouble, &loading(table), fetch).await
            });
            for ((table, key), row) in rows.iter().zip(join_all(read).await) {
                let row = row.map_err(|error| format!("{}: {error}", loading(table)))?;
                let at = reached.of(&table.schema().name);
                self.tables.restore(table, key.as_ref(), row.as_ref(), at);
            }
        }
        Ok(followed)
    }

    /// Reads from the database the rows of tables that came from no checkpoint; returns their number.
    async fn load_rows(&self, store: &Store) -> Result<u64, StartError> {
        let mut rows = 0;
        for table in self.tables.all().iter().filter(|table| !table.is_from_checkpoint()) {
            let (doing, progress) = (loading(table), Arc::default());
            let estimate =
                retry_while_unavailable(&self.trouble, &doing, || store.rows_estimated(table.schema()));
            match estimate.await.map_err(|error| format!("{doing}: {error}"))? {
                Some(about) if about >= ROWS_SAID => say!("{doing}: about {about} rows of the database"),
                _ => {}
            }
            let warmed =
                retry_while_unavailable(&self.trouble, &doing, || warm(table, store, None, &progress));
            rows += warmed.await.map_err(|error| format!("{doing}: {error}"))?.rows;
        }
        Ok(rows)
    }

    /// Releases the claim on the tables. A database that is unreachable, or has another claim, is left alone.
    pub async fn release_claim(&self, store: &Store, reached: Position) {
        let given_back = release_claim(&self.log, store, reached);
        // If this fails, the claim expires by itself.
        let _ = tokio::time::timeout(GIVE_BACK, given_back).await;
    }

    pub fn start_drain(&self, store: Store, settings: Settings) -> Result<Drain, forebay_drain::Error> {
        Drain::start(self.log.clone(), self.tables.clone(), store, settings)
    }

    /// The conditions of the log, the tables and the checkpoints.
    pub fn conditions(&self) -> Vec<Condition> {
        let failed = |error| {
            let why =
                format!("it takes no more writes until a restart; what was acknowledged is safe: {error}");
            Condition::new(State::LogFailed, why)
        };
        let unfit = self.tables.all().iter().filter_map(|table| conditions::of_unfit(table));
        let checkpoints = self.checkpoints.get().and_then(Checkpoints::condition);
        self.log.poisoned().map(failed).into_iter().chain(unfit).chain(checkpoints).collect()
    }

    /// Whether the log contains records that the database has not applied.
    pub fn is_behind(&self, drain: Option<&Drain>) -> bool {
        self.log.end() > drain.map_or_else(|| self.reached().all(), |drain| drain.state().position)
    }

    /// Adds the drain state that only a drain of a log has.
    pub async fn add_drain_state(&self, state: &DrainState, value: &mut Value) -> Result<(), Problem> {
        value["position"] = state.position.0.into();
        value["backlog_bytes"] = state.backlog_bytes.into();
        value["set_aside_bytes"] = self.log.aside().0.into();
        value["durable"] = self.log.durable().0.into();
        value["log"] = self.log.id().to_string().into();
        Ok(())
    }

    /// Rows and memory of the tables, as JSON.
    pub async fn describe(&self) -> Result<Value, Problem> {
        let all = self.tables.all().iter();
        let tables: Vec<_> = all
            .map(|table| {
                let (name, rows) = (&table.schema().name, table.count().0);
                json!({ "table": name, "rows": rows, "used_bytes": table.used_bytes(), "loaded": table.is_loaded() })
            })
            .collect();
        Ok(json!({
            "tables": tables,
            "used_bytes": self.tables.used_bytes(),
            "limit_bytes": self.tables.limit_bytes(),
            "reserved_bytes": self.tables.reserved_bytes(),
        }))
    }

    pub async fn warm(
        &self,
        table: &Arc<Table>,
        store: &Store,
        filter: Option<&str>,
        progress: &Arc<Progress>,
    ) -> Result<forebay_drain::Loaded, forebay_drain::Error> {
        warm(table, store, filter, progress).await
    }

    pub async fn verify(
        &self,
        table: &Arc<Table>,
        store: &Store,
    ) -> Result<Differences, forebay_drain::Error> {
        verify(table, store, self.log.id(), &Arc::default()).await
    }

    /// Closes the log.
    pub fn close(&self) -> Result<(), StartError> {
        self.log.clone().close().map_err(StartError::from)
    }
}

/// What a wait during the load of a table is called in messages.
fn loading(table: &Table) -> String {
    format!("loading {}", table.schema().name)
}

pub(super) fn open_log(
    memory: &model::Memory,
    keep: Duration,
) -> Result<(Log, Recovery), forebay_log::Error> {
    let mut options = forebay_log::Options::new(memory.data_dir.join("log"));
    options.durability = match memory.durability {
        model::Durability::Sync | model::Durability::Database => forebay_log::Durability::Sync,
        // `Replicated` is refused when the config is read: this tier has no replicas.
        model::Durability::Async | model::Durability::Replicated(_) => forebay_log::Durability::Async,
    };
    options.segment_bytes = memory.segment_bytes;
    // Loading reads the whole log before anything is served or drained; a drain also verifies what it read
    // before it applies it.
    options.verify = Verify::WhenRead;
    options.limit_bytes = memory.log_limit_bytes;
    options.keep = keep;
    Log::open(options)
}

/// Whether no other server took over this log's tables since this server last drained into the database.
async fn has_exclusive_history(log: &Log, store: &Store, trouble: &RetryReason) -> Result<bool, StartError> {
    let positions = retry_while_unavailable(trouble, "the drain's position", || store.positions()).await?;
    let own = positions.iter().find(|stored| stored.log == log.id().0);
    Ok(own.is_some_and(|stored| stored.taken_by.is_empty()))
}

/// Finds the position from which the drain continues, or why it must not.
async fn find_drain_start(
    log: &Log,
    folder: &Path,
    store: &Store,
    own: &[String],
    new_database: NewDatabase,
    trouble: &RetryReason,
) -> Result<Start, StartError> {
    let last = LastPosition::read(folder, log)?;
    let ask = || reconcile(log, store, own, new_database, &last);
    let start =
        wait_for(async || retry_while_unavailable(trouble, "the drain's position", ask).await).await?;
    if let Some(notice) = start.notice(store) {
        warn!("note: {notice}");
    }
    Ok(start)
}

/// Renews the claim on the tables while they are loaded; returns when it is lost.
async fn stay_alive(log: &Log, store: &Store, reached: &Reached) -> StartError {
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        match heartbeat(log, store, reached).await {
            Err(error) if !error.may_retry() => return StartError::from(error),
            // The next round, or the load itself, tries again.
            Ok(()) | Err(_) => {}
        }
    }
}

/// Releases answers as the log becomes durable, and none after it fails. The hooks must not own the log,
/// because the log owns them.
fn connect_gate(log: &Log, durability: model::Durability, gate: &Arc<Gate>) {
    let (advancing, failing) = (gate.clone(), gate.clone());
    match durability {
        model::Durability::Sync | model::Durability::Database => {
            log.on_durable(Box::new(move |durable| advancing.advance(durable.0)));
        }
        model::Durability::Async | model::Durability::Replicated(_) => gate.advance(u64::MAX),
    }
    log.on_poisoned(Box::new(move |_| failing.fail()));
    gate.advance(log.durable().0);
}
