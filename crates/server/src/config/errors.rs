//! Mistakes in a config file: all of them, each with its place and what was meant.

use std::fmt;

/// Everything that is wrong with a config; at least one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub(super) errors: Vec<ConfigError>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Where it is.
    pub place: Place,
    /// What is wrong, and what would have been right.
    pub what: String,
}

/// Where a mistake is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the file.
    File {
        /// The file, as given.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The line itself.
        text: String,
    },
    /// In a setting from elsewhere: `--set memory.limit=4QB`, `FOREBAY_LISTEN`.
    Origin(String),
}

impl ConfigErrors {
    /// The mistakes, in the order of the file.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File { file, line, column, text } => {
                write!(f, "{file}:{line}:{column}: {}", self.what)?;
                match text.trim() {
                    "" => Ok(()),
                    text => write!(f, "\n    {text}"),
                }
            }
            Place::Origin(origin) => write!(f, "{origin}: {}", self.what),
        }
    }
}

impl std::error::Error for ConfigErrors {}
