//! Why a request got no answer from an upstream.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// The kind of failure, for the caller that answers the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No upstream could be reached, or it closed the connection instead of answering (502).
    Unreachable,
    /// The upstream sent something that is not a valid answer (502).
    BadAnswer,
    /// Every upstream fails its health checks (503).
    Unavailable,
    /// No answer came in time (504).
    TimedOut,
    /// The client's body was cut off, too long or malformed; [`StdError::source`] is the error of its
    /// source.
    ClientBody,
}

/// Why a request got no answer. Opaque except for its kind; the source is retained.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Error {
        Error { kind, what: what.into(), retry_after: None, source: None }
    }

    pub(crate) fn caused_by(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        Error { source: Some(source.into()), ..self }
    }

    pub(crate) fn retry_after(self, retry_after: Duration) -> Error {
        Error { retry_after: Some(retry_after), ..self }
    }

    /// The kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// When a retry makes sense, if that is known.
    pub fn retry_after_hint(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the same request may succeed later.
    pub fn may_retry(&self) -> bool {
        matches!(self.kind, Kind::Unreachable | Kind::Unavailable | Kind::TimedOut)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let mut source = self.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
