//! Loads rows from the database into memory: at start, and while the table is being served.
//!
//! Two threads work at once: the scan's, which reads and encodes rows, and this one, which puts them into the
//! table.

use crate::reached::Reached;
use crate::{Error, Kind, Loaded, Progress};
use forebay_database::{Error as DatabaseError, Kind as DatabaseKind, ScannedRows, Store};
use forebay_log::Position;
use forebay_table::Table;
use forebay_terminal::warn;
use std::sync::Arc;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Loads every row of the database into the table, or the rows for which the SQL expression `filter` is true.
/// Newer values in memory stay. Rows of a followed table that is being served are read again by its polls.
///
/// At start (before [`Table::set_loaded`]) the table takes the rows as loaded; the caller then replays the
/// log and calls `set_loaded`. After a load with a filter a caller must not call `set_loaded`: a table that
/// is not shared would treat the keys of the other rows as free.
///
/// # Errors
/// [`Kind::Database`]; the rows read before the failure are in memory.
pub async fn warm(
    table: &Arc<Table>,
    store: &Store,
    filter: Option<&str>,
    progress: &Arc<Progress>,
) -> Result<Loaded, Error> {
    let began = Instant::now();
    let (table, store, filter) = (table.clone(), store.clone(), filter.map(str::to_owned));
    let (progress, runtime) = (progress.clone(), Handle::current());
    if table.followed() && table.is_loaded() {
        let rows = read_again(&table, &store, filter.as_deref(), &progress).await?;
        return Ok(Loaded { rows, took: began.elapsed() });
    }
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("warm".into())
        .spawn(move || {
            // The caller may have been dropped; the rows stay in the table.
            let _ = answer.send(load_all(&table, &store, filter.as_deref(), &progress, &runtime));
        })
        .map_err(|source| Error::caused(Kind::Stopped, "cannot start a thread", source))?;
    let rows =
        answered.await.map_err(|_| Error::new(Kind::Stopped, "the thread that warms has panicked"))??;
    Ok(Loaded { rows, took: began.elapsed() })
}

/// Rows of a served followed table enter only through its polls: the scan only reports their keys.
async fn read_again(
    table: &Table,
    store: &Store,
    filter: Option<&str>,
    progress: &Progress,
) -> Result<u64, Error> {
    let mut messages = store.scan(table.schema(), filter);
    let mut rows = 0;
    while let Some(message) = messages.recv().await {
        let message = message?;
        unnamed(&message);
        let read = table.read_again(message.keys(table.schema()).collect()).await;
        read.map_err(|source| Error::caused(Kind::Database, "the rows cannot be read", source))?;
        rows += message.len() as u64;
        progress.add(message.len() as u64);
    }
    Ok(rows)
}

/// Logs the rows that cannot even be named.
fn unnamed(message: &ScannedRows) {
    for unfit in message.unfit.iter().filter(|unfit| unfit.key.is_none()) {
        warn!("a row is not served: {}", unfit.why);
    }
}

fn load_all(
    table: &Table,
    store: &Store,
    filter: Option<&str>,
    progress: &Progress,
    runtime: &Handle,
) -> Result<u64, Error> {
    let is_serving = table.is_loaded();
    // Begun before the scan: rows that are deleted from now on stay deleted.
    let load = is_serving.then(|| table.begin_load());
    let since = load.as_ref().map_or(Position(0), |load| load.since());
    let scan = runtime.block_on(store.scan_at(table.schema(), filter, table.log().0))?;
    let reached = Reached::noted(scan.position.unwrap_or_default(), &scan.note)?;
    if reached.of(&table.schema().name) < since {
        let message = "the database has lost its last commits; they come back from the log";
        return Err(DatabaseError::new(DatabaseKind::Unavailable, message).into());
    }
    let mut messages = scan.rows;
    let mut rows = 0;
    while let Some(message) = messages.blocking_recv() {
        let message = message?;
        unnamed(&message);
        for unfit in &message.unfit {
            let Some(key) = &unfit.key else { continue };
            match &load {
                Some(load) => load.unfit(key.as_ref(), &unfit.why),
                None => table.load_unfit_row(key.as_ref(), &unfit.why),
            }
        }
        for row in &message.rows {
            match &load {
                Some(load) => load.row(row.as_ref()),
                None => table.load(row.as_ref()),
            }
        }
        rows += message.len() as u64;
        progress.add(message.len() as u64);
    }
    Ok(rows)
}
