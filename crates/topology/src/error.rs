//! What can go wrong: one opaque error with a kind to match on, the source kept, and a sentence
//! that says what to do.

use std::fmt;
use std::io;
use std::path::Path;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// What is asked for contradicts itself or a limit.
    Spec,
    /// The server is not installed, or what was named is not a server.
    NoServer,
    /// A port is taken.
    PortInUse {
        /// Which one.
        port: u16,
    },
    /// The folder holds a topology or something else already.
    FolderInUse,
    /// The folder holds no topology.
    NotATopology,
    /// There is no node of that name, or it is not one that this can be done with.
    Node,
    /// A server ended, or would not start.
    Start,
    /// Nodes did not become ready in time.
    Timeout,
    /// A server refused a command or did not answer.
    Command,
    /// It was given up because the caller asked so.
    Cancelled,
    /// The operating system refused.
    Io,
}

/// Anything that failed in this room.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Shorthand.
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

    /// What happened, to match on.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the same call may succeed later without anyone changing anything.
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
