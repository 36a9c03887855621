//! Errors of opening and replaying ([`Error`]), and of a single call on a table of either tier
//! ([`HotError`]).

use crate::limits::RECORD_BYTES_MAX;
use crate::source::SourceError;
use forebay_log::Position;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What kind of failure it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The catalogue file cannot be read, or has content that this program does not support.
    Catalogue,
    /// The operating system refused.
    Io,
    /// The log reported an error.
    Log,
    /// The log contains changes of a table that were written when it had another key.
    OtherKey {
        /// The table's name in the configuration.
        table: String,
    },
    /// A record of the log is intact, but not one that this program could have written.
    BadRecord {
        /// The position behind the record.
        position: Position,
    },
    /// Changes that are not drained yet would be lost.
    Undrained,
}

/// An error of this crate, except of a single call on a table.
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

/// What kind of failure a call on a hot table was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HotKind {
    /// Another row has this key, or a unique value of this row.
    Conflict {
        /// The column or the set of columns, as `Schema::unique_rule` counts.
        rule: usize,
    },
    /// There is no row with this key.
    Missing,
    /// The memory limit is reached and nothing can be evicted before more is drained. Nothing happened.
    MemoryFull,
    /// The log has reached its size limit. Nothing happened.
    LogFull,
    /// The row is larger than [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX) allows. Nothing happened.
    TooLarge,
    /// The log's buffer is full because the disk is behind, or the row is about to be read again. Nothing
    /// happened.
    Busy,
    /// The log failed or was closed: it accepts no more records.
    Poisoned,
    /// The sum is beyond the column's range, or that of 64 bits. Nothing happened.
    Overflow {
        /// The column, an index into the schema's.
        column: usize,
    },
    /// The servers are unreachable or are changing over, or the table is being loaded. Nothing happened: the
    /// call may be retried.
    Unavailable,
    /// The write was sent and its outcome is not known, or it is not as durable as was requested.
    UnknownOutcome,
    /// The database could not be read, or the drain has stopped the table. Nothing happened.
    Source,
    /// The database refused the write: the error's cause says why.
    Refused,
    /// The servers cannot be used as they are, or contain data that Forebay did not write: an operator must
    /// act.
    Broken,
}

/// Why a call on a hot table failed.
#[derive(Debug, Clone)]
pub struct HotError {
    kind: HotKind,
    mark: Position,
    what: Cow<'static, str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl HotError {
    pub(crate) fn new(kind: HotKind, what: impl Into<Cow<'static, str>>) -> HotError {
        HotError { kind, mark: Position(0), what: what.into(), source: None }
    }

    pub(crate) fn caused(
        kind: HotKind,
        what: impl Into<Cow<'static, str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> HotError {
        HotError { source: Some(Arc::new(source)), ..HotError::new(kind, what) }
    }

    pub(crate) fn conflict(rule: usize) -> HotError {
        HotError::new(HotKind::Conflict { rule }, "another row has this value")
    }

    pub(crate) fn missing() -> HotError {
        HotError::new(HotKind::Missing, "there is no such row")
    }

    pub(crate) fn overflow(column: usize) -> HotError {
        HotError::new(HotKind::Overflow { column }, "the sum is beyond the column's range")
    }

    pub(crate) fn too_large() -> HotError {
        HotError::new(HotKind::TooLarge, format!("a row has {} MiB at most", RECORD_BYTES_MAX >> 20))
    }

    pub(crate) fn refused(reason: Arc<dyn std::error::Error + Send + Sync>) -> HotError {
        let what = "the database refused the write";
        HotError { source: Some(reason), ..HotError::new(HotKind::Refused, what) }
    }

    /// The error of a call on a table whose rows cannot be served.
    pub(crate) fn misfit(why: &str) -> HotError {
        let why = SourceError::later(why.to_owned());
        HotError::caused(HotKind::Source, "its rows cannot be served", why)
    }

    /// The error of a write to a table that the drain has stopped.
    pub(crate) fn stopped(table: &str, reason: &str) -> HotError {
        let reason = SourceError::later(reason.to_owned());
        HotError::caused(HotKind::Source, format!("table {table} is stopped"), reason)
    }

    /// The error of a write that is in the log of a table that the drain has stopped since.
    pub(crate) fn logged(reason: &str) -> HotError {
        let what = "it is unknown whether the write is in the database";
        HotError::caused(HotKind::UnknownOutcome, what, SourceError::later(reason.to_owned()))
    }

    pub(crate) fn unavailable(what: impl Into<Cow<'static, str>>) -> HotError {
        HotError::new(HotKind::Unavailable, what)
    }

    pub(crate) fn foreign(what: impl Into<Cow<'static, str>>) -> HotError {
        HotError::new(HotKind::Broken, what)
    }

    /// The same cause, with another kind and message.
    pub(crate) fn with(self, kind: HotKind, what: &'static str) -> HotError {
        HotError { kind, what: what.into(), ..self }
    }

    /// The same error, for an answer that waits until the log has passed this position.
    pub(crate) fn held_until(self, mark: Position) -> HotError {
        HotError { mark, ..self }
    }

    /// The cause, when it is of this type.
    pub fn cause<E: std::error::Error + 'static>(&self) -> Option<&E> {
        self.source.as_ref().and_then(|source| source.downcast_ref())
    }

    /// What happened, to match on.
    pub fn kind(&self) -> HotKind {
        self.kind
    }

    /// The position that an answer with this error waits for: that of the conflicting row, or of the delete
    /// that removed the row. 0: nothing to wait for.
    pub fn mark(&self) -> Position {
        self.mark
    }

    /// Whether nothing has changed and the same call may succeed later without anyone repairing anything.
    pub fn may_retry(&self) -> bool {
        match self.kind {
            HotKind::MemoryFull | HotKind::LogFull | HotKind::Busy | HotKind::Unavailable => true,
            HotKind::Source => self.cause::<SourceError>().is_some_and(|source| source.retry),
            _ => false,
        }
    }
}

impl From<SourceError> for HotError {
    fn from(error: SourceError) -> HotError {
        if error.retry {
            HotError::caused(HotKind::Source, "the database cannot give this now", error)
        } else {
            HotError::new(HotKind::Source, error.message)
        }
    }
}

impl fmt::Display for HotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for HotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
