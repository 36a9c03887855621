//! Bodies on their way: the client's to the upstream, the upstream's to the client. Both are passed
//! on piece by piece, as fast as the slower side takes them.

use crate::error::{Error, Kind};
use bytes::Bytes;
use futures_core::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// What a client's body that is still arriving comes from.
pub type BodySource = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Box<dyn StdError + Send + Sync>>> + Send>>;

/// The body of a client's request.
pub enum RequestBody {
    /// All of it; it can be sent again.
    Whole(Bytes),
    /// It is still arriving: its length, where that is known, and where it comes from.
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

/// A client's body for as many attempts as it is good for.
#[derive(Clone)]
pub(crate) enum Supply {
    Whole(Bytes),
    Arriving(Arc<Mutex<Arriving>>),
}

/// A body that can be sent once.
pub(crate) struct Arriving {
    source: BodySource,
    length: Option<u64>,
    /// How many bytes were handed on.
    sent_bytes: u64,
    is_started: bool,
    is_finished: bool,
    /// Whether the client is waited for, and not the upstream.
    awaits_client: bool,
    moved_at: Instant,
    broken: Option<Box<dyn StdError + Send + Sync>>,
}

impl Supply {
    pub(crate) fn new(body: RequestBody) -> Supply {
        match body {
            RequestBody::Whole(bytes) => Supply::Whole(bytes),
            RequestBody::Arriving(length, source) => Supply::Arriving(Arc::new(Mutex::new(Arriving {
                source,
                length,
                sent_bytes: 0,
                is_started: false,
                is_finished: false,
                awaits_client: false,
                moved_at: Instant::now(),
                broken: None,
            }))),
        }
    }

    /// Whether nothing of it is used up: it can be sent, or sent again.
    pub(crate) fn is_whole(&self) -> bool {
        match self {
            Supply::Whole(_) => true,
            Supply::Arriving(arriving) => !arriving.lock().is_started,
        }
    }

    /// Since when the upstream has been waited for. While its client is, that is since now.
    pub(crate) fn upstream_waited_since(&self, began: Instant) -> Instant {
        match self {
            Supply::Whole(_) => began,
            Supply::Arriving(arriving) => match &*arriving.lock() {
                arriving if arriving.awaits_client => Instant::now(),
                arriving => arriving.moved_at.max(began),
            },
        }
    }

    /// Why the client's body did not come to its end, if it did not.
    pub(crate) fn take_broken(&self) -> Option<Error> {
        let Supply::Arriving(arriving) = self else { return None };
        let broken = arriving.lock().broken.take()?;
        Some(Error::new(Kind::ClientBody, "the client's body is not whole").caused_by(broken))
    }
}

/// A body as hyper sends it.
pub(crate) struct Sending {
    supply: Supply,
    is_sent: bool,
}

impl Sending {
    pub(crate) fn new(supply: Supply) -> Sending {
        Sending { supply, is_sent: false }
    }
}

/// The client's body broke off; why stands in its [`Supply`].
#[derive(Debug)]
pub(crate) struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client's body broke off")
    }
}

impl StdError for BrokenOff {}

impl HttpBody for Sending {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let me = &mut *self;
        let mut arriving = match &me.supply {
            Supply::Whole(bytes) => {
                let is_due = !std::mem::replace(&mut me.is_sent, true) && !bytes.is_empty();
                return Poll::Ready(is_due.then(|| Ok(Frame::data(bytes.clone()))));
            }
            Supply::Arriving(arriving) => arriving.lock(),
        };
        arriving.is_started = true;
        arriving.moved_at = Instant::now();
        let polled = arriving.source.as_mut().poll_next(cx);
        arriving.awaits_client = polled.is_pending();
        Poll::Ready(match ready!(polled) {
            Some(Ok(piece)) => {
                arriving.sent_bytes += piece.len() as u64;
                Some(Ok(Frame::data(piece.into())))
            }
            None => {
                arriving.is_finished = true;
                None
            }
            Some(Err(why)) => {
                arriving.broken = Some(why);
                Some(Err(BrokenOff))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.supply {
            Supply::Whole(bytes) => self.is_sent || bytes.is_empty(),
            Supply::Arriving(arriving) => arriving.lock().is_finished,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.supply {
            Supply::Whole(_) if self.is_sent => SizeHint::with_exact(0),
            Supply::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Supply::Arriving(arriving) => {
                let arriving = arriving.lock();
                let left = arriving.length.map(|length| length.saturating_sub(arriving.sent_bytes));
                left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}

/// The body of an upstream's answer.
pub struct AnswerBody {
    incoming: Incoming,
    /// The longest silence.
    silence: Duration,
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
    /// What is told when it is over, well or not.
    ended: Option<Box<dyn FnOnce(bool) + Send>>,
}

impl fmt::Debug for AnswerBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerBody").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

impl AnswerBody {
    pub(crate) fn new(
        incoming: Incoming,
        silence: Duration,
        ended: impl FnOnce(bool) + Send + 'static,
    ) -> AnswerBody {
        let timer = Box::pin(tokio::time::sleep(silence));
        AnswerBody { incoming, silence, timer, is_waiting: false, ended: Some(Box::new(ended)) }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// The next piece, waited for; as [`AnswerBody::poll_next`].
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The next piece. An error: the upstream broke off or fell silent, and the client must not
    /// take what it got for the whole.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else { break };
            self.is_waiting = false;
            match frame {
                // Trailers end here: who reads the answer was not told of them.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Err(_) => continue,
                },
                None => {
                    self.end(true);
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    self.end(false);
                    let broken =
                        Error::new(Kind::Unreachable, "the upstream broke off in the middle of a body");
                    return Poll::Ready(Some(Err(broken.caused_by(error))));
                }
            }
        }
        // The clock runs only while the upstream is waited for.
        if !std::mem::replace(&mut self.is_waiting, true) {
            let silence = self.silence;
            self.timer.as_mut().reset(Instant::now() + silence);
        }
        ready!(self.timer.as_mut().poll(cx));
        self.end(false);
        Poll::Ready(Some(Err(Error::new(Kind::TimedOut, "the upstream fell silent in the middle of a body"))))
    }

    fn end(&mut self, well: bool) {
        if let Some(ended) = self.ended.take() {
            ended(well);
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // The client went away: that is no fault of the upstream.
        self.end(true);
    }
}
