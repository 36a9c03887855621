//! The queues of a tier: requests to all shards at once.

use super::limits::{READ_ROWS, TIER_LIMIT};
use super::warm::tier;
use crate::{Error, Kind};
use forebay_database::Cascades;
use forebay_log::Position;
use forebay_redis::Link;
use forebay_table::{HotError, LogRecord, QueueStatus, TierQueues};
use forebay_value::Schema;
use futures_util::future::try_join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Which deletes act on rows of other tables, as last read.
pub(super) type CachedCascades = Arc<parking_lot::RwLock<Arc<Cascades>>>;

/// The queues, and the link over which they are reached.
#[derive(Clone)]
pub(crate) struct Queues {
    pub queue: TierQueues,
    pub link: Link,
}

impl Queues {
    /// The status of one shard's queue.
    pub(super) async fn status(&self, shard: u16) -> Result<QueueStatus, Error> {
        bounded(self.queue.status(&self.link, shard)).await
    }

    /// The ids of all queues in the database.
    pub(super) fn logs(&self) -> impl Iterator<Item = u128> {
        (0..self.queue.shard_count()).map(|shard| self.queue.log_id(shard))
    }

    /// The tables in their present form, by name.
    pub(super) fn schemas(&self) -> Vec<Arc<Schema>> {
        let catalogue = self.queue.catalogue();
        let tables: BTreeMap<&str, &Arc<Schema>> =
            catalogue.tables().map(|(_, schema)| (schema.name.as_str(), schema)).collect();
        tables.into_values().cloned().collect()
    }

    async fn all(&self) -> Result<Vec<QueueStatus>, Error> {
        try_join_all((0..self.queue.shard_count()).map(|shard| self.status(shard))).await
    }

    /// The names of the lease holders.
    pub(super) async fn holders(&self) -> Result<BTreeSet<String>, Error> {
        let shards = 0..self.queue.shard_count();
        let asked = shards.map(|shard| bounded(self.queue.holder(&self.link, shard)));
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }

    /// By shard: the position of its newest record.
    pub(super) async fn tails(&self) -> Result<Vec<Position>, Error> {
        Ok(self.all().await?.iter().map(|status| Position(status.newest)).collect())
    }

    /// Records that are not drained.
    pub(super) async fn backlog(&self) -> Result<u64, Error> {
        Ok(self.all().await?.iter().map(|status| status.entries).sum())
    }

    /// By shard: the last position assigned, 0 if the queue is empty.
    pub(super) async fn last_positions(&self) -> Result<Vec<Position>, Error> {
        let last = |status: &QueueStatus| Position(if status.entries == 0 { 0 } else { status.last });
        Ok(self.all().await?.iter().map(last).collect())
    }

    /// Whether every shard is drained up to its position, by this drain or another. `others` is how far this
    /// drain is without the stopped tables.
    pub(super) async fn is_drained(
        &self,
        positions: &[Position],
        others: &[Position],
    ) -> Result<bool, Error> {
        let all = self.all().await?;
        let mut shards = all.iter().zip(positions).zip(others);
        Ok(shards.all(|((status, position), others)| {
            status.entries == 0 || status.drained >= position.0 || others >= position
        }))
    }
}

/// A request to the tier, with a timeout.
pub(super) async fn bounded<T>(asked: impl Future<Output = Result<T, HotError>>) -> Result<T, Error> {
    within(TIER_LIMIT, asked).await
}

pub(super) async fn within<T>(
    limit: Duration,
    asked: impl Future<Output = Result<T, HotError>>,
) -> Result<T, Error> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answered) => answered.map_err(tier),
        Err(_) => Err(Error::new(Kind::Log, format!("the memory tier: no answer within {limit:?}"))),
    }
}

/// Records of a tier that are not in the database.
///
/// # Errors
/// [`Kind::Log`].
pub async fn backlog_remote(queue: TierQueues, link: &Link) -> Result<u64, Error> {
    Queues { queue, link: link.clone() }.backlog().await
}

/// Calls `see` with each change in a shard's queue behind a position.
pub(crate) async fn each_behind(
    queue: &TierQueues,
    link: &Link,
    shard: u16,
    position: Position,
    mut see: impl FnMut(Position, &LogRecord<'_>),
) -> Result<(), Error> {
    let mut after = position;
    loop {
        let records = bounded(queue.read(link, shard, after.0, READ_ROWS)).await?;
        for (at, bytes) in &records {
            after = Position(*at);
            let record = LogRecord::decode(bytes).map_err(|error| {
                Error::new(
                    Kind::BadRecord,
                    format!("entry {at} of shard {shard} of the memory tier: {error}"),
                )
            })?;
            see(after, &record);
        }
        if records.len() < READ_ROWS {
            return Ok(());
        }
    }
}
