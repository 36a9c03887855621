//! The error of everything that a plan is computed from.

use std::error::Error;
use std::fmt;

/// Why a report, a price file or a sweep is no base for a plan: one sentence for the person who gave it.
#[derive(Debug)]
pub struct InvalidFigures {
    sentence: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl InvalidFigures {
    /// A text in the wrong format, for the parser's reason; `what` stands before it.
    pub(crate) fn malformed(what: &str, error: impl Error + Send + Sync + 'static) -> InvalidFigures {
        InvalidFigures { sentence: format!("{what}: {error}"), source: Some(error.into()) }
    }
}

impl fmt::Display for InvalidFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for InvalidFigures {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<String> for InvalidFigures {
    fn from(sentence: String) -> InvalidFigures {
        InvalidFigures { sentence, source: None }
    }
}

impl From<&str> for InvalidFigures {
    fn from(sentence: &str) -> InvalidFigures {
        InvalidFigures::from(sentence.to_owned())
    }
}
