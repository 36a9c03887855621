//! Bytes to requests, without state and without I/O.
//!
//! [`parse_head`] reads one request head and decides how the body is framed; [`ChunkedDecoder`]
//! takes a chunked body apart as it arrives; [`parse`] puts the two together for tests and fuzzing.
//!
//! Promises: never reads past what is consumed; an error or a complete request found in a prefix is found
//! unchanged in every longer input. Everything on which two servers could disagree about where a request
//! ends is an error (RFC 9112 section 11.2): both lengths, repeated or malformed lengths, bare CR or LF,
//! folded lines, space before a colon. Leaves to others: what to do about an error beyond its status, time
//! limits, percent-decoding.

use crate::chunked::{ChunkedDecoder, Progress, is_token};
use crate::limits::{FIELDS_MAX, Limits, METHOD_BYTES_MAX};
use crate::method::Method;
use crate::reject::BODY_TOO_LARGE;
use crate::target::{Target, is_authority};
use httparse::{Header, Status};
use std::mem::MaybeUninit;

pub use crate::reject::Reject;

const fn bad<T>(detail: &'static str) -> Result<T, Reject> {
    Err(Reject::new(400, detail))
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// This many bytes follow the head (0 when the head has neither Content-Length nor Transfer-Encoding).
    Length(usize),
    /// Chunks follow (RFC 9112 section 7.1).
    Chunked,
}

/// The HTTP/1 version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Version {
    Http10,
    Http11,
}

/// A checked request head that borrows from the read buffer.
#[derive(Debug)]
pub struct RequestHead<'a> {
    /// `Other` for a method that no route can have: see `method_name`.
    pub method: Method,
    /// The method as it was sent.
    pub method_name: &'a str,
    /// The target, split into its parts.
    pub target: Target<'a>,
    /// HTTP/1.0 or HTTP/1.1; other versions are refused.
    pub version: Version,
    /// All fields; names are tokens, values are trimmed and without control characters.
    pub headers: &'a [Header<'a>],
    /// The length of the head in bytes, with the blank line at its end and a leading one.
    pub length: usize,
    /// How the body ends. Its length is not compared with a limit: see [`RequestHead::check_length`].
    pub framing: Framing,
    /// Whether the client wants the connection to stay open.
    pub persistent: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the connection may continue in another protocol after this request (RFC 9110 section 7.8).
    /// False for a request with a body, for one in HTTP/1.0, and for the last of its connection.
    pub upgrades: bool,
}

impl RequestHead<'_> {
    /// Refuses a body of a known length that is too long. Not called by [`parse_head`], because a service
    /// may take longer bodies of some requests.
    pub fn check_length(&self, bytes_max: usize) -> Result<(), Reject> {
        match self.framing {
            Framing::Length(length) if length > bytes_max => Err(BODY_TOO_LARGE),
            Framing::Length(_) | Framing::Chunked => Ok(()),
        }
    }
}

/// Slots for the fields of one head; uninitialized, so they cost nothing until they are filled.
pub type FieldSlots<'a> = [MaybeUninit<Header<'a>>; FIELDS_MAX];

/// Empty slots.
pub const fn field_slots<'a>() -> FieldSlots<'a> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

/// Reads a request head from the start of `bytes`. `Ok(None)`: it is not complete yet.
pub fn parse_head<'a>(
    bytes: &'a [u8],
    limits: &Limits,
    slots: &'a mut FieldSlots<'a>,
) -> Result<Option<RequestHead<'a>>, Reject> {
    let Some(skipped) = leading_line(bytes)? else { return Ok(None) };
    let end = bytes.len().min(skipped + limits.head_bytes);
    let window = &bytes[skipped..end];
    let mut raw = httparse::Request::new(&mut []);
    let outcome = raw.parse_with_uninit_headers(window, &mut slots[..limits.fields.min(FIELDS_MAX)]);
    let (method_name, path, version) = (raw.method, raw.path, raw.version);
    let length = match outcome {
        Ok(Status::Complete(length)) => length,
        other => return incomplete(other.err(), window, method_name, path, limits),
    };
    let (Some(method_name), Some(path)) = (method_name, path) else {
        return bad("the request line is malformed");
    };
    check_line_lengths(method_name, path, limits)?;
    let headers: &'a [Header<'a>] = raw.headers;
    check_line_ends(&window[..length], headers)?;
    let method = Method::from_name(method_name);
    let Some(target) = Target::parse(method, path) else { return bad("the request target is malformed") };
    let version = if version == Some(1) { Version::Http11 } else { Version::Http10 };
    let fields = Fields::read(headers);
    let framing = fields.framing(version)?;
    let upgrades =
        fields.upgrade && version == Version::Http11 && !fields.close && framing == Framing::Length(0);
    fields.check_host(version)?;
    Ok(Some(RequestHead {
        method,
        method_name,
        target,
        version,
        headers,
        length: skipped + length,
        framing,
        persistent: fields.persistent(version),
        expects_continue: fields.expects_continue(version)?,
        upgrades,
    }))
}

/// Skips one blank line before a request (RFC 9112 section 2.2). `None`: more bytes are needed to decide.
fn leading_line(bytes: &[u8]) -> Result<Option<usize>, Reject> {
    let skipped = match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        _ => 0,
    };
    match bytes.get(skipped) {
        Some(b'\r' | b'\n') => bad("a request must not begin with blank lines"),
        Some(_) => Ok(Some(skipped)),
        None => Ok(None),
    }
}

/// The result for an unfinished or malformed head: an error only if more bytes cannot change the result.
fn incomplete<'a>(
    error: Option<httparse::Error>,
    window: &[u8],
    method: Option<&str>,
    path: Option<&str>,
    limits: &Limits,
) -> Result<Option<RequestHead<'a>>, Reject> {
    // The length of the unfinished part of the request line, up to the first byte that this part cannot
    // contain.
    let run =
        |from: usize, fits: fn(u8) -> bool| window[from..].iter().take_while(|byte| fits(**byte)).count();
    match (method, path) {
        (None, _) if run(0, is_token) > METHOD_BYTES_MAX => return bad("the method is too long"),
        (Some(method), _) if method.len() > METHOD_BYTES_MAX => return bad("the method is too long"),
        (Some(method), None) if run(method.len() + 1, is_target_byte) > limits.target_bytes => {
            return Err(TARGET_TOO_LONG);
        }
        (Some(method), Some(path)) => check_line_lengths(method, path, limits)?,
        _ => {}
    }
    match error {
        None if window.len() >= limits.head_bytes => Err(HEAD_TOO_LARGE),
        None => Ok(None),
        Some(httparse::Error::TooManyHeaders) => {
            Err(Reject::new(431, "the request has too many header fields"))
        }
        Some(httparse::Error::Version) => {
            let before = method.map_or(0, str::len) + path.map_or(0, str::len) + 2;
            version_error(window.get(before..).unwrap_or_default())
        }
        Some(httparse::Error::HeaderName) => bad("a header field name is malformed"),
        Some(httparse::Error::HeaderValue) => bad("a header field value is malformed"),
        Some(httparse::Error::NewLine) => bad("a line does not end in CR LF"),
        Some(_) => bad("the request line is malformed"),
    }
}

const TARGET_TOO_LONG: Reject = Reject::new(414, "the request target is too long");
const HEAD_TOO_LARGE: Reject = Reject::new(431, "the request head is too large");

fn check_line_lengths(method: &str, path: &str, limits: &Limits) -> Result<(), Reject> {
    if method.len() > METHOD_BYTES_MAX {
        return bad("the method is too long");
    }
    if path.len() > limits.target_bytes {
        return Err(TARGET_TOO_LONG);
    }
    Ok(())
}

/// Whether httparse takes a byte as part of a target; [`Target::parse`] is stricter once the target is
/// complete.
fn is_target_byte(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

/// 505 for a well-formed version other than 1.0 and 1.1, 400 for anything else. `rest` begins with
/// the version.
fn version_error<T>(rest: &[u8]) -> Result<Option<T>, Reject> {
    let pattern = b"HTTP/0.0";
    let fits =
        |(byte, expected): (&u8, &u8)| byte == expected || (*expected == b'0' && byte.is_ascii_digit());
    if !rest.iter().zip(pattern).all(fits) {
        return bad("the HTTP version is malformed");
    }
    if rest.len() < pattern.len() {
        return Ok(None);
    }
    Err(Reject::new(505, "only HTTP/1.0 and HTTP/1.1 are spoken here"))
}

/// httparse accepts a bare LF as a line end; this parser does not (RFC 9112 section 2.2 allows either, and
/// leniency enables request smuggling). Each line ends right before the next field name, so checking there
/// covers every line end of the head.
fn check_line_ends(head: &[u8], headers: &[Header<'_>]) -> Result<(), Reject> {
    let start = head.as_ptr().addr();
    let ends_well = |end: usize| head.get(end.wrapping_sub(2)..end) == Some(b"\r\n");
    let lines = headers.iter().all(|field| ends_well(field.name.as_ptr().addr() - start));
    if lines && head.ends_with(b"\r\n\r\n") { Ok(()) } else { bad("a line does not end in CR LF") }
}

/// The fields that the engine itself acts on, found in one pass.
#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    hosts: usize,
    content_length: Option<&'a [u8]>,
    content_lengths: usize,
    transfer_encoding: Option<&'a [u8]>,
    transfer_encodings: usize,
    expect: Option<&'a [u8]>,
    expects: usize,
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl<'a> Fields<'a> {
    fn read(headers: &[Header<'a>]) -> Fields<'a> {
        let mut fields = Fields::default();
        for Header { name, value } in headers {
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => {
                    fields.host = Some(value);
                    fields.hosts += 1;
                }
                6 if name.eq_ignore_ascii_case("expect") => {
                    fields.expect = Some(value);
                    fields.expects += 1;
                }
                10 if name.eq_ignore_ascii_case("connection") => fields.read_connection(value),
                14 if name.eq_ignore_ascii_case("content-length") => {
                    fields.content_length = Some(value);
                    fields.content_lengths += 1;
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    fields.transfer_encoding = Some(value);
                    fields.transfer_encodings += 1;
                }
                _ => {}
            }
        }
        fields
    }

    fn read_connection(&mut self, value: &[u8]) {
        for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= token.eq_ignore_ascii_case(b"close");
            self.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn persistent(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }

    fn check_host(&self, version: Version) -> Result<(), Reject> {
        match (self.hosts, version) {
            (0, Version::Http11) => bad("Host is missing"),
            (0, _) => Ok(()),
            (1, _) if is_authority(self.host.unwrap_or_default()) => Ok(()),
            (1, _) => bad("Host is malformed"),
            _ => bad("Host is given more than once"),
        }
    }

    fn expects_continue(&self, version: Version) -> Result<bool, Reject> {
        match self.expect {
            Some(_) if self.expects > 1 => bad("Expect is given more than once"),
            Some(_) if version == Version::Http10 => Ok(false),
            Some(value) if value.eq_ignore_ascii_case(b"100-continue") => Ok(true),
            Some(_) => Err(Reject::new(417, "only 100-continue can be expected")),
            None => Ok(false),
        }
    }

    fn framing(&self, version: Version) -> Result<Framing, Reject> {
        match (self.content_length, self.transfer_encoding) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(_), Some(_)) => bad("Content-Length and Transfer-Encoding are both given"),
            (Some(_), None) if self.content_lengths > 1 => bad("Content-Length is given more than once"),
            (Some(value), None) => content_length(value),
            (None, Some(_)) if version == Version::Http10 => bad("HTTP/1.0 has no Transfer-Encoding"),
            (None, Some(_)) if self.transfer_encodings > 1 => {
                bad("Transfer-Encoding is given more than once")
            }
            (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (None, Some(_)) => Err(Reject::new(501, "the only Transfer-Encoding understood is chunked")),
        }
    }
}

fn content_length(value: &[u8]) -> Result<Framing, Reject> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return bad("Content-Length is malformed");
    }
    // Saturating: a number that does not fit is too large in any case.
    let length = value
        .iter()
        .fold(0usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    Ok(Framing::Length(length))
}

/// The result of parsing the start of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// The start of a request; more bytes are needed.
    Partial,
    /// A whole request.
    Complete {
        /// Bytes of head and body on the wire.
        consumed: usize,
        /// `Other` for a method that no route can have.
        method: Method,
        /// The path, not decoded.
        path: String,
        /// The query, not decoded.
        query: Option<String>,
        /// The decoded body.
        body: Vec<u8>,
        /// Whether the client wants the connection to stay open.
        persistent: bool,
    },
    /// The input is not a valid request.
    Rejected(Reject),
}

/// Parses one complete request from the start of `bytes`, as a pure function; a connection does this in
/// steps.
pub fn parse(bytes: &[u8], limits: &Limits) -> Parsed {
    let mut slots = field_slots();
    let head = match parse_head(bytes, limits, &mut slots) {
        Ok(Some(head)) => head,
        Ok(None) => return Parsed::Partial,
        Err(reject) => return Parsed::Rejected(reject),
    };
    if let Err(reject) = head.check_length(limits.body_bytes) {
        return Parsed::Rejected(reject);
    }
    let rest = &bytes[head.length..];
    let mut body = Vec::new();
    let length = match head.framing {
        Framing::Length(length) if rest.len() < length => return Parsed::Partial,
        Framing::Length(length) => {
            body.extend_from_slice(&rest[..length]);
            length
        }
        Framing::Chunked => match ChunkedDecoder::new().feed(rest, &mut body, limits.body_bytes) {
            Ok(Progress::Done(length)) => length,
            Ok(Progress::More) => return Parsed::Partial,
            Err(reject) => return Parsed::Rejected(reject),
        },
    };
    Parsed::Complete {
        consumed: head.length + length,
        method: head.method,
        path: head.target.path.to_owned(),
        query: head.target.query.map(str::to_owned),
        body,
        persistent: head.persistent,
    }
}
