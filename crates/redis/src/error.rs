//! What can go wrong: one opaque error with a kind to match on, a sentence for people and the source kept.
//!
//! Cheap to clone, because one lost connection answers every request of a batch.

use std::fmt;
use std::sync::Arc;

/// What is known of a request that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Nothing happened: it was never written whole, or the server said that it executed nothing.
    /// Sending it again is safe.
    NotSent,
    /// It was sent, and what became of it is not known: the connection was lost, no answer came in
    /// time, or fewer replicas (or no disk) confirmed it than were asked for.
    UnknownOutcome,
    /// The server or the script answered with an error of its own.
    Server {
        /// The error's first word, such as `WRONGTYPE` or `OOM`, or what a script put there.
        code: String,
    },
    /// The server cannot do what the options or the caller ask for, or is set up so that it must not be used.
    Unsupported,
    /// The server refused the user or the password, or the user may not run what is needed.
    Auth,
    /// No server could be reached at the addresses given, or none that is what the URL says.
    Connect,
    /// The URL or the options cannot be used.
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

    /// The same failure under another kind, its sentence and source kept.
    #[must_use]
    pub(crate) fn into_kind(mut self, kind: Kind) -> Error {
        self.kind = kind;
        self
    }

    /// The same failure with what was being done in front.
    #[must_use]
    pub(crate) fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// What is known of the request.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// A sentence for people, without the source.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The first word of the server's or the script's own error.
    pub fn code(&self) -> Option<&str> {
        match &self.kind {
            Kind::Server { code } => Some(code),
            _ => None,
        }
    }

    /// Whether the same request may succeed later without anybody changing it. After
    /// [`Kind::UnknownOutcome`] it may also be executed a second time.
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
