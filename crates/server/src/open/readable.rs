//! Which tables of a config can be compared with the database, for `forebay verify` without a server.

use super::known::DatabaseKnowledge;
use super::{Unreachable, open_store, schemas};
use crate::retry::RetryReason;
use crate::start_error::StartError;
use forebay_config::Config;
use forebay_database::Options as StoreOptions;

/// The config with the tables that a start can read, and each other table with the reason.
///
/// # Errors
/// When the database cannot be opened.
pub async fn readable(config: &Config) -> Result<(Config, Vec<(String, String)>), StartError> {
    let trouble = RetryReason::default();
    let store = open_store(config, Unreachable::Fail, &StoreOptions::default(), &trouble).await?;
    let known = DatabaseKnowledge::read(config, &trouble);
    let mut unreadable = Vec::new();
    for table in &config.tables {
        let why = match schemas::prepare_table(config, table, &store, &known, &trouble).await {
            Ok(prepared) => prepared.lost,
            Err(error) => Some(error.to_string()),
        };
        unreadable.extend(why.map(|why| (table.name.clone(), why)));
    }
    let mut config = config.clone();
    config.tables.retain(|table| !unreadable.iter().any(|(name, _)| *name == table.name));
    Ok((config, unreadable))
}
