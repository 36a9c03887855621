//! The transport of HTTP/2: a client's connection, preceded by the bytes that were already read from it.
//!
//! Promises that the bytes of both sides are counted, that a client that takes nothing is noticed, and that
//! the last frames are not lost: after the server's end, the client's further bytes are read and discarded,
//! so that the kernel does not reset the connection before the client has read those frames. Leaves the time
//! to [`super::driver`].

use crate::limits::LINGER_BYTES;
use crate::transport::Transport;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The counters of a [`Wire`]. Read and written by one thread.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    moves: AtomicU64,
    is_blocked: AtomicBool,
    unsent_bytes: AtomicUsize,
    is_ending: AtomicBool,
}

impl Traffic {
    /// Bytes from the client so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Relaxed)
    }

    /// Bytes to the client so far.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Relaxed)
    }

    /// How often the client has taken bytes.
    pub(super) fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// Whether the client does not take the bytes that are waiting for it.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked.load(Relaxed)
    }

    /// Bytes that the socket has not taken.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Relaxed)
    }

    /// Whether the server has shut down its side.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Relaxed)
    }

    fn moved<R>(&self, polled: &Poll<R>) {
        self.is_blocked.store(polled.is_pending(), Relaxed);
        if polled.is_ready() {
            self.moves.fetch_add(1, Relaxed);
        }
    }
}

pub(super) struct Wire<T> {
    stream: T,
    begun: Vec<u8>,
    traffic: Arc<Traffic>,
    is_shut: bool,
    lingered_bytes: usize,
}

impl<T: Transport> Wire<T> {
    /// A connection from which `begun` was already read.
    pub(super) fn new(stream: T, begun: Vec<u8>) -> (Wire<T>, Arc<Traffic>) {
        let traffic = Arc::<Traffic>::default();
        (Wire { stream, begun, traffic: traffic.clone(), is_shut: false, lingered_bytes: 0 }, traffic)
    }

    /// Calls `write` after everything that was written before has been sent.
    fn poll_put(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if self.stream.has_unsent() {
            ready!(self.poll_sent(cx))?;
        }
        let polled = write(Pin::new(&mut self.stream), cx);
        self.traffic.moved(&polled);
        self.traffic.unsent_bytes.store(self.stream.unsent_bytes(), Relaxed);
        if let Poll::Ready(Ok(count)) = polled {
            self.traffic.written_bytes.fetch_add(count as u64, Relaxed);
        }
        polled
    }

    /// Ready when the socket has taken everything.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.poll_unsent(cx)? > 0 {
            self.traffic.moves.fetch_add(1, Relaxed);
        }
        let unsent_bytes = self.stream.unsent_bytes();
        let is_blocked = unsent_bytes > 0;
        self.traffic.unsent_bytes.store(unsent_bytes, Relaxed);
        self.traffic.is_blocked.store(is_blocked, Relaxed);
        if is_blocked { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl<T: Transport> AsyncRead for Wire<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.begun.is_empty() {
            let count = self.begun.len().min(out.remaining());
            out.put_slice(&self.begun[..count]);
            self.begun.drain(..count);
            return Poll::Ready(Ok(()));
        }
        let before = out.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, out);
        self.traffic.read_bytes.fetch_add((out.filled().len() - before) as u64, Relaxed);
        polled
    }
}

impl<T: Transport> AsyncWrite for Wire<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_put(cx, |stream, cx| stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_put(cx, |stream, cx| stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.traffic.is_ending.store(true, Relaxed);
        if !self.is_shut {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.is_shut = true;
        }
        let mut discarded = [0; 4096];
        while self.lingered_bytes < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut discarded);
            // If the client has disconnected, nothing is left to do.
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                break;
            }
            self.lingered_bytes += buffer.filled().len();
        }
        Poll::Ready(Ok(()))
    }
}
