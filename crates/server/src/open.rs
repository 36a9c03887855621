//! Opening what a config names: record store, log, hot tables, in the order in which each can say what is wrong with the
//! next; and loading memory before anything is served from it.

use crate::config::{Config, model};
use crate::source::RecordSource;
use forebay_drain::{NewRecord, Progress, reconcile, warm};
use forebay_log::{Log, Position, Recovery};
use forebay_record::{Options as StoreOptions, Store};
use forebay_table::{TableSpec, Tables};
use forebay_value::Schema;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why a server could not start, in a sentence that says what to do.
#[derive(Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl StartError {
    pub(crate) fn from(error: impl fmt::Display) -> StartError {
        StartError(error.to_string())
    }
}

/// Record store, log and hot tables of one config, open.
pub struct Opened {
    /// The record store.
    pub store: Store,
    /// The log.
    pub log: Log,
    /// What opening the log found.
    pub recovery: Recovery,
    /// Where the log's records begin that the record store does not have.
    pub start: Position,
    /// The hot tables, nothing loaded yet.
    pub tables: Tables,
    /// Every table of the config.
    pub schemas: HashMap<String, Arc<Schema>>,
}

/// Opens everything. Nothing is served and nothing drained yet.
pub async fn open(config: &Config, new_record: NewRecord) -> Result<Opened, StartError> {
    let store = Store::open(&config.record.url, StoreOptions::default()).map_err(StartError::from)?;
    let schemas = prepare_tables(config, &store).await?;
    let (log, recovery) = open_log(&config.memory)?;
    let start = agree(&log, &store, new_record).await?;
    let specs = hot_specs(config, &schemas);
    let source = Arc::new(RecordSource(store.clone()));
    let tables = Tables::open(log.clone(), &config.memory.data_dir, config.memory.limit_bytes, specs, source)
        .map_err(StartError::from)?;
    Ok(Opened { store, log, recovery, start, tables, schemas })
}

fn open_log(memory: &model::Memory) -> Result<(Log, Recovery), StartError> {
    let mut options = forebay_log::Options::new(memory.data_dir.join("log"));
    options.durability = match memory.durability {
        model::Durability::Sync => forebay_log::Durability::Sync,
        model::Durability::Async => forebay_log::Durability::Async,
    };
    options.segment_bytes = memory.segment_bytes;
    options.limit_bytes = memory.log_limit_bytes;
    Log::open(options).map_err(StartError::from)
}

/// Creates the tables that are missing in the record store and reads those whose columns the config leaves to it.
async fn prepare_tables(config: &Config, store: &Store) -> Result<HashMap<String, Arc<Schema>>, StartError> {
    let mut schemas = HashMap::new();
    for table in &config.tables {
        let at = |what: String| {
            StartError(format!("{}:{}: table {}: {what}", config.source, table.line, table.name))
        };
        let stored = store.describe(&table.name).await.map_err(|error| at(error.to_string()))?;
        let schema = match (&table.columns, stored) {
            (Some(wanted), None) => {
                store.create_table(wanted).await.map_err(|error| at(error.to_string()))?;
                wanted.clone()
            }
            (Some(wanted), Some(stored)) => {
                compare(wanted, &stored).map_err(at)?;
                wanted.clone()
            }
            (None, Some(stored)) => stored,
            (None, None) => {
                return Err(at(format!(
                    "is not in {}; give its columns here to have it made",
                    store.describe_url()
                )));
            }
        };
        schemas.insert(table.name.clone(), Arc::new(schema));
    }
    Ok(schemas)
}

/// Whether a table in the record store is what the config says.
fn compare(wanted: &Schema, stored: &Schema) -> Result<(), String> {
    for column in &wanted.columns {
        let Some(found) = stored.columns.iter().find(|found| found.name == column.name) else {
            return Err(format!("the record store's table has no column `{}`", column.name));
        };
        let same_type = match (found.ty, column.ty) {
            // A length limit is checked on the way in; the store need not know it.
            (forebay_value::Type::Text { .. }, forebay_value::Type::Text { .. }) => true,
            (found, wanted) => found == wanted,
        };
        if !same_type {
            return Err(format!(
                "column `{}` is {} in the record store, {} here",
                column.name, found.ty, column.ty
            ));
        }
    }
    let key = &wanted.key_column().name;
    if stored.key_column().name != *key {
        return Err(format!("the key is `{}` in the record store, `{key}` here", stored.key_column().name));
    }
    match stored
        .columns
        .iter()
        .find(|found| wanted.position(&found.name).is_none() && !found.nullable && found.fill.is_none())
    {
        Some(column) => {
            Err(format!("the record store's column `{}` is missing here and must not be null", column.name))
        }
        None => Ok(()),
    }
}

fn hot_specs(config: &Config, schemas: &HashMap<String, Arc<Schema>>) -> Vec<TableSpec> {
    let lists = |table: &str| {
        let is_list =
            |action: &model::Action| matches!(action, model::Action::List { table: own, .. } if own == table);
        config.endpoints.iter().any(|endpoint| match &endpoint.action {
            model::Action::AnyOf(actions) => actions.iter().any(is_list),
            action => is_list(action),
        })
    };
    let hot = config.tables.iter().filter(|table| table.hot);
    hot.map(|table| TableSpec {
        schema: Schema::clone(&schemas[&table.name]),
        shared: table.shared,
        ordered: lists(&table.name),
    })
    .collect()
}

/// Finds where the drain goes on, or why it must not.
async fn agree(log: &Log, store: &Store, new_record: NewRecord) -> Result<Position, StartError> {
    let start = reconcile(log, store, new_record).await.map_err(StartError::from)?;
    if let Some(notice) = start.notice(store) {
        eprintln!("note: {notice}");
    }
    Ok(start.position())
}

/// How long to wait before a record store that is away is asked again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Whether the record store may answer later without anyone repairing anything.
fn is_away(error: &forebay_drain::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<forebay_record::Error>())
        .is_some_and(|error| error.retry())
}

/// Fills memory: the record store's rows, then what the log holds beyond them. Serving waits for it table by table.
pub async fn load(opened: &Opened) -> Result<(), StartError> {
    let started = Instant::now();
    let mut rows = 0;
    for table in opened.tables.all() {
        rows += loop {
            match warm(table, &opened.store, None, &Arc::new(Progress::default())).await {
                Ok(loaded) => break loaded.rows,
                Err(error) if is_away(&error) => {
                    eprintln!("loading {}: {error}; trying again", table.schema().name);
                    tokio::time::sleep(STORE_PAUSE).await;
                }
                Err(error) => return Err(StartError(format!("loading {}: {error}", table.schema().name))),
            }
        };
    }
    let (tables, start) = (opened.tables.clone(), opened.start);
    let replayed = tokio::task::spawn_blocking(move || tables.replay(start))
        .await
        .map_err(StartError::from)?
        .map_err(StartError::from)?;
    for (table, highest) in &replayed.highest_keys {
        opened.store.raise_keys(table.schema(), *highest).await.map_err(StartError::from)?;
    }
    for table in opened.tables.all() {
        table.set_loaded();
    }
    if rows + replayed.records > 0 {
        let seconds = started.elapsed().as_secs_f64();
        eprintln!(
            "loaded {rows} rows from the record store and {} records from the log in {seconds:.1} s",
            replayed.records
        );
    }
    Ok(())
}

/// Whether a folder holds a log.
pub fn has_log(data_dir: &Path) -> bool {
    data_dir.join("log").is_dir()
}
