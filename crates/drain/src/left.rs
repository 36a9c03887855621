//! How many changes of stopped tables wait when everything else is drained: for those who have to decide what
//! becomes of them.

use crate::last_position::Changes;
use crate::reached::Reached;
use crate::remote::each_behind;
use crate::{Error, Kind};
use forebay_database::Store;
use forebay_log::{Log, Position};
use forebay_redis::Link;
use forebay_table::{Catalogue, LogRecord, TierQueues};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The durable changes that wait, by stopped table.
pub type Left = BTreeMap<String, u64>;

/// Counts the changes of the log of a data folder.
///
/// # Errors
/// [`Kind::Database`], [`Kind::Log`], [`Kind::BadRecord`].
pub async fn left(log: &Log, catalogue: Arc<Catalogue>, store: &Store) -> Result<Left, Error> {
    let reached = reached(store, log.id().0).await?;
    let log = log.clone();
    let count = move || {
        let mut left = Left::new();
        Changes::each_behind(&log, reached.all(), |at, record| {
            note(&mut left, &catalogue, &reached, at, &record);
            true
        })?;
        Ok(left)
    };
    let counted = tokio::task::spawn_blocking(count).await;
    counted.map_err(|source| Error::caused(Kind::Stopped, "the count of what is left broke off", source))?
}

/// Counts the changes of a tier's queues.
///
/// # Errors
/// As [`left`].
pub async fn left_remote(queue: TierQueues, link: &Link, store: &Store) -> Result<Left, Error> {
    let (mut left, catalogue) = (Left::new(), queue.catalogue());
    for shard in 0..queue.shard_count() {
        let reached = reached(store, queue.log_id(shard)).await?;
        each_behind(&queue, link, shard, reached.all(), |at, record| {
            note(&mut left, &catalogue, &reached, at, record);
        })
        .await?;
    }
    Ok(left)
}

async fn reached(store: &Store, log: u128) -> Result<Reached, Error> {
    let positions = store.positions().await?;
    let stored = positions.iter().find(|stored| stored.log == log);
    Ok(stored.map(Reached::stored).transpose()?.unwrap_or_else(|| Reached::even(Position(0))))
}

fn note(left: &mut Left, catalogue: &Catalogue, reached: &Reached, at: Position, record: &LogRecord<'_>) {
    let Some(schema) = catalogue.schema(record.table()) else { return };
    if reached.stopped.get(&schema.name).is_some_and(|stopped| at > *stopped) {
        *left.entry(schema.name.clone()).or_default() += 1;
    }
}
