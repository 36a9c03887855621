//! Errors of Redis or Valkey as errors of a call on a hot table.

use crate::error::{HotError, HotKind};

impl HotError {
    fn code(&self) -> Option<&str> {
        self.cause::<forebay_redis::Error>().and_then(forebay_redis::Error::code)
    }

    /// Whether a shard answered that it is not loaded.
    pub(crate) fn is_not_loaded(&self) -> bool {
        self.code() == Some("NOTLOADED")
    }

    /// Whether a shard answered that a load must begin again.
    pub(crate) fn is_stale(&self) -> bool {
        self.code() == Some("STALE")
    }

    /// Whether values were reserved under an earlier generation.
    pub(crate) fn is_fenced(&self) -> bool {
        self.code() == Some("FENCED")
    }

    /// The error of a step before the write: whatever the outcome of that step, the row is unchanged.
    pub(crate) fn before_the_write(self) -> HotError {
        match self.kind() {
            HotKind::UnknownOutcome => {
                self.with(HotKind::Unavailable, "what the write needs could not be reserved")
            }
            _ => self,
        }
    }
}

impl From<forebay_redis::Error> for HotError {
    fn from(error: forebay_redis::Error) -> HotError {
        use forebay_redis::Kind;
        let (kind, what) = match error.kind() {
            Kind::NotSent | Kind::Connect => (HotKind::Unavailable, "the memory tier is unreachable"),
            Kind::UnknownOutcome => (HotKind::UnknownOutcome, "the outcome of the write is unknown"),
            Kind::Server { code } => match code.as_str() {
                "OOM" => (HotKind::MemoryFull, "the memory tier's server is full"),
                "SUCCEEDED" => {
                    (HotKind::Unavailable, "a server that came later serves the table with other columns")
                }
                "UNDRAINED" => {
                    (HotKind::Unavailable, "what was written with other columns is not in the database yet")
                }
                "NOTLOADED" => (HotKind::Unavailable, "the table is being loaded"),
                "REBUILD" => (HotKind::Unavailable, "unique values that a server lost are looked for"),
                "EPOCH" => (HotKind::Unavailable, "the memory tier has changed over and is not ready yet"),
                "MISCONF" | "NOREPLICAS" | "BUSY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "READONLY" => {
                    (HotKind::Unavailable, "the memory tier's server takes no writes")
                }
                _ => (HotKind::Broken, "the memory tier's server refused"),
            },
            _ => (HotKind::Broken, "the memory tier cannot be used"),
        };
        HotError::caused(kind, what, error)
    }
}

/// The error when others changed the row at each attempt.
pub(super) fn too_busy() -> HotError {
    HotError::unavailable("others changed the row each time it was tried")
}
