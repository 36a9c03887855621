//! Opening what a config names: database, memory tier, hot tables, in the order in which each can say what is wrong with the
//! next; and loading memory before anything is served from it.

pub mod embedded;
pub mod remote;
mod schemas;

use embedded::Embedded;
use forebay_config::{Config, model};
use forebay_database::{Options as StoreOptions, Store};
use forebay_drain::NewDatabase;
use forebay_table::HotTables;
use forebay_value::Schema;
use remote::Remote;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

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

/// Database and memory tier of one config, open.
pub struct Opened {
    /// The database.
    pub store: Store,
    /// The memory tier, nothing loaded yet.
    pub memory: Memory,
    /// Every table of the config.
    pub schemas: HashMap<String, Arc<Schema>>,
}

/// A memory tier.
pub enum Memory {
    /// In this process.
    Embedded(Embedded),
    /// On Redis or Valkey.
    Remote(Remote),
}

impl Memory {
    /// The hot tables.
    pub fn tables(&self) -> HotTables {
        match self {
            Memory::Embedded(embedded) => HotTables::from(&embedded.tables),
            Memory::Remote(remote) => HotTables::from(&remote.tables),
        }
    }
}

/// Opens the database alone: it, and every table of the config.
pub async fn database(config: &Config) -> Result<(Store, HashMap<String, Arc<Schema>>), StartError> {
    let store = Store::open(&config.database.url, StoreOptions::default()).map_err(StartError::from)?;
    let schemas = schemas::prepare_tables(config, &store).await?;
    Ok((store, schemas))
}

/// Opens everything. Nothing is served and nothing drained yet.
pub async fn open(config: &Config, new_database: NewDatabase) -> Result<Opened, StartError> {
    let (store, schemas) = database(config).await?;
    let specs = schemas::hot_specs(config, &schemas);
    let memory = match &config.memory.tier {
        model::Tier::Embedded => {
            Memory::Embedded(embedded::open(&config.memory, specs, &store, new_database).await?)
        }
        model::Tier::Remote(at) => Memory::Remote(remote::open(at, &config.memory, specs, &store).await?),
    };
    Ok(Opened { store, memory, schemas })
}
