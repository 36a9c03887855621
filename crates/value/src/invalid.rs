//! The error for text or JSON that is not a value of its type, or that its column cannot store. The code
//! that reports it adds the name of the parameter.

use std::fmt;

/// A value that is refused; states what would be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The requirement, as the rest of a sentence that begins with the parameter's name.
    what: String,
    /// Whether it is a value of its type but beyond a bound: too large, too long, not among the labels.
    pub is_beyond: bool,
}

impl Invalid {
    /// The input is no value of the requested type.
    pub fn form(expected: impl Into<String>) -> Invalid {
        Invalid { what: format!("must be {}", expected.into()), is_beyond: false }
    }

    /// The input is a value of its type, but beyond a bound.
    pub fn beyond(expected: impl Into<String>) -> Invalid {
        Invalid { is_beyond: true, ..Invalid::form(expected) }
    }

    /// The input is a value of its type, but a CHECK refuses it.
    pub fn refused(check: &str) -> Invalid {
        Invalid { what: format!("must satisfy {check}"), is_beyond: true }
    }

    /// The same about each element of an array.
    pub(crate) fn of_each_element(self) -> Invalid {
        Invalid { what: format!("must be an array; each element {}", self.what), ..self }
    }

    /// The input is null where a value is required.
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
