//! What a hot table asks of the database behind it, without knowing it: blocks of serial keys, and single
//! rows.

use forebay_log::Position;
use forebay_value::{Row, Schema, Value};
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;

/// A future that owns all it needs.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where keys and rows that are not in memory come from.
pub trait Source: Send + Sync + 'static {
    /// Reserves `count` keys of the table's sequence. They are reserved for good when this resolves, and lie
    /// above all that were given out before.
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<RangeInclusive<i64>, SourceError>>;

    /// Reads one row. What is read was committed when this was called, or later.
    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>>;

    /// Reads one row as of a moment at which everything of `log` before `drained` is in the database; an
    /// error that may be retried when it is not: a database can lose its last commits. A source that cannot
    /// need not look.
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

/// The database could not be asked.
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
