//! Why a sample failed.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::Path;

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// This system has no `/proc` as Linux has it. Trying again will not help.
    Unsupported,
    /// The process does not exist.
    Gone,
    /// A file does not have the expected format.
    Malformed,
}

/// The error of a failed sample.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn read(kind: Kind, path: &Path, source: io::Error) -> Error {
        let hint = match kind {
            Kind::Gone => "the process has ended",
            _ => {
                "the figures of the machine come from Linux's /proc; on another system, leave the monitor out"
            }
        };
        Error { kind, message: format!("cannot read {}: {hint}", path.display()), source: Some(source) }
    }

    pub(crate) fn malformed(path: &Path, what: &str) -> Error {
        let message = format!("{} does not look like Linux's: {what}", path.display());
        Error { kind: Kind::Malformed, message, source: None }
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source as &(dyn StdError + 'static))
    }
}
