//! Errors of the shared level. The rest of the cache cannot fail; a fill's error is the caller's own type.

use std::fmt;

/// The cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The shared level does not answer, or did not answer a moment ago.
    Away,
    /// It answered with an error, or with a value that is not in our format.
    Refused,
}

/// A failed request to the shared level.
#[derive(Debug, Clone)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<forebay_redis::Error>,
}

impl Error {
    pub(crate) fn away(message: impl Into<String>) -> Error {
        Error { kind: Kind::Away, message: message.into(), source: None }
    }

    /// The cause.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the same request may succeed later.
    pub fn may_retry(&self) -> bool {
        self.kind == Kind::Away
    }
}

impl From<forebay_redis::Error> for Error {
    fn from(source: forebay_redis::Error) -> Error {
        let kind = if source.may_retry() { Kind::Away } else { Kind::Refused };
        Error { kind, message: "the shared cache".into(), source: Some(source) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(source) => write!(f, "{}: {source}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
