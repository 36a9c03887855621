//! Answers: the head, which is rendered once at start, and the writer that puts an answer into a
//! connection's output.
//!
//! Promises a well-formed message whatever a service does: the engine writes lengths, values cannot
//! split header lines, HEAD and 204/304 have no body. Leaves the order and the release of answers to
//! [`crate::output`].

use crate::chunked::is_token;
use crate::date::Stamp;
use crate::parse::Version;
use std::fmt;
use std::sync::Arc;

/// Status line and the fields that every such answer has in common. The engine writes Date, Content-Length
/// and Connection, so these must not be among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    status: u16,
    lines: Vec<u8>,
}

impl Head {
    /// An answer with this status (200..=599) and no fields yet.
    ///
    /// # Panics
    /// When the status is out of range: heads are made at start, from constants or a checked configuration.
    pub fn new(status: u16) -> Head {
        assert!((200..=599).contains(&status), "a final status is between 200 and 599, not {status}");
        Head { status, lines: format!("HTTP/1.1 {status} {}\r\n", reason(status)).into_bytes() }
    }

    /// Adds Content-Type.
    ///
    /// # Panics
    /// See [`Head::header`].
    pub fn content_type(self, value: &str) -> Head {
        self.header("Content-Type", value)
    }

    /// Adds a field.
    ///
    /// # Panics
    /// When the name or the value is not allowed in a field; use [`Head::try_header`] for values from a
    /// configuration.
    pub fn header(self, name: &str, value: &str) -> Head {
        self.try_header(name, value).expect("the caller vouches for the field")
    }

    /// Adds a field, or returns an error when the name or the value is not allowed.
    pub fn try_header(mut self, name: &str, value: &str) -> Result<Head, InvalidField> {
        HeaderLines::new(&mut self.lines).add(name, value)?;
        Ok(self)
    }

    /// Adds complete lines from [`HeaderLines`] or [`Head::fields`].
    ///
    /// # Errors
    /// When `lines` are not complete field lines.
    pub fn with_fields(mut self, lines: &[u8]) -> Result<Head, InvalidField> {
        let mut rest = lines;
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(InvalidField)?;
            let colon = rest[..end].iter().position(|byte| *byte == b':').ok_or(InvalidField)?;
            let name = std::str::from_utf8(&rest[..colon]).map_err(|_| InvalidField)?;
            HeaderLines::new(&mut self.lines).add(name, rest[colon + 1..end].trim_ascii())?;
            rest = &rest[end + 2..];
        }
        Ok(self)
    }

    /// The field lines, each with its line end, without the status line.
    pub fn fields(&self) -> &[u8] {
        let end = self.lines.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        &self.lines[end..]
    }

    /// The status code of the status line.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// 204 and 304 end with their head (RFC 9110 section 6.4.1).
    fn is_bodiless(&self) -> bool {
        matches!(self.status, 204 | 304)
    }
}

/// A field that would break the message or that only the engine may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidField;

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a header field whose name is no token or the engine's own, or whose value has control characters")
    }
}

impl std::error::Error for InvalidField {}

/// Writes checked header lines.
#[derive(Debug)]
pub struct HeaderLines<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> HeaderLines<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> HeaderLines<'a> {
        HeaderLines { out }
    }

    /// Adds `name: value`; adds nothing and fails when the name or the value is not allowed.
    pub fn add(&mut self, name: &str, value: impl AsRef<[u8]>) -> Result<&mut Self, InvalidField> {
        let value = value.as_ref();
        let own = ["Date", "Content-Length", "Transfer-Encoding", "Connection"];
        if own.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(InvalidField);
        }
        self.write(name, value)
    }

    /// Adds an Age in seconds (RFC 9111 section 5.1). An integer needs no check.
    pub fn add_age(&mut self, age_s: u64) -> &mut Self {
        self.out.extend_from_slice(b"Age: ");
        self.out.extend_from_slice(itoa::Buffer::new().format(age_s).as_bytes());
        self.out.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a Date, for answers of an upstream ([`crate::Streamed::dated`]).
    pub fn add_date(&mut self, value: impl AsRef<[u8]>) -> Result<&mut Self, InvalidField> {
        self.write("Date", value.as_ref())
    }

    fn write(&mut self, name: &str, value: &[u8]) -> Result<&mut Self, InvalidField> {
        // The fold visits every byte, so that it needs no branch per byte.
        let name_is_good = !name.is_empty() && name.bytes().fold(true, |fits, byte| fits & is_token(byte));
        let is_text = |byte: u8| (byte == b'\t') | (byte >= b' ') & (byte != 0x7f);
        let value_is_good = value.iter().fold(true, |fits, byte| fits & is_text(*byte));
        if !name_is_good || !value_is_good {
            return Err(InvalidField);
        }
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b": ");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        Ok(self)
    }
}

/// A deferred answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Status line and fields, built at start or by the fill of a cache.
    pub head: Arc<Head>,
    /// Complete header lines written by [`HeaderLines`].
    pub extra: Vec<u8>,
    /// Sent with a `Content-Length`; not sent in answer to HEAD.
    pub body: Vec<u8>,
    /// The mark that the gate must have passed before the answer leaves; 0 for none.
    pub mark: u64,
}

/// What happens to the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// HTTP/1.1 default: the answer has no Connection field.
    Keep,
    /// HTTP/1.0: the answer has `Connection: keep-alive`.
    KeepAnnounced,
    /// `Connection: close`.
    Close,
}

/// What the request determines about the form of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) persistence: Persistence,
    /// The request was HEAD: the length of the body is announced and the body is left out.
    pub(crate) head_only: bool,
    /// The client's version: HTTP/1.0 has no chunked coding.
    pub(crate) version: Version,
}

/// Writes the answer to one request directly into the connection's output.
#[derive(Debug)]
pub struct Answer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    stamp: &'a Stamp,
    form: Form,
    mark: u64,
    /// The status that was written.
    status: u16,
    /// Header lines for this answer, whatever status it gets.
    lines: Vec<u8>,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, stamp: &'a Stamp, form: Form) -> Answer<'a> {
        let start = out.len();
        Answer { out, start, stamp, form, mark: 0, status: 0, lines: Vec::new() }
    }

    /// The answer leaves only when the gate has passed `mark`. Of several marks the highest counts.
    pub fn hold_until(&mut self, mark: u64) {
        self.mark = self.mark.max(mark);
    }

    /// Closes the connection after this answer. Call it before responding, so that the answer contains
    /// `Connection: close`.
    pub fn close(&mut self) {
        self.form.persistence = Persistence::Close;
    }

    /// Adds header lines, written by [`HeaderLines`], to this answer, whatever status it gets. They are not
    /// added to a deferred answer: its future supplies all of its lines.
    pub fn add_lines(&mut self, lines: &[u8]) {
        self.lines.extend_from_slice(lines);
    }

    /// Writes the complete answer. A second call replaces the first.
    #[inline]
    pub fn respond(&mut self, head: &Head, body: &[u8]) {
        self.respond_extra(head, |_| {}, body);
    }

    /// Writes the complete answer with fields for this answer only (`Location`, `ETag`, `Retry-After`).
    #[inline]
    pub fn respond_extra(&mut self, head: &Head, extra: impl FnOnce(&mut HeaderLines<'_>), body: &[u8]) {
        self.out.truncate(self.start);
        self.out.reserve(head.lines.len() + self.stamp.with_length().len() + body.len() + 64);
        self.write_lines(head, extra);
        if head.is_bodiless() {
            return self.end_bodiless();
        }
        self.out.extend_from_slice(self.stamp.with_length());
        self.out.extend_from_slice(itoa::Buffer::new().format(body.len()).as_bytes());
        self.out.extend_from_slice(b"\r\n\r\n");
        if !self.form.head_only {
            self.out.extend_from_slice(body);
        }
    }

    /// Writes an answer whose body is rendered in place. `length_hint` is the probable length of the body:
    /// if its number of digits is right, no bytes are moved. `write` appends the body and must not change
    /// the bytes before it.
    pub fn respond_with(&mut self, head: &Head, length_hint: usize, write: impl FnOnce(&mut Vec<u8>)) {
        self.respond_with_extra(head, |_| {}, length_hint, write);
    }

    /// [`Answer::respond_with`] with fields for this answer only.
    pub fn respond_with_extra(
        &mut self,
        head: &Head,
        extra: impl FnOnce(&mut HeaderLines<'_>),
        length_hint: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        self.out.truncate(self.start);
        self.out.reserve(head.lines.len() + self.stamp.with_length().len() + length_hint + 64);
        self.write_lines(head, extra);
        if head.is_bodiless() {
            return self.end_bodiless();
        }
        self.out.extend_from_slice(self.stamp.with_length());
        let digits_at = self.out.len();
        self.out.extend_from_slice(itoa::Buffer::new().format(length_hint).as_bytes());
        let digits_end = self.out.len();
        self.out.extend_from_slice(b"\r\n\r\n");
        let body_at = self.out.len();
        write(self.out);
        assert!(self.out.len() >= body_at, "a body writer may only append");
        let length = self.out.len() - body_at;
        if self.form.head_only {
            self.out.truncate(body_at);
        }
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(length).as_bytes();
        if digits.len() == digits_end - digits_at {
            self.out[digits_at..digits_end].copy_from_slice(digits);
        } else {
            self.out.splice(digits_at..digits_end, digits.iter().copied());
        }
    }

    /// Writes the complete answer from a finished reply.
    pub fn respond_reply(&mut self, reply: &Reply) {
        self.hold_until(reply.mark);
        self.respond_extra(&reply.head, |lines| lines.out.extend_from_slice(&reply.extra), &reply.body);
    }

    fn write_lines(&mut self, head: &Head, extra: impl FnOnce(&mut HeaderLines<'_>)) {
        self.status = head.status;
        self.out.extend_from_slice(&head.lines);
        if !self.lines.is_empty() {
            self.out.extend_from_slice(&self.lines);
        }
        extra(&mut HeaderLines::new(self.out));
        match self.form.persistence {
            Persistence::Keep => {}
            Persistence::KeepAnnounced => self.out.extend_from_slice(b"Connection: keep-alive\r\n"),
            Persistence::Close => self.out.extend_from_slice(b"Connection: close\r\n"),
        }
    }

    fn end_bodiless(&mut self) {
        self.out.extend_from_slice(self.stamp.date_only());
        self.out.extend_from_slice(b"\r\n");
    }

    /// The status of the answer that was written; `None` before that.
    pub fn status(&self) -> Option<u16> {
        self.is_answered().then_some(self.status)
    }

    /// The length of the body that was written, in bytes; 0 before that, and 0 for HEAD.
    pub fn body_bytes(&self) -> usize {
        let written = &self.out[self.start..];
        let end = written.windows(4).position(|window| window == b"\r\n\r\n");
        end.map_or(0, |end| written.len() - end - 4)
    }

    /// Discards the answer that was written.
    pub(crate) fn clear(&mut self) {
        self.out.truncate(self.start);
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.out.len() > self.start
    }

    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }
}

/// The default body of an engine-made error: RFC 9457 problem details. `detail` must need no JSON escapes.
pub(crate) fn problem_details(status: u16, detail: &str, out: &mut Vec<u8>) {
    let title = reason(status);
    out.extend_from_slice(
        format!(r#"{{"type":"about:blank","title":"{title}","status":{status},"detail":"{detail}"}}"#)
            .as_bytes(),
    );
}

/// The registered reason phrase (RFC 9110 section 15 and the IANA registry); empty for others.
pub fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(form: Form, write: impl FnOnce(&mut Answer<'_>)) -> String {
        let (mut out, stamp) = (b"before|".to_vec(), Stamp::now());
        write(&mut Answer::new(&mut out, &stamp, form));
        let text = String::from_utf8(out).expect("ASCII");
        let date = std::str::from_utf8(stamp.date_only()).expect("ASCII");
        text.replace(date, "DATE\r\n")
    }

    const KEEP: Form = Form { persistence: Persistence::Keep, head_only: false, version: Version::Http11 };
    const HEAD: Form = Form { persistence: Persistence::Keep, head_only: true, version: Version::Http11 };

    #[test]
    fn forms_of_an_answer() {
        let head = Head::new(200).content_type("text/plain");
        let lines = "before|HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
        let check = |form, expected: &str| {
            assert_eq!(render(form, |answer| answer.respond(&head, b"hello")), format!("{lines}{expected}"));
            for hint in [0, 5, 1000] {
                let found =
                    render(form, |answer| answer.respond_with(&head, hint, |out| out.extend(b"hello")));
                assert_eq!(found, format!("{lines}{expected}"), "hint {hint}");
            }
        };
        check(KEEP, "DATE\r\nContent-Length: 5\r\n\r\nhello");
        check(HEAD, "DATE\r\nContent-Length: 5\r\n\r\n");
        let close = Form { persistence: Persistence::Close, head_only: false, version: Version::Http11 };
        check(close, "Connection: close\r\nDATE\r\nContent-Length: 5\r\n\r\nhello");
        let aloud =
            Form { persistence: Persistence::KeepAnnounced, head_only: false, version: Version::Http11 };
        check(aloud, "Connection: keep-alive\r\nDATE\r\nContent-Length: 5\r\n\r\nhello");
    }

    #[test]
    fn no_body_with_204_and_304_and_the_last_answer_counts() {
        for status in [204, 304] {
            let found = render(KEEP, |answer| {
                answer.respond(&Head::new(200), b"first thoughts");
                answer.respond(&Head::new(status), b"ignored");
            });
            assert_eq!(found, format!("before|HTTP/1.1 {status} {}\r\nDATE\r\n\r\n", reason(status)));
        }
    }

    #[test]
    fn fields_are_taken_over_and_checked() {
        let head = Head::new(200).header("A", "1").header("B", "");
        assert_eq!(head.fields(), b"A: 1\r\nB: \r\n");
        assert_eq!(
            Head::new(404).with_fields(head.fields()).map(|copy| copy.fields().to_vec()),
            Ok(b"A: 1\r\nB: \r\n".to_vec())
        );
        for broken in ["A: 1", "A 1\r\n", ": 1\r\n", "Content-Length: 1\r\n", "A: \x01\r\n", "\r\nA: 1\r\n"] {
            assert!(Head::new(200).with_fields(broken.as_bytes()).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn fields_cannot_split_a_message() {
        let mut out = Vec::new();
        let mut lines = HeaderLines::new(&mut out);
        for (name, value) in [
            ("Location", "/a\r\nSet-Cookie: b"),
            ("Location", "/a\nb"),
            ("Location", "\0"),
            ("Bad Name", "x"),
            ("Bad:", "x"),
            ("", "x"),
            ("content-length", "1"),
            ("Transfer-Encoding", "chunked"),
        ] {
            assert_eq!(lines.add(name, value).err(), Some(InvalidField), "{name}: {value:?}");
        }
        lines.add("ETag", "\"a\"").expect("valid").add("X", "é\t").expect("valid");
        assert_eq!(out, "ETag: \"a\"\r\nX: é\t\r\n".as_bytes());
    }
}
