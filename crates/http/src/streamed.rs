//! Streamed answers: their source, and how the body is delimited on the wire.
//!
//! Promises that a client never takes a body for complete that broke off or does not have its announced
//! length: the delimiter is then missing, and the connection ends (with a reset where the end of the
//! connection is the delimiter). Leaves order and back-pressure to [`crate::output`].

use crate::answer::{Form, Persistence, Reply, reason};
use crate::date::Stamp;
use crate::parse::Version;
use crate::upgraded::Upgraded;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a [`Streamed`] answer. It is polled only when there is room for more bytes.
pub trait BodySource: Send {
    /// Appends the next piece to `out`, or reports that the body has ended. A source that is ready but
    /// appended nothing is polled again.
    fn poll_fill(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled>;
}

/// The state of a [`BodySource`] after it was asked for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// More bytes may follow.
    More,
    /// The body is complete.
    End,
    /// The source failed: the client must not take the received part for the complete body.
    Broken,
}

/// A streamed answer.
pub struct Streamed {
    /// The status, 200..=599.
    pub status: u16,
    /// Complete header lines, written by [`crate::HeaderLines`]; a Date among them replaces the
    /// engine's.
    pub lines: Vec<u8>,
    /// Whether `lines` has a Date.
    pub dated: bool,
    /// The length of the body, where it is known; also sent in the answer to HEAD.
    pub length: Option<u64>,
    /// The body; `None`: no body. In an answer to HEAD, `length` is that of the answer to GET.
    pub body: Option<Pin<Box<dyn BodySource>>>,
}

impl fmt::Debug for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streamed")
            .field("status", &self.status)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The result of [`crate::Outcome::Streamed`].
#[derive(Debug)]
pub enum ServiceAnswer {
    /// A complete answer.
    Whole(Reply),
    /// A head, and the source of its body.
    Streamed(Streamed),
    /// A switch to another protocol, for a request with [`crate::Request::upgrade`].
    Upgraded(Box<Upgraded>),
}

impl ServiceAnswer {
    /// The status, 200..=599.
    pub fn status(&self) -> u16 {
        match self {
            ServiceAnswer::Whole(reply) => reply.head.status(),
            ServiceAnswer::Streamed(streamed) => streamed.status,
            ServiceAnswer::Upgraded(_) => 101,
        }
    }
}

impl From<Reply> for ServiceAnswer {
    fn from(reply: Reply) -> ServiceAnswer {
        ServiceAnswer::Whole(reply)
    }
}

/// How a client finds the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// This many bytes are left.
    Length(u64),
    Chunked,
    /// The end of the connection: HTTP/1.0 has no other delimiter for an unknown length.
    Close,
}

/// The unsent rest of a streamed body.
pub(crate) struct Outgoing {
    pub(crate) source: Pin<Box<dyn BodySource>>,
    pub(crate) delimiter: Delimiter,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("delimiter", &self.delimiter).finish_non_exhaustive()
    }
}

/// Digits of a chunk's size, with leading zeros, so that they can be reserved before the size is known.
const SIZE_DIGITS: usize = 6;
/// Largest chunk.
const CHUNK_BYTES_MAX: usize = (1 << (4 * SIZE_DIGITS)) - 1;

/// Why [`Outgoing::fill`] stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The source has no bytes yet and wakes the task.
    Pending,
    /// `room` is used up.
    Enough,
    /// The body is complete.
    End,
    /// The body will never be complete.
    Broken,
}

impl Outgoing {
    /// Appends up to about `room` bytes from the source, in their wire form.
    pub(crate) fn fill(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, room: usize) -> Piece {
        let start = out.len();
        if self.delimiter == Delimiter::Chunked {
            out.extend_from_slice(&[b'0'; SIZE_DIGITS]);
            out.extend_from_slice(b"\r\n");
        }
        let body_at = out.len();
        let room = room.min(CHUNK_BYTES_MAX / 2);
        let piece = loop {
            match self.source.as_mut().poll_fill(cx, out) {
                Poll::Pending => break Piece::Pending,
                Poll::Ready(Filled::More) if out.len() - body_at >= room => break Piece::Enough,
                Poll::Ready(Filled::More) => {}
                Poll::Ready(Filled::End) => break Piece::End,
                Poll::Ready(Filled::Broken) => break Piece::Broken,
            }
        };
        let count = out.len() - body_at;
        match &mut self.delimiter {
            Delimiter::Length(left) => match left.checked_sub(count as u64) {
                Some(rest) => *left = rest,
                // Bytes beyond the announced length would be read as the next answer.
                None => {
                    out.truncate(start);
                    return Piece::Broken;
                }
            },
            Delimiter::Close => {}
            Delimiter::Chunked if count == 0 => out.truncate(start),
            Delimiter::Chunked if count > CHUNK_BYTES_MAX => {
                out.truncate(start);
                return Piece::Broken;
            }
            Delimiter::Chunked => {
                let size = format!("{count:0SIZE_DIGITS$x}");
                out[start..start + SIZE_DIGITS].copy_from_slice(size.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
        match (piece, self.delimiter) {
            (Piece::End, Delimiter::Length(1..)) => Piece::Broken,
            (Piece::End, Delimiter::Chunked) => {
                out.extend_from_slice(b"0\r\n\r\n");
                Piece::End
            }
            (piece, _) => piece,
        }
    }
}

impl Streamed {
    /// Writes the head. Returns the rest of the answer, and whether the connection ends after it.
    pub(crate) fn write_head(self, form: Form, stamp: &Stamp, out: &mut Vec<u8>) -> (Option<Outgoing>, bool) {
        let status = if (200..=599).contains(&self.status) { self.status } else { 502 };
        let is_bodiless = matches!(status, 204 | 304);
        let body = if is_bodiless || form.head_only { None } else { self.body };
        let is_empty = is_bodiless || (body.is_none() && !form.head_only);
        let delimiter = match (self.length, form.version) {
            (Some(length), _) => Delimiter::Length(length),
            (None, Version::Http11) => Delimiter::Chunked,
            (None, Version::Http10) => Delimiter::Close,
        };
        let closes =
            form.persistence == Persistence::Close || (body.is_some() && delimiter == Delimiter::Close);
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(itoa::Buffer::new().format(status).as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason(status).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.lines);
        if closes {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if form.persistence == Persistence::KeepAnnounced {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        if !self.dated {
            out.extend_from_slice(stamp.date_only());
        }
        match (delimiter, is_empty) {
            (_, true) if is_bodiless => {}
            (_, true) => out.extend_from_slice(b"Content-Length: 0\r\n"),
            (Delimiter::Length(length), false) => {
                out.extend_from_slice(b"Content-Length: ");
                out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            (Delimiter::Chunked, false) => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            (Delimiter::Close, false) => {}
        }
        out.extend_from_slice(b"\r\n");
        (body.map(|source| Outgoing { source, delimiter }), closes)
    }
}
