//! Why a server could not start.

use std::fmt;

/// Why a server could not start, as a sentence that says what to do.
#[derive(Debug)]
pub struct StartError(pub String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl StartError {
    pub(crate) fn from(error: impl fmt::Display) -> StartError {
        StartError(error.to_string())
    }
}
