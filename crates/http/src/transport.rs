//! What a connection's bytes travel on: a socket, or TLS over one ([`crate::tls`]).
//!
//! A connection is compiled once for each, so that a plain one pays nothing for the other.

use std::io;
use std::task::Context;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

pub(crate) trait Transport: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The socket below.
    fn socket(&self) -> &TcpStream;

    /// Whether bytes that `poll_write` took have not reached the socket.
    fn has_unsent(&self) -> bool;

    /// Passes such bytes to the socket. Returns how many it took; the task is woken when it takes more.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> io::Result<usize>;

    /// Tells the client that nothing more comes, where the protocol has a word for it and the socket takes
    /// it at once.
    fn say_end(&mut self, cx: &mut Context<'_>);
}

impl Transport for TcpStream {
    #[inline(always)]
    fn socket(&self) -> &TcpStream {
        self
    }

    #[inline(always)]
    fn has_unsent(&self) -> bool {
        false
    }

    #[inline(always)]
    fn poll_unsent(&mut self, _cx: &mut Context<'_>) -> io::Result<usize> {
        Ok(0)
    }

    #[inline(always)]
    fn say_end(&mut self, _cx: &mut Context<'_>) {}
}
