//! Opening what a config names: database, hot tables, memory tier, in the order in which each can say what is
//! wrong with the next.

mod schemas;

use crate::start_error::StartError;
use crate::tier::Tier;
use forebay_config::Config;
use forebay_database::{Options as StoreOptions, Store};
use forebay_drain::NewDatabase;
use forebay_value::Schema;
use std::collections::HashMap;
use std::sync::Arc;

/// Database and memory tier of one config, open.
pub struct Opened {
    /// The database.
    pub store: Store,
    /// The memory tier, nothing loaded yet.
    pub tier: Tier,
    /// Every table of the config.
    pub schemas: HashMap<String, Arc<Schema>>,
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
    let tier = Tier::open(&config.memory, specs, store.clone(), new_database).await?;
    Ok(Opened { store, tier, schemas })
}
