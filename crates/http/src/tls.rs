//! TLS over a client's socket, by rustls without internal buffers.
//!
//! Records are read into a buffer of the thread and decrypted there; answers are encrypted into one buffer
//! that is written with one call. An idle connection stores the session and no buffer. Promises: the memory
//! that a client can occupy is bounded (one handshake message, one record, one write of
//! [`ENCRYPTED_BYTES_MAX`]); an alert is sent before the connection is dropped, as far as the socket takes
//! it. Leaves certificates, versions and protocols to the [`ServerConfig`], and time to the worker and the
//! connection.

use crate::limits::{ENCRYPTED_BYTES_MAX, READ_BYTES, RECORD_OVERHEAD_BYTES, RECORD_PLAIN_BYTES_MAX};
use crate::transport::Transport;
use rustls::ServerConfig;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus,
    WriteTraffic,
};
use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

thread_local! {
    /// The buffer that records are read into; its content is never used across a return to the runtime.
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// A spare buffer for outgoing records.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The answer to a client that speaks HTTP to a TLS listener.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n\
    Connection: close\r\nContent-Length: 100\r\n\r\n\
    {\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":\"this listener speaks HTTPS only\"}";

/// The protocol of a client that only fetches a certificate, to validate control of a domain (RFC 8737).
pub const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

type Traffic<'a> = WriteTraffic<'a, ServerConnectionData>;

/// One client's connection over TLS.
pub(crate) struct Tls {
    socket: TcpStream,
    session: Box<UnbufferedServerConnection>,
    /// Records that are incomplete, or for which the reader had no room.
    incoming: Vec<u8>,
    /// Whether `incoming`, or the session, may contain something for the reader.
    unread: bool,
    /// The decrypted bytes for which the reader had no room.
    plain: Vec<u8>,
    /// Records to be written to the socket; `sent_bytes` counts those that it took.
    outgoing: Vec<u8>,
    sent_bytes: usize,
    is_ending: bool,
    /// The client sent close_notify.
    has_ended: bool,
    failed: bool,
}

impl Tls {
    /// # Errors
    /// A configuration that rustls refuses.
    pub(crate) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Tls, rustls::Error> {
        Ok(Tls {
            socket,
            session: Box::new(UnbufferedServerConnection::new(config)?),
            incoming: Vec::new(),
            unread: false,
            plain: Vec::new(),
            outgoing: Vec::new(),
            sent_bytes: 0,
            is_ending: false,
            has_ended: false,
            failed: false,
        })
    }

    /// Ready when the handshake is over.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.is_handshaking() {
            self.poll_unsent(cx)?;
            if ready!(self.poll_records(cx, &mut ReadBuf::new(&mut [])))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        self.poll_unsent(cx)?;
        Poll::Ready(Ok(()))
    }

    /// The socket below, for a connection that does not continue with TLS.
    pub(crate) fn into_socket(self) -> TcpStream {
        self.socket
    }

    /// Whether the two sides negotiated HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(b"h2")
    }

    /// Whether the client only fetched a certificate.
    pub(crate) fn is_certificate_probe(&self) -> bool {
        self.session.alpn_protocol() == Some(ACME_PROTOCOL)
    }

    /// Reads once from the socket and decrypts the records. Returns how many bytes were read.
    fn poll_records(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let before = self.incoming.len();
        if before >= READ_BYTES {
            let what = "a handshake message is too long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        let mut records = RECORDS.take();
        records.resize(READ_BYTES, 0);
        records[..before].copy_from_slice(&self.incoming);
        let mut buffer = ReadBuf::new(&mut records[before..]);
        let polled = Pin::new(&mut self.socket).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        let done = match polled {
            Poll::Ready(Ok(())) if count > 0 => {
                let arrived = &mut records[..before + count];
                Poll::Ready(self.take_records(cx, arrived, out).map(|used| {
                    self.incoming.clear();
                    self.incoming.extend_from_slice(&arrived[used..]);
                    count
                }))
            }
            polled => polled.map_ok(|()| count),
        };
        RECORDS.set(records);
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        done
    }

    /// Decrypts records that earlier reads left in `incoming`.
    fn take_unread(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> io::Result<()> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let used = self.take_records(cx, &mut incoming, out)?;
        incoming.drain(..used);
        self.incoming = incoming;
        Ok(())
    }

    /// Decrypts records from the start of `incoming` while `out` has room for their content. Returns how
    /// many bytes were used.
    fn take_records(
        &mut self,
        cx: &mut Context<'_>,
        incoming: &mut [u8],
        out: &mut ReadBuf<'_>,
    ) -> io::Result<usize> {
        self.unread = false;
        let taken = self.run(incoming, Some(out), |_, _| Ok(()));
        if taken.is_err() {
            // The alert states the reason; the connection ends whether or not the alert is sent.
            let _alert = self.poll_unsent(cx);
        }
        taken.map(|(used, _)| used)
    }

    /// Runs `write` when the session can send; fails when it cannot.
    fn send(
        &mut self,
        write: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        // The session must see again the partial message that it has already seen.
        let mut incoming = std::mem::take(&mut self.incoming);
        let (used, written) = self.run(&mut incoming, None, write)?;
        incoming.drain(..used);
        self.incoming = incoming;
        written.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    /// Lets the session process `incoming` until it can send or needs more input. Decrypted bytes go to
    /// `out`, and beyond its room to `plain`; with a full `out` it stops. Returns how many bytes were used,
    /// and the result of `at_traffic` if the session can send.
    fn run<R>(
        &mut self,
        incoming: &mut [u8],
        mut out: Option<&mut ReadBuf<'_>>,
        at_traffic: impl FnOnce(&mut Traffic<'_>, &mut Vec<u8>) -> io::Result<R>,
    ) -> io::Result<(usize, Option<R>)> {
        let mut used = 0;
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.session.process_tls_records(&mut incoming[used..]);
            let mut is_full = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(broken)?;
                        discard += record.discard;
                        let fits = out.as_ref().map_or(0, |out| record.payload.len().min(out.remaining()));
                        let (now, later) = record.payload.split_at(fits);
                        if let Some(out) = &mut out {
                            out.put_slice(now);
                        }
                        self.plain.extend_from_slice(later);
                    }
                    self.unread = !self.plain.is_empty();
                    is_full = self.unread && out.is_some();
                }
                Ok(ConnectionState::EncodeTlsData(mut message)) => encode(&mut message, &mut self.outgoing)?,
                Ok(ConnectionState::TransmitTlsData(message)) => message.done(),
                Ok(ConnectionState::PeerClosed) => self.has_ended = true,
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let done = at_traffic(&mut traffic, &mut self.outgoing)?;
                    return Ok((used + discard, Some(done)));
                }
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => {
                    return Ok((used + discard, None));
                }
                // Early data is not offered: an attacker could send it again.
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) => {
                    self.fail(&mut incoming[used + discard..]);
                    return Err(broken(error));
                }
            }
            used += discard;
            if is_full {
                return Ok((used, None));
            }
        }
    }

    /// The session has failed: queues the alert for the client, after everything that was queued before.
    #[cold]
    fn fail(&mut self, incoming: &mut [u8]) {
        let is_first = !std::mem::replace(&mut self.failed, true);
        if is_first && self.session.is_handshaking() && begins_like_http(incoming) {
            self.outgoing.extend_from_slice(PLAIN_HTTP);
            return;
        }
        let mut used = 0;
        loop {
            let UnbufferedStatus { discard, state } = self.session.process_tls_records(&mut incoming[used..]);
            // Without the alert the client sees only the closed connection.
            let Ok(ConnectionState::EncodeTlsData(mut message)) = state else { return };
            if encode(&mut message, &mut self.outgoing).is_err() {
                return;
            }
            used += discard;
        }
    }

    /// Encrypts as much of the slices as one write takes. Returns the number of plain bytes.
    fn encrypt<'a>(&mut self, slices: impl Iterator<Item = &'a [u8]>) -> io::Result<usize> {
        if self.outgoing.capacity() == 0 {
            self.outgoing = SPARE.take();
        }
        let mut count = 0;
        self.send(|traffic, outgoing| {
            for slice in slices {
                let part = &slice[..slice.len().min(ENCRYPTED_BYTES_MAX - count)];
                if !part.is_empty() {
                    let records = part.len() / RECORD_PLAIN_BYTES_MAX + 2;
                    append(outgoing, part.len() + records * RECORD_OVERHEAD_BYTES, |room| {
                        traffic.encrypt(part, room).map_err(|error| match error {
                            EncryptError::InsufficientSize(size) => Some(size),
                            EncryptError::EncryptExhausted => None,
                        })
                    })?;
                    count += part.len();
                }
            }
            Ok(())
        })?;
        Ok(count)
    }

    fn poll_encrypted<'a>(
        &mut self,
        cx: &mut Context<'_>,
        slices: impl Iterator<Item = &'a [u8]>,
    ) -> Poll<io::Result<usize>> {
        if self.has_unsent() {
            self.poll_unsent(cx)?;
            if self.has_unsent() {
                return Poll::Pending;
            }
        }
        let count = self.encrypt(slices)?;
        self.poll_unsent(cx)?;
        Poll::Ready(Ok(count))
    }

    /// Queues close_notify after everything that was written, once.
    fn end(&mut self) -> io::Result<()> {
        if self.failed || self.session.is_handshaking() || std::mem::replace(&mut self.is_ending, true) {
            return Ok(());
        }
        self.send(|traffic, outgoing| {
            append(outgoing, RECORD_OVERHEAD_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(|error| match error {
                    EncryptError::InsufficientSize(size) => Some(size),
                    EncryptError::EncryptExhausted => None,
                })
            })
        })
    }
}

/// Appends a message of the handshake to `out`.
fn encode(message: &mut EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>) -> io::Result<()> {
    append(out, RECORD_OVERHEAD_BYTES, |room| {
        message.encode(room).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => Some(size),
            EncodeError::AlreadyEncoded => None,
        })
    })
}

/// Whether a client speaks HTTP without TLS: a method begins with a letter, a TLS record does not.
fn begins_like_http(incoming: &[u8]) -> bool {
    incoming.first().is_some_and(u8::is_ascii_uppercase)
}

/// Appends what `write` puts into `room_bytes` of room, or into as much as `write` asks for.
fn append(
    out: &mut Vec<u8>,
    room_bytes: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<InsufficientSizeError>>,
) -> io::Result<()> {
    let before = out.len();
    out.resize(before + room_bytes, 0);
    let mut written = write(&mut out[before..]);
    if let Err(Some(size)) = written {
        out.resize(before + size.required_size, 0);
        written = write(&mut out[before..]);
    }
    out.truncate(before + written.as_ref().unwrap_or(&0));
    written.map(drop).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl Transport for Tls {
    fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn unsent_bytes(&self) -> usize {
        self.outgoing.len() - self.sent_bytes
    }

    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let before = self.sent_bytes;
        while self.has_unsent() {
            match Pin::new(&mut self.socket).poll_write(cx, &self.outgoing[self.sent_bytes..])? {
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => self.sent_bytes += count,
                Poll::Pending => return Ok(self.sent_bytes - before),
            }
        }
        let count = self.sent_bytes - before;
        if self.outgoing.capacity() > 0 {
            self.sent_bytes = 0;
            self.outgoing.clear();
            SPARE.set(std::mem::take(&mut self.outgoing));
        }
        Ok(count)
    }

    fn say_end(&mut self, cx: &mut Context<'_>) {
        // The connection ends in either case.
        let _said = self.end().and_then(|()| self.poll_unsent(cx));
    }
}

impl AsyncRead for Tls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = out.filled().len();
        let count = self.plain.len().min(out.remaining());
        if count > 0 {
            out.put_slice(&self.plain[..count]);
            self.plain.drain(..count);
            if !self.plain.is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.plain = Vec::new();
        }
        if self.unread {
            self.take_unread(cx, out)?;
        }
        while out.filled().len() == before && !self.has_ended {
            if self.failed {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if ready!(self.poll_records(cx, out))? == 0 {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_encrypted(cx, std::iter::once(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_encrypted(cx, slices.iter().map(|slice| &**slice))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_unsent(cx)?;
        if self.has_unsent() { Poll::Pending } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end()?;
        ready!(self.as_mut().poll_flush(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
