//! Database to a tier on Redis or Valkey: when a table's shards have nothing yet or lost theirs, and beside
//! one that is being served.

use crate::{Error, Kind, Loaded, Progress};
use forebay_database::Store;
use forebay_redis::Link;
use forebay_table::{HotError, RemoteLoad, RemoteTable};
use forebay_value::Row;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// How often another server that loads a table is asked whether it has done so.
const POLL: Duration = Duration::from_millis(100);

/// Parts of a scan on their way into memory, half a megabyte each at 500 bytes a row: while the servers take
/// some, the next are made ready.
const MESSAGES_AT_ONCE: usize = 8;

/// Fills a table's shards from the database, unless they are filled, by this server or another: when it
/// returns, all are loaded.
///
/// # Errors
/// [`Kind::Database`], [`Kind::Log`].
pub async fn load_remote(
    table: &Arc<RemoteTable>,
    link: &Link,
    store: &Store,
    progress: &Progress,
) -> Result<Loaded, Error> {
    let began = Instant::now();
    loop {
        if table.check_loaded(link).await.map_err(tier)? {
            return Ok(Loaded { rows: 0, took: began.elapsed() });
        }
        let Some(load) = table.begin_load(link).await.map_err(tier)? else {
            tokio::time::sleep(POLL).await;
            continue;
        };
        match fill(load, table, link, store, None, progress).await {
            Ok(rows) => return Ok(Loaded { rows, took: began.elapsed() }),
            // It took so long that what was deleted meanwhile is not known any more.
            Err(error) if error.is_transient() => tokio::time::sleep(POLL).await,
            Err(error) => return Err(error),
        }
    }
}

/// Gives a table that is loaded every row of the database, or those for which the SQL expression `filter` is
/// true. What is newer in memory stays; rows that were evicted come back.
///
/// # Errors
/// [`Kind::Database`], [`Kind::Log`]; [`Kind::InUse`] when another server loads this table.
pub async fn warm_remote(
    table: &Arc<RemoteTable>,
    link: &Link,
    store: &Store,
    filter: Option<&str>,
    progress: &Progress,
) -> Result<Loaded, Error> {
    let began = Instant::now();
    let name = &table.schema().name;
    let Some(load) = table.begin_load(link).await.map_err(tier)? else {
        return Err(Error::new(Kind::InUse, format!("another server is loading table {name}")));
    };
    if filter.is_some() && !load.is_warming() {
        load.abandon(link).await.map_err(tier)?;
        let message = format!("table {name} is not loaded yet: all of it comes first, without a condition");
        return Err(Error::new(Kind::InUse, message));
    }
    let rows = fill(load, table, link, store, filter, progress).await?;
    Ok(Loaded { rows, took: began.elapsed() })
}

async fn fill(
    load: RemoteLoad,
    table: &RemoteTable,
    link: &Link,
    store: &Store,
    filter: Option<&str>,
    progress: &Progress,
) -> Result<u64, Error> {
    let scan = store.scan(table.schema(), filter);
    let taken = tokio::select! {
        biased;
        () = load.must_leave() => Err(Error::new(Kind::Stopped, "the load was stopped")),
        taken = take_all(&load, link, scan, progress) => taken,
    };
    let rows = match taken {
        Ok(rows) => rows,
        Err(error) => {
            // The servers may be what failed; then it runs out.
            let _ = load.abandon(link).await;
            return Err(error);
        }
    };
    if filter.is_some() {
        load.abandon(link).await.map_err(tier)?;
    } else {
        load.finish(link).await.map_err(tier)?;
    }
    Ok(rows)
}

async fn take_all(
    load: &RemoteLoad,
    link: &Link,
    scan: Receiver<Result<Vec<Row>, forebay_database::Error>>,
    progress: &Progress,
) -> Result<u64, Error> {
    let messages = stream::unfold(scan, async |mut scan| Some((scan.recv().await?, scan)));
    let taking = messages.map(async |message| {
        let message = message?;
        load.rows(link, &message).await.map_err(tier)?;
        Ok::<_, Error>(message.len() as u64)
    });
    let mut taken = pin!(taking.buffer_unordered(MESSAGES_AT_ONCE));
    let mut rows = 0;
    while let Some(message_rows) = taken.try_next().await? {
        rows += message_rows;
        progress.add(message_rows);
    }
    Ok(rows)
}

/// The tier failed.
pub(super) fn tier(error: HotError) -> Error {
    Error::caused(Kind::Log, "the memory tier", error)
}
