//! An upstream's answer: the part that may be passed on, and its body, piece by piece, as fast as the client
//! reads it.
//!
//! Promises that a body is never truncated without an error: a body that breaks off ends with an error. The
//! connection returns to its pool with the last byte of a body, and never after an incomplete body.

use crate::body::{Upload, UploadError};
use crate::error::{Error, Kind};
use crate::fields::Fields;
use crate::forward::strip_hop_by_hop;
use crate::head::{AnswerHead, RemainingBody};
use crate::in_flight::InFlight;
use crate::limits::{READ_BYTES, UPLOAD_REST};
use crate::link::Link;
use http::Method;
use std::fmt;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// An upstream's answer, without the parts that are for one hop only.
#[derive(Debug)]
pub struct Answer {
    /// The status, 200 to 599.
    pub status: u16,
    /// The fields, without hop-by-hop fields and those that frame the body.
    pub headers: Fields,
    /// The body length that the upstream announced.
    pub length: Option<u64>,
    /// Whether the end of the body can be distinguished from a broken connection: it has a length, or is
    /// chunked.
    pub is_delimited: bool,
    /// The body, as it arrives from the upstream.
    pub body: AnswerBody,
}

/// An answer whose head has been parsed but not checked.
pub(crate) struct UncheckedAnswer {
    pub(crate) head: AnswerHead,
    pub(crate) link: Box<Link>,
    pub(crate) in_flight: InFlight,
    /// The rest of the client's body, if the answer came before its end.
    pub(crate) upload: Option<Box<Upload>>,
}

impl UncheckedAnswer {
    /// Refuses an answer that cannot be trusted. Its connection is closed, because the following bytes may
    /// belong to the refused answer.
    pub(crate) fn refuse(self, what: &str) -> Error {
        self.in_flight.failed();
        Error::new(Kind::BadAnswer, format!("the upstream's answer {what}"))
    }

    /// The part of the answer that may be passed on, for a request with this method.
    pub(crate) fn accept(self, method: &Method, silence: Option<Duration>) -> Result<Answer, Error> {
        let status = self.head.status;
        if !(200..=599).contains(&status) {
            return Err(self.refuse("has a status that does not exist"));
        }
        let (left, length) = match self.head.framing(method) {
            Ok(framing) => framing,
            Err(what) => return Err(self.refuse(what)),
        };
        let UncheckedAnswer { head, link, in_flight, upload } = self;
        let keeps = head.keeps_connection() && !matches!(left, RemainingBody::UntilClosed);
        let is_delimited = !matches!(left, RemainingBody::UntilClosed);
        let mut headers = head.fields;
        strip_hop_by_hop(&mut headers);
        in_flight.succeeded();
        let is_over = matches!(left, RemainingBody::Nothing);
        let rest = BodyReader { link, left, keeps, in_flight, upload };
        let mut body = AnswerBody { rest: Some(rest), silence, waits_since: None };
        if is_over {
            body.end();
        }
        Ok(Answer { status, headers, length, is_delimited, body })
    }
}

/// The source of the rest of a body.
struct BodyReader {
    link: Box<Link>,
    left: RemainingBody,
    /// Whether the connection accepts another request after the body.
    keeps: bool,
    in_flight: InFlight,
    upload: Option<Box<Upload>>,
}

/// The body of an upstream's answer.
pub struct AnswerBody {
    /// `None`: the body has ended.
    rest: Option<BodyReader>,
    /// The longest time without a byte from the upstream.
    silence: Option<Duration>,
    /// The time since which the task has waited for the upstream.
    waits_since: Option<Instant>,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.rest.as_ref().map(|rest| &rest.left);
        f.debug_struct("AnswerBody").field("left", &left).finish_non_exhaustive()
    }
}

impl AnswerBody {
    /// Whether the body has ended.
    pub fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    /// Waits for the next piece; see [`AnswerBody::poll_fill`].
    pub async fn fill(&mut self, out: &mut Vec<u8>) -> Option<Result<(), Error>> {
        std::future::poll_fn(|cx| self.poll_fill(cx, out)).await
    }

    /// Appends the next piece to `out`; `None` at the end. Must be polled on its worker's runtime. An error:
    /// the upstream broke off or sent nothing for too long, and the client must not take the received part
    /// for the complete body.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Error>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        match rest.poll_fill(cx, out) {
            Poll::Ready(Ok(Progress::More)) => {
                self.waits_since = None;
                return Poll::Ready(Some(Ok(())));
            }
            Poll::Ready(Ok(Progress::Last)) => {
                self.end();
                return Poll::Ready(Some(Ok(())));
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(self.fail(error)))),
            Poll::Pending => {}
        }
        let Some(silence) = self.silence else { return Poll::Pending };
        // The clock runs only while the task waits for the upstream.
        let late_at = *self.waits_since.get_or_insert_with(Instant::now) + silence;
        ready!(rest.link.timer.poll(cx, || late_at));
        let error = Error::new(Kind::TimedOut, "the upstream fell silent in the middle of a body");
        Poll::Ready(Some(Err(self.fail(error))))
    }

    fn fail(&mut self, error: Error) -> Error {
        if let Some(rest) = self.rest.take().filter(|_| error.kind() != Kind::ClientBody) {
            rest.in_flight.failed();
        }
        error
    }

    /// The complete body has arrived.
    fn end(&mut self) {
        let Some(BodyReader { mut link, keeps, in_flight, upload, .. }) = self.rest.take() else { return };
        let is_clean = keeps && link.unread().is_empty();
        match upload {
            None if is_clean => in_flight.keep(link),
            None => {}
            // The upstream has answered and may still read the client's body.
            Some(mut upload) => {
                let (silence, began) = (self.silence.unwrap_or(UPLOAD_REST), Instant::now());
                drop(tokio::spawn(async move {
                    let sending = std::future::poll_fn(|cx| match upload.poll(cx, &mut link) {
                        Poll::Ready(sent) => Poll::Ready(sent.is_ok()),
                        Poll::Pending => {
                            link.timer.poll(cx, || upload.late_at(began, silence)).map(|()| false)
                        }
                    });
                    if sending.await && is_clean {
                        in_flight.keep(link);
                    }
                }));
            }
        }
    }
}

/// The result of a read.
enum Progress {
    More,
    Last,
}

impl BodyReader {
    fn poll_fill(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Result<Progress, Error>> {
        if let Some(upload) = &mut self.upload {
            match upload.poll(cx, &mut self.link) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.upload = None,
                Poll::Ready(Err(UploadError::ByClient)) => {
                    let unknown = || Error::new(Kind::ClientBody, "the client's body is not whole");
                    return Poll::Ready(Err(upload.take_broken().unwrap_or_else(unknown)));
                }
                // The upstream has answered without reading the complete body.
                Poll::Ready(Err(UploadError::ByUpstream(_))) => (self.upload, self.keeps) = (None, false),
            }
        }
        let broken = |error: io::Error| {
            Error::new(Kind::Unreachable, "the upstream broke off in the middle of a body").caused_by(error)
        };
        let cut_off = || broken(io::ErrorKind::UnexpectedEof.into());
        let link = &mut *self.link;
        match &mut self.left {
            RemainingBody::Nothing => return Poll::Ready(Ok(Progress::Last)),
            RemainingBody::Bytes(left) => {
                let mut count = take_unread(link, out, *left);
                if count == 0 {
                    count = ready!(link.poll_read_into(cx, out, *left)).map_err(broken)?;
                    if count == 0 {
                        return Poll::Ready(Err(cut_off()));
                    }
                }
                *left -= count as u64;
                if *left > 0 {
                    return Poll::Ready(Ok(Progress::More));
                }
            }
            RemainingBody::Chunked(chunks) => loop {
                let before = out.len();
                let used = chunks.decode(link.unread(), out).map_err(|_| {
                    Error::new(
                        Kind::Unreachable,
                        "the upstream sent a malformed chunk in the middle of a body",
                    )
                })?;
                link.consume(used);
                if chunks.is_at_end() {
                    break;
                }
                if out.len() > before {
                    return Poll::Ready(Ok(Progress::More));
                }
                if ready!(link.poll_more(cx)).map_err(broken)? == 0 {
                    return Poll::Ready(Err(cut_off()));
                }
            },
            RemainingBody::UntilClosed => {
                let read = match take_unread(link, out, u64::MAX) {
                    0 => ready!(link.poll_read_into(cx, out, READ_BYTES as u64)).map_err(broken)?,
                    count => count,
                };
                if read > 0 {
                    return Poll::Ready(Ok(Progress::More));
                }
            }
        }
        Poll::Ready(Ok(Progress::Last))
    }
}

/// Moves bytes that were read with the head.
fn take_unread(link: &mut Link, out: &mut Vec<u8>, bytes_max: u64) -> usize {
    let count = link.unread().len().min(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    out.extend_from_slice(&link.unread()[..count]);
    link.consume(count);
    count
}
