//! A client's body on its way to the upstream: piece by piece, as fast as the upstream reads it.
//!
//! Promises that a body that breaks off, or does not have its announced length, is never ended: the upstream
//! cannot take it for a complete body.

use crate::error::{Error, Kind};
use crate::link::Link;
use bytes::Bytes;
use futures_core::Stream;
use parking_lot::Mutex;
use std::error::Error as StdError;
use std::fmt;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// The source of a client's body that is still arriving.
pub type BodySource = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Box<dyn StdError + Send + Sync>>> + Send>>;

/// The body of a client's request.
pub enum RequestBody {
    /// The complete body; it can be sent again.
    Whole(Bytes),
    /// A body that is still arriving: its length, if it is known, and its source.
    Arriving(Option<u64>, BodySource),
}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestBody::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.len()).finish(),
            RequestBody::Arriving(length, _) => f.debug_tuple("Arriving").field(length).finish(),
        }
    }
}

/// A client's body for one or more attempts.
#[derive(Clone)]
pub(crate) enum UploadSource {
    Whole(Bytes),
    Arriving(Arc<Mutex<Arriving>>),
}

/// A body that can be sent once.
pub(crate) struct Arriving {
    source: BodySource,
    length: Option<u64>,
    /// The number of bytes that were passed on.
    sent_bytes: u64,
    is_started: bool,
    /// Whether the upload waits for the client, and not for the upstream.
    awaits_client: bool,
    moved_at: Instant,
    broken: Option<Box<dyn StdError + Send + Sync>>,
}

impl UploadSource {
    pub(crate) fn new(body: RequestBody) -> UploadSource {
        match body {
            RequestBody::Whole(bytes) => UploadSource::Whole(bytes),
            RequestBody::Arriving(length, source) => UploadSource::Arriving(Arc::new(Mutex::new(Arriving {
                source,
                length,
                sent_bytes: 0,
                is_started: false,
                awaits_client: false,
                moved_at: Instant::now(),
                broken: None,
            }))),
        }
    }

    /// Whether nothing was taken from the body, so that it can be sent, or sent again.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            UploadSource::Whole(_) => true,
            UploadSource::Arriving(arriving) => !arriving.lock().is_started,
        }
    }

    /// The time since which the upload has waited for the upstream; while it waits for the client, that is
    /// now.
    fn upstream_waited_since(&self, began: Instant) -> Instant {
        match self {
            UploadSource::Whole(_) => began,
            UploadSource::Arriving(arriving) => match &*arriving.lock() {
                arriving if arriving.awaits_client => Instant::now(),
                arriving => arriving.moved_at.max(began),
            },
        }
    }

    /// The error that broke off the client's body, if one did.
    pub(crate) fn take_broken(&self) -> Option<Error> {
        let UploadSource::Arriving(arriving) = self else { return None };
        let broken = arriving.lock().broken.take()?;
        Some(Error::new(Kind::ClientBody, "the client's body is not whole").caused_by(broken))
    }
}

/// The body of one attempt.
pub(crate) struct Upload {
    supply: UploadSource,
    /// Whether the complete body is in the link's output.
    is_whole: bool,
}

/// Why an upload stopped early.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// The client's body broke off; its [`UploadSource`] stores the error.
    ByClient,
    /// The upstream takes no more bytes.
    ByUpstream(io::Error),
}

impl Upload {
    /// Completes a head with the fields that delimit the body; a complete body is appended at once.
    /// `expects_body`: the method requires a length, even for an empty body.
    pub(crate) fn begin(supply: &UploadSource, expects_body: bool, out: &mut Vec<u8>) -> Upload {
        let length = match supply {
            UploadSource::Whole(bytes) if bytes.is_empty() && !expects_body => None,
            UploadSource::Whole(bytes) => Some(bytes.len() as u64),
            UploadSource::Arriving(arriving) => {
                let length = arriving.lock().length;
                if length.is_none() {
                    out.extend_from_slice(b"transfer-encoding: chunked\r\n");
                }
                length
            }
        };
        if let Some(length) = length {
            out.extend_from_slice(b"content-length: ");
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        let whole = if let UploadSource::Whole(bytes) = supply { Some(bytes) } else { None };
        if let Some(bytes) = whole.filter(|bytes| !bytes.is_empty()) {
            out.extend_from_slice(bytes);
        }
        Upload { supply: supply.clone(), is_whole: whole.is_some() }
    }

    /// The time at which the upstream is late, if nothing changes.
    pub(crate) fn late_at(&self, began: Instant, patience: Duration) -> Instant {
        self.supply.upstream_waited_since(began) + patience
    }

    /// See [`UploadSource::take_broken`].
    pub(crate) fn take_broken(&self) -> Option<Error> {
        self.supply.take_broken()
    }

    /// Sends the body to its end.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Result<(), UploadError>> {
        loop {
            ready!(link.poll_flush(cx)).map_err(UploadError::ByUpstream)?;
            let arriving = match &self.supply {
                UploadSource::Arriving(arriving) if !self.is_whole => arriving,
                _ => return Poll::Ready(Ok(())),
            };
            self.is_whole = ready!(arriving.lock().poll_next(cx, &mut link.output))?;
        }
    }
}

impl Arriving {
    /// Writes the next piece, or what ends the body; returns true at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<bool, UploadError>> {
        self.is_started = true;
        self.moved_at = Instant::now();
        let polled = self.source.as_mut().poll_next(cx);
        self.awaits_client = polled.is_pending();
        Poll::Ready(match ready!(polled) {
            Some(Ok(piece)) => {
                self.sent_bytes += piece.len() as u64;
                match self.length {
                    Some(length) if self.sent_bytes > length => {
                        self.cut("the body is longer than its Content-Length")
                    }
                    Some(_) => {
                        *out = piece;
                        Ok(false)
                    }
                    // An empty chunk would end the body.
                    None if piece.is_empty() => Ok(false),
                    None => {
                        let _written = write!(out, "{:x}\r\n", piece.len());
                        out.extend_from_slice(&piece);
                        out.extend_from_slice(b"\r\n");
                        Ok(false)
                    }
                }
            }
            None if self.length.is_some_and(|length| length != self.sent_bytes) => {
                self.cut("the body is shorter than its Content-Length")
            }
            None => {
                out.extend_from_slice(if self.length.is_none() { b"0\r\n\r\n" } else { b"" });
                Ok(true)
            }
            Some(Err(why)) => self.cut(why),
        })
    }

    fn cut(&mut self, why: impl Into<Box<dyn StdError + Send + Sync>>) -> Result<bool, UploadError> {
        self.broken = Some(why.into());
        Err(UploadError::ByClient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(Vec<Vec<u8>>);

    impl Stream for Pieces {
        type Item = Result<Vec<u8>, Box<dyn StdError + Send + Sync>>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            Poll::Ready(if self.0.is_empty() { None } else { Some(Ok(self.0.remove(0))) })
        }
    }

    /// The bytes sent after a head, and whether the body is complete.
    fn sent(body: RequestBody, expects_body: bool) -> (String, bool) {
        let (supply, mut out) = (UploadSource::new(body), Vec::new());
        let upload = Upload::begin(&supply, expects_body, &mut out);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut is_whole = upload.is_whole;
        while let (UploadSource::Arriving(arriving), false) = (&supply, is_whole) {
            let mut piece = Vec::new();
            let Poll::Ready(Ok(is_last)) = arriving.lock().poll_next(&mut cx, &mut piece) else { break };
            out.extend(piece);
            is_whole = is_last;
        }
        (String::from_utf8(out).expect("ASCII"), is_whole)
    }

    #[test]
    fn bodies_are_sent_as_they_are_announced() {
        let whole = |body: &'static str| RequestBody::Whole(body.into());
        let arriving = |length, pieces: &[&str]| {
            let pieces = pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect();
            RequestBody::Arriving(length, Box::pin(Pieces(pieces)))
        };
        let all = |text: &str| (text.to_owned(), true);
        assert_eq!(sent(whole(""), false), all("\r\n"));
        assert_eq!(sent(whole(""), true), all("content-length: 0\r\n\r\n"));
        assert_eq!(sent(whole("abc"), false), all("content-length: 3\r\n\r\nabc"));
        assert_eq!(sent(arriving(Some(3), &["ab", "c"]), true), all("content-length: 3\r\n\r\nabc"));
        assert_eq!(
            sent(arriving(None, &["ab", "", "c"]), true),
            all("transfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
        );
        for pieces in [&["ab"][..], &["abc", "d"]] {
            let (_, is_whole) = sent(arriving(Some(3), pieces), true);
            assert!(!is_whole, "{pieces:?}");
        }
    }
}
