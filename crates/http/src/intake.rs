//! A streamed request body: the pipe between a connection, which fills it, and a service, which
//! empties it at its own pace.
//!
//! Promises: the pipe is bounded ([`PIPE_BYTES`] and one read), because a connection does not read
//! while it is full. A body ends without an error only when its last byte has arrived; the reader of
//! a truncated, overlong or malformed body gets an error. Both ends may be on different threads.

use crate::chunked::{ChunkedDecoder, Progress};
use crate::limits::{Limits, PIPE_BYTES};
use crate::pace::Pace;
use crate::parse::Framing;
use crate::reject::{BODY_TOO_LARGE, Reject};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Why a streamed request body is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyBroken {
    /// The client disconnected, or was too slow.
    CutOff,
    /// The body is longer than the service permits; the answer is 413.
    TooLarge,
    /// The body is malformed; the answer is 400.
    Malformed,
}

impl fmt::Display for BodyBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BodyBroken::CutOff => "the request body was cut off",
            BodyBroken::TooLarge => "the request body is too large",
            BodyBroken::Malformed => "the request body is malformed",
        })
    }
}

impl std::error::Error for BodyBroken {}

#[derive(Debug, Default)]
struct Pipe {
    bytes: Vec<u8>,
    end: Option<Result<(), BodyBroken>>,
    is_abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

fn lock(pipe: &Mutex<Pipe>) -> MutexGuard<'_, Pipe> {
    // No code panics while it holds the lock.
    pipe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The body of a request that is still arriving. Dropping it discards the rest of the body, and the
/// connection ends after the answer.
#[derive(Debug)]
pub struct BodyStream {
    pipe: Arc<Mutex<Pipe>>,
    length: Option<u64>,
}

impl BodyStream {
    /// The length that the client announced; `None` for a chunked body.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next bytes; `None` when the body has ended.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, BodyBroken>>> {
        let mut pipe = lock(&self.pipe);
        // The error goes first: the reader would discard the bytes before it anyway.
        if let Some(Err(broken)) = pipe.end {
            return Poll::Ready(Some(Err(broken)));
        }
        if !pipe.bytes.is_empty() {
            let bytes = std::mem::take(&mut pipe.bytes);
            let writer = pipe.writer.take();
            drop(pipe);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Some(Ok(bytes)));
        }
        if pipe.end.is_some() {
            return Poll::Ready(None);
        }
        pipe.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        let mut pipe = lock(&self.pipe);
        pipe.is_abandoned = true;
        pipe.bytes = Vec::new();
        let writer = pipe.writer.take();
        drop(pipe);
        writer.into_iter().for_each(Waker::wake);
    }
}

/// How the end of the body is found.
#[derive(Debug)]
enum Left {
    Bytes(u64),
    /// The body ends when [`Intake::end`] is called; the number of bytes that the body may still have.
    UntilEnded(u64),
    /// The decoder, and limits with the number of bytes that the body may still have.
    Chunked(ChunkedDecoder, Limits),
}

/// The connection's end of the pipe. Dropping it before the body has ended breaks the body.
#[derive(Debug)]
pub(crate) struct Intake {
    pipe: Arc<Mutex<Pipe>>,
    left: Left,
    pub(crate) pace: Pace,
    /// Whether the connection ends after this request.
    pub(crate) closes: bool,
}

impl Intake {
    /// Creates both ends of the pipe for a body of at most `bytes_max`.
    pub(crate) fn new(
        framing: Framing,
        bytes_max: u64,
        limits: &Limits,
        now_ms: u64,
    ) -> (Intake, BodyStream) {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        let (left, length) = match framing {
            Framing::Length(length) => (Left::Bytes(length as u64), Some(length as u64)),
            Framing::Chunked => {
                let body_bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX);
                (Left::Chunked(ChunkedDecoder::new(), Limits { body_bytes, ..limits.clone() }), None)
            }
        };
        let stream = BodyStream { pipe: pipe.clone(), length };
        (Intake { pipe, left, pace: Pace::new(now_ms), closes: false }, stream)
    }

    /// Creates both ends of the pipe for a body of at most `bytes_max` that ends when [`Intake::end`] is
    /// called; `length` is the length that the client announced.
    pub(crate) fn until_ended(length: Option<u64>, bytes_max: u64, now_ms: u64) -> (Intake, BodyStream) {
        let pipe = Arc::new(Mutex::new(Pipe::default()));
        let stream = BodyStream { pipe: pipe.clone(), length };
        let left = Left::UntilEnded(bytes_max);
        (Intake { pipe, left, pace: Pace::new(now_ms), closes: false }, stream)
    }

    /// Marks the body as complete.
    pub(crate) fn end(&mut self) {
        let mut pipe = lock(&self.pipe);
        pipe.end.get_or_insert(Ok(()));
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Whether the connection must wait for the reader.
    #[inline(never)]
    pub(crate) fn is_full(&self) -> bool {
        let pipe = lock(&self.pipe);
        pipe.bytes.len() >= PIPE_BYTES && !pipe.is_abandoned
    }

    /// Ready when the pipe has room, or when the reader has dropped its end.
    #[inline(never)]
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pipe = lock(&self.pipe);
        if pipe.bytes.len() < PIPE_BYTES || pipe.is_abandoned {
            return Poll::Ready(());
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the reader has dropped its end.
    pub(crate) fn is_abandoned(&self) -> bool {
        lock(&self.pipe).is_abandoned
    }

    /// Takes the next piece of input. Returns how many bytes belong to the body, and whether the body ended.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<(usize, bool), Reject> {
        let mut pipe = lock(&self.pipe);
        let fed = match &mut self.left {
            Left::Bytes(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                pipe.bytes.extend_from_slice(&input[..count]);
                *left -= count as u64;
                Ok((count, *left == 0))
            }
            Left::UntilEnded(left) if *left < input.len() as u64 => Err(BODY_TOO_LARGE),
            Left::UntilEnded(left) => {
                pipe.bytes.extend_from_slice(input);
                *left -= input.len() as u64;
                Ok((input.len(), false))
            }
            Left::Chunked(decoder, limits) => {
                // The decoder compares the length of its buffer with the limit, so it gets a separate buffer
                // and the rest of the limit.
                let mut piece = Vec::with_capacity(input.len());
                let fed = decoder.feed(input, &mut piece, limits);
                limits.body_bytes -= piece.len().min(limits.body_bytes);
                pipe.bytes.extend_from_slice(&piece);
                match fed {
                    Ok(Progress::More) => Ok((input.len(), false)),
                    Ok(Progress::Done(count)) => Ok((count, true)),
                    Err(reject) => Err(reject),
                }
            }
        };
        match &fed {
            Ok((_, true)) => pipe.end = Some(Ok(())),
            Ok((_, false)) => {}
            Err(reject) if *reject == BODY_TOO_LARGE => pipe.end = Some(Err(BodyBroken::TooLarge)),
            Err(_) => pipe.end = Some(Err(BodyBroken::Malformed)),
        }
        if pipe.is_abandoned {
            pipe.bytes = Vec::new();
        }
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
        fed
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let mut pipe = lock(&self.pipe);
        pipe.end.get_or_insert(Err(BodyBroken::CutOff));
        let reader = pipe.reader.take();
        drop(pipe);
        reader.into_iter().for_each(Waker::wake);
    }
}

impl futures_util::Stream for BodyStream {
    type Item = Result<Vec<u8>, BodyBroken>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        BodyStream::poll_next(self.get_mut(), cx)
    }
}
