//! The strict reader of answers (RFC 9112): what is not a well-framed HTTP/1.1 answer is [`Malformed`].
//!
//! Answers are framed by Content-Length or have no body (1xx, 204, 304, answers to HEAD). Chunked bodies and bodies that end with
//! the connection are refused: no server that this driver was made for sends them.

use crate::limits::{BODY_BYTES_MAX, HEAD_BYTES_MAX};
use memchr::memchr2;

/// Why bytes are not an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Not `HTTP/1.1 ddd reason`.
    StatusLine,
    /// A field without a name, with a character that a name cannot have, or with a line folded into it.
    Field,
    /// A CR or LF on its own.
    LineEnd,
    /// Content-Length is not a number, stands twice, or beside Transfer-Encoding.
    Length,
    /// Neither Content-Length nor a status without a body.
    NoLength,
    /// Transfer-Encoding: not supported.
    TransferEncoding,
    /// Larger than the driver reads.
    TooLarge,
    /// Bytes that no request asked for.
    Unsolicited,
}

/// What the head of an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Three digits, 100 to 599.
    pub status: u16,
    /// Bytes of status line and fields, the empty line included.
    pub head_bytes: usize,
    /// Bytes of body that follow.
    pub body_bytes: usize,
    /// The server closes after this answer.
    pub close: bool,
}

/// A whole answer, in place.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// Status line and fields as they came, the empty line included.
    pub head: &'a [u8],
    /// The body; empty for answers without one.
    pub body: &'a [u8],
}

impl<'a> Response<'a> {
    /// The first field of that name, its value trimmed. Names are compared without case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Every field in order, values trimmed.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        self.head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
            let line = line.trim_ascii_end();
            let colon = memchr::memchr(b':', line)?;
            Some((&line[..colon], line[colon + 1..].trim_ascii()))
        })
    }
}

/// Reads the head at the start of `bytes`; `None` when it is not there yet. `to_head`: the request was HEAD.
pub fn parse_head(bytes: &[u8], to_head: bool) -> Result<Option<Head>, Malformed> {
    let Some(first) = line_end(bytes, 0)? else { return Ok(None) };
    let status = parse_status(&bytes[..first])?;
    let mut fields = Fields::default();
    let mut at = first + 2;
    loop {
        let Some(end) = line_end(bytes, at)? else { return Ok(None) };
        if end == at {
            break;
        }
        fields.take(&bytes[at..end])?;
        at = end + 2;
    }
    let no_body = to_head || status < 200 || status == 204 || status == 304;
    let body_bytes = match (no_body, fields.length) {
        (true, _) => 0,
        (false, Some(length)) => length,
        (false, None) => return Err(Malformed::NoLength),
    };
    Ok(Some(Head { status, head_bytes: at + 2, body_bytes, close: fields.close }))
}

/// Where the line that begins at `from` ends (its CR); `None` when its end has not come.
fn line_end(bytes: &[u8], from: usize) -> Result<Option<usize>, Malformed> {
    let Some(length) = memchr2(b'\r', b'\n', &bytes[from..]) else {
        return if bytes.len() > HEAD_BYTES_MAX { Err(Malformed::TooLarge) } else { Ok(None) };
    };
    let end = from + length;
    if end > HEAD_BYTES_MAX {
        return Err(Malformed::TooLarge);
    }
    match (bytes[end], bytes.get(end + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(end)),
        (b'\r', None) => Ok(None),
        _ => Err(Malformed::LineEnd),
    }
}

fn parse_status(line: &[u8]) -> Result<u16, Malformed> {
    let Some(rest) = line.strip_prefix(b"HTTP/1.1 ") else { return Err(Malformed::StatusLine) };
    let (&[a, b, c], behind) = rest.split_first_chunk::<3>().ok_or(Malformed::StatusLine)?;
    if !(b'1'..=b'5').contains(&a) || !b.is_ascii_digit() || !c.is_ascii_digit() {
        return Err(Malformed::StatusLine);
    }
    // The reason may be empty, the space before it may not be missing (RFC 9112, 4).
    if behind.first() != Some(&b' ') {
        return Err(Malformed::StatusLine);
    }
    Ok(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
}

#[derive(Default)]
struct Fields {
    length: Option<usize>,
    close: bool,
}

impl Fields {
    fn take(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let colon = memchr::memchr(b':', line).ok_or(Malformed::Field)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || value.contains(&0) {
            return Err(Malformed::Field);
        }
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let before = self.length.replace(parse_length(value)?);
                before.map_or(Ok(()), |_| Err(Malformed::Length))
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => Err(Malformed::TransferEncoding),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= value.eq_ignore_ascii_case(b"close");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn parse_length(value: &[u8]) -> Result<usize, Malformed> {
    if value.is_empty() || value.len() > 12 || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::Length);
    }
    let length = value.iter().fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    if length > BODY_BYTES_MAX { Err(Malformed::TooLarge) } else { Ok(length) }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(
        status: u16,
        head_bytes: usize,
        body_bytes: usize,
        close: bool,
    ) -> Result<Option<Head>, Malformed> {
        Ok(Some(Head { status, head_bytes, body_bytes, close }))
    }

    #[test]
    fn heads() {
        for (input, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", head(200, 38, 2, false)),
            ("HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\nConnection: Close\r\n\r\n", head(200, 56, 2, true)),
            ("HTTP/1.1 204 \r\n\r\n", head(204, 17, 0, false)),
            (
                "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
                head(304, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".len(), 0, false),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r", Ok(None)),
            ("HTTP/1.1 200 OK\r\nContent-Le", Ok(None)),
            ("", Ok(None)),
            ("HTTP/1.1 200 OK\r\n\r\n", Err(Malformed::NoLength)),
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("hi\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\n", Err(Malformed::LineEnd)),
            ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", Err(Malformed::LineEnd)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n", Err(Malformed::TooLarge)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Malformed::TransferEncoding)),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Err(Malformed::Field)),
            ("HTTP/1.1 200 OK\r\nA : b\r\n\r\n", Err(Malformed::Field)),
            ("HTTP/1.1 200 OK\r\n folded: b\r\n\r\n", Err(Malformed::Field)),
            ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", Err(Malformed::Field)),
        ] {
            assert_eq!(parse_head(input.as_bytes(), false), expected, "{input:?}");
        }
    }

    #[test]
    fn an_answer_to_head_has_no_body() {
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n";
        assert_eq!(parse_head(input, true), head(200, input.len(), 0, false));
    }

    #[test]
    fn a_head_without_end_is_refused_in_time() {
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX));
        assert_eq!(parse_head(endless.as_bytes(), false), Err(Malformed::TooLarge));
    }

    #[test]
    fn headers_by_name() {
        let head: &[u8] = b"HTTP/1.1 302 Found\r\nLocation:  https://a/b:c \r\nContent-Length: 0\r\n\r\n";
        let response = Response { status: 302, head, body: b"" };
        assert_eq!(response.header("location"), Some(&b"https://a/b:c"[..]));
        assert_eq!(response.header("etag"), None);
        assert_eq!(response.headers().count(), 2);
    }
}
