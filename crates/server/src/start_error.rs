//! Why a server cannot start or reload.

use std::error::Error;
use std::fmt;

/// Why a server cannot start, or cannot use a new config or a changed file, as a sentence that says what to
/// do.
#[derive(Debug)]
pub struct StartError(Box<dyn Error + Send + Sync>);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl From<String> for StartError {
    fn from(sentence: String) -> StartError {
        StartError(sentence.into())
    }
}

impl From<&str> for StartError {
    fn from(sentence: &str) -> StartError {
        StartError(sentence.into())
    }
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> StartError {
        StartError(Box::new(error))
    }
}

impl From<forebay_database::Error> for StartError {
    fn from(error: forebay_database::Error) -> StartError {
        StartError(Box::new(error))
    }
}

impl From<forebay_drain::Error> for StartError {
    fn from(error: forebay_drain::Error) -> StartError {
        StartError(Box::new(error))
    }
}

impl From<forebay_log::Error> for StartError {
    fn from(error: forebay_log::Error) -> StartError {
        StartError(Box::new(error))
    }
}

impl From<forebay_table::Error> for StartError {
    fn from(error: forebay_table::Error) -> StartError {
        StartError(Box::new(error))
    }
}

impl From<tokio::task::JoinError> for StartError {
    fn from(error: tokio::task::JoinError) -> StartError {
        StartError(Box::new(error))
    }
}
