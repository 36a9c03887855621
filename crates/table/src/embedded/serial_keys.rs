//! Serial keys of a table in this process. `crate::serial_keys` describes how they are handed out.

use super::table::Table;
use crate::serial_keys::{self, Keyed, Keys};
use crate::source::{BoxFuture, Source, SourceError};
use forebay_value::Schema;
use std::sync::Arc;

impl Keyed for Table {
    fn this(&self) -> Arc<Table> {
        self.this.upgrade().expect("a table lives in an Arc")
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn keyed_schema(&self) -> &Arc<Schema> {
        self.schema()
    }

    fn key_source(&self) -> &Arc<dyn Source> {
        &self.core.source
    }

    fn highest_key(&self) -> i64 {
        self.rows.highest_key()
    }
}

impl Table {
    /// The next reserved serial key. `None` when none is reserved: await [`Table::wait_keys`], then call
    /// again.
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

    /// Gives up the reserved serial keys, when others may be handed out the same: when their sequence may
    /// have begun again.
    pub fn give_up_keys(&self) {
        self.keys.give_up();
    }
}
