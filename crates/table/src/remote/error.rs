//! What can go wrong with a hot table on Redis or Valkey.

use crate::source::SourceError;
use std::fmt;
use std::sync::Arc;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteKind {
    /// Another row has this key, or this value in a unique column.
    Conflict {
        /// The column, an index into the schema's.
        column: usize,
    },
    /// There is no row with this key.
    Missing,
    /// The memory limit is reached and nothing can be evicted before more is drained. Nothing happened.
    MemoryFull,
    /// The counter would not fit in 64 bits. Nothing happened.
    Overflow,
    /// The servers are away, are changing over, or the table is being loaded. Nothing happened: the same may be asked again.
    Unavailable,
    /// The write was sent and what became of it is not known, or it is not as durable as was asked.
    UnknownOutcome,
    /// The database could not be asked. Nothing happened.
    Source,
    /// The servers cannot be used as they are, or hold what Forebay has not written there: somebody must look.
    Broken,
}

/// Anything that failed here.
#[derive(Debug, Clone)]
pub struct RemoteError {
    kind: RemoteKind,
    what: String,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl RemoteError {
    pub(crate) fn new(kind: RemoteKind, what: impl Into<String>) -> RemoteError {
        RemoteError { kind, what: what.into(), source: None }
    }

    pub(crate) fn conflict(column: usize) -> RemoteError {
        RemoteError::new(RemoteKind::Conflict { column }, "another row has this value")
    }

    pub(crate) fn missing() -> RemoteError {
        RemoteError::new(RemoteKind::Missing, "there is no such row")
    }

    pub(crate) fn unavailable(what: impl Into<String>) -> RemoteError {
        RemoteError::new(RemoteKind::Unavailable, what)
    }

    pub(crate) fn foreign(what: impl Into<String>) -> RemoteError {
        RemoteError::new(RemoteKind::Broken, what)
    }

    fn code(&self) -> Option<&str> {
        let source = self.source.as_ref().and_then(|source| source.downcast_ref::<forebay_redis::Error>());
        source.and_then(forebay_redis::Error::code)
    }

    /// Whether a shard said that it is not loaded.
    pub(crate) fn is_not_loaded(&self) -> bool {
        self.code() == Some("NOTLOADED")
    }

    /// Whether a shard said that a load must begin again.
    pub(crate) fn is_stale(&self) -> bool {
        self.code() == Some("STALE")
    }

    /// The same, of a step that came before the write: whatever became of that step, the row is as it was.
    pub(crate) fn before_the_write(mut self) -> RemoteError {
        if self.kind == RemoteKind::UnknownOutcome {
            self.kind = RemoteKind::Unavailable;
            self.what = "what the write needs could not be reserved".into();
        }
        self
    }

    /// What happened, to match on.
    pub fn kind(&self) -> RemoteKind {
        self.kind
    }

    /// Whether nothing has changed and the same call may succeed later without anyone repairing anything.
    pub fn may_retry(&self) -> bool {
        matches!(self.kind, RemoteKind::MemoryFull | RemoteKind::Unavailable)
            || (self.kind == RemoteKind::Source
                && self
                    .source
                    .as_ref()
                    .and_then(|source| source.downcast_ref::<SourceError>())
                    .is_some_and(|source| source.retry))
    }
}

impl From<SourceError> for RemoteError {
    fn from(error: SourceError) -> RemoteError {
        RemoteError {
            kind: RemoteKind::Source,
            what: "the database could not be asked".into(),
            source: Some(Arc::new(error)),
        }
    }
}

impl From<forebay_redis::Error> for RemoteError {
    fn from(error: forebay_redis::Error) -> RemoteError {
        use forebay_redis::Kind;
        let (kind, what) = match error.kind() {
            Kind::NotSent | Kind::Connect => (RemoteKind::Unavailable, "the memory tier is away"),
            Kind::UnknownOutcome => (RemoteKind::UnknownOutcome, "what became of the write is not known"),
            Kind::Server { code } => match code.as_str() {
                "OOM" => (RemoteKind::MemoryFull, "the memory tier's server is full"),
                "NOTLOADED" => (RemoteKind::Unavailable, "the table is being loaded"),
                "EPOCH" => (RemoteKind::Unavailable, "the memory tier has changed over and is not ready yet"),
                "MISCONF" | "NOREPLICAS" | "BUSY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "READONLY" => {
                    (RemoteKind::Unavailable, "the memory tier's server takes no writes")
                }
                _ => (RemoteKind::Broken, "the memory tier's server refused"),
            },
            _ => (RemoteKind::Broken, "the memory tier cannot be used"),
        };
        RemoteError { kind, what: what.into(), source: Some(Arc::new(error)) }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RemoteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
