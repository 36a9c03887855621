//! One opaque error with a kind to match on, a message and its source.
//!
//! Cheap to clone, because one lost connection answers every request of a batch.

use std::fmt;
use std::sync::Arc;

/// The cause of a failure, and whether the request was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Not executed: it was not sent completely, or the server reported that it did not run it. A retry is
    /// safe.
    NotSent,
    /// Sent, with an unknown outcome: the connection was lost, no answer arrived in time, or fewer
    /// replicas (or no disk) confirmed it than demanded.
    UnknownOutcome,
    /// The server or the script answered with an error.
    Server {
        /// The error's first word, such as `WRONGTYPE` or `OOM`.
        code: String,
    },
    /// The server lacks what the options or the caller need, or its settings could lose data.
    Unsupported,
    /// The server refused the user or the password, or the user may not run what is needed.
    Auth,
    /// No server of the kind that the URL names answered at the given addresses.
    Connect,
    /// The URL or the options are invalid.
    Url,
}

/// A failed request or connection.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    pub(crate) fn not_sent(message: impl Into<String>) -> Error {
        Error::new(Kind::NotSent, message)
    }

    pub(crate) fn unknown(message: impl Into<String>) -> Error {
        Error::new(Kind::UnknownOutcome, message)
    }

    pub(crate) fn connect(message: impl Into<String>) -> Error {
        Error::new(Kind::Connect, message)
    }

    #[must_use]
    pub(crate) fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        self.source = Some(Arc::new(source));
        self
    }

    /// The same failure under another kind, with the same message and source.
    #[must_use]
    pub(crate) fn into_kind(mut self, kind: Kind) -> Error {
        self.kind = kind;
        self
    }

    /// The same failure with a description of the operation in front.
    #[must_use]
    pub(crate) fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The cause, and whether the request was executed.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The message, without the source.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The first word of the server's or the script's error.
    pub fn code(&self) -> Option<&str> {
        match &self.kind {
            Kind::Server { code } => Some(code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later. After [`Kind::UnknownOutcome`] a retry may execute
    /// it a second time.
    pub fn may_retry(&self) -> bool {
        matches!(self.kind, Kind::NotSent | Kind::UnknownOutcome | Kind::Connect)
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
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
