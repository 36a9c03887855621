//! One connection to an upstream: its buffered input and output.
//!
//! A link belongs to one request at a time, and is polled by the task of that request, without a task in
//! between. Leaves the content of the output to [`crate::body`] and [`crate::forward`], and idle links to
//! [`crate::pool`].

use crate::head::AnswerHead;
use crate::limits::{HEAD_BYTES_MAX, IDLE_BUFFER_BYTES_MAX, READ_BYTES};
use crate::timer::Timer;
use bytes::BufMut;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::unconstrained;
use tokio_util::io::poll_read_buf;

/// A stream that can be read and written.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// The socket, with TLS or without.
pub(crate) enum Socket {
    Plain(TcpStream),
    Secure(Pin<Box<dyn Duplex>>),
}

impl Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut impl BufMut) -> Poll<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => poll_read_buf(Pin::new(stream), cx, out),
            Socket::Secure(stream) => poll_read_buf(stream.as_mut(), cx, out),
        }
    }

    /// Whether nothing can be read: no byte, no end, no error. This bypasses tokio's cooperative budget: a
    /// task that has used up its budget would get `Pending` although bytes are available.
    fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        match self {
            Socket::Plain(stream) => {
                stream.try_read(&mut byte).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
            }
            Socket::Secure(stream) => {
                let reading =
                    unconstrained(poll_fn(|cx| poll_read_buf(stream.as_mut(), cx, &mut &mut byte[..])));
                pin!(reading).poll(&mut Context::from_waker(Waker::noop())).is_pending()
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Secure(stream) => stream.as_mut().poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Plain(_) => Poll::Ready(Ok(())),
            Socket::Secure(stream) => stream.as_mut().poll_flush(cx),
        }
    }
}

/// Why no head of an answer was received.
#[derive(Debug)]
pub(crate) enum NoHead {
    Io(io::Error),
    Malformed(httparse::Error),
    TooLong,
}

/// A connection to an upstream.
pub(crate) struct Link {
    socket: Socket,
    input: Vec<u8>,
    /// The number of consumed bytes of the input.
    used: usize,
    /// Bytes to be written.
    pub(crate) output: Vec<u8>,
    /// The number of written bytes of the output.
    written: usize,
    /// Whether the upstream may have received a part of this request.
    pub(crate) has_sent: bool,
    /// The number of sweeps for which it has been idle.
    pub(crate) idle_sweeps: u32,
    /// The time-out of what its request waits for.
    pub(crate) timer: Timer,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("unread", &self.unread().len()).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(socket: Socket) -> Link {
        let (input, output) = (Vec::new(), Vec::new());
        let timer = Timer::default();
        Link { socket, input, used: 0, output, written: 0, has_sent: false, idle_sweeps: 0, timer }
    }

    /// Bytes that were read but not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.used..]
    }

    /// Marks `count` bytes of the input as consumed.
    pub(crate) fn consume(&mut self, count: usize) {
        self.used += count;
        if self.used >= self.input.len() {
            self.input.clear();
            self.used = 0;
        }
    }

    /// Reads more input; 0 at the end.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.used > 0 {
            self.input.drain(..self.used);
            self.used = 0;
        }
        if self.input.capacity() - self.input.len() < READ_BYTES / 2 {
            self.input.reserve(READ_BYTES);
        }
        self.socket.poll_read(cx, &mut self.input)
    }

    /// Reads at most `bytes_max` bytes directly into `out`; the input must be empty. 0 at the end.
    pub(crate) fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        bytes_max: u64,
    ) -> Poll<io::Result<usize>> {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        if out.capacity() - out.len() < bytes_max.min(READ_BYTES / 2) {
            out.reserve(bytes_max.min(READ_BYTES));
        }
        self.socket.poll_read(cx, &mut out.limit(bytes_max))
    }

    /// Writes the output to its end.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.output.len() {
            let count = ready!(self.socket.poll_write(cx, &self.output[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
            self.has_sent = true;
        }
        self.output.clear();
        self.written = 0;
        self.socket.poll_flush(cx)
    }

    /// The head of the final answer; interim responses are skipped.
    pub(crate) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<AnswerHead, NoHead>> {
        loop {
            if !self.unread().is_empty() {
                match AnswerHead::parse(self.unread()).map_err(NoHead::Malformed)? {
                    Some((head, length)) => {
                        self.consume(length);
                        if head.is_interim() {
                            continue;
                        }
                        return Poll::Ready(Ok(head));
                    }
                    None if self.unread().len() >= HEAD_BYTES_MAX => {
                        return Poll::Ready(Err(NoHead::TooLong));
                    }
                    None => {}
                }
            }
            if ready!(self.poll_more(cx)).map_err(NoHead::Io)? == 0 {
                let closed = "the connection was closed before an answer came";
                return Poll::Ready(Err(NoHead::Io(io::Error::new(io::ErrorKind::UnexpectedEof, closed))));
            }
        }
    }

    /// Whether another request may be sent: the upstream has neither closed the connection nor sent
    /// unsolicited bytes.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.unread().is_empty() && self.socket.is_silent()
    }

    /// Prepares the link for the pool: frees large buffers and resets its counters.
    pub(crate) fn rest(&mut self) {
        for buffer in [&mut self.input, &mut self.output] {
            if buffer.capacity() > IDLE_BUFFER_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        (self.idle_sweeps, self.has_sent) = (0, false);
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let count = self.unread().len().min(out.remaining());
        if count > 0 {
            out.put_slice(&self.unread()[..count]);
            self.consume(count);
            return Poll::Ready(Ok(()));
        }
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, out),
            Socket::Secure(stream) => stream.as_mut().poll_read(cx, out),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Secure(stream) => stream.as_mut().poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::coop::{consume_budget, has_budget_remaining};

    /// Regression: a task that had used up its budget got `Pending` when it checked for bytes, and took a
    /// connection for idle on which the server had sent unsolicited bytes.
    #[tokio::test]
    async fn what_was_said_unasked_is_seen_by_a_task_whose_turn_is_over() {
        let sockets: [fn(TcpStream) -> Socket; 2] =
            [Socket::Plain, |stream| Socket::Secure(Box::pin(stream))];
        for socket in sockets {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let near = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
            let (mut far, _) = listener.accept().await.expect("accepted");
            far.write_all(b"HTTP/1.1 200 OK\r\n").await.expect("sent");
            near.readable().await.expect("arrived");
            let looking = tokio::spawn(async move {
                let mut link = Link::new(socket(near));
                poll_fn(|cx| {
                    while has_budget_remaining() {
                        let _consumed = pin!(consume_budget()).poll(cx);
                    }
                    Poll::Ready(link.is_idle())
                })
                .await
            });
            assert!(!looking.await.expect("looked"));
        }
    }
}
