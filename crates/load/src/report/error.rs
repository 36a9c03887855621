//! Why a report, a comparison or a monitor failed.

use std::error::Error as StdError;
use std::fmt;

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An argument is invalid; the message names it. Exit code 2.
    Argument,
    /// A file could not be read or written.
    File,
    /// A file or an answer has an unexpected format.
    Format,
    /// A server's admin listener did not answer. Worth another try.
    Unreachable,
}

/// An error of a report, a comparison or a monitor.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    pub(crate) fn with_source(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether a retry may succeed.
    pub fn is_worth_a_retry(&self) -> bool {
        self.kind == Kind::Unreachable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.source.iter().try_for_each(|source| write!(f, ": {source}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
