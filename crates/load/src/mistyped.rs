//! The error of what people type: flags, plans, and the files that they name.

use std::error::Error;
use std::fmt;
use std::io;

/// Why flags or a plan describe no load: one sentence for the person who typed them. It names the flag or the
/// value, or the file and the line.
#[derive(Debug)]
pub struct Mistyped {
    sentence: String,
    source: Option<io::Error>,
}

impl Mistyped {
    /// A file that cannot be read; `name` is the file, or the flag that names it.
    pub(crate) fn unreadable(name: impl fmt::Display, error: io::Error) -> Mistyped {
        Mistyped { sentence: format!("{name}: {error}"), source: Some(error) }
    }

    /// The same mistake with its place before the sentence.
    pub(crate) fn at(self, place: impl fmt::Display) -> Mistyped {
        Mistyped { sentence: format!("{place}: {self}"), ..self }
    }
}

impl fmt::Display for Mistyped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Mistyped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|error| error as &(dyn Error + 'static))
    }
}

impl From<String> for Mistyped {
    fn from(sentence: String) -> Mistyped {
        Mistyped { sentence, source: None }
    }
}

impl From<&str> for Mistyped {
    fn from(sentence: &str) -> Mistyped {
        Mistyped::from(sentence.to_owned())
    }
}
