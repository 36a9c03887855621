//! A tier on Redis or Valkey: reaching it, and whether it can keep what the config promises.

use super::StartError;
use crate::source::DatabaseSource;
use forebay_config::model::{self, Durability};
use forebay_database::Store;
use forebay_redis::{Client, Link};
use forebay_table::TableSpec;
use forebay_table::{RemoteOptions, RemoteTables};
use std::sync::Arc;

/// The way to a tier, and its hot tables.
pub struct Remote {
    /// The way.
    pub client: Client,
    /// The tables.
    pub tables: RemoteTables,
    /// For work that no client waits for; its connections live on the runtime that opened the tier.
    pub link: Link,
}

/// Connects, checks what the servers promise against what the config does, and finds or makes the tables.
pub(super) async fn open(
    at: &model::Remote,
    memory: &model::Memory,
    specs: Vec<TableSpec>,
    store: &Store,
) -> Result<Remote, StartError> {
    let options = forebay_redis::Options {
        durability: match memory.durability {
            Durability::Sync => forebay_redis::Durability::Sync,
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
    let failed = |error: &dyn std::fmt::Display| StartError(format!("the memory tier {shown}: {error}"));
    let client = Client::connect(&at.url, options).await.map_err(|error| failed(&error))?;
    let link = client.link();
    let source = Arc::new(DatabaseSource(store.clone()));
    let options = RemoteOptions { shards: at.shards, limit_bytes: memory.limit_bytes };
    let tables = RemoteTables::open(&client, &link, specs, options, source.clone(), source);
    let tables = tables.await.map_err(|error| failed(&error))?;
    Ok(Remote { client, tables, link })
}
