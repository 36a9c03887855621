//! The strict reader of answers (RFC 9112): what is not a well-framed HTTP/1.1 (or 1.0) answer is
//! [`Malformed`].
//!
//! It reads whole heads and skips bodies piece by piece ([`Body`]), so that an answer of any size
//! needs no memory. The caller says whether the request was HEAD (`to_head`), whose answer has no
//! body.

use crate::limits::{CHUNK_LINE_BYTES_MAX, HEAD_BYTES_MAX, LENGTH_DIGITS_MAX};
use memchr::memchr2;

/// Why bytes are not an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Not `HTTP/1.1 ddd reason`; for Redis: not the beginning of a reply.
    StatusLine,
    /// A field without a name, with a character that a name cannot have, or with a line folded into it.
    Field,
    /// A CR or LF on its own.
    LineEnd,
    /// Content-Length is not a number, occurs twice, or occurs together with Transfer-Encoding.
    Length,
    /// A Transfer-Encoding other than `chunked`.
    TransferEncoding,
    /// The size of a chunk is not a number, or the chunk does not end at that size.
    Chunk,
    /// Larger than the driver reads.
    TooLarge,
    /// Bytes that no request asked for.
    Unsolicited,
}

/// Where the body of an answer ends (RFC 9112, 6.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    /// After this many bytes; 0 for answers without a body.
    Length(u64),
    /// After the last chunk and its trailer.
    Chunked,
    /// When the server closes the connection.
    UntilClose,
}

/// What the head of an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHead {
    /// Three digits, 100 to 599.
    pub status: u16,
    /// Bytes of status line and fields, the empty line included.
    pub head_bytes: usize,
    /// Where the body ends.
    pub framing: Framing,
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

impl ResponseHead {
    /// Bytes of body that follow, when the head states the length.
    pub fn body_bytes(&self) -> Option<usize> {
        match self.framing {
            Framing::Length(bytes) => usize::try_from(bytes).ok(),
            Framing::Chunked | Framing::UntilClose => None,
        }
    }
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

/// Reads the head of an answer, as [`parse_head`] does.
pub type HeadParser = fn(&[u8], bool) -> Result<Option<ResponseHead>, Malformed>;

/// Reads the head at the start of `bytes`; `None` when it is incomplete. `to_head`: the request was HEAD.
pub fn parse_head(bytes: &[u8], to_head: bool) -> Result<Option<ResponseHead>, Malformed> {
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
    let code = status.code;
    let no_body = to_head || code < 200 || code == 204 || code == 304;
    let framing = match (no_body, fields.chunked, fields.length) {
        (_, true, Some(_)) => return Err(Malformed::Length),
        (true, _, _) => Framing::Length(0),
        (false, true, None) => Framing::Chunked,
        (false, false, Some(length)) => Framing::Length(length),
        (false, false, None) => Framing::UntilClose,
    };
    let close = fields.close || framing == Framing::UntilClose || (status.old && !fields.keep_alive);
    Ok(Some(ResponseHead { status: code, head_bytes: at + 2, framing, close }))
}

/// The index of the CR that ends the line at `from`; `None` when the line is incomplete.
pub(crate) fn line_end(bytes: &[u8], from: usize) -> Result<Option<usize>, Malformed> {
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

struct Status {
    code: u16,
    /// HTTP/1.0: the connection ends with the answer unless it says otherwise.
    old: bool,
}

fn parse_status(line: &[u8]) -> Result<Status, Malformed> {
    let (version, rest) = line.split_at_checked(9).ok_or(Malformed::StatusLine)?;
    let old = match version {
        b"HTTP/1.1 " => false,
        b"HTTP/1.0 " => true,
        _ => return Err(Malformed::StatusLine),
    };
    let (&[a, b, c], behind) = rest.split_first_chunk::<3>().ok_or(Malformed::StatusLine)?;
    if !(b'1'..=b'5').contains(&a) || !b.is_ascii_digit() || !c.is_ascii_digit() {
        return Err(Malformed::StatusLine);
    }
    // The reason may be empty, but the space before it is required (RFC 9112, 4).
    if behind.first() != Some(&b' ') {
        return Err(Malformed::StatusLine);
    }
    let code = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    Ok(Status { code, old })
}

#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
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
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Malformed::TransferEncoding);
                }
                self.chunked = true;
                Ok(())
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for option in value.split(|byte| *byte == b',') {
                    self.close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                    self.keep_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn parse_length(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || value.len() > LENGTH_DIGITS_MAX || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::Length);
    }
    Ok(value.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The reader's position in a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// This many bytes are still to come.
    Length(u64),
    /// A line with the size of a chunk.
    ChunkSize,
    /// This many bytes of a chunk, then its line end.
    Chunk(u64),
    /// The line end behind a chunk.
    ChunkEnd,
    /// Fields behind the last chunk, up to an empty line.
    Trailer,
    /// All bytes until the connection closes.
    UntilClose,
}

/// One step through a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyStep {
    /// The next bytes are content, of this number.
    Content(usize),
    /// The next bytes were framing, of this number.
    Framing(usize),
    /// More bytes are needed.
    More,
    /// The body is over; nothing was taken.
    Done,
}

impl Body {
    /// At its beginning.
    pub fn new(framing: Framing) -> Body {
        match framing {
            Framing::Length(bytes) => Body::Length(bytes),
            Framing::Chunked => Body::ChunkSize,
            Framing::UntilClose => Body::UntilClose,
        }
    }

    /// Takes one step. The caller skips the number of bytes that is returned.
    pub fn step(&mut self, bytes: &[u8]) -> Result<BodyStep, Malformed> {
        match self {
            Body::Length(0) => Ok(BodyStep::Done),
            _ if bytes.is_empty() => Ok(BodyStep::More),
            Body::UntilClose => Ok(BodyStep::Content(bytes.len())),
            Body::Length(left) => {
                let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                Ok(BodyStep::Content(count))
            }
            Body::Chunk(left) => {
                let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count as u64;
                if *left == 0 {
                    *self = Body::ChunkEnd;
                }
                Ok(BodyStep::Content(count))
            }
            Body::ChunkEnd => match bytes {
                [b'\r', b'\n', ..] => {
                    *self = Body::ChunkSize;
                    Ok(BodyStep::Framing(2))
                }
                [b'\r'] => Ok(BodyStep::More),
                _ => Err(Malformed::Chunk),
            },
            Body::ChunkSize => self.chunk_size(bytes),
            Body::Trailer => self.trailer(bytes),
        }
    }

    fn chunk_size(&mut self, bytes: &[u8]) -> Result<BodyStep, Malformed> {
        let Some(end) = short_line_end(bytes)? else { return Ok(BodyStep::More) };
        // Extensions behind a semicolon are ignored (RFC 9112, 7.1.1).
        let line = &bytes[..end];
        let digits = line.split(|byte| *byte == b';').next().unwrap_or(line).trim_ascii_end();
        if digits.is_empty() || digits.len() > 15 {
            return Err(Malformed::Chunk);
        }
        let mut size = 0;
        for digit in digits {
            let value = char::from(*digit).to_digit(16).ok_or(Malformed::Chunk)?;
            size = size * 16 + u64::from(value);
        }
        *self = if size == 0 { Body::Trailer } else { Body::Chunk(size) };
        Ok(BodyStep::Framing(end + 2))
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<BodyStep, Malformed> {
        let Some(end) = short_line_end(bytes)? else { return Ok(BodyStep::More) };
        if end == 0 {
            *self = Body::Length(0);
        } else {
            Fields::default().take(&bytes[..end])?;
        }
        Ok(BodyStep::Framing(end + 2))
    }
}

/// As [`line_end`], for lines of a body.
fn short_line_end(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let end = line_end(bytes, 0)?;
    if end.unwrap_or(bytes.len()) > CHUNK_LINE_BYTES_MAX { Err(Malformed::TooLarge) } else { Ok(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(
        status: u16,
        head_bytes: usize,
        body: u64,
        close: bool,
    ) -> Result<Option<ResponseHead>, Malformed> {
        Ok(Some(ResponseHead { status, head_bytes, framing: Framing::Length(body), close }))
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
            ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n", head(200, 38, 2, true)),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive\r\n\r\n",
                head(200, 62, 2, false),
            ),
            ("HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n", Err(Malformed::StatusLine)),
            ("hi\r\n\r\n", Err(Malformed::StatusLine)),
            ("HTTP/1.1 200 OK\nContent-Length: 2\r\n\r\n", Err(Malformed::LineEnd)),
            ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", Err(Malformed::LineEnd)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999\r\n\r\n", Err(Malformed::Length)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Err(Malformed::TransferEncoding)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
                Err(Malformed::Length),
            ),
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

    /// The content of a body that comes in pieces of `size`, and how many bytes it took.
    fn read(framing: Framing, bytes: &[u8], size: usize) -> Result<(Vec<u8>, usize, bool), Malformed> {
        let (mut body, mut content, mut taken) = (Body::new(framing), Vec::new(), 0);
        let mut there = size.min(bytes.len());
        loop {
            match body.step(&bytes[taken..there])? {
                BodyStep::Content(count) => {
                    content.extend_from_slice(&bytes[taken..taken + count]);
                    taken += count;
                }
                BodyStep::Framing(count) => taken += count,
                BodyStep::More if there < bytes.len() => there = (there + size).min(bytes.len()),
                BodyStep::More => return Ok((content, taken, false)),
                BodyStep::Done => return Ok((content, taken, true)),
            }
        }
    }

    #[test]
    fn bodies_in_pieces() {
        let chunked = Framing::Chunked;
        for size in [1, 2, 3, 7, 100] {
            for (framing, input, content, taken, done) in [
                (Framing::Length(2), "hiHTTP", "hi", 2, true),
                (Framing::Length(0), "HTTP", "", 0, true),
                (Framing::Length(5), "hi", "hi", 2, false),
                (chunked, "2\r\nhi\r\nA;x=y\r\n0123456789\r\n0\r\n\r\nHTTP", "hi0123456789", 31, true),
                (chunked, "2\r\nhi\r\n0\r\nA: b\r\n\r\n", "hi", 18, true),
                (chunked, "2\r\nhi\r\n0\r\n", "hi", 10, false),
                (Framing::UntilClose, "what ever", "what ever", 9, false),
            ] {
                let found = read(framing, input.as_bytes(), size);
                assert_eq!(found, Ok((content.as_bytes().to_vec(), taken, done)), "{input:?} by {size}");
            }
            for (input, why) in [
                ("x\r\nhi\r\n", Malformed::Chunk),
                ("\r\nhi\r\n", Malformed::Chunk),
                ("1\r\nhi\r\n", Malformed::Chunk),
                ("1111111111111111\r\n", Malformed::Chunk),
                ("1\nh", Malformed::LineEnd),
                ("0\r\nno field\r\n\r\n", Malformed::Field),
            ] {
                assert_eq!(read(chunked, input.as_bytes(), size), Err(why), "{input:?} by {size}");
            }
        }
    }

    #[test]
    fn framing_by_what_the_head_says() {
        for (input, to_head, expected) in [
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", false, (Framing::Chunked, false)),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", true, (Framing::Length(0), false)),
            ("HTTP/1.1 200 OK\r\n\r\n", false, (Framing::UntilClose, true)),
            ("HTTP/1.1 200 OK\r\nConnection: x, close\r\n\r\n", false, (Framing::UntilClose, true)),
            ("HTTP/1.1 204 No Content\r\n\r\n", false, (Framing::Length(0), false)),
        ] {
            let found = parse_head(input.as_bytes(), to_head).unwrap().unwrap();
            assert_eq!((found.framing, found.close), expected, "{input:?}");
        }
    }
}
