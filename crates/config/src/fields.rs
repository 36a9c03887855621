//! Typed access to a table as typed: unknown keys and wrong kinds of values are noted, the rest is handed out.

use super::errors::{did_you_mean, list};
use super::keys::{self, Section};
use super::read::{At, Data, Entry, Mistakes, Node};
use super::size;

/// A table whose keys have been checked.
#[derive(Clone, Copy)]
pub(super) struct Fields<'t> {
    entries: &'t [Entry],
    /// Where the table is.
    pub at: At,
}

impl<'t> Fields<'t> {
    /// The keys of a section. A key that it does not have is a mistake; so is anything but a table.
    pub fn open(node: &'t Node, section: &'static Section, mistakes: &Mistakes<'_>) -> Fields<'t> {
        let fields = Fields::of(node, section.name, mistakes);
        for entry in fields.entries {
            if !keys::names(section.keys).any(|name| name == entry.key) {
                unknown(entry, section.name, keys::names(section.keys), mistakes);
            }
        }
        fields
    }

    /// A table whose keys its caller checks.
    pub fn of(node: &'t Node, name: &str, mistakes: &Mistakes<'_>) -> Fields<'t> {
        match &node.data {
            Data::Table(entries) => Fields { entries, at: node.at },
            Data::Broken => Fields { entries: &[], at: node.at },
            _ => {
                mistakes.add(node.at, format!("{name} must be a table, not {}", node.kind()));
                Fields { entries: &[], at: node.at }
            }
        }
    }

    pub fn entries(&self) -> &'t [Entry] {
        self.entries
    }

    pub fn get(&self, key: &str) -> Option<&'t Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub fn entry(&self, key: &str) -> Option<&'t Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Puts the value of a key into its place when there is one that `read` understands.
    pub fn set<T>(
        &self,
        key: &str,
        place: &mut T,
        mistakes: &Mistakes<'_>,
        read: impl FnOnce(&Node) -> Result<T, String>,
    ) {
        if let Some(value) = self.read(key, mistakes, read) {
            *place = value;
        }
    }

    /// The value of a key as `read` understands it; what it does not is noted.
    pub fn read<T>(
        &self,
        key: &str,
        mistakes: &Mistakes<'_>,
        read: impl FnOnce(&Node) -> Result<T, String>,
    ) -> Option<T> {
        let node = self.get(key)?;
        if node.data == Data::Broken {
            return None;
        }
        match read(node) {
            Ok(value) => Some(value),
            Err(what) => {
                mistakes.add(node.at, format!("{key}: {what}"));
                None
            }
        }
    }
}

/// Notes a key that is not known.
pub(super) fn unknown<'k>(
    entry: &Entry,
    section: &str,
    permitted: impl Iterator<Item = &'k str> + Clone,
    mistakes: &Mistakes<'_>,
) {
    let key = &entry.key;
    let near = did_you_mean(key, permitted.clone());
    mistakes
        .add(entry.at, format!("unknown key `{key}` in {section}{near} (permitted: {})", list(permitted)));
}

/// A text.
pub(super) fn text(node: &Node) -> Result<String, String> {
    match &node.data {
        Data::Text(text) => Ok(text.clone()),
        _ => Err(format!("must be a text, not {}", node.kind())),
    }
}

/// A text that is not empty.
pub(super) fn name(node: &Node) -> Result<String, String> {
    text(node).and_then(|text| if text.is_empty() { Err("must not be empty".into()) } else { Ok(text) })
}

/// One of several words.
pub(super) fn choice<T: Copy>(choices: &[(&str, T)]) -> impl FnOnce(&Node) -> Result<T, String> {
    move |node| {
        let found = match &node.data {
            Data::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        };
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>();
            format!("must be {}", words.join(" or "))
        })
    }
}

/// True or false; as a text too, which is what a variable gives.
pub(super) fn flag(node: &Node) -> Result<bool, String> {
    match &node.data {
        Data::Bool(flag) => Ok(*flag),
        Data::Text(text) if text == "true" => Ok(true),
        Data::Text(text) if text == "false" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// A whole number between two; as a text too, which is what a variable gives.
pub(super) fn integer(min: u64, max: u64) -> impl FnOnce(&Node) -> Result<u64, String> {
    move |node| {
        let number = match &node.data {
            Data::Int(number) => u64::try_from(*number).ok(),
            Data::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
            if max >= i64::MAX as u64 {
                format!("must be a whole number of at least {min}")
            } else {
                format!("must be a whole number from {min} to {max}")
            }
        })
    }
}

/// A size in bytes between two.
pub(super) fn bytes(min: u64, max: u64) -> impl FnOnce(&Node) -> Result<u64, String> {
    move |node| match &node.data {
        Data::Text(text) => match size::bytes(text)? {
            bytes if (min..=max).contains(&bytes) => Ok(bytes),
            _ if max >= i64::MAX as u64 => Err(format!("must be at least {min}B")),
            _ => Err(format!("must be between {min}B and {max}B")),
        },
        Data::Int(number) => Err(format!("a size has a unit: \"{number}B\" or \"{number}KiB\"")),
        _ => Err(format!("must be a size such as \"64KiB\", not {}", node.kind())),
    }
}

/// A time in milliseconds, at least one.
pub(super) fn milliseconds(node: &Node) -> Result<u64, String> {
    match &node.data {
        Data::Text(text) => match size::milliseconds(text)? {
            0 => Err("must be longer than 0".into()),
            time_ms => Ok(time_ms),
        },
        Data::Int(number) => Err(format!("a time has a unit: \"{number}s\" or \"{number}ms\"")),
        _ => Err(format!("must be a time such as \"2s\", not {}", node.kind())),
    }
}
