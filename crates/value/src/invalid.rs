//! What is told of text or JSON that is no value of its type, or is one that its column cannot hold. Who says
//! so names the parameter.

use std::fmt;

/// A value that cannot be taken; says what would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// What it must be, as the rest of a sentence that begins with its name.
    what: String,
    /// Whether it is a value of its type that is beyond a bound: too large, too long, not among the labels.
    pub is_beyond: bool,
}

impl Invalid {
    /// It is no value of the type asked for.
    pub fn form(expected: impl Into<String>) -> Invalid {
        Invalid { what: format!("must be {}", expected.into()), is_beyond: false }
    }

    /// It is a value of its type, beyond a bound.
    pub fn beyond(expected: impl Into<String>) -> Invalid {
        Invalid { is_beyond: true, ..Invalid::form(expected) }
    }

    /// It is a value of its type that a CHECK refuses.
    pub fn refused(check: &str) -> Invalid {
        Invalid { what: format!("must satisfy {check}"), is_beyond: true }
    }

    /// It is null where there must be a value.
    pub fn null() -> Invalid {
        Invalid { what: "must not be null".into(), is_beyond: true }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Invalid {}
