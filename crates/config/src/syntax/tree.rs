//! The typed file: a tree of values that each have a place, in the file or in a setting outside it.
//!
//! `${VAR}` is resolved after parsing, so that the content of a variable cannot change the structure of the
//! file around it. The meaning of the values is left to the sections.

use super::mistakes::{At, Mistake, Mistakes};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and its place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub at: At,
    pub data: Data,
}

/// A value as typed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Data {
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Node>),
    Table(Vec<KeyValue>),
    /// Unusable; the mistake has already been recorded.
    Broken,
}

/// A key and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyValue {
    pub key: String,
    pub at: At,
    pub node: Node,
}

impl Node {
    pub fn text(at: At, text: impl Into<String>) -> Node {
        Node { at, data: Data::Text(text.into()) }
    }

    /// The value of a key; `None` when this is no table or has no such key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.data {
            Data::Table(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.node),
            _ => None,
        }
    }

    /// The text; empty when this is no text.
    pub fn as_text(&self) -> &str {
        if let Data::Text(text) = &self.data { text } else { "" }
    }

    /// What kind of value this is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.data {
            Data::Text(_) => "a text",
            Data::Int(_) => "a whole number",
            Data::Float(_) => "a number",
            Data::Bool(_) => "true or false",
            Data::Array(_) => "an array",
            Data::Table(_) => "a table",
            Data::Broken => "nothing",
        }
    }
}

/// Looks up environment variables.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the complete file into a tree. `None` when it is not TOML: after a syntax error the rest has
/// another meaning than intended, and more messages would mislead.
pub(crate) fn read(mistakes: &Mistakes<'_>, env: Environment<'_>) -> Option<Node> {
    let (table, errors) = DeTable::parse_recoverable(mistakes.source());
    for error in &errors {
        let at = mistakes.file_at(error.span().map_or(0, |span| span.start));
        mistakes.add(at, format!("this is not TOML: {}", error.message().trim().replace('\n', "; ")));
    }
    let reader = Reader { mistakes, env, place: &|offset| mistakes.file_at(offset) };
    errors.is_empty().then(|| Node { at: At::File(0), data: reader.table(table.get_ref()) })
}

/// Reads one value outside the file. A value that is not TOML is a text: `--set memory.limit=4GiB`.
pub(crate) fn read_value(text: &str, at: At, mistakes: &Mistakes<'_>, env: Environment<'_>) -> Node {
    let reader = Reader { mistakes, env, place: &|_| at };
    match DeValue::parse(text.trim()) {
        Ok(value) => reader.node(&value),
        Err(_) => reader.text(at, text),
    }
}

/// Splits `a.b."c d"` as TOML does. `None` when it is no valid key.
pub(crate) fn read_path(text: &str) -> Option<Vec<String>> {
    let text = format!("{text} = 0");
    let table = DeTable::parse(&text).ok()?;
    let mut path = Vec::new();
    let mut table = table.get_ref();
    loop {
        let mut entries = table.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else { return None };
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            DeValue::Integer(_) => return Some(path),
            _ => return None,
        }
    }
}

struct Reader<'a> {
    mistakes: &'a Mistakes<'a>,
    env: Environment<'a>,
    /// Converts an offset in the parsed text to a place.
    place: &'a dyn Fn(usize) -> At,
}

impl Reader<'_> {
    fn table(&self, table: &DeTable<'_>) -> Data {
        let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
            let key: &Spanned<std::borrow::Cow<'_, str>> = key;
            let at = (self.place)(key.span().start);
            let mut node = self.node(value);
            if let (Data::Table(_), At::File(0)) = (&node.data, node.at) {
                // A table that is only implied by its children has no place.
                node.at = at;
            }
            KeyValue { key: key.get_ref().to_string(), at, node }
        };
        Data::Table(table.iter().map(entry).collect())
    }

    fn node(&self, value: &Spanned<DeValue<'_>>) -> Node {
        let at = (self.place)(value.span().start);
        let data = match value.get_ref() {
            DeValue::String(text) => return self.text(at, text),
            DeValue::Integer(integer) => {
                let digits = integer.as_str().replace('_', "");
                match i64::from_str_radix(&digits, integer.radix()) {
                    Ok(number) => Data::Int(number),
                    Err(_) => self.broken(at, format!("{integer} does not fit into 64 bits")),
                }
            }
            DeValue::Float(float) => match float.as_str().replace('_', "").parse::<f64>() {
                Ok(number) if number.is_finite() => Data::Float(number),
                _ => self.broken(at, format!("{float} is not a number that can be used here")),
            },
            DeValue::Boolean(flag) => Data::Bool(*flag),
            DeValue::Datetime(time) => self.broken(at, format!("write a time as a text: \"{time}\"")),
            DeValue::Array(items) => Data::Array(items.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => self.table(table),
        };
        Node { at, data }
    }

    fn text(&self, at: At, text: &str) -> Node {
        match expand(text, self.env) {
            Ok(text) => Node::text(at, text),
            Err(what) => Node { at, data: self.broken(at, what) },
        }
    }

    fn broken(&self, at: At, what: impl Into<Mistake>) -> Data {
        self.mistakes.add(at, what);
        Data::Broken
    }
}

/// Substitutes environment variables: `${NAME}`, `${NAME:-default}`. `$${` is a literal `${`.
pub(crate) fn expand(text: &str, env: Environment<'_>) -> Result<String, Mistake> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        if rest[..start].ends_with('$') {
            out.push_str(&rest[..start - 1]);
            out.push_str("${");
            rest = &rest[start + 2..];
            continue;
        }
        out.push_str(&rest[..start]);
        let Some(length) = rest[start..].find('}') else {
            return Err("`${` without `}`; write ${NAME}, or $${ for the characters themselves".into());
        };
        let inside = &rest[start + 2..start + length];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_variable(name) {
            return Err(Mistake::from(format!(
                "`${{{inside}}}` names no environment variable; write ${{NAME}} or ${{NAME:-default}}"
            )));
        }
        match (env(name).filter(|value| default.is_none() || !value.is_empty()), default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => {
                return Err(Mistake::from(format!(
                    "the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
                )));
            }
        }
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
