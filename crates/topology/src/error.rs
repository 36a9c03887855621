//! Errors: one opaque error with a kind to match on, its source, and a sentence that says what to do.

use std::fmt;
use std::io;
use std::path::Path;

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The request contradicts itself or a limit.
    Spec,
    /// The server is not installed, or the named program is not a server.
    NoServer,
    /// A port is taken.
    PortInUse {
        /// The port that is taken.
        port: u16,
    },
    /// The folder already contains a topology or other files.
    FolderInUse,
    /// The folder contains no topology.
    NotATopology,
    /// No node has this name, or its state does not allow the operation.
    Node,
    /// A server ended or did not start.
    Start,
    /// Nodes did not become ready in time.
    Timeout,
    /// A server refused a command or did not answer.
    Command,
    /// The caller cancelled the operation.
    Cancelled,
    /// The operating system returned an error.
    Io,
}

/// An error of this crate.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }

    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> Error {
        let message = format!("cannot {doing} {}", path.display());
        Error { kind: Kind::Io, message, source: Some(Box::new(source)) }
    }

    pub(crate) fn command(node: &str, doing: &str, source: redis::RedisError) -> Error {
        let message = format!("{node} did not {doing}");
        Error { kind: Kind::Command, message, source: Some(Box::new(source)) }
    }

    /// The kind of failure, to match on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the same call may succeed later without any change.
    pub fn may_retry(&self) -> bool {
        matches!(self.kind, Kind::Timeout | Kind::Command | Kind::PortInUse { .. })
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
