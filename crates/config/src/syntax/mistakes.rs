//! Mistakes in a config: all of them, each with its place and what was meant.
//!
//! Readers note what is wrong and go on, so that one run shows every mistake.

use super::words::without_password;
use std::cell::RefCell;
use std::fmt;

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// In a setting from elsewhere; an index into [`Mistakes::origins`].
    Origin(usize),
    /// In the file, at this byte.
    File(usize),
}

/// The mistakes found so far, and what is needed to say where they are.
#[derive(Debug)]
pub(crate) struct Mistakes<'a> {
    file: &'a str,
    source: &'a str,
    origins: RefCell<Vec<String>>,
    found: RefCell<Vec<(At, String)>>,
}

impl<'a> Mistakes<'a> {
    pub fn new(file: &'a str, source: &'a str) -> Mistakes<'a> {
        Mistakes { file, source, origins: RefCell::default(), found: RefCell::default() }
    }

    /// The text of the file.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// Notes a mistake.
    pub fn add(&self, at: At, what: impl Into<String>) {
        let mistake = (at, what.into());
        let mut found = self.found.borrow_mut();
        if !found.contains(&mistake) {
            found.push(mistake);
        }
    }

    /// Says more of those that were found after the first `count`.
    pub fn say_more(&self, count: usize, more: impl Fn(At) -> Option<String>) {
        for (at, what) in &mut self.found.borrow_mut()[count..] {
            if let Some(more) = more(*at) {
                what.push_str(&more);
            }
        }
    }

    /// A place outside the file: the name of a variable or an option as given.
    pub fn origin(&self, name: impl Into<String>) -> At {
        let mut origins = self.origins.borrow_mut();
        origins.push(name.into());
        At::Origin(origins.len() - 1)
    }

    /// The line of a place, from 1; 0 when it is not in the file.
    pub fn line(&self, at: At) -> usize {
        match at {
            At::File(offset) => {
                self.source.as_bytes()[..offset].iter().filter(|&&byte| byte == b'\n').count() + 1
            }
            At::Origin(_) => 0,
        }
    }

    /// How many there are so far.
    pub fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// All of them in the order of the file, those from elsewhere first.
    pub fn into_errors(self) -> ConfigErrors {
        let mut found = self.found.take();
        found.sort_by_key(|(at, _)| *at);
        let errors = found.into_iter().map(|(at, what)| ConfigError { place: self.place(at), what });
        ConfigErrors { errors: errors.collect() }
    }

    fn place(&self, at: At) -> Place {
        match at {
            At::Origin(index) => Place::Origin(self.origins.borrow()[index].clone()),
            At::File(offset) => {
                let start = self.source[..offset].rfind('\n').map_or(0, |newline| newline + 1);
                Place::File {
                    file: self.file.to_owned(),
                    line: self.line(at),
                    column: self.source[start..offset].chars().count() + 1,
                    text: self.source[start..].lines().next().unwrap_or_default().to_owned(),
                }
            }
        }
    }

    /// The nearest place in the file that is a character boundary; parsers may point past the end
    /// or into a character.
    pub fn file_at(&self, offset: usize) -> At {
        let mut offset = offset.min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        At::File(offset)
    }
}

/// Everything that is wrong with a config; at least one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub(crate) errors: Vec<ConfigError>,
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
    /// On a line of the file.
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
