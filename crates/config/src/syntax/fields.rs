//! Typed access to the tree. A [`Cursor`] is a value, [`Fields`] a table; both record mistakes, so that a
//! reader requests what it needs and continues after a mistake.

use super::expr::{self, Expr, Literal};
use super::keys::Section;
use super::mistakes::{At, Mistake, Mistakes};
use super::tree::{Data, KeyValue, Node};
use super::units;
use super::words::{did_you_mean, list};

/// A value as typed, and the list in which mistakes about it are recorded.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'t> {
    pub node: &'t Node,
    pub mistakes: &'t Mistakes<'t>,
}

impl<'t> Cursor<'t> {
    /// Records a mistake about this value.
    pub fn wrong(self, what: impl Into<Mistake>) {
        self.mistakes.add(self.node.at, what);
    }

    /// The line where the value begins; 0 when it is not in the file.
    pub fn line(self) -> usize {
        self.mistakes.line(self.node.at)
    }

    /// Whether a mistake about the value has already been recorded.
    pub fn is_broken(self) -> bool {
        self.node.data == Data::Broken
    }

    /// Converts the value by `read`; an error is recorded, preceded by the name of the value.
    pub fn read<T>(self, name: &str, read: impl FnOnce(&Node) -> Result<T, Mistake>) -> Option<T> {
        if self.is_broken() {
            return None;
        }
        read(self.node).map_err(|what| self.wrong(format!("{name}: {what}"))).ok()
    }

    /// The items of an array; any other value is a mistake, and `what` states what was expected.
    pub fn items(self, what: &str) -> Vec<Cursor<'t>> {
        match &self.node.data {
            Data::Array(items) => items.iter().map(|node| Cursor { node, mistakes: self.mistakes }).collect(),
            Data::Broken => Vec::new(),
            _ => {
                self.wrong(what);
                Vec::new()
            }
        }
    }

    /// The table of a section. A key that the section does not have is a mistake; so is any value but a
    /// table.
    pub fn section(self, section: &'static Section) -> Fields<'t> {
        let fields = self.table(section.name);
        let names = || section.keys.iter().map(|key| key.name);
        for field in fields.iter().filter(|field| !names().any(|name| name == field.key)) {
            field.unknown(section.name, names());
        }
        fields
    }

    /// A table whose keys are checked by the caller.
    pub fn table(self, name: &str) -> Fields<'t> {
        let entries = match &self.node.data {
            Data::Table(entries) => entries.as_slice(),
            Data::Broken => &[],
            _ => {
                self.wrong(format!("{name} must be a table, not {}", self.node.kind()));
                &[]
            }
        };
        Fields { entries, at: self.node.at, mistakes: self.mistakes }
    }
}

/// A key with its value.
#[derive(Clone, Copy)]
pub(crate) struct Field<'t> {
    pub key: &'t str,
    /// The place of the key.
    pub at: At,
    pub value: Cursor<'t>,
}

impl Field<'_> {
    /// Records a mistake about the key.
    pub fn wrong(self, what: impl Into<Mistake>) {
        self.value.mistakes.add(self.at, what);
    }

    /// Records that the key is not known.
    pub fn unknown<'k>(self, section: &str, permitted: impl Iterator<Item = &'k str> + Clone) {
        let (key, near) = (self.key, did_you_mean(self.key, permitted.clone()));
        self.wrong(format!("unknown key `{key}` in {section}{near} (permitted: {})", list(permitted)));
    }
}

/// A table.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'t> {
    entries: &'t [KeyValue],
    /// The place of the table.
    pub at: At,
    pub mistakes: &'t Mistakes<'t>,
}

impl<'t> Fields<'t> {
    pub fn iter(self) -> impl Iterator<Item = Field<'t>> + Clone {
        self.entries.iter().map(move |entry| Field {
            key: &entry.key,
            at: entry.at,
            value: Cursor { node: &entry.node, mistakes: self.mistakes },
        })
    }

    pub fn len(self) -> usize {
        self.entries.len()
    }

    pub fn field(self, key: &str) -> Option<Field<'t>> {
        self.iter().find(|field| field.key == key)
    }

    pub fn get(self, key: &str) -> Option<Cursor<'t>> {
        self.field(key).map(|field| field.value)
    }

    pub fn has(self, key: &str) -> bool {
        self.field(key).is_some()
    }

    /// A required key; `owner` is the section or action that requires it.
    pub fn required(self, owner: &str, key: &str) -> Option<Cursor<'t>> {
        let found = self.get(key);
        if found.is_none() {
            self.wrong(format!("{owner} needs `{key}`"));
        }
        found
    }

    /// Records a mistake about the table.
    pub fn wrong(self, what: impl Into<Mistake>) {
        self.mistakes.add(self.at, what);
    }

    /// Records a mistake about the value of a key, or about the table when the key is missing.
    pub fn wrong_at(self, key: &str, what: impl Into<Mistake>) {
        self.mistakes.add(self.place(key), what);
    }

    /// The place of a key's value; the place of the table when the key is missing.
    pub fn place(self, key: &str) -> At {
        self.get(key).map_or(self.at, |value| value.node.at)
    }

    /// Converts the value of a key by `read`; an error is recorded.
    pub fn read<T>(self, key: &str, read: impl FnOnce(&Node) -> Result<T, Mistake>) -> Option<T> {
        self.get(key)?.read(key, read)
    }

    /// Stores the value of a key in `place`, if the key exists and `read` accepts it.
    pub fn set<T>(self, key: &str, place: &mut T, read: impl FnOnce(&Node) -> Result<T, Mistake>) {
        if let Some(value) = self.read(key, read) {
            *place = value;
        }
    }
}

/// A text, which may be empty.
pub(crate) fn text(node: &Node) -> Result<String, Mistake> {
    match &node.data {
        Data::Text(text) => Ok(text.clone()),
        _ => Err(format!("must be a text, not {}", node.kind()).into()),
    }
}

/// A text that is not empty.
pub(crate) fn name(node: &Node) -> Result<String, Mistake> {
    text(node).and_then(|text| if text.is_empty() { Err("must not be empty".into()) } else { Ok(text) })
}

/// Returns an error when the text is not the name of a header field (RFC 9110 section 5.6.2: a token).
pub(crate) fn check_header_name(name: &str) -> Result<(), Mistake> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match !name.is_empty() && name.bytes().all(token) {
        true => Ok(()),
        false => Err(format!("`{name}` is not the name of a header field").into()),
    }
}

/// An array of names of header fields.
pub(crate) fn header_names(node: &Node) -> Result<Vec<String>, Mistake> {
    let Data::Array(items) = &node.data else {
        return Err(format!("must be an array of header names, not {}", node.kind()).into());
    };
    let name = |item: &Node| text(item).and_then(|name| check_header_name(&name).map(|()| name));
    items.iter().map(name).collect()
}

/// One text, several separated by commas, or an array of texts; `what` names their kind.
pub(crate) fn texts(node: &Node, what: &str) -> Result<Vec<String>, Mistake> {
    match &node.data {
        Data::Text(text) => Ok(text.split(',').map(|part| part.trim().to_owned()).collect()),
        Data::Array(items) => items.iter().map(text).collect(),
        _ => Err(format!("must be {what}, not {}", node.kind()).into()),
    }
}

/// A URL to which paths are appended: without a slash at its end.
pub(crate) fn base_url(node: &Node) -> Result<String, Mistake> {
    let url = text(node)?;
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let plain =
        |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if !rest.is_some_and(plain) || url.contains(['?', '#']) {
        return Err(
            format!("`{url}` must be http:// or https:// and a host, such as https://example.com").into()
        );
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Accepts one of several words.
pub(crate) fn choice<T: Copy>(choices: &[(&str, T)]) -> impl FnOnce(&Node) -> Result<T, Mistake> {
    move |node| {
        let found = match &node.data {
            Data::Text(text) => choices.iter().find(|(word, _)| word == text),
            _ => None,
        };
        found.map(|(_, value)| *value).ok_or_else(|| {
            let words = choices.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>();
            format!("must be {}", words.join(" or ")).into()
        })
    }
}

/// True or false; also as text, because a variable's value is text.
pub(crate) fn flag(node: &Node) -> Result<bool, Mistake> {
    match &node.data {
        Data::Bool(flag) => Ok(*flag),
        Data::Text(text) if text == "true" => Ok(true),
        Data::Text(text) if text == "false" => Ok(false),
        _ => Err("must be true or false".into()),
    }
}

/// A whole number in a range; also as text, because a variable's value is text.
pub(crate) fn integer(min: u64, max: u64) -> impl FnOnce(&Node) -> Result<u64, Mistake> {
    move |node| {
        let number = match &node.data {
            Data::Int(number) => u64::try_from(*number).ok(),
            Data::Text(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.filter(|number| (min..=max).contains(number)).ok_or_else(|| {
            if max >= i64::MAX as u64 {
                format!("must be a whole number of at least {min}").into()
            } else {
                format!("must be a whole number from {min} to {max}").into()
            }
        })
    }
}

/// A size in bytes, in a range.
pub(crate) fn bytes(min: u64, max: u64) -> impl FnOnce(&Node) -> Result<u64, Mistake> {
    move |node| match &node.data {
        Data::Text(text) => match units::bytes(text)? {
            bytes if (min..=max).contains(&bytes) => Ok(bytes),
            _ if max >= i64::MAX as u64 => Err(format!("must be at least {min}B").into()),
            _ => Err(format!("must be between {min}B and {max}B").into()),
        },
        Data::Int(number) => Err(format!("a size has a unit: \"{number}B\" or \"{number}KiB\"").into()),
        _ => Err(format!("must be a size such as \"64KiB\", not {}", node.kind()).into()),
    }
}

/// A time in milliseconds, at least 1.
pub(crate) fn milliseconds(node: &Node) -> Result<u64, Mistake> {
    match milliseconds_or_none(node)? {
        0 => Err("must be longer than 0".into()),
        time_ms => Ok(time_ms),
    }
}

/// A time in milliseconds, which may be 0.
pub(crate) fn milliseconds_or_none(node: &Node) -> Result<u64, Mistake> {
    match &node.data {
        Data::Text(text) => units::milliseconds(text),
        Data::Int(number) => Err(format!("a time has a unit: \"{number}s\" or \"{number}ms\"").into()),
        _ => Err(format!("must be a time such as \"2s\", not {}", node.kind()).into()),
    }
}

/// A value that may be an expression.
pub(crate) fn value(node: &Node) -> Result<Expr, Mistake> {
    match &node.data {
        Data::Text(text) => expr::parse(text),
        _ => literal(node).map(Expr::Literal),
    }
}

/// A value that is not an expression.
pub(crate) fn literal(node: &Node) -> Result<Literal, Mistake> {
    match &node.data {
        Data::Text(text) => Ok(Literal::Text(text.clone())),
        Data::Int(number) => Ok(Literal::Int(*number)),
        Data::Float(number) => Ok(Literal::Float(*number)),
        Data::Bool(flag) => Ok(Literal::Bool(*flag)),
        Data::Array(_) | Data::Table(_) | Data::Broken => {
            Err(format!("must be a text, a number, true or false, not {}", node.kind()).into())
        }
    }
}
