//! Header fields on their way through: in order, names in lower case, in one buffer.
//!
//! Promises that every field may stand in a message of HTTP/1.1: names are tokens, values have no control
//! characters. Few fields are looked for, and there are few: they are searched one by one.

use std::fmt;
use std::ops::Range;

/// Where a line is in the buffer, its name and its value.
#[derive(Debug, Clone)]
struct Line {
    start: usize,
    name_end: usize,
    value: Range<usize>,
}

/// Header fields.
#[derive(Clone, Default)]
pub struct Fields {
    /// Lines as they are sent, those that were taken out among them.
    bytes: Vec<u8>,
    lines: Vec<Line>,
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
        Fields { bytes: Vec::with_capacity(bytes), lines: Vec::with_capacity(count) }
    }

    /// Adds a field behind the others.
    ///
    /// # Errors
    /// A name that is no token, a value with control characters.
    pub fn append(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidField> {
        let is_name = !name.is_empty() && name.bytes().all(is_token);
        let is_value = value.iter().all(|byte| *byte >= b' ' && *byte != 0x7f || *byte == b'\t');
        if !is_name || !is_value {
            return Err(InvalidField);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name.as_bytes());
        let name_end = self.bytes.len();
        self.bytes[start..].make_ascii_lowercase();
        self.bytes.extend_from_slice(b": ");
        let value_start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        let value = value_start..self.bytes.len();
        self.bytes.extend_from_slice(b"\r\n");
        self.lines.push(Line { start, name_end, value });
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
        let Fields { bytes, lines } = self;
        lines.retain(|line| keeps(name(bytes, line), &bytes[line.value.clone()]));
    }

    /// How many bytes they are as lines, at most.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Names in lower case and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.lines.iter().map(|line| (name(&self.bytes, line), &self.bytes[line.value.clone()]))
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

fn name<'a>(bytes: &'a [u8], line: &Line) -> &'a str {
    // Tokens are ASCII.
    std::str::from_utf8(&bytes[line.start..line.name_end]).unwrap_or_default()
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
