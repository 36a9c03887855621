//! The error of reading a checkpoint.

use std::fmt;

/// Why a checkpoint cannot be used: a sentence, or the rest of one that begins with the file's path.
#[derive(Debug)]
pub(crate) struct UnusableCheckpoint(String);

impl From<String> for UnusableCheckpoint {
    fn from(why: String) -> UnusableCheckpoint {
        UnusableCheckpoint(why)
    }
}

impl From<&str> for UnusableCheckpoint {
    fn from(why: &str) -> UnusableCheckpoint {
        UnusableCheckpoint(why.to_owned())
    }
}

impl fmt::Display for UnusableCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnusableCheckpoint {}
