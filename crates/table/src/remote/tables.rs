//! All hot tables of a tier: opening and finding them.

use super::positions::Positions;
use super::queue::TierQueues;
use super::table::RemoteTable;
use super::tier::{RemoteOptions, Repairing, Tier};
use crate::catalogue::Catalogue;
use crate::error::HotError;
use crate::limits::{REMOTE_REPAIR_PAUSE, REMOTE_REPAIR_WAIT};
use crate::source::Source;
use crate::spec::TableSpec;
use forebay_redis::{Client, Link};
use std::sync::Arc;
use std::time::Instant;

/// The hot tables of one tier. Clones share the same tables.
#[derive(Clone)]
pub struct RemoteTables {
    tier: Arc<Tier>,
    tables: Arc<Vec<Arc<RemoteTable>>>,
    queue: TierQueues,
    lacking: Arc<Vec<String>>,
}

impl RemoteTables {
    /// Finds the tier or creates it, gives each table its id, and repairs shards whose servers have changed
    /// over. It loads nothing: see [`RemoteTable::check_loaded`] and [`RemoteTable::begin_load`].
    ///
    /// # Errors
    /// [`HotKind::Broken`](crate::HotKind::Broken) when the servers must not be used (they evict, have no
    /// streams), the tier has another number of shards, the tier does not keep an index, a unique column or
    /// an order that a table is configured to have, or two tables have the same name; `Unavailable`;
    /// `Source`.
    pub async fn open(
        client: &Client,
        link: &Link,
        mut specs: Vec<TableSpec>,
        options: RemoteOptions,
        source: Arc<dyn Source>,
        positions: Arc<dyn Positions>,
    ) -> Result<RemoteTables, HotError> {
        for (index, spec) in specs.iter().enumerate() {
            let name = &spec.schema.name;
            if specs[..index].iter().any(|other| other.schema.name == *name) {
                return Err(HotError::foreign(format!("there are two tables named {name}")));
            }
            if spec.schema.columns.len() > usize::from(u16::MAX) {
                return Err(HotError::foreign(format!("table {name} has more than 65,535 columns")));
            }
        }
        let tier = Tier::open(client, link, &options, source, positions).await?;
        let schemas: Vec<_> = specs.iter().map(|spec| &spec.schema).collect();
        let ids = tier.assign(link, &schemas).await?;
        let is_declared = |name: &str| !options.undeclared.iter().any(|undeclared| undeclared == name);
        let lacking = Arc::new(tier.agree(link, &ids, &mut specs, is_declared).await?);
        let tables = ids.into_iter().zip(specs);
        let tables: Vec<_> = tables.map(|(id, spec)| RemoteTable::new(tier.clone(), id, spec)).collect();
        let tables = Arc::new(tables);
        let queue = TierQueues::new(tier.clone(), tables.clone());
        queue.refresh_catalogue(link).await?;
        let began = Instant::now();
        while !tier.repair().await? && began.elapsed() < REMOTE_REPAIR_WAIT {
            tokio::time::sleep(REMOTE_REPAIR_PAUSE).await;
        }
        for table in tables.iter() {
            table.check_loaded(link).await?;
        }
        Ok(RemoteTables { tier, tables, queue, lacking })
    }

    /// Makes these columns of each table the present ones in every shard. Where a shard has a table with
    /// other columns, its rows are dropped, servers with those columns can no longer write, and the table is
    /// to be loaded once their changes are drained. To be called by a server that will serve the tables.
    ///
    /// # Errors
    /// [`HotKind::Unavailable`](crate::HotKind::Unavailable).
    pub async fn inherit(&self, link: &Link) -> Result<(), HotError> {
        for table in self.all() {
            self.tier.succeed(link, table.id(), table.schema()).await?;
            table.check_loaded(link).await?;
        }
        Ok(())
    }

    /// The table with this name. For start-up; serving never looks a table up by name.
    pub fn get(&self, name: &str) -> Option<Arc<RemoteTable>> {
        self.all().iter().find(|table| table.schema().name == name).cloned()
    }

    /// All tables, in the order in which they were given.
    pub fn all(&self) -> &[Arc<RemoteTable>] {
        &self.tables
    }

    /// Unique and indexed columns that the tier does not keep, of tables whose columns come from the
    /// database: a sentence for each table.
    pub fn lacking(&self) -> &[String] {
        &self.lacking
    }

    /// The catalogue: which table each id in the queues means.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.queue.catalogue()
    }

    /// How many shards the tier has.
    pub fn shard_count(&self) -> u16 {
        self.tier.shard_count()
    }

    /// The tier's id: drawn at random when it was made.
    pub fn id(&self) -> u128 {
        self.tier.id
    }

    /// The id of a shard's queue in the database: follows from the tier's id and the shard's number.
    pub fn log_id(&self, shard: u16) -> u128 {
        self.tier.log_id(shard)
    }

    /// The prefix of all keys of the deployment.
    pub fn root(&self) -> &str {
        &self.tier.names.root
    }

    /// The streams of all shards, which the drain reads.
    pub fn queue(&self) -> TierQueues {
        self.queue.clone()
    }

    /// Bytes that all primaries use, at most about a second ago.
    ///
    /// # Errors
    /// When a primary cannot be asked.
    pub async fn used_bytes(&self) -> Result<u64, HotError> {
        self.tier.used_bytes().await
    }

    /// What is wrong with the memory of the primaries, at most about a second ago: a sentence each.
    pub async fn memory_troubles(&self) -> Vec<String> {
        // An unreachable primary is reported elsewhere.
        let _ = self.tier.used_bytes().await;
        self.tier.memory_troubles.lock().clone()
    }

    /// Lets no new load begin in this process, and resolves when the loads under way are abandoned, so that
    /// another server may load at once.
    pub async fn leave(&self) {
        self.tier.leaving.send_replace(true);
        self.tier.leaving.closed().await;
    }

    /// The repair that this process is running.
    pub fn repairing(&self) -> Option<Repairing> {
        let repairing = *self.tier.repair_state.lock();
        repairing.or_else(|| *self.tier.rebuild_state.lock())
    }

    /// The configured bytes that all primaries may use before rows are evicted; 0: no limit.
    pub fn limit_bytes(&self) -> u64 {
        self.tier.limit_bytes
    }
}
