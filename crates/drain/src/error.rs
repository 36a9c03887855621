//! What can go wrong while draining, warming, checking or seeding: a kind, a sentence that says what to do,
//! the source.

use forebay_database::Holder;
use std::fmt;

/// The kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The database failed.
    Database,
    /// The log cannot be read.
    Log,
    /// The file of unwritten dead letters cannot be read or written.
    Letters,
    /// The log contains a record of no configured table.
    BadRecord,
    /// The log had been drained into another database.
    DatabaseReplaced,
    /// The database has lost the position of the log, and what it has of the log's end is not known.
    PositionLost,
    /// Another server has ended with changes that the database lacks.
    Undrained,
    /// The database is at a position that the log has already released: the changes in between are gone.
    PositionBehind,
    /// The database is at a position that the log has never reached.
    PositionAhead,
    /// Another drain has taken over.
    Fenced,
    /// Another copy of the data folder has written to the database.
    Copied,
    /// Another server writes to one of the tables.
    Claimed,
    /// The drain was stopped before it had finished.
    Stopped,
    /// The database would refuse every change of a table: its changes wait in the queue.
    TableStopped,
    /// A table that must not be in use is in use.
    InUse,
}

/// A failure that a person or the caller must do something about.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    holder: Option<Box<Holder>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None, holder: None }
    }

    pub(crate) fn caused(
        kind: Kind,
        message: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Error {
        Error { kind, message: message.into(), source: Some(Box::new(source)), holder: None }
    }

    /// Another server writes to a table.
    pub(crate) fn claimed(holder: Holder, message: String) -> Error {
        Error { holder: Some(Box::new(holder)), ..Error::new(Kind::Claimed, message) }
    }

    /// The server that writes to a table, when [`Kind::Claimed`] is the failure.
    pub fn holder(&self) -> Option<&Holder> {
        self.holder.as_deref()
    }

    /// Whether a later attempt may succeed without any repair.
    pub fn may_retry(&self) -> bool {
        let Some(source) = &self.source else { return false };
        if let Some(error) = source.downcast_ref::<forebay_database::Error>() {
            return error.may_retry();
        }
        if let Some(error) = source.downcast_ref::<forebay_table::SourceError>() {
            return error.retry;
        }
        source.downcast_ref::<forebay_table::HotError>().is_some_and(|error| error.may_retry())
    }

    /// Whether the database was changed by another drain first.
    pub(crate) fn is_fenced(&self) -> bool {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<forebay_database::Error>());
        source.is_some_and(|error| *error.kind() == forebay_database::Kind::Fenced)
    }

    /// The kind of failure, to match on.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
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

impl From<forebay_database::Error> for Error {
    fn from(error: forebay_database::Error) -> Error {
        Error::caused(Kind::Database, "the database", error)
    }
}
