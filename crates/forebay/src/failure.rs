//! Why a command failed, and the exit codes that say more than that it did.

use std::fmt;

/// Exit code for what was typed.
pub const ARGUMENTS: u8 = 2;

/// Why a command failed: one sentence, or one a mistake.
#[derive(Debug)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Failure {
    /// Says what an error says.
    pub fn from(error: impl fmt::Display) -> Failure {
        Failure(error.to_string())
    }
}
