//! Why a single write was refused: small, because writes are refused often.

use crate::error::{HotError, HotKind};
use forebay_log::{AppendError, Position};
use forebay_value::Value;
use std::fmt;
use std::sync::Arc;

/// The message of [`WriteError::Busy`].
const BUSY: &str = "the log's disk is behind, or the row waits to be read again";

/// Why a write was not done. Nothing has changed, in memory or in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteError {
    /// Another row has this key, or a unique value of this row.
    Conflict {
        /// The column or the set of columns, as `Schema::unique_rule` counts.
        rule: usize,
        /// What the answer waits for: the position of the change by which the other row has the value.
        mark: Position,
    },
    /// There is no row with this key.
    Missing {
        /// What the answer waits for.
        mark: Position,
    },
    /// The row is not in memory: [`fetch`](super::Table::fetch) this key, then try again.
    Fetch(Value),
    /// The memory limit is reached and nothing can be evicted before more is drained.
    MemoryFull,
    /// The log has reached its size limit.
    LogFull,
    /// The record is larger than the log's buffer.
    TooLarge,
    /// The log's buffer is full because the disk is behind, or the row is about to be read again. Retry soon.
    Busy,
    /// The log failed or was closed: it accepts no more records.
    Poisoned,
    /// The intent at this position competes: retry when its outcome is known.
    Pending(Position),
    /// The database takes none of the table's changes for now.
    Stopped {
        /// Its name.
        table: String,
        /// Why the table is stopped.
        reason: Arc<str>,
    },
    /// The sum is beyond the column's range.
    Overflow {
        /// The column, an index into the schema's.
        column: usize,
    },
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> WriteError {
        match error {
            AppendError::Full => WriteError::LogFull,
            AppendError::TooLarge => WriteError::TooLarge,
            AppendError::Busy => WriteError::Busy,
            _ => WriteError::Poisoned,
        }
    }
}

impl From<WriteError> for HotError {
    fn from(error: WriteError) -> HotError {
        match error {
            WriteError::Conflict { rule, mark } => HotError::conflict(rule).held_until(mark),
            WriteError::Missing { mark } => HotError::missing().held_until(mark),
            WriteError::Fetch(_) => HotError::unavailable("the row is not in memory"),
            WriteError::MemoryFull => HotError::new(HotKind::MemoryFull, "the memory limit is reached"),
            WriteError::LogFull => HotError::new(HotKind::LogFull, "the log is full"),
            WriteError::TooLarge => HotError::too_large(),
            WriteError::Busy => HotError::new(HotKind::Busy, BUSY),
            WriteError::Poisoned => HotError::new(HotKind::Poisoned, "the log has failed"),
            WriteError::Pending(_) => HotError::unavailable("a write to the same row waits for the database"),
            WriteError::Stopped { table, reason } => HotError::stopped(&table, &reason),
            WriteError::Overflow { column } => HotError::overflow(column),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteError::Conflict { .. } => "another row has this value",
            WriteError::Missing { .. } => "there is no such row",
            WriteError::Fetch(_) => "the row is not in memory",
            WriteError::MemoryFull => "the memory limit is reached and nothing can be evicted",
            WriteError::LogFull => "the log is full",
            WriteError::TooLarge => "the row is larger than the log's buffer",
            WriteError::Busy => BUSY,
            WriteError::Poisoned => "the log has failed",
            WriteError::Pending(_) => "a write to the same row waits for the database",
            WriteError::Stopped { .. } => "the database takes none of the table's changes",
            WriteError::Overflow { .. } => "the sum is beyond the column's range",
        })
    }
}

impl std::error::Error for WriteError {}
