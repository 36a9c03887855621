//! The answer 101: what a service gives for a connection that goes on in another protocol. [`crate::tunnel`]
//! serves such a connection.

use std::fmt;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// What can be read from and written to.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// What is called when a tunnel ends, with the number of bytes that the client was sent.
pub type TunnelEnd = Box<dyn FnOnce(u64) + Send>;

/// The answer 101: the connection speaks another protocol from here on.
pub struct Upgraded {
    /// Complete header lines, written by [`crate::HeaderLines`], Upgrade among them. Connection is the
    /// engine's.
    pub lines: Vec<u8>,
    /// The server that speaks the other protocol.
    pub far: Pin<Box<dyn Duplex>>,
    /// How long no byte may move before the tunnel ends, in milliseconds.
    pub silence_ms: u64,
    /// What is called at the end, or dropped when the tunnel never began.
    pub ends: Vec<TunnelEnd>,
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded").field("silence_ms", &self.silence_ms).finish_non_exhaustive()
    }
}

impl Upgraded {
    /// Writes the head of the answer.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n");
        out.extend_from_slice(&self.lines);
        out.extend_from_slice(b"\r\n");
    }
}
