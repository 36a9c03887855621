//! Loads rows from the database into a tier on Redis or Valkey: when a table's shards are empty or lost their
//! rows, and while the table is being served.

use crate::{Error, Kind, Loaded, Progress};
use forebay_database::{ScannedRows, Store};
use forebay_redis::Link;
use forebay_table::{HotError, HotKind, RemoteLoad, RemoteTable};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Receiver;

/// How often a server checks whether another server has finished loading a table.
const POLL: Duration = Duration::from_millis(100);

/// Parts of a scan that are being written to memory at a time, half a megabyte each at 500 bytes a row: the
/// next are prepared while Redis takes some.
const MESSAGES_AT_ONCE: usize = 8;

/// Fills a table's shards from the database, unless this server or another has filled them. When it returns,
/// all shards are loaded.
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
        match load_once(table, link, store, progress).await {
            Ok(Some(rows)) => return Ok(Loaded { rows, took: began.elapsed() }),
            Err(error) if !may_repeat(&error) => return Err(error),
            // Another server loads; or the load took so long that the tier no longer records what was deleted
            // meanwhile; or an answer was lost: the tier knows whether the table is loaded.
            Ok(None) | Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// The rows that were loaded; none while another server loads.
async fn load_once(
    table: &Arc<RemoteTable>,
    link: &Link,
    store: &Store,
    progress: &Progress,
) -> Result<Option<u64>, Error> {
    let Some(load) = table.begin_load(link).await.map_err(tier)? else { return Ok(None) };
    fill(load, table, link, store, None, progress).await.map(Some)
}

/// A load whose outcome is unknown is repeated like one that failed: it writes the same rows.
fn may_repeat(error: &Error) -> bool {
    let tier = std::error::Error::source(error).and_then(|source| source.downcast_ref::<HotError>());
    error.may_retry() || tier.is_some_and(|error| error.kind() == HotKind::UnknownOutcome)
}

/// Loads every row of the database into a loaded table, or the rows for which the SQL expression `filter` is
/// true. Newer values in memory stay; evicted rows come back.
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
            // The Redis servers may be what failed; then the load expires.
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
    scan: Receiver<Result<ScannedRows, forebay_database::Error>>,
    progress: &Progress,
) -> Result<u64, Error> {
    let messages = stream::unfold(scan, async |mut scan| Some((scan.recv().await?, scan)));
    let taking = messages.map(async |message| {
        let message = message?;
        // The tier has no place for a row that cannot be shown.
        if let Some(unfit) = message.unfit.first() {
            return Err(Error::new(Kind::Database, unfit.why.to_string()));
        }
        load.rows(link, &message.rows).await.map_err(tier)?;
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

/// An error of the tier.
pub(super) fn tier(error: HotError) -> Error {
    Error::caused(Kind::Log, "the memory tier", error)
}
