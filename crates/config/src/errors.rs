//! Mistakes in a config file: all of them, each with its place and what was meant.

use super::stores::without_password;
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
                    text => write!(f, "\n    {}", without_password(text)),
                }
            }
            Place::Origin(origin) => write!(f, "{origin}: {}", self.what),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// `; did you mean X?` when one of the candidates is near, else nothing.
pub(super) fn did_you_mean<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let given = given.to_lowercase();
    let near = |candidate: &&str| {
        let candidate = candidate.to_lowercase();
        candidate.starts_with(&given) && given.len() > 2
            || strsim::damerau_levenshtein(&candidate, &given) <= 1 + given.len() / 4
    };
    let distance = |candidate: &&str| strsim::damerau_levenshtein(&candidate.to_lowercase(), &given);
    match candidates.into_iter().filter(near).min_by_key(distance) {
        Some(candidate) => format!("; did you mean {candidate}?"),
        None => String::new(),
    }
}

/// `a, b, c`
pub(super) fn list<'a>(items: impl IntoIterator<Item = &'a str>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}
