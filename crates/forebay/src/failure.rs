//! Why a command failed, and the exit codes for particular failures.

use std::fmt;

/// Exit code for wrong arguments.
pub const ARGUMENTS: u8 = 2;

/// Why a command failed: one sentence, or one for each mistake.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Failure {
    /// A failure with the text of an error.
    pub fn from(error: impl fmt::Display) -> Failure {
        Failure(error.to_string())
    }
}
