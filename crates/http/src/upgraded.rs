//! The answer 101: returned by a service for a connection that continues in another protocol.
//! [`crate::tunnel`] serves such a connection.

use std::fmt;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream that can be read and written.
pub trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Duplex for T {}

/// A callback at the end of a tunnel, with the number of bytes that were sent to the client.
pub type TunnelEnd = Box<dyn FnOnce(u64) + Send>;

/// The answer 101: the connection speaks another protocol from here on.
pub struct Upgraded {
    /// Complete header lines, written by [`crate::HeaderLines`], including Upgrade. The engine writes
    /// Connection.
    pub lines: Vec<u8>,
    /// The upstream that speaks the other protocol.
    pub far: Pin<Box<dyn Duplex>>,
    /// The longest time without a moved byte before the tunnel ends, in milliseconds.
    pub silence_ms: u64,
    /// The callbacks for the end of the tunnel; dropped uncalled when the tunnel never began.
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
