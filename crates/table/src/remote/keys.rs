//! Serial keys: blocks of the record store's own sequence, each server with blocks of its own. How they are handed out stands in `crate::keys`.

use super::table::RemoteTable;
use crate::keys::{ASKS_MAX, Prefetching};
use crate::source::{BoxFuture, SourceError};
use std::sync::atomic::Ordering;

impl RemoteTable {
    /// The next serial key in hand. `None` when there is none: [`RemoteTable::wait_keys`], then ask again.
    pub fn next_key(&self) -> Option<i64> {
        let (key, wants_more) = self.keys.next()?;
        if wants_more {
            self.prefetch_keys();
        }
        Some(key)
    }

    /// Resolves when there is a serial key in hand. May be dropped at any time.
    ///
    /// # Errors
    /// The source's; one that is not to be retried when the table has no serial key.
    pub fn wait_keys(&self) -> BoxFuture<'static, Result<(), SourceError>> {
        let table = self.this.upgrade().expect("a table lives in an Arc");
        Box::pin(async move {
            if !table.keys.is_serial {
                let message = format!("table {} has no serial key", table.schema.name);
                return Err(SourceError { message, retry: false });
            }
            let _asking = table.keys.asking.lock().await;
            if !table.keys.follow() {
                table.ask_keys().await?;
                table.keys.follow();
            }
            Ok(())
        })
    }

    /// Fetches the block that follows in the background. Without a runtime it is left to [`RemoteTable::wait_keys`].
    fn prefetch_keys(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.keys.is_prefetching.swap(true, Ordering::AcqRel) {
            return;
        }
        let table = self.this.upgrade().expect("a table lives in an Arc");
        runtime.spawn(async move {
            let _prefetching = Prefetching(&table.keys.is_prefetching);
            let _asking = table.keys.asking.lock().await;
            if !table.keys.has_following() {
                // An error is told to whoever then waits for a key.
                let _ = table.ask_keys().await;
            }
        });
    }

    /// Asks the source for a block. `asking` is held.
    async fn ask_keys(&self) -> Result<(), SourceError> {
        let mut count = self.keys.block_size();
        let above = self.highest_key.load(Ordering::Relaxed);
        for _ in 0..ASKS_MAX {
            let block = self.tier.source.next_keys(&self.schema, count).await?;
            let (first, last) = (*block.start(), *block.end());
            if self.keys.offer(first..last.saturating_add(1), above) {
                return Ok(());
            }
            // The sequence lies behind the rows, as when the database was replaced: skip what is taken.
            count = count.saturating_add(above.saturating_sub(last).max(0) as u64);
        }
        let name = &self.schema.name;
        Err(SourceError::later(format!(
            "the record store gives out keys of {name} that are taken, up to {above}"
        )))
    }
}
