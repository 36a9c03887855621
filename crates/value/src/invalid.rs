//! What is told of text or JSON that is no value of its type. Who says so names the parameter.

use std::fmt;

/// Text or JSON that is not a value of the type asked for; says what would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What was expected, as the rest of "must be …".
    pub expected: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {}", self.expected)
    }
}

impl std::error::Error for Invalid {}

pub(crate) fn invalid(expected: impl Into<String>) -> Invalid {
    Invalid { expected: expected.into() }
}
