//! Mistakes in a config: all of them, each with its place and a suggestion.
//!
//! Readers record a mistake and continue, so that one run reports every mistake.

use super::words::without_password;
use std::cell::RefCell;
use std::fmt;

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// A setting outside the file; an index into [`Mistakes::origins`].
    Origin(usize),
    /// The byte offset in the file.
    File(usize),
}

/// The mistakes found so far, and the data needed to report their places.
#[derive(Debug)]
pub(crate) struct Mistakes<'a> {
    file: &'a str,
    source: &'a str,
    origins: RefCell<Vec<String>>,
    found: RefCell<Vec<(At, Mistake)>>,
}

impl<'a> Mistakes<'a> {
    pub fn new(file: &'a str, source: &'a str) -> Mistakes<'a> {
        Mistakes { file, source, origins: RefCell::default(), found: RefCell::default() }
    }

    /// The text of the file.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// Records a mistake.
    pub fn add(&self, at: At, what: impl Into<Mistake>) {
        let mistake = (at, what.into());
        let mut found = self.found.borrow_mut();
        if !found.contains(&mistake) {
            found.push(mistake);
        }
    }

    /// Appends text to the mistakes that were recorded after the first `count`.
    pub fn say_more(&self, count: usize, more: impl Fn(At) -> Option<String>) {
        for (at, what) in &mut self.found.borrow_mut()[count..] {
            if let Some(more) = more(*at) {
                what.0.push_str(&more);
            }
        }
    }

    /// A place outside the file: the name of a variable or an option, as given.
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

    /// The number of mistakes so far.
    pub fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// All mistakes in the order of the file, those outside the file first.
    pub fn into_errors(self) -> ConfigErrors {
        let mut found = self.found.take();
        found.sort_by_key(|(at, _)| *at);
        let errors = found.into_iter().map(|(at, what)| ConfigError { place: self.place(at), what: what.0 });
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

    /// The nearest place in the file that is a character boundary; parsers may report an offset past the end
    /// or inside a character.
    pub fn file_at(&self, offset: usize) -> At {
        let mut offset = offset.min(self.source.len());
        while !self.source.is_char_boundary(offset) {
            offset -= 1;
        }
        At::File(offset)
    }
}

/// What is wrong with a value, and what would be right: the rest of a message that begins with the place and
/// the key. Of a table in [`draft`](crate::draft): why it cannot be a hot table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake(String);

impl From<String> for Mistake {
    fn from(what: String) -> Mistake {
        Mistake(what)
    }
}

impl From<&str> for Mistake {
    fn from(what: &str) -> Mistake {
        Mistake(what.to_owned())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// All mistakes of a config; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    pub(crate) errors: Vec<ConfigError>,
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The place of the mistake.
    pub place: Place,
    /// What is wrong, and what would be right.
    pub what: String,
}

/// The place of a mistake, for messages.
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
        /// The text of the line.
        text: String,
    },
    /// A setting outside the file: `--set memory.limit=4QB`, `FOREBAY_LISTEN`.
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
