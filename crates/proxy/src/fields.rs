//! Header fields that are passed on: in order, names in lower case, stored as the lines that will be sent.
//!
//! Promises that every field is valid in an HTTP/1.1 message: names are tokens, values have no control
//! characters. Lookups are rare and the fields are few, so lookups search linearly.

use std::fmt;
use std::ops::Range;

/// Header fields.
#[derive(Clone, Default)]
pub struct Fields {
    /// `name: value` and CR LF of each field, including removed ones.
    lines: Vec<u8>,
    fields: Vec<Field>,
}

/// Where a line begins, where its name ends, and where its value ends.
#[derive(Debug, Clone, Copy)]
struct Field {
    start: usize,
    name_end: usize,
    end: usize,
}

/// The separator between a name and its value.
const COLON: &[u8; 2] = b": ";
const LINE_END: &[u8; 2] = b"\r\n";

impl Field {
    fn of(self, lines: &[u8]) -> (&[u8], &[u8]) {
        (&lines[self.start..self.name_end], &lines[self.name_end + COLON.len()..self.end])
    }

    fn line(self) -> Range<usize> {
        self.start..self.end + LINE_END.len()
    }
}

/// A name or a value that is not allowed in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidField;

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header field has characters that it may not have")
    }
}

impl std::error::Error for InvalidField {}

impl Fields {
    /// No fields yet, with room for `count` fields in `bytes` bytes.
    pub fn with_capacity(count: usize, bytes: usize) -> Fields {
        Fields { lines: Vec::with_capacity(bytes), fields: Vec::with_capacity(count) }
    }

    /// Adds a field after the others.
    ///
    /// # Errors
    /// A name that is no token, a value with control characters.
    pub fn append(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidField> {
        // The fold visits every byte, so that it needs no branch per byte.
        let is_name = !name.is_empty() && name.bytes().fold(true, |fits, byte| fits & is_token(byte));
        let is_value = value.iter().fold(true, |fits, byte| fits & is_text(*byte));
        if !is_name || !is_value {
            return Err(InvalidField);
        }
        self.append_parsed(name, value);
        Ok(())
    }

    /// [`Fields::append`] for fields that httparse has parsed: it accepts only valid names and values.
    pub(crate) fn append_parsed(&mut self, name: &str, value: &[u8]) {
        let start = self.lines.len();
        let name_end = start + name.len();
        self.lines.reserve(name.len() + COLON.len() + value.len() + LINE_END.len());
        self.lines.extend_from_slice(name.as_bytes());
        self.lines[start..].make_ascii_lowercase();
        self.lines.extend_from_slice(COLON);
        self.lines.extend_from_slice(value);
        self.lines.extend_from_slice(LINE_END);
        let end = self.lines.len() - LINE_END.len();
        self.fields.push(Field { start, name_end, end });
    }

    /// Adds a field in place of all fields with this name.
    ///
    /// # Errors
    /// As [`Fields::append`].
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), InvalidField> {
        self.remove(name);
        self.append(name, value)
    }

    /// Removes all fields with this name, in any case.
    pub fn remove(&mut self, name: &str) {
        self.retain(|found, _| !found.eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Removes all fields with this lower-case name except the first; returns whether there is one.
    pub fn keep_first(&mut self, name: &str) -> bool {
        let count = self.all(name).count();
        if count > 1 {
            let mut is_first = true;
            self.retain(|found, _| found != name.as_bytes() || std::mem::take(&mut is_first));
        }
        count > 0
    }

    /// Removes all fields for which `keeps` returns false.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(&[u8], &[u8]) -> bool) {
        let Fields { lines, fields } = self;
        fields.retain(|field| {
            let (name, value) = field.of(lines);
            keeps(name, value)
        });
    }

    /// Lower-case names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        self.each().map(|(name, value)| (std::str::from_utf8(name).expect("a token is ASCII"), value))
    }

    /// [`Fields::iter`] with names as bytes.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
        self.fields.iter().map(|field| field.of(&self.lines))
    }

    /// Lower-case names and values, each with its complete line.
    pub(crate) fn each_line(&self) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
        self.fields.iter().map(|field| {
            let (name, value) = field.of(&self.lines);
            (name, value, &self.lines[field.line()])
        })
    }

    /// All fields as lines, each with its CR LF.
    pub fn into_lines(self) -> Vec<u8> {
        let Fields { mut lines, fields } = self;
        let mut end = 0;
        for field in fields {
            let line = field.line();
            let length = line.len();
            if line.start > end {
                lines.copy_within(line, end);
            }
            end += length;
        }
        lines.truncate(end);
        lines
    }

    /// The values of a lower-case name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> + Clone {
        // Compares lengths first: nearly all fields differ in length.
        let same_length = self.fields.iter().filter(move |field| field.name_end - field.start == name.len());
        let fields = same_length.map(move |field| field.of(&self.lines));
        fields.filter(move |(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
    }

    /// Whether there is a field with this lower-case name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.each().any(|(found, _)| found == name)
    }

    /// The first value of a lower-case name.
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

/// The bytes of a token (RFC 9110 section 5.6.2).
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

/// Whether a value may contain this byte (RFC 9110 section 5.5).
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
        assert_eq!(fields.clone().into_lines(), b"x-b: \r\nx-a: 2\r\n");
        fields.append("X-B", b"3").expect("a field");
        assert!(fields.keep_first("x-b") && !fields.keep_first("x-c"));
        assert_eq!(fields.into_lines(), b"x-b: \r\nx-a: 2\r\n");
        assert_eq!(Fields::default().into_lines(), b"");
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
