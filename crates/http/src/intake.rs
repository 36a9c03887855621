//! The body of a request that is still arriving: the pipe between a connection, which fills it, and a
//! service, which empties it at its own pace, or waits until it is whole.
//!
//! Promises: nothing is read before the service asks; then the pipe is bounded, because a connection does not
//! read while it is full: by [`PIPE_BYTES`] and one read, or for a service that wants the whole body by the
//! limit that it gives. All pipes together are bounded by [`crate::bodies`]. A body ends without an error
//! only when its last byte has arrived; the reader of a truncated, overlong, slow or malformed body gets an
//! error. Both ends may be on different threads.

use crate::bodies::{Arriving, Bodies};
use crate::chunked::{ChunkedDecoder, Progress};
use crate::client::Network;
use crate::crowd::Member;
use crate::limits::{PIECE_BYTES, PIPE_BYTES, READ_BYTES};
use crate::pace::Pace;
use crate::parse::Framing;
use crate::reject::{BODY_TOO_LARGE, NO_ROOM_FOR_BODY, Reject};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

/// Whose body it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) network: Network,
    pub(crate) head_bytes: usize,
}

/// Why the body of a request is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyBroken {
    /// The client disconnected.
    CutOff,
    /// The answer that the client gets: the body is malformed (400), too slow (408) or too long (413), or all
    /// bodies together took too much memory (503).
    Refused(Reject),
}

impl BodyBroken {
    /// The answer for the client.
    pub fn reject(self) -> Reject {
        match self {
            BodyBroken::CutOff => Reject::new(400, "the request body was cut off"),
            BodyBroken::Refused(reject) => reject,
        }
    }
}

impl fmt::Display for BodyBroken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reject().detail)
    }
}

impl std::error::Error for BodyBroken {}

/// What the reader waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The service has not asked yet.
    Nothing,
    Pieces,
    Whole,
}

#[derive(Debug)]
struct Pipe {
    pieces: Pieces,
    wanted: Wanted,
    /// All bytes so far, and how many there may be.
    total_bytes: u64,
    bytes_max: u64,
    /// The memory that [`Bodies`] counts for it.
    counted_bytes: usize,
    moved_ms: u64,
    end: Option<Result<(), BodyBroken>>,
    is_abandoned: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn is_full(&self) -> bool {
        match self.wanted {
            _ if self.is_abandoned => false,
            Wanted::Nothing => true,
            Wanted::Pieces => self.pieces.bytes >= PIPE_BYTES,
            Wanted::Whole => false,
        }
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        bytes as u64 <= self.bytes_max.saturating_sub(self.total_bytes)
    }

    fn push(&mut self, piece: &[u8]) {
        self.pieces.push(piece);
        self.total_bytes += piece.len() as u64;
    }
}

/// Bytes in pieces that never move and are full except the last, so that they take little more memory than
/// their length.
#[derive(Debug, Default)]
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The memory of the pieces.
    held_bytes: usize,
}

impl Pieces {
    fn push(&mut self, bytes: &[u8]) {
        let mut left = bytes;
        if let Some(last) = self.pieces.back_mut() {
            let fits = (last.capacity() - last.len()).min(left.len());
            last.extend_from_slice(&left[..fits]);
            left = &left[fits..];
        }
        self.bytes += bytes.len();
        for left in left.chunks(PIECE_BYTES) {
            let mut piece = Vec::with_capacity(self.held_bytes.min(PIECE_BYTES).max(left.len()));
            piece.extend_from_slice(left);
            self.held_bytes += piece.capacity();
            self.pieces.push_back(piece);
        }
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front()?;
        self.bytes -= piece.len();
        self.held_bytes -= piece.capacity();
        Some(piece)
    }

    /// All pieces as one.
    fn join(&mut self) -> Vec<u8> {
        match self.pieces.len() {
            0 | 1 => self.pop().unwrap_or_default(),
            _ => {
                let mut whole = Vec::with_capacity(self.bytes);
                while let Some(piece) = self.pop() {
                    whole.extend_from_slice(&piece);
                }
                whole
            }
        }
    }
}

/// What both ends of the pipe share.
#[derive(Debug)]
pub(crate) struct Body {
    pipe: Mutex<Pipe>,
    network: Network,
    /// The memory of its request, which waits for it.
    head_bytes: usize,
    bodies: Arc<Bodies>,
    place: usize,
}

impl Body {
    fn new(bodies: &Arc<Bodies>, sender: Sender, now_ms: u64) -> Arc<Body> {
        let Sender { network, head_bytes } = sender;
        bodies.recount(0, head_bytes);
        let pipe = Pipe {
            pieces: Pieces::default(),
            wanted: Wanted::Nothing,
            total_bytes: 0,
            bytes_max: u64::MAX,
            counted_bytes: 0,
            moved_ms: now_ms,
            end: None,
            is_abandoned: false,
            reader: None,
            writer: None,
        };
        Arc::new_cyclic(|body| Body {
            pipe: Mutex::new(pipe),
            network,
            head_bytes,
            place: bodies.enter(Weak::<Body>::clone(body)),
            bodies: bodies.clone(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Pipe> {
        // No code panics while it holds the lock.
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the pipe, and recounts what it holds.
    fn change<R>(&self, change: impl FnOnce(&mut Pipe) -> R) -> R {
        let mut pipe = self.lock();
        let result = change(&mut pipe);
        let bytes = pipe.pieces.held_bytes;
        let before_bytes = std::mem::replace(&mut pipe.counted_bytes, bytes);
        self.bodies.recount(before_bytes, bytes);
        result
    }
}

impl Arriving for Body {
    fn member(&self) -> Member {
        let pipe = self.lock();
        // A body that is complete waits for its reader, not for its client.
        let weight = if pipe.end.is_some() { 0 } else { self.head_bytes + pipe.counted_bytes };
        Member { network: self.network, weight, since_ms: pipe.moved_ms }
    }

    fn end_for_room(&self) {
        let wakers = self.change(|pipe| {
            if pipe.end.is_some() {
                return [None, None];
            }
            pipe.end = Some(Err(BodyBroken::Refused(NO_ROOM_FOR_BODY)));
            pipe.pieces = Pieces::default();
            [pipe.reader.take(), pipe.writer.take()]
        });
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.change(|pipe| pipe.pieces = Pieces::default());
        self.bodies.recount(self.head_bytes, 0);
        self.bodies.leave(self.place);
    }
}

/// The body of a request that is still arriving. Dropping it discards the rest of the body, and the
/// connection ends after the answer.
#[derive(Debug)]
pub struct BodyStream {
    body: Arc<Body>,
    length: Option<u64>,
}

impl BodyStream {
    /// The length that the client announced; `None` for a chunked body.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The body may have at most this many bytes; a longer one is [refused](BodyBroken::Refused) with 413.
    pub fn limit(&mut self, bytes_max: u64) {
        let is_longer = self.length.is_some_and(|length| length > bytes_max);
        self.body.change(|pipe| {
            pipe.bytes_max = bytes_max;
            if (is_longer || pipe.total_bytes > bytes_max) && !matches!(pipe.end, Some(Err(_))) {
                pipe.end = Some(Err(BodyBroken::Refused(BODY_TOO_LARGE)));
            }
        });
    }

    /// The next bytes; `None` when the body has ended.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Vec<u8>, BodyBroken>>> {
        let (next, writer) = self.body.change(|pipe| {
            pipe.wanted = Wanted::Pieces;
            let next = match (pipe.end, pipe.pieces.pop()) {
                // The error goes first: the reader would discard the bytes before it anyway.
                (Some(Err(broken)), _) => Poll::Ready(Some(Err(broken))),
                (_, Some(piece)) => Poll::Ready(Some(Ok(piece))),
                (Some(Ok(())), None) => Poll::Ready(None),
                (None, None) => {
                    pipe.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
            (next, pipe.writer.take())
        });
        writer.into_iter().for_each(Waker::wake);
        next
    }

    /// The whole body, of at most this many bytes.
    ///
    /// # Errors
    /// Why there will be no whole body.
    pub async fn whole(mut self, bytes_max: u64) -> Result<Vec<u8>, BodyBroken> {
        self.limit(bytes_max);
        poll_fn(|cx| self.poll_whole(cx)).await
    }

    fn poll_whole(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, BodyBroken>> {
        let (whole, writer) = self.body.change(|pipe| {
            pipe.wanted = Wanted::Whole;
            let whole = match pipe.end {
                Some(Err(broken)) => Poll::Ready(Err(broken)),
                Some(Ok(())) => Poll::Ready(Ok(pipe.pieces.join())),
                None => {
                    pipe.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
            (whole, pipe.writer.take())
        });
        writer.into_iter().for_each(Waker::wake);
        whole
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        let writer = self.body.change(|pipe| {
            pipe.is_abandoned = true;
            pipe.pieces = Pieces::default();
            pipe.writer.take()
        });
        writer.into_iter().for_each(Waker::wake);
    }
}

/// How the end of the body is found.
#[derive(Debug)]
enum Left {
    Bytes(u64),
    /// The body ends when [`Intake::end`] is called.
    UntilEnded,
    Chunked(ChunkedDecoder),
}

/// The connection's end of the pipe. Dropping it before the body has ended breaks the body.
#[derive(Debug)]
pub(crate) struct Intake {
    body: Arc<Body>,
    left: Left,
    pub(crate) pace: Pace,
    /// Whether the connection ends after this request.
    pub(crate) closes: bool,
    /// Whether nobody wants the body, which is short enough to be read past.
    pub(crate) is_discarded: bool,
}

impl Intake {
    /// Creates both ends of the pipe for a body.
    pub(crate) fn new(
        framing: Framing,
        bodies: &Arc<Bodies>,
        sender: Sender,
        now_ms: u64,
    ) -> (Intake, BodyStream) {
        let (left, length) = match framing {
            Framing::Length(length) => (Left::Bytes(length as u64), Some(length as u64)),
            Framing::Chunked => (Left::Chunked(ChunkedDecoder::new()), None),
        };
        Intake::with(left, length, bodies, sender, now_ms)
    }

    /// The same for a body that ends when [`Intake::end`] is called; `length` is the length that the client
    /// announced.
    pub(crate) fn until_ended(
        length: Option<u64>,
        bodies: &Arc<Bodies>,
        sender: Sender,
        now_ms: u64,
    ) -> (Intake, BodyStream) {
        Intake::with(Left::UntilEnded, length, bodies, sender, now_ms)
    }

    fn with(
        left: Left,
        length: Option<u64>,
        bodies: &Arc<Bodies>,
        sender: Sender,
        now_ms: u64,
    ) -> (Intake, BodyStream) {
        let body = Body::new(bodies, sender, now_ms);
        let stream = BodyStream { body: body.clone(), length };
        (Intake { body, left, pace: Pace::new(now_ms), closes: false, is_discarded: false }, stream)
    }

    /// Whether a body that nobody wants can be read past, so that the connection goes on.
    pub(crate) fn discard(&mut self) -> bool {
        self.is_discarded = match self.left {
            Left::Bytes(left) => left <= READ_BYTES as u64,
            Left::UntilEnded | Left::Chunked(_) => {
                self.body.change(|pipe| pipe.bytes_max = READ_BYTES as u64);
                true
            }
        };
        self.is_discarded
    }

    /// Marks the body as complete.
    pub(crate) fn end(&mut self) {
        self.end_with(Ok(()));
    }

    /// Marks the body as refused.
    pub(crate) fn refuse(&mut self, reject: Reject) {
        self.end_with(Err(BodyBroken::Refused(reject)));
    }

    fn end_with(&mut self, end: Result<(), BodyBroken>) {
        let reader = self.body.change(|pipe| {
            pipe.end.get_or_insert(end);
            pipe.reader.take()
        });
        reader.into_iter().for_each(Waker::wake);
    }

    /// Whether the connection must wait for the reader.
    #[inline(never)]
    pub(crate) fn is_full(&self) -> bool {
        self.body.lock().is_full()
    }

    /// Ready when the pipe has room, or when the reader has dropped its end.
    #[inline(never)]
    pub(crate) fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut pipe = self.body.lock();
        if !pipe.is_full() {
            return Poll::Ready(());
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the reader has dropped its end.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.body.lock().is_abandoned
    }

    /// Takes the next piece of input. Returns how many bytes belong to the body, and whether the body ended.
    pub(crate) fn feed(&mut self, input: &[u8], now_ms: u64) -> Result<(usize, bool), Reject> {
        let left = &mut self.left;
        let (fed, reader) = self.body.change(|pipe| {
            pipe.moved_ms = now_ms;
            let fed = match pipe.end {
                Some(Err(broken)) => Err(broken.reject()),
                _ => take(left, pipe, input),
            };
            match &fed {
                Ok((_, true)) => pipe.end = Some(Ok(())),
                Ok((_, false)) => {}
                Err(reject) => drop(pipe.end.get_or_insert(Err(BodyBroken::Refused(*reject)))),
            }
            if pipe.is_abandoned {
                pipe.pieces = Pieces::default();
            }
            let waits_for_more = pipe.wanted == Wanted::Whole && pipe.end.is_none();
            (fed, if waits_for_more { None } else { pipe.reader.take() })
        });
        reader.into_iter().for_each(Waker::wake);
        self.body.bodies.keep_within();
        fed
    }
}

/// Moves the bytes of a body from the input into its pipe.
fn take(left: &mut Left, pipe: &mut Pipe, input: &[u8]) -> Result<(usize, bool), Reject> {
    match left {
        Left::Bytes(left) => {
            let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
            if !pipe.has_room_for(count) {
                return Err(BODY_TOO_LARGE);
            }
            pipe.push(&input[..count]);
            *left -= count as u64;
            Ok((count, *left == 0))
        }
        Left::UntilEnded if !pipe.has_room_for(input.len()) => Err(BODY_TOO_LARGE),
        Left::UntilEnded => {
            pipe.push(input);
            Ok((input.len(), false))
        }
        Left::Chunked(decoder) => {
            let left_bytes = pipe.bytes_max.saturating_sub(pipe.total_bytes);
            let mut piece = Vec::with_capacity(input.len());
            let fed = decoder.feed(input, &mut piece, usize::try_from(left_bytes).unwrap_or(usize::MAX));
            pipe.push(&piece);
            Ok(match fed? {
                Progress::More => (input.len(), false),
                Progress::Done(count) => (count, true),
            })
        }
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.end_with(Err(BodyBroken::CutOff));
    }
}

impl futures_util::Stream for BodyStream {
    type Item = Result<Vec<u8>, BodyBroken>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        BodyStream::poll_next(self.get_mut(), cx)
    }
}
