//! Serial keys of a table in this process. How they are handed out stands in `crate::serial_keys`.

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
    /// The next serial key in hand. `None` when there is none: [`Table::wait_keys`], then ask again.
    pub fn next_key(&self) -> Option<i64> {
        self.take_key()
    }

    /// Resolves when there is a serial key in hand. May be dropped at any time.
    ///
    /// # Errors
    /// The source's; one that is not to be retried when the table has no serial key.
    pub fn wait_keys(&self) -> BoxFuture<'static, Result<(), SourceError>> {
        serial_keys::wait(self.this())
    }
}
