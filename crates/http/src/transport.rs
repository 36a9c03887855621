//! The transport of a connection's bytes: a socket, or TLS over one ([`crate::tls`]).
//!
//! A connection is compiled once for each transport, so that a plain connection does not pay for TLS.

use std::io;
use std::task::Context;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The socket below.
    fn socket(&self) -> &TcpStream;

    /// How many bytes the socket has not taken of those that `poll_write` took.
    fn unsent_bytes(&self) -> usize;

    fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0
    }

    /// Passes these bytes to the socket. Returns how many it took; the task is woken when the socket takes
    /// more.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> io::Result<usize>;

    /// Announces the end of the bytes to the client, if the protocol has a message for that and the socket
    /// takes it at once.
    fn say_end(&mut self, cx: &mut Context<'_>);
}

impl Transport for TcpStream {
    #[inline(always)]
    fn socket(&self) -> &TcpStream {
        self
    }

    #[inline(always)]
    fn unsent_bytes(&self) -> usize {
        0
    }

    #[inline(always)]
    fn poll_unsent(&mut self, _cx: &mut Context<'_>) -> io::Result<usize> {
        Ok(0)
    }

    #[inline(always)]
    fn say_end(&mut self, _cx: &mut Context<'_>) {}
}
