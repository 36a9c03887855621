//! A connection after 101 (RFC 9110 section 7.8): bytes pass both ways, uninspected, between the client and
//! the upstream that accepted the new protocol.
//!
//! Promises: each direction has at most one read in progress, so that the slower side sets the pace and an
//! idle tunnel owns no buffer; the end of one side's bytes is passed on, and the other direction continues;
//! a tunnel in which no byte moves for `silence_ms` ends; a stop passes on what was read and ends the
//! tunnel. Leaves the head of the 101 to [`crate::connection`], and the content to the two sides.

use crate::Service;
use crate::client::Network;
use crate::connection::ContinuedConnection;
use crate::limits::{ANSWER_BYTES_SMALL, TURNS_PER_POLL};
use crate::local::{Idle, Registration, Stopping, WorkerState};
use crate::transport::Transport;
use crate::upgraded::{Duplex, TunnelEnd, Upgraded};
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes from one side to the other.
#[derive(Default)]
struct Direction {
    /// Bytes that were read but not yet written.
    left: Bytes,
    /// No more bytes are read.
    has_ended: bool,
    /// The end was passed on to the receiving side.
    is_over: bool,
    moved_bytes: u64,
}

impl Direction {
    /// Moves as many bytes as possible; ready when the direction is over.
    fn poll_move(
        &mut self,
        cx: &mut Context<'_>,
        mut from: Pin<&mut (impl AsyncRead + ?Sized)>,
        mut to: Pin<&mut (impl AsyncWrite + ?Sized)>,
        scratch: &mut [u8],
    ) -> Poll<io::Result<()>> {
        if self.is_over {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..TURNS_PER_POLL {
            while self.left.has_remaining() {
                let count = ready!(to.as_mut().poll_write(cx, &self.left))?;
                self.count(count)?;
                self.left.advance(count);
            }
            if self.has_ended {
                ready!(to.as_mut().poll_shutdown(cx))?;
                self.is_over = true;
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(scratch);
            if from.as_mut().poll_read(cx, &mut buffer)?.is_pending() {
                // TLS buffers what it has not sent; it wakes the task when it can send more.
                let _flushed = to.as_mut().poll_flush(cx)?;
                return Poll::Pending;
            }
            let read = buffer.filled();
            self.has_ended = read.is_empty();
            if let (false, Poll::Ready(count)) = (read.is_empty(), to.as_mut().poll_write(cx, read)?) {
                self.count(count)?;
                self.left = Bytes::copy_from_slice(&read[count..]);
            } else {
                self.left = Bytes::copy_from_slice(read);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn count(&mut self, written: usize) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.moved_bytes += written as u64;
        Ok(())
    }
}

/// Calls the end callbacks, also when the tunnel is dropped.
struct Ending {
    ends: Vec<TunnelEnd>,
    sent_bytes: u64,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let sent_bytes = self.sent_bytes;
        self.ends.drain(..).for_each(|end| end(sent_bytes));
    }
}

/// Both directions, and the longest time without a moved byte.
struct Tunnel<T> {
    client: T,
    far: Pin<Box<dyn Duplex>>,
    up: Direction,
    down: Direction,
    silence_ms: u64,
    deadline_ms: u64,
    moved_ms: u64,
    network: Network,
    place: Option<Registration>,
    ending: Ending,
}

impl<T: Transport> Tunnel<T> {
    /// Ready when both directions are over, when one side has failed, or when nothing moved for too long.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((mut scratch, stops)) =
            WorkerState::with(|local| (local.take_scratch(), local.stopping >= Stopping::Closing))
        else {
            return Poll::Ready(());
        };
        if stops {
            (self.up.has_ended, self.down.has_ended) = (true, true);
        }
        let before = (self.up.moved_bytes, self.down.moved_bytes);
        let up = self.up.poll_move(cx, Pin::new(&mut self.client), self.far.as_mut(), &mut scratch);
        let down = self.down.poll_move(cx, self.far.as_mut(), Pin::new(&mut self.client), &mut scratch);
        self.ending.sent_bytes = self.down.moved_bytes;
        let (up_bytes, down_bytes) = (self.up.moved_bytes - before.0, self.down.moved_bytes - before.1);
        let is_silent = WorkerState::with(|local| {
            local.scratch = scratch;
            local.read_bytes += up_bytes;
            local.written_bytes += down_bytes;
            local.publish();
            if up_bytes + down_bytes > 0 || self.place.is_none() {
                self.place.get_or_insert_with(|| local.register(cx.waker().clone()));
                self.deadline_ms = local.now_ms + self.silence_ms;
                self.moved_ms = local.now_ms;
            }
            let idle = match self.up.left.len() + self.down.left.len() {
                bytes if bytes > ANSWER_BYTES_SMALL => {
                    Idle::Sending { since_ms: self.moved_ms, network: self.network, bytes }
                }
                _ => Idle::No,
            };
            let key = self.place.as_ref().expect("it was registered").key();
            local.set_deadline(key, self.deadline_ms, idle) || self.deadline_ms <= local.now_ms
        });
        match (up, down) {
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(()),
            // One side has failed, so neither direction can continue.
            (Poll::Ready(Err(_)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(()),
            _ if is_silent != Some(false) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

/// Passes bytes both ways until the tunnel ends.
pub(crate) async fn serve<S: Service, T: Transport>(begun: ContinuedConnection<S, T>, upgraded: Upgraded) {
    let ContinuedConnection { stream: client, origin, counted, input, .. } = begun;
    let Upgraded { far, silence_ms, ends, .. } = upgraded;
    let mut tunnel = Tunnel {
        client,
        far,
        up: Direction { left: input.into(), ..Direction::default() },
        down: Direction::default(),
        silence_ms,
        deadline_ms: u64::MAX,
        moved_ms: 0,
        network: Network::of(origin.peer.ip()),
        place: None,
        ending: Ending { ends, sent_bytes: 0 },
    };
    poll_fn(|cx| tunnel.poll(cx)).await;
    drop(counted);
}
