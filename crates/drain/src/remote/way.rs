//! The way to the queues of a tier: what is asked of all shards at once.

use super::warm::tier;
use crate::Error;
use forebay_redis::Link;
use forebay_table::{Queue, QueueStatus};
use futures_util::future::try_join_all;

/// The queues, and the link that they are asked over.
pub(super) struct Way {
    pub queue: Queue,
    pub link: Link,
}

impl Way {
    /// Where one shard's queue stands.
    pub async fn status(&self, shard: u16) -> Result<QueueStatus, Error> {
        self.queue.status(&self.link, shard).await.map_err(tier)
    }

    async fn all(&self) -> Result<Vec<QueueStatus>, Error> {
        try_join_all((0..self.queue.shard_count()).map(|shard| self.status(shard))).await
    }

    /// Records that are not drained.
    pub async fn backlog(&self) -> Result<u64, Error> {
        Ok(self.all().await?.iter().map(|status| status.entries).sum())
    }

    /// By shard: the last position given.
    pub async fn last_positions(&self) -> Result<Vec<u64>, Error> {
        Ok(self.all().await?.iter().map(|status| if status.entries == 0 { 0 } else { status.last }).collect())
    }

    /// Whether every shard is drained up to its position, by whomever.
    pub async fn is_drained(&self, positions: &[u64]) -> Result<bool, Error> {
        let all = self.all().await?;
        Ok(all
            .iter()
            .zip(positions)
            .all(|(status, position)| status.entries == 0 || status.drained >= *position))
    }
}

/// Records of a tier that are not in the database.
///
/// # Errors
/// [`Kind::Log`](crate::Kind::Log).
pub async fn backlog_remote(queue: Queue, link: &Link) -> Result<u64, Error> {
    Way { queue, link: link.clone() }.backlog().await
}
