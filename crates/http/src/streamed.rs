//! Answers whose body comes by and by: what a service gives, and how the body is delimited on the wire.
//!
//! Promises that a body that breaks off, or is not as long as was said, is never taken for a whole
//! one: what delimits it is then missing, and the connection ends (with a reset where its end is
//! what delimits). Leaves order and back-pressure to [`crate::output`].

use crate::answer::{Form, Persistence, Reply, reason};
use crate::date::Stamp;
use crate::parse::Version;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a [`Streamed`] answer. It is asked for more only when there is room for it.
pub trait BodySource: Send {
    /// Appends the next piece to `out`, or says that the body has ended. A ready one that appended
    /// nothing is asked again.
    fn poll_fill(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled>;
}

/// What a [`BodySource`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// There may be more.
    More,
    /// That was all.
    End,
    /// The rest is not to be had: the client must not take what it got for the whole.
    Broken,
}

/// An answer whose body comes by and by.
pub struct Streamed {
    /// The status, 200..=599.
    pub status: u16,
    /// Whole header lines, written by [`crate::HeaderLines`]; a Date among them stands instead of
    /// the engine's.
    pub lines: Vec<u8>,
    /// Whether `lines` has a Date.
    pub dated: bool,
    /// The length of the body, where it is known; what the answer to HEAD says of it.
    pub length: Option<u64>,
    /// The body; `None`: there is none (and the length is that of the answer to GET, if this answers HEAD).
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

/// What a service gives for an answer that it deferred as [`crate::Outcome::Streamed`].
#[derive(Debug)]
pub enum Given {
    /// The whole answer.
    Whole(Reply),
    /// The head of an answer and where its body comes from.
    Streamed(Streamed),
}

impl From<Reply> for Given {
    fn from(reply: Reply) -> Given {
        Given::Whole(reply)
    }
}

/// How a client finds the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delimiter {
    /// So many bytes are left.
    Length(u64),
    Chunked,
    /// The end of the connection: all that HTTP/1.0 has where the length is not known.
    Close,
}

/// A body on its way.
pub(crate) struct Outgoing {
    pub(crate) source: Pin<Box<dyn BodySource>>,
    pub(crate) delimiter: Delimiter,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("delimiter", &self.delimiter).finish_non_exhaustive()
    }
}

/// Digits of a chunk's size, leading zeros included, so that it can be written before the chunk is there.
const SIZE_DIGITS: usize = 6;
/// The most that one chunk holds.
const CHUNK_BYTES_MAX: usize = (1 << (4 * SIZE_DIGITS)) - 1;

/// How far a body came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The source has no more at the moment and wakes the task when it has.
    Pending,
    /// There is enough for now.
    Enough,
    /// The body is whole.
    End,
    /// It will never be.
    Broken,
}

impl Outgoing {
    /// Appends what the source has, up to about `room` bytes, as it stands on the wire.
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
                // More than was announced would be read as the next answer.
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
    /// Writes the head. What is to follow it on the wire, and whether the connection ends after it.
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
        } else if form.persistence == Persistence::KeepAloud {
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
