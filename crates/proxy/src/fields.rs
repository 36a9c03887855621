//! Header fields on their way through: in order, names in lower case, in two buffers.
//!
//! Promises that every field may stand in a message of HTTP/1.1: names are tokens, values have no control
//! characters. Few fields are looked for, and there are few: they are searched one by one.

use std::fmt;
use std::ops::Range;

/// Header fields.
#[derive(Clone, Default)]
pub struct Fields {
    /// Names and values, those that were taken out among them.
    names: String,
    values: Vec<u8>,
    fields: Vec<Field>,
}

/// Where a name and a value are.
#[derive(Debug, Clone)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

impl Field {
    fn of<'a>(&self, names: &'a str, values: &'a [u8]) -> (&'a str, &'a [u8]) {
        (&names[self.name.clone()], &values[self.value.clone()])
    }
}

/// A name or a value that no message may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidField;

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header field has characters that it may not have")
    }
}

impl std::error::Error for InvalidField {}

impl Fields {
    /// None yet, with room for so many in so many bytes.
    pub fn with_capacity(count: usize, bytes: usize) -> Fields {
        Fields {
            names: String::with_capacity(bytes / 2),
            values: Vec::with_capacity(bytes),
            fields: Vec::with_capacity(count),
        }
    }

    /// Adds a field behind the others.
    ///
    /// # Errors
    /// A name that is no token, a value with control characters.
    pub fn append(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidField> {
        // Every byte is looked at: that takes no branch for each of them.
        let is_name = !name.is_empty() && name.bytes().fold(true, |fits, byte| fits & is_token(byte));
        let is_value = value.iter().fold(true, |fits, byte| fits & is_text(*byte));
        if !is_name || !is_value {
            return Err(InvalidField);
        }
        let (name_start, value_start) = (self.names.len(), self.values.len());
        self.names.push_str(name);
        self.names[name_start..].make_ascii_lowercase();
        self.values.extend_from_slice(value);
        let (name, value) = (name_start..self.names.len(), value_start..self.values.len());
        self.fields.push(Field { name, value });
        Ok(())
    }

    /// Adds a field in place of all of that name.
    ///
    /// # Errors
    /// As [`Fields::append`].
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidField> {
        self.remove(name);
        self.append(name, value)
    }

    /// Takes out all fields of that name, whatever its case.
    pub fn remove(&mut self, name: &str) {
        self.retain(|found, _| !found.eq_ignore_ascii_case(name));
    }

    /// Takes out all fields but those of which the answer is yes.
    pub fn retain(&mut self, mut keeps: impl FnMut(&str, &[u8]) -> bool) {
        let Fields { names, values, fields } = self;
        fields.retain(|field| {
            let (name, value) = field.of(names, values);
            keeps(name, value)
        });
    }

    /// How many bytes they are as lines, at most.
    pub fn bytes(&self) -> usize {
        self.names.len() + self.values.len() + ": \r\n".len() * self.fields.len()
    }

    /// Names in lower case and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.fields.iter().map(|field| field.of(&self.names, &self.values))
    }

    /// The values of a name in lower case.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> + Clone {
        self.iter().filter(move |(found, _)| *found == name).map(|(_, value)| value)
    }

    /// The first value of a name in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }
}

impl fmt::Debug for Fields {
    /// Values may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

/// Which bytes are those of a token (RFC 9110 section 5.6.2).
const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let allowed = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut at = 0;
    while at < allowed.len() {
        table[allowed[at] as usize] = true;
        at += 1;
    }
    table
};

fn is_token(byte: u8) -> bool {
    TOKEN[byte as usize]
}

/// Whether a value may have this byte (RFC 9110 section 5.5).
fn is_text(byte: u8) -> bool {
    (byte >= b' ') & (byte != 0x7f) | (byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_replaced_and_taken_out() {
        let mut fields = Fields::default();
        for (name, value) in [("X-A", "1"), ("Set-Cookie", "a=\u{e9}"), ("set-cookie", "b"), ("X-B", "")] {
            fields.append(name, value.as_bytes()).expect("a field");
        }
        assert_eq!(fields.all("set-cookie").collect::<Vec<_>>(), ["a=\u{e9}".as_bytes(), b"b"]);
        assert_eq!((fields.get("x-b"), fields.get("x-c")), (Some(&b""[..]), None));
        fields.remove("Set-Cookie");
        fields.set("X-a", b"2").expect("a field");
        let all: Vec<_> = fields.iter().collect();
        assert_eq!(all, [("x-b", &b""[..]), ("x-a", b"2")]);
        assert_eq!(format!("{fields:?}"), "[\"x-b\", \"x-a\"]");
    }

    #[test]
    fn what_would_break_a_message_is_no_field() {
        let mut fields = Fields::default();
        for (name, value) in
            [("", "a"), ("a b", "c"), ("a:", "b"), ("é", "b"), ("a", "b\r\nc: d"), ("a", "\0"), ("a", "\x7f")]
        {
            assert_eq!(fields.append(name, value.as_bytes()), Err(InvalidField), "{name:?}: {value:?}");
        }
        assert_eq!(fields.iter().count(), 0);
    }
}
