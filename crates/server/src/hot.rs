//! Hot tables as the rest of the server sees them: in this process, or on Redis/Valkey.
//!
//! The one place where it is decided which of the two there is. Actions match on [`Hot`] once a request.

use forebay_redis::{Client, Link};
use forebay_table::{RemoteTable, RemoteTables};
use forebay_table::{Table, Tables};
use forebay_value::Schema;
use std::cell::OnceCell;
use std::sync::Arc;

/// One hot table.
#[derive(Clone)]
pub enum Hot {
    /// In this process.
    Embedded(Arc<Table>),
    /// On Redis or Valkey.
    Remote(RemoteHot),
}

impl Hot {
    /// Its columns and key.
    pub fn schema(&self) -> &Arc<Schema> {
        match self {
            Hot::Embedded(table) => table.schema(),
            Hot::Remote(remote) => remote.table.schema(),
        }
    }
}

/// A table on Redis or Valkey, and the way there.
#[derive(Clone)]
pub struct RemoteHot {
    /// The table.
    pub table: Arc<RemoteTable>,
    /// How many shards the tier has.
    pub shards: u16,
    client: Client,
}

thread_local! {
    /// A link's connections live on the runtime that uses them: one link for each worker thread.
    static LINK: OnceCell<Link> = const { OnceCell::new() };
}

impl RemoteHot {
    /// This thread's link. A process has one memory tier, so one is enough.
    pub fn link(&self) -> Link {
        LINK.with(|link| link.get_or_init(|| self.client.link()).clone())
    }

    /// A link of its own, for work that does not run on a worker.
    pub fn own_link(&self) -> Link {
        self.client.link()
    }
}

/// All hot tables of a config.
#[derive(Clone)]
pub enum HotTables {
    /// In this process.
    Embedded(Tables),
    /// On Redis or Valkey.
    Remote(Client, RemoteTables),
}

impl HotTables {
    /// The table with this name.
    pub fn get(&self, name: &str) -> Option<Hot> {
        match self {
            HotTables::Embedded(tables) => tables.get(name).map(Hot::Embedded),
            HotTables::Remote(client, tables) => {
                let table = tables.get(name)?;
                Some(Hot::Remote(RemoteHot { table, shards: tables.shard_count(), client: client.clone() }))
            }
        }
    }
}
