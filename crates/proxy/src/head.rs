//! Parses the head of an answer.
//!
//! Promises that an answer's body is delimited in exactly one way, or the answer is refused (RFC 9112
//! section 6.3), and that HTTP/1.0 answers end with their connection unless they say otherwise.

use crate::chunks::Chunks;
use crate::fields::Fields;
use crate::limits::HEAD_FIELDS_MAX;
use http::Method;
use std::mem::MaybeUninit;

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    is_http10: bool,
}

/// The undelivered rest of a body.
#[derive(Debug)]
pub(crate) enum RemainingBody {
    Nothing,
    Bytes(u64),
    Chunked(Chunks),
    UntilClosed,
}

impl AnswerHead {
    /// Parses the head at the start of `input`; returns it with its length. `None`: the head is incomplete.
    pub(crate) fn parse(input: &[u8]) -> Result<Option<(AnswerHead, usize)>, httparse::Error> {
        let mut slots = [const { MaybeUninit::uninit() }; HEAD_FIELDS_MAX];
        let mut response = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let parsed = parser.parse_response_with_uninit_headers(&mut response, input, &mut slots)?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let mut fields = Fields::with_capacity(response.headers.len(), length);
        for field in &*response.headers {
            fields.append_parsed(field.name, field.value);
        }
        let status = response.code.unwrap_or_default();
        Ok(Some((AnswerHead { status, fields, is_http10: response.version == Some(0) }, length)))
    }

    /// Whether the head is an interim response (1xx, except 101).
    pub(crate) fn is_interim(&self) -> bool {
        (100..=199).contains(&self.status) && self.status != 101
    }

    /// Whether the upstream accepts another request on this connection.
    pub(crate) fn keeps_connection(&self) -> bool {
        let says = |word: &[u8]| {
            let mut lists = self.fields.all("connection");
            lists.any(|list| {
                list.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(word))
            })
        };
        if self.is_http10 { says(b"keep-alive") && !says(b"close") } else { !says(b"close") }
    }

    /// How the body is delimited, and its announced length.
    pub(crate) fn framing(&self, method: &Method) -> Result<(RemainingBody, Option<u64>), &'static str> {
        let framed = framed(&self.fields)?;
        if framed == Framed::Chunked && self.is_http10 {
            return Err("has a Transfer-Encoding in HTTP/1.0");
        }
        let left = match framed {
            _ if *method == Method::HEAD || matches!(self.status, 204 | 304) => RemainingBody::Nothing,
            Framed::Length(0) => RemainingBody::Nothing,
            Framed::Length(length) => RemainingBody::Bytes(length),
            Framed::Chunked => RemainingBody::Chunked(Chunks::new()),
            Framed::Unsaid => RemainingBody::UntilClosed,
        };
        let length = if let Framed::Length(length) = framed { Some(length) } else { None };
        Ok((left, length))
    }
}

/// How the head of an answer delimits the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framed {
    Length(u64),
    Chunked,
    Unsaid,
}

/// How an answer is delimited; an error if the fields can be read in more than one way.
fn framed(fields: &Fields) -> Result<Framed, &'static str> {
    let mut codings = fields.all("transfer-encoding");
    let mut lengths = fields.all("content-length");
    match (codings.next(), lengths.next()) {
        (Some(_), Some(_)) => Err("has both Content-Length and Transfer-Encoding"),
        (Some(coding), None) => match coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() {
            true => Ok(Framed::Chunked),
            false => Err("has a Transfer-Encoding other than chunked"),
        },
        (None, Some(length)) => match (number(length), lengths.next()) {
            (Some(length), None) => Ok(Framed::Length(length)),
            (_, Some(_)) => Err("has Content-Length more than once"),
            (None, None) => Err("has a malformed Content-Length"),
        },
        (None, None) => Ok(Framed::Unsaid),
    }
}

/// Parses a number that consists of digits only.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |number: u64, digit: &u8| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_reading_of_a_length_is_accepted() {
        let check = |lines: &[(&str, &str)], expected: Option<Framed>| {
            let mut fields = Fields::default();
            for (name, value) in lines {
                fields.append(name, value.as_bytes()).expect("a field");
            }
            assert_eq!(framed(&fields).ok(), expected, "{lines:?}");
        };
        check(&[], Some(Framed::Unsaid));
        check(&[("content-length", "0")], Some(Framed::Length(0)));
        check(&[("content-length", "12")], Some(Framed::Length(12)));
        check(&[("transfer-encoding", "Chunked")], Some(Framed::Chunked));
        check(&[("content-length", "12"), ("transfer-encoding", "chunked")], None);
        check(&[("content-length", "12"), ("content-length", "12")], None);
        check(&[("content-length", "12, 12")], None);
        check(&[("content-length", "+12")], None);
        check(&[("content-length", "")], None);
        check(&[("content-length", "99999999999999999999")], None);
        check(&[("transfer-encoding", "gzip, chunked")], None);
        check(&[("transfer-encoding", "identity")], None);
        check(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], None);
    }

    /// Names and values that httparse accepts are allowed in a message; they are not checked again.
    #[test]
    fn no_byte_is_read_that_a_field_may_not_have() {
        for byte in 0..=255 {
            for (before, behind) in [(&b"a"[..], &b": b"[..]), (b"a: b", b"c")] {
                let line = [before, &[byte], behind].concat();
                let text = [&b"HTTP/1.1 200 OK\r\n"[..], &line, b"\r\n\r\n"].concat();
                let Ok(Some((head, _))) = AnswerHead::parse(&text) else { continue };
                for (name, value) in head.fields.iter() {
                    let mut fields = Fields::default();
                    assert_eq!(fields.append(name, value), Ok(()), "{byte:#x} in {line:?}");
                }
            }
        }
    }

    fn head(text: &str) -> AnswerHead {
        let (head, length) = AnswerHead::parse(text.as_bytes()).expect("a head").expect("whole");
        assert_eq!(length, text.len());
        head
    }

    #[test]
    fn a_connection_is_kept_as_its_version_and_fields_say() {
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\n\r\n", false),
            ("HTTP/1.0 200\r\nConnection: Keep-Alive\r\n\r\n", true),
            ("HTTP/1.0 200\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false),
        ] {
            assert_eq!(head(text).keeps_connection(), expected, "{text}");
        }
    }

    #[test]
    fn bodies_are_where_the_method_and_the_status_have_them() {
        let framing = |method: Method, text: &str| {
            head(text).framing(&method).map(|(left, length)| (format!("{left:?}"), length))
        };
        let with = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(framing(Method::GET, &with(3)), Ok(("Bytes(3)".into(), Some(3))));
        assert_eq!(framing(Method::GET, &with(0)), Ok(("Nothing".into(), Some(0))));
        assert_eq!(framing(Method::HEAD, &with(3)), Ok(("Nothing".into(), Some(3))));
        let unchanged = "HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n";
        assert_eq!(framing(Method::GET, unchanged), Ok(("Nothing".into(), Some(3))));
        assert_eq!(framing(Method::GET, "HTTP/1.1 204 No\r\n\r\n"), Ok(("Nothing".into(), None)));
        assert_eq!(framing(Method::GET, "HTTP/1.1 200 OK\r\n\r\n"), Ok(("UntilClosed".into(), None)));
        assert!(framing(Method::GET, "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
