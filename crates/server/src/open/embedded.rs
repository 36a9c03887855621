//! The embedded tier: the log, where it and the database stand, and loading memory from both.

use super::StartError;
use crate::source::DatabaseSource;
use forebay_config::model;
use forebay_database::Store;
use forebay_drain::{NewDatabase, Progress, reconcile, warm};
use forebay_log::{Log, Position, Recovery, Verify};
use forebay_table::{TableSpec, Tables};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Log and hot tables of a data folder.
pub struct Embedded {
    /// The log.
    pub log: Log,
    /// What opening the log found.
    pub recovery: Recovery,
    /// Where the log's records begin that the database does not have.
    pub start: Position,
    /// The hot tables, nothing loaded yet.
    pub tables: Tables,
}

/// Opens the log and the tables.
pub(super) async fn open(
    memory: &model::Memory,
    specs: Vec<TableSpec>,
    store: &Store,
    new_database: NewDatabase,
) -> Result<Embedded, StartError> {
    let (log, recovery) = open_log(memory)?;
    let start = agree(&log, store, new_database).await?;
    let source = Arc::new(DatabaseSource(store.clone()));
    let tables = Tables::open(log.clone(), &memory.data_dir, memory.limit_bytes, specs, source)
        .map_err(StartError::from)?;
    Ok(Embedded { log, recovery, start, tables })
}

fn open_log(memory: &model::Memory) -> Result<(Log, Recovery), StartError> {
    let mut options = forebay_log::Options::new(memory.data_dir.join("log"));
    options.durability = match memory.durability {
        model::Durability::Sync => forebay_log::Durability::Sync,
        // Replicated is refused where the config is read: this tier has no replicas.
        model::Durability::Async | model::Durability::Replicated(_) => forebay_log::Durability::Async,
    };
    options.segment_bytes = memory.segment_bytes;
    // Loading reads all of it before anything is served or drained; so does a drain before it applies what it read.
    options.verify = Verify::WhenRead;
    options.limit_bytes = memory.log_limit_bytes;
    Log::open(options).map_err(StartError::from)
}

/// Finds where the drain goes on, or why it must not.
async fn agree(log: &Log, store: &Store, new_database: NewDatabase) -> Result<Position, StartError> {
    let start = reconcile(log, store, new_database).await.map_err(StartError::from)?;
    if let Some(notice) = start.notice(store) {
        eprintln!("note: {notice}");
    }
    Ok(start.position())
}

/// How long to wait before a database that is away is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Fills memory: the database's rows, then what the log holds beyond them. Serving waits for it table by table.
pub async fn load(embedded: &Embedded, store: &Store) -> Result<(), StartError> {
    let started = Instant::now();
    let mut rows = 0;
    for table in embedded.tables.all() {
        rows += loop {
            match warm(table, store, None, &Arc::new(Progress::default())).await {
                Ok(loaded) => break loaded.rows,
                Err(error) if error.is_transient() => {
                    eprintln!("loading {}: {error}; trying again", table.schema().name);
                    tokio::time::sleep(STORE_PAUSE).await;
                }
                Err(error) => return Err(StartError(format!("loading {}: {error}", table.schema().name))),
            }
        };
    }
    let (tables, start) = (embedded.tables.clone(), embedded.start);
    let replayed = tokio::task::spawn_blocking(move || tables.replay(start))
        .await
        .map_err(StartError::from)?
        .map_err(StartError::from)?;
    for (table, highest) in &replayed.highest_keys {
        store.raise_keys(table.schema(), *highest).await.map_err(StartError::from)?;
    }
    for table in embedded.tables.all() {
        table.set_loaded();
    }
    if rows + replayed.records > 0 {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "loaded {rows} rows from the database and {} records from the log in {seconds:.1} s",
            replayed.records
        );
    }
    Ok(())
}
