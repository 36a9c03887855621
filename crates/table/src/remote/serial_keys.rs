//! Serial keys: blocks of the database's own sequence, each server reserves its own. `crate::serial_keys`
//! describes how they are handed out.

use super::table::RemoteTable;
use crate::serial_keys::{self, Keyed, Keys};
use crate::source::{BoxFuture, Source, SourceError};
use forebay_value::Schema;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Keyed for RemoteTable {
    fn this(&self) -> Arc<RemoteTable> {
        self.this.upgrade().expect("a table lives in an Arc")
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keyed_schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    fn key_source(&self) -> &Arc<dyn Source> {
        &self.tier.source
    }

    fn highest_key(&self) -> i64 {
        self.highest_key.load(Ordering::Relaxed)
    }
}

impl RemoteTable {
    /// The next reserved serial key. `None` when none is reserved: await [`RemoteTable::wait_keys`], then
    /// call again.
    pub fn next_key(&self) -> Option<i64> {
        self.take_key()
    }

    /// Resolves when a serial key is reserved. May be dropped at any time.
    ///
    /// # Errors
    /// The source's; one that must not be retried when the table has no serial key.
    pub fn wait_keys(&self) -> BoxFuture<'static, Result<(), SourceError>> {
        serial_keys::wait(self.this())
    }
}
