//! The interface through which a hot table reads the database: blocks of serial keys, and single rows.

use forebay_log::Position;
use forebay_value::{Row, Schema, Value};
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;

/// A future on the heap, with its type erased.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The source of serial keys, and of rows that are not in memory.
pub trait Source: Send + Sync + 'static {
    /// Reserves about `count` keys of the table's sequence, at least one, as blocks that count up by one.
    /// They are durably reserved when this resolves. A block of several keys lies above all keys that were
    /// reserved before.
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>>;

    /// Reads one row, as committed at the time of this call or later.
    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>>;

    /// Reads one row in a snapshot that contains everything of `log` before `drained`. Returns an error that
    /// may be retried when the database does not contain that, because it has lost its last commits. A source
    /// that cannot lose commits need not check.
    fn fetch_at(
        &self,
        schema: &Schema,
        key: Value,
        log: u128,
        drained: Position,
    ) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let _ = (log, drained);
        self.fetch(schema, key)
    }
}

/// The database could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError {
    /// Why, as a sentence without its full stop.
    pub message: String,
    /// Whether the same call may succeed later without anyone repairing anything.
    pub retry: bool,
}

impl SourceError {
    pub(crate) fn later(message: impl Into<String>) -> SourceError {
        SourceError { message: message.into(), retry: true }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SourceError {}
