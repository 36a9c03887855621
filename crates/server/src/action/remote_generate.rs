//! `generate` on a hot table that is on Redis or Valkey: as in process, with many writes under way at a time.

use super::generate::{FULL_PAUSE, Generate};
use super::remote::next_key;
use super::write::{ColumnSource, RowPlan};
use crate::endpoint::eval::Slots;
use crate::hot::RemoteHot;
use crate::jobs::Job;
use forebay_redis::Link;
use forebay_table::{RemoteError, RemoteKind, RemoteTable};
use forebay_value::{Row, Value};
use futures_util::StreamExt;

/// Writes under way at a time: enough to fill the batches that the link makes of them.
const AT_ONCE: usize = 256;

impl Generate {
    pub(super) async fn fill_remote(
        &self,
        hot: &RemoteHot,
        rows: u64,
        slots: &Slots,
        job: &Job,
    ) -> Result<(), String> {
        let link = hot.own_link();
        hot.table.wait_loaded(&link).await;
        self.empty_remote(hot, &link, job).await?;
        for (index, plan) in self.first.iter().enumerate() {
            let row = self.remote_row(&hot.table, plan, slots).await?;
            retried(job, async || hot.table.upsert(&link, row.as_ref()).await).await?;
            if (index as u64) < rows {
                job.advance(1);
            }
        }
        let missing = rows.saturating_sub(self.first.len() as u64);
        let mut writes = futures_util::stream::iter(0..missing)
            .map(|_| self.add_remote(&hot.table, &link, slots, job))
            .buffer_unordered(AT_ONCE);
        while let Some(written) = writes.next().await {
            written?;
            job.advance(1);
        }
        Ok(())
    }

    /// One more row. A drawn value that is taken: the next row draws others.
    async fn add_remote(
        &self,
        table: &RemoteTable,
        link: &Link,
        slots: &Slots,
        job: &Job,
    ) -> Result<(), String> {
        loop {
            let row = self.remote_row(table, &self.row, slots).await?;
            let insert = async || match table.insert(link, row.as_ref()).await {
                Err(error) if matches!(error.kind(), RemoteKind::Conflict { .. }) => Ok(false),
                other => other.map(|()| true),
            };
            if retried(job, insert).await? {
                return Ok(());
            }
        }
    }

    async fn remote_row(&self, table: &RemoteTable, plan: &RowPlan, slots: &Slots) -> Result<Row, String> {
        let is_serial = plan.sources.iter().any(|source| matches!(source, ColumnSource::Serial));
        let key = match is_serial {
            true => Some(next_key(table).await.map_err(|problem| problem.detail)?),
            false => None,
        };
        self.new_row(plan, slots, &mut || key)
    }

    /// Deletes every row, one by one: each deletion goes the way of any other.
    async fn empty_remote(&self, hot: &RemoteHot, link: &Link, job: &Job) -> Result<(), String> {
        let table = &*hot.table;
        for shard in 0..hot.shards {
            let mut cursor = 0;
            loop {
                let (next, entries) =
                    table.scan(link, shard, cursor).await.map_err(|error| error.to_string())?;
                let keys = entries.into_iter().map(|entry| entry.key).collect();
                delete_all(table, link, keys, job).await?;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(())
    }
}

async fn delete_all(table: &RemoteTable, link: &Link, keys: Vec<Value>, job: &Job) -> Result<(), String> {
    let mut deletes = futures_util::stream::iter(keys)
        .map(|key| async move {
            let delete = async || match table.delete(link, key.as_ref()).await {
                Err(error) if error.kind() != RemoteKind::Missing => Err(error),
                _ => Ok(()),
            };
            retried(job, delete).await
        })
        .buffer_unordered(AT_ONCE);
    while let Some(deleted) = deletes.next().await {
        deleted?;
    }
    Ok(())
}

/// Writes until the tier takes it.
async fn retried<T>(job: &Job, write: impl AsyncFn() -> Result<T, RemoteError>) -> Result<T, String> {
    loop {
        match write().await {
            Ok(written) => return Ok(written),
            Err(error) if job.is_stopped() => return Err(format!("the server stopped ({error})")),
            Err(error) if error.may_retry() => tokio::time::sleep(FULL_PAUSE).await,
            Err(error) => return Err(format!("a row could not be written: {error}")),
        }
    }
}
