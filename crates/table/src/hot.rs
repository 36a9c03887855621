//! A hot table of either tier: the one interface for requests.
//!
//! **What it promises.** A call reports how far it got ([`Called`]): it is done, with the position that an
//! answer waits for; or something is needed first, and the call is to be repeated after that; or the result
//! comes later. In this process a call is a plain function call that allocates nothing else, and shows the
//! row under its shard's lock. On Redis or Valkey it is a future, a write is as durable as the link was
//! configured to make it, and there is no position to wait for. A failure is a [`HotError`] on both.
//!
//! **What it leaves to others.** Loading, draining, comparing: these use the tables of a tier ([`Tables`],
//! [`RemoteTables`]) directly.

use crate::call_outcome::{Called, HotResult};
use crate::embedded::{Counters, Fetched, Read, StrictWrite, Table, Tables, WriteError};
use crate::error::HotError;
use crate::limits::{REMOTE_REPAIR_WAIT, SHARDS};
use crate::remote::{RemoteTable, RemoteTables};
use crate::rules::LiveRules;
use crate::source::BoxFuture;
use forebay_log::Position;
use forebay_redis::Link;
use forebay_value::{Row, RowRef, Schema, Value, ValueRef};
use std::future::Future;
use std::sync::Arc;

/// A hot table. Clones share the same table.
#[derive(Clone)]
pub enum HotTable {
    /// In this process.
    Embedded(Arc<Table>),
    /// In this process, for writes that are answered when the database has committed them.
    Strict(Arc<Table>),
    /// On Redis or Valkey.
    Remote(Arc<RemoteTable>),
}

/// All hot tables of a tier.
#[derive(Clone)]
pub struct HotTables(Vec<HotTable>);

impl HotTables {
    /// The table with this name. For start-up; serving never looks a table up by name.
    pub fn get(&self, name: &str) -> Option<HotTable> {
        self.0.iter().find(|table| table.schema().name == name).cloned()
    }

    /// All tables, in the order in which they were opened.
    pub fn all(&self) -> &[HotTable] {
        &self.0
    }
}

impl From<&Tables> for HotTables {
    fn from(tables: &Tables) -> HotTables {
        HotTables(tables.all().iter().cloned().map(HotTable::Embedded).collect())
    }
}

impl From<&RemoteTables> for HotTables {
    fn from(tables: &RemoteTables) -> HotTables {
        HotTables(tables.all().iter().cloned().map(HotTable::Remote).collect())
    }
}

/// The place at which a walk over all keys continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cursor {
    shard: u16,
    within: u64,
}

/// Some keys of a walk over all of them.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyPage {
    /// The keys. Rows that are inserted or deleted meanwhile may be included or not.
    pub keys: Vec<Value>,
    /// Where the walk continues; `None` at its end.
    pub next: Option<Cursor>,
}

impl HotTable {
    /// The same table, whose writes are answered when the database has committed them. On Redis or Valkey
    /// there are no such writes: it is the table itself.
    #[must_use]
    pub fn strict(self) -> HotTable {
        match self {
            HotTable::Embedded(table) => HotTable::Strict(table),
            table => table,
        }
    }

    /// Its columns and key.
    pub fn schema(&self) -> &Arc<Schema> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => table.schema(),
            HotTable::Remote(table) => table.schema(),
        }
    }

    /// What the database enforces on its columns.
    pub fn rules(&self) -> &LiveRules {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => &table.rules,
            HotTable::Remote(table) => &table.rules,
        }
    }

    /// Whether its rows are loaded. Until then calls wait for that, and the caller must take no serial key.
    pub fn is_loaded(&self) -> bool {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => table.is_loaded(),
            HotTable::Remote(table) => table.is_loaded(),
        }
    }

    /// Resolves when its rows are loaded.
    pub fn wait_loaded(&self) -> BoxFuture<'static, Result<(), HotError>> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => embedded_loaded(table.clone()),
            HotTable::Remote(table) => remote_loaded(table.clone()),
        }
    }

    /// Shows the row with this key. In this process `show` runs under its shard's lock, and must only copy
    /// out of the row.
    pub fn get<R>(
        &self,
        key: ValueRef<'_>,
        counters: Counters,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> HotResult<R, Row> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => {
                if !table.is_loaded() && !table.is_early(key) {
                    return Ok(Called::First(row_loaded(table.clone(), key.to_owned())));
                }
                table.fits()?;
                match table.get(key, counters, show) {
                    Read::Found(shown, mark) => Ok(Called::Now(shown, mark)),
                    // The loaded rows may have been cleared meanwhile, with the database not read yet.
                    Read::Missing(_) if !table.is_loaded() && !table.is_early(key) => {
                        Ok(Called::First(embedded_loaded(table.clone())))
                    }
                    Read::Fetch(_) if !table.is_loaded() => Ok(Called::First(embedded_loaded(table.clone()))),
                    Read::Missing(mark) => Err(HotError::missing().held_until(mark)),
                    Read::Fetch(key) => Ok(Called::First(fetched(table, key))),
                }
            }
            HotTable::Remote(table) => {
                let key = key.to_owned();
                later(table, |table, link| async move {
                    table.get(&link, key.as_ref()).await?.ok_or_else(HotError::missing)
                })
            }
        }
    }

    /// Shows a random row, each equally likely; [`HotKind::Missing`](crate::HotKind::Missing) when there is
    /// none. `show` as in [`HotTable::get`].
    pub fn random<R>(&self, show: impl FnOnce(RowRef<'_>) -> R) -> HotResult<R, Row> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => now(table, || match table.random(show) {
                Read::Found(shown, mark) => Ok(Called::Now(shown, mark)),
                Read::Missing(mark) => Err(HotError::missing().held_until(mark)),
                // If the row no longer exists then, another one is drawn.
                Read::Fetch(key) => Ok(Called::First(fetched_if_there(table, vec![key]))),
            }),
            HotTable::Remote(table) => {
                later(
                    table,
                    |table, link| async move { table.random(&link).await?.ok_or_else(HotError::missing) },
                )
            }
        }
    }

    /// The number of rows; of a table to which others also write unseen, of those in memory.
    pub fn count(&self) -> HotResult<u64> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => now(table, || {
                let (count, mark) = table.count();
                Ok(Called::Now(count, mark))
            }),
            HotTable::Remote(table) => later(table, |table, link| async move { table.count(&link).await }),
        }
    }

    /// The number of rows, about a second old at most; `None`: await [`HotTable::wait_counted`] first.
    pub fn count_recent(&self) -> Option<u64> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => Some(table.count().0),
            HotTable::Remote(table) => table.count_known(),
        }
    }

    /// Resolves when [`HotTable::count_recent`] has an answer.
    pub fn wait_counted(&self) -> BoxFuture<'static, Result<(), HotError>> {
        match self {
            HotTable::Embedded(_) | HotTable::Strict(_) => Box::pin(async { Ok(()) }),
            HotTable::Remote(table) => {
                let (table, link) = (table.clone(), table.link());
                Box::pin(async move { table.count_recent(&link).await.map(drop) })
            }
        }
    }

    /// The number of rows with this value in an indexed column (as in SQL, no row matches NULL).
    ///
    /// # Panics
    /// When the column is not indexed: what is configured must be checked at start.
    pub fn count_by(&self, column: usize, value: ValueRef<'_>) -> HotResult<u64> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => now(table, || {
                let (count, mark) = table.count_by(column, value);
                Ok(Called::Now(count, mark))
            }),
            HotTable::Remote(table) => {
                let value = value.to_owned();
                later(
                    table,
                    move |table, link| async move { table.count_by(&link, column, value.as_ref()).await },
                )
            }
        }
    }

    /// Up to `limit` rows after a key, or from the beginning, in the order of their keys. Rows that are
    /// inserted or deleted meanwhile may or may not be among them.
    ///
    /// # Panics
    /// When the table was not opened as ordered: what is configured must be checked at start.
    pub fn list(&self, after: Option<ValueRef<'_>>, limit: usize) -> HotResult<Vec<Row>> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => now(table, || {
                let mut rows = Vec::with_capacity(limit);
                let list = table.list(after, limit, |row| rows.push(Row(row.0.into())));
                match list.evicted.is_empty() {
                    true => Ok(Called::Now(rows, list.mark)),
                    false => Ok(Called::First(fetched_if_there(table, list.evicted))),
                }
            }),
            HotTable::Remote(table) => {
                let after = after.map(ValueRef::to_owned);
                later(table, move |table, link| async move {
                    table.list(&link, after.as_ref().map(Value::as_ref), limit).await
                })
            }
        }
    }

    /// Inserts a row; its key and unique values must be free.
    pub fn insert(&self, row: RowRef<'_>) -> HotResult<()> {
        match self {
            HotTable::Embedded(table) => now(table, || match table.insert(row) {
                Ok(mark) => Ok(Called::Now((), mark)),
                Err(error) => refused(table, error),
            }),
            HotTable::Strict(table) => strict(table, StrictWrite::Insert(Row(row.0.into())), |_| ()),
            HotTable::Remote(table) => {
                let row = Row(row.0.into());
                later(table, |table, link| async move { table.insert(&link, row.as_ref()).await })
            }
        }
    }

    /// Inserts a row, or replaces the one with its key. The key is never the conflict.
    pub fn upsert(&self, row: RowRef<'_>) -> HotResult<()> {
        match self {
            HotTable::Embedded(table) => now(table, || match table.upsert(row) {
                Ok(mark) => Ok(Called::Now((), mark)),
                // The row need not exist.
                Err(WriteError::Fetch(key)) => Ok(Called::First(fetched_if_there(table, vec![key]))),
                Err(error) => refused(table, error),
            }),
            HotTable::Strict(table) => strict(table, StrictWrite::Upsert(Row(row.0.into())), |_| ()),
            HotTable::Remote(table) => {
                let row = Row(row.0.into());
                later(table, |table, link| async move { table.upsert(&link, row.as_ref()).await })
            }
        }
    }

    /// Changes columns of a row (index and new value; the key is not among them), and shows it as it is then.
    /// `show` as in [`HotTable::get`].
    ///
    /// # Panics
    /// When a change is to the key, or of another type than its column: what is configured must be checked at
    /// start.
    pub fn update<R>(
        &self,
        key: ValueRef<'_>,
        changes: &[(usize, ValueRef<'_>)],
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> HotResult<R, Row> {
        match self {
            HotTable::Strict(table) if changes.is_empty() => {
                HotTable::Embedded(table.clone()).update(key, changes, show)
            }
            HotTable::Embedded(table) => now(table, || match table.update(key, changes, show) {
                Ok((shown, mark)) => Ok(Called::Now(shown, mark)),
                Err(error) => refused(table, error),
            }),
            HotTable::Strict(table) => {
                let changes = changes.iter().map(|(column, value)| (*column, (*value).to_owned())).collect();
                strict(table, StrictWrite::Update { key: key.to_owned(), changes }, written)
            }
            HotTable::Remote(table) => {
                let key = key.to_owned();
                let changes: Vec<_> =
                    changes.iter().map(|(column, value)| (*column, (*value).to_owned())).collect();
                later(table, |table, link| async move { table.update(&link, key.as_ref(), &changes).await })
            }
        }
    }

    /// Adds to a bigint column of a row, and shows it as it is then. NULL stays NULL, as in SQL, and nothing
    /// is written. `show` as in [`HotTable::get`].
    ///
    /// # Panics
    /// When the column is the key or no bigint: what is configured must be checked at start.
    pub fn increment<R>(
        &self,
        key: ValueRef<'_>,
        column: usize,
        delta: i64,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> HotResult<R, Row> {
        match self {
            HotTable::Embedded(table) => now(table, || match table.increment(key, column, delta, show) {
                Ok(incremented) => Ok(Called::Now(incremented.shown, incremented.mark)),
                Err(error) => refused(table, error),
            }),
            HotTable::Strict(table) => {
                strict(table, StrictWrite::Increment { key: key.to_owned(), column, delta }, written)
            }
            HotTable::Remote(table) => {
                let key = key.to_owned();
                later(table, move |table, link| async move {
                    table.increment(&link, key.as_ref(), column, delta).await
                })
            }
        }
    }

    /// [`HotTable::increment`] for answers that do not wait until it is durable; panics as it does.
    pub fn increment_later(&self, key: ValueRef<'_>, column: usize, delta: i64) -> HotResult<(), Row> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => {
                table.fits()?;
                match table.increment_later(key, column, delta) {
                    Ok(()) => Ok(Called::Now((), Position(0))),
                    Err(error) => refused(table, error),
                }
            }
            HotTable::Remote(_) => self.increment(key, column, delta, |_| ()),
        }
    }

    /// Deletes a row, and shows it as it was. `show` as in [`HotTable::get`].
    pub fn delete<R>(&self, key: ValueRef<'_>, show: impl FnOnce(RowRef<'_>) -> R) -> HotResult<R, Row> {
        match self {
            HotTable::Embedded(table) => now(table, || match table.delete(key, show) {
                Ok((shown, mark)) => Ok(Called::Now(shown, mark)),
                Err(error) => refused(table, error),
            }),
            HotTable::Strict(table) => strict(table, StrictWrite::Delete(key.to_owned()), written),
            HotTable::Remote(table) => {
                let key = key.to_owned();
                later(table, |table, link| async move { table.delete(&link, key.as_ref()).await })
            }
        }
    }

    /// The next reserved serial key. `None`: await [`HotTable::wait_keys`], then call again.
    pub fn next_key(&self) -> Option<i64> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => table.next_key(),
            HotTable::Remote(table) => table.next_key(),
        }
    }

    /// Resolves when a serial key is reserved.
    pub fn wait_keys(&self) -> BoxFuture<'static, Result<(), HotError>> {
        let keys = match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => table.wait_keys(),
            HotTable::Remote(table) => table.wait_keys(),
        };
        Box::pin(async move { Ok(keys.await?) })
    }

    /// Some keys of a walk over all of them, which begins at [`Cursor::default`].
    pub fn keys(&self, from: Cursor) -> HotResult<KeyPage> {
        match self {
            HotTable::Embedded(table) | HotTable::Strict(table) => now(table, || {
                let (mut keys, shard) = (Vec::new(), usize::from(from.shard));
                table.for_each_in(shard, &mut |entry| keys.push(entry.key.to_owned()));
                let next = (shard + 1 < SHARDS).then_some(Cursor { shard: from.shard + 1, within: 0 });
                Ok(Called::Now(KeyPage { keys, next }, Position(0)))
            }),
            HotTable::Remote(table) => later(table, move |table, link| async move {
                let (within, entries) = table.scan(&link, from.shard, from.within).await?;
                let next = match within {
                    0 => Some(Cursor { shard: from.shard + 1, within: 0 })
                        .filter(|next| next.shard < table.shard_count()),
                    _ => Some(Cursor { shard: from.shard, within }),
                };
                Ok(KeyPage { keys: entries.into_iter().map(|entry| entry.key).collect(), next })
            }),
        }
    }
}

/// Makes a call in this process, once the table's rows are loaded.
fn now<N, L>(table: &Arc<Table>, call: impl FnOnce() -> HotResult<N, L>) -> HotResult<N, L> {
    if table.is_loaded() {
        table.fits()?;
        return call();
    }
    Ok(Called::First(embedded_loaded(table.clone())))
}

/// Makes a call on Redis or Valkey, once the table's rows are loaded.
fn later<N, L, F>(table: &Arc<RemoteTable>, call: impl FnOnce(Arc<RemoteTable>, Link) -> F) -> HotResult<N, L>
where
    F: Future<Output = Result<L, HotError>> + Send + 'static,
{
    match table.is_loaded() {
        true => Ok(Called::Later(Box::pin(call(table.clone(), table.link())))),
        false => Ok(Called::First(remote_loaded(table.clone()))),
    }
}

fn row_loaded(table: Arc<Table>, key: Value) -> BoxFuture<'static, Result<(), HotError>> {
    Box::pin(async move { table.wait_row(key.as_ref()).await })
}

fn embedded_loaded(table: Arc<Table>) -> BoxFuture<'static, Result<(), HotError>> {
    Box::pin(async move {
        table.wait_loaded().await;
        Ok(())
    })
}

fn remote_loaded(table: Arc<RemoteTable>) -> BoxFuture<'static, Result<(), HotError>> {
    let link = table.link();
    Box::pin(async move {
        let loaded = tokio::time::timeout(REMOTE_REPAIR_WAIT, table.wait_loaded(&link)).await;
        loaded.map_err(|_| HotError::unavailable(format!("table {} is being loaded", table.schema().name)))
    })
}

/// Makes a write that is answered when the database has committed it; `shown` maps the row to the result.
fn strict<N, L: Send + 'static>(
    table: &Arc<Table>,
    write: StrictWrite,
    shown: impl FnOnce(Option<Row>) -> L + Send + 'static,
) -> HotResult<N, L> {
    let table = table.clone();
    Ok(Called::Later(Box::pin(async move {
        table.wait_loaded().await;
        table.fits()?;
        table.commit(&write).await.map(shown)
    })))
}

/// The row of an update, an increment or a delete.
fn written(row: Option<Row>) -> Row {
    row.expect("an update, an increment and a delete have a row")
}

/// Maps a refused write to what is needed first, a row or an outcome, or to a failure.
fn refused<N, L>(table: &Arc<Table>, error: WriteError) -> HotResult<N, L> {
    match error {
        WriteError::Fetch(key) => Ok(Called::First(fetched(table, key))),
        WriteError::Pending(position) => Ok(Called::First(table.outcome_of(position))),
        error => Err(error.into()),
    }
}

/// Resolves when an evicted row, or one that others may write, is in memory; `Missing` when there is none.
fn fetched(table: &Table, key: Value) -> BoxFuture<'static, Result<(), HotError>> {
    let fetch = table.fetch(key);
    Box::pin(async move {
        match fetch.await? {
            Fetched::Present => Ok(()),
            Fetched::Gone(mark) => Err(HotError::missing().held_until(mark)),
        }
    })
}

/// Resolves when those of these rows that still exist are in memory.
fn fetched_if_there(table: &Arc<Table>, keys: Vec<Value>) -> BoxFuture<'static, Result<(), HotError>> {
    let table = table.clone();
    Box::pin(async move {
        for key in keys {
            table.fetch(key).await?;
        }
        Ok(())
    })
}
