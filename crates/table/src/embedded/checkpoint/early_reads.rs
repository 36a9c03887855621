//! Reads of rows by key while a checkpoint is loaded: a start answers before the whole checkpoint is in
//! memory.
//!
//! **What it promises.** A loaded shard answers for the keys that have no record in the log behind the
//! checkpoint: neither the replay nor outcomes can change their rows. A shard that is asked for is loaded
//! next. Everything else (writes, unique values, counts, lists, random rows, other keys) waits until the
//! table is loaded. All reads wait when that part of the log is long, or when the table is followed and has
//! yet to be told what others have changed.

use crate::embedded::early_reads::{Keys, number};
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::error::HotError;
use crate::key::KeyRef;
use crate::limits::{EARLY_LOG_BYTES_MAX, REPLAY_BATCH_BYTES};
use crate::record::LogRecord;
use forebay_log::Position;
use forebay_value::ValueRef;
use std::sync::Arc;

impl Table {
    /// Whether the row with this key can be read, although the table is not loaded.
    pub(crate) fn is_early(&self, key: ValueRef<'_>) -> bool {
        KeyRef::of(key).is_some_and(|key| self.early.has(self.rows.hasher.key(key)))
    }

    /// Resolves when the row with this key can be read.
    pub(crate) async fn wait_row(&self, key: ValueRef<'_>) -> Result<(), HotError> {
        match KeyRef::of(key).map(|key| self.rows.hasher.key(key)) {
            None => self.wait_loaded().await,
            Some(hash) => tokio::select! {
                () = self.early.wait(hash) => {}
                () = self.wait_loaded() => {}
            },
        }
        Ok(())
    }
}

impl Tables {
    /// Lets these tables be read early: finds the keys that have a record in the log behind `from`.
    pub(super) fn begin_early(&self, tables: &[Arc<Table>], from: Position) {
        let log = &self.inner.core.log;
        if log.end().0.saturating_sub(from.0) > EARLY_LOG_BYTES_MAX {
            return;
        }
        // The replay finds and reports any damage of the log.
        let Some(keys) = self.keys_behind(tables, from.max(log.first())) else { return };
        for (table, keys) in tables.iter().zip(keys) {
            table.early.begin(keys);
        }
    }

    fn keys_behind(&self, tables: &[Arc<Table>], from: Position) -> Option<Vec<Keys>> {
        let mut keys: Vec<Keys> = tables.iter().map(|_| Keys::default()).collect();
        let mut reader = self.inner.core.log.reader(from).ok()?;
        loop {
            let batch = reader.next_batch(REPLAY_BATCH_BYTES).ok()?;
            if batch.is_empty() {
                return Some(keys);
            }
            for (_, bytes) in batch.iter() {
                let record = LogRecord::decode(bytes).ok()?;
                let Some(place) = tables.iter().position(|table| table.id() == record.table()) else {
                    continue;
                };
                let schema = tables[place].schema();
                record.check(schema).ok()?;
                keys[place].insert(number(tables[place].rows.hasher.key(record.key(schema))));
            }
        }
    }
}
