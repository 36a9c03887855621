//! Errors, and their places in the files. One opaque error with a kind to match on; appending has a separate
//! small one, because appends are refused often and that must be cheap.

use crate::position::Position;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A place in the log's files, for an operator with a hex editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// A segment in the log's folder.
    pub file: PathBuf,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The position in the log of the byte at `offset`.
    pub position: Position,
}

impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {} (log position {})", self.file.display(), self.offset, self.position)
    }
}

/// What kind of failure it was.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The options contradict each other or a limit.
    Options,
    /// Another process has locked the folder.
    Locked {
        /// The process that holds it, when it could be read.
        pid: Option<u32>,
    },
    /// The log is damaged at a place that is not its end. Nothing was changed.
    Corrupt(FilePlace),
    /// The files are of another version or of another log.
    Foreign(FilePlace),
    /// A file that must be there is missing.
    Missing(PathBuf),
    /// The position was released already; the oldest that the log still contains is given.
    Released {
        /// [`crate::Log::first`] at that moment.
        first: Position,
    },
    /// The position is not the boundary of a record, or is past the durable end.
    NotABoundary(Position),
    /// A write or a sync failed, or a thread panicked; nothing was acknowledged after that.
    Poisoned,
    /// The disk is full.
    Full,
    /// The log was closed.
    Closed,
    /// The operating system refused.
    Io,
}

/// An error of the log, except of an append.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), source: None }
    }

    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        let kind = if is_full(&source) { Kind::Full } else { Kind::Io };
        Error { kind, what: format!("cannot {doing} {}", path.display()), source: Some(source) }
    }

    pub(crate) fn corrupt(what: &str, place: FilePlace) -> Error {
        let text = format!("{what} in {place}");
        Error::new(Kind::Corrupt(place), text)
    }

    pub(crate) fn foreign(what: &str, place: FilePlace) -> Error {
        let text = format!("{what} in {place}");
        Error::new(Kind::Foreign(place), text)
    }

    /// What happened, to match on.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Whether the same call may succeed later without anyone repairing anything.
    pub fn may_retry(&self) -> bool {
        matches!(self.kind, Kind::Full | Kind::Locked { .. })
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
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Why a record was refused. The append had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppendError {
    /// `limit_bytes` are not released, or the disk has no room for another segment. Retry when space is
    /// freed.
    Full,
    /// `buffer_bytes` wait for the disk. Retry when the group that is being written is durable.
    Busy,
    /// The record alone is larger than a group may be. Retrying does not help.
    TooLarge,
    /// A write or sync failed. The log must be opened again.
    Poisoned,
    /// The log was closed.
    Closed,
}

impl AppendError {
    /// Whether the same append may be accepted later.
    pub fn may_retry(self) -> bool {
        matches!(self, AppendError::Full | AppendError::Busy)
    }
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AppendError::Full => "the log is full: release or free disk space",
            AppendError::Busy => "the log's buffer is full: the disk is behind",
            AppendError::TooLarge => "the record is larger than the log's buffer",
            AppendError::Poisoned => "a write or sync of the log failed: open it again",
            AppendError::Closed => "the log is closed",
        })
    }
}

impl std::error::Error for AppendError {}

/// Whether the system reported a full disk or quota: a later retry makes sense.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
