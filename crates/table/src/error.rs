//! What can go wrong: opening and replaying ([`Error`]), and a single write ([`WriteError`], small: it is refused often).

use forebay_log::{AppendError, Position};
use forebay_value::Value;
use std::fmt;

/// What kind of failure it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The catalogue file cannot be read, or holds what this program does not know.
    Catalogue,
    /// The operating system refused.
    Io,
    /// The log refused.
    Log,
    /// The log holds changes of a table that were written with other columns than it has now.
    OldColumns {
        /// The table.
        table: String,
    },
    /// A record of the log is intact and yet not one that this program could have written.
    BadRecord {
        /// The position behind the record.
        position: Position,
    },
    /// Something is not drained yet that would be lost.
    Undrained,
}

/// Anything that failed here, except a single write.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), source: None }
    }

    pub(crate) fn caused(
        kind: Kind,
        what: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error { kind, what: what.into(), source: Some(Box::new(source)) }
    }

    /// What happened, to match on.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

/// Why a write was not done. Nothing has changed, in memory or in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum WriteError {
    /// Another row has this key, or this value in a unique column.
    Conflict {
        /// The column, an index into the schema's.
        column: usize,
        /// What the answer waits for: the position at which the other row is known to have it.
        mark: Position,
    },
    /// There is no row with this key.
    Missing {
        /// What the answer waits for.
        mark: Position,
    },
    /// The row is not in memory: [`fetch`](crate::Table::fetch) this key, then try again.
    Fetch(Value),
    /// The memory limit is reached and nothing can be evicted before more is drained.
    MemoryFull,
    /// The log takes no more: it is at its limit, or the record alone is larger than its buffer.
    LogFull,
    /// The log's buffer is full: the disk is behind. Passes soon.
    Busy,
    /// The log failed or was closed: nothing more is written.
    Poisoned,
    /// The counter would not fit in 64 bits.
    Overflow,
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> WriteError {
        match error {
            AppendError::Full | AppendError::TooLarge => WriteError::LogFull,
            AppendError::Busy => WriteError::Busy,
            _ => WriteError::Poisoned,
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
            WriteError::Busy => "the log's disk is behind",
            WriteError::Poisoned => "the log has failed",
            WriteError::Overflow => "the number does not fit in 64 bits",
        })
    }
}

impl std::error::Error for WriteError {}
