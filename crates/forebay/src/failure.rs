//! Why a command failed, and the exit codes for particular failures.

use std::error::Error;
use std::fmt;

/// Exit code for wrong arguments.
pub const ARGUMENTS: u8 = 2;

/// Why a command failed: one sentence, or one for each mistake.
#[derive(Debug)]
pub struct Failure(Box<dyn Error + Send + Sync>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl Failure {
    /// A failure with the text and the source of an error.
    pub fn from(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        Failure(error.into())
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Failure {
        Failure(sentence.into())
    }
}

impl From<&str> for Failure {
    fn from(sentence: &str) -> Failure {
        Failure(sentence.into())
    }
}
