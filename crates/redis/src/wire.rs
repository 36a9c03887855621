//! Bytes on a socket: packed commands out, decoded answers in. Counts the bytes that the socket took,
//! because they decide whether a request can have been executed.

use crate::limits;
use bytes::BytesMut;
use redis::{Value, ValueCodec};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio_util::codec::Decoder;

/// A socket, with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection's bytes in both directions.
pub(crate) struct Wire {
    socket: Box<dyn Socket>,
    input: BytesMut,
    codec: ValueCodec,
    sent_bytes: usize,
}

impl Wire {
    pub(crate) fn new(socket: Box<dyn Socket>) -> Wire {
        let input = BytesMut::with_capacity(limits::BUFFER_BYTES);
        Wire { socket, input, codec: ValueCodec::default(), sent_bytes: 0 }
    }

    /// Sends all bytes. After an error or a drop, [`Wire::sent_bytes`] is how many bytes may have arrived.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent_bytes = 0;
        while self.sent_bytes < bytes.len() {
            match self.socket.write(&bytes[self.sent_bytes..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => self.sent_bytes += count,
            }
        }
        self.socket.flush().await
    }

    /// Bytes of the last [`Wire::send`] that the socket took.
    pub(crate) fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    /// The next answer, if it has arrived completely.
    pub(crate) fn ready(&mut self) -> io::Result<Option<Value>> {
        if self.input.is_empty() {
            return Ok(None);
        }
        self.codec.decode(&mut self.input).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Waits for more bytes.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        if self.input.len() > limits::ANSWER_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the answer is larger than any that Redis gives",
            ));
        }
        self.input.reserve(limits::BUFFER_BYTES);
        match self.socket.read_buf(&mut self.input).await? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            _ => Ok(()),
        }
    }

    /// Waits for the next answer.
    pub(crate) async fn answer(&mut self) -> io::Result<Value> {
        loop {
            if let Some(value) = self.ready()? {
                return Ok(value);
            }
            self.fill().await?;
        }
    }

    /// Whether the connection is open and without unread input. Nothing can be sent on a connection that the
    /// server has closed, and an unsolicited message (such as the error for too many clients) would be
    /// mistaken for an answer.
    pub(crate) async fn is_usable(&mut self) -> bool {
        if !self.input.is_empty() {
            return false;
        }
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        poll_fn(|context| {
            Poll::Ready(Pin::new(&mut self.socket).poll_read(context, &mut buffer).is_pending())
        })
        .await
    }
}

/// Appends one command in RESP, from its parts.
pub(crate) fn pack<'a>(out: &mut Vec<u8>, count: usize, parts: impl Iterator<Item = &'a [u8]>) {
    length(out, b'*', count);
    for part in parts {
        length(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn length(out: &mut Vec<u8>, kind: u8, mut number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_packed_as_the_library_does() {
        let long = vec![b'x'; 12_345];
        let parts: [&[u8]; 4] = [b"SET", b"", b"a\r\nb", &long];
        let mut ours = Vec::new();
        pack(&mut ours, parts.len(), parts.iter().copied());
        let mut command = redis::cmd("SET");
        command.arg(b"").arg(b"a\r\nb").arg(&long);
        assert_eq!(ours, command.get_packed_command());
    }

    #[tokio::test]
    async fn answers_come_however_they_are_cut() {
        let bytes = b"+OK\r\n:42\r\n$3\r\na\r\n\r\n*2\r\n$-1\r\n-WRONGTYPE no\r\n";
        for step in 1..bytes.len() {
            let (mut far, near) = tokio::io::duplex(1 << 16);
            let mut wire = Wire::new(Box::new(near));
            let sender = async {
                for part in bytes.chunks(step) {
                    far.write_all(part).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let reader = async {
                assert_eq!(wire.answer().await.unwrap(), Value::Okay);
                assert_eq!(wire.answer().await.unwrap(), Value::Int(42));
                assert_eq!(wire.answer().await.unwrap(), Value::BulkString(b"a\r\n".to_vec()));
                let Value::Array(values) = wire.answer().await.unwrap() else { panic!("no array") };
                assert_eq!(values[0], Value::Nil);
                assert!(matches!(&values[1], Value::ServerError(error) if error.code() == "WRONGTYPE"));
            };
            tokio::join!(sender, reader);
            assert!(wire.is_usable().await);
            drop(far);
            assert!(!wire.is_usable().await);
        }
    }
}
