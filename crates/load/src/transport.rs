//! Bytes to and from one server, plain or by TLS. Never blocks.

use crate::results::ErrorKind;
use crate::tls::Tls;
use rustix::io::Errno;
use rustls::ClientConnection;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind as Io, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    Bytes(usize),
    /// The server has closed its side.
    End,
    /// No bytes are available now.
    Nothing,
}

/// One socket.
pub(crate) struct Transport {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Transport {
    /// Begins to connect. The caller watches the stream for writing.
    pub fn connect(address: SocketAddr, tls: Option<&Tls>) -> io::Result<Transport> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        let tls = tls.map(Tls::begin).transpose()?.map(Box::new);
        Ok(Transport { stream: socket.into(), tls })
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether connecting has succeeded; the TLS handshake may still be in progress.
    pub fn check_connected(&self) -> io::Result<()> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        self.stream.peer_addr().map(|_| ())
    }

    pub fn is_shaking_hands(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Whether bytes wait for the socket although the caller wrote none: TLS sends records itself.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Writes as much of `bytes` as possible; returns how many. Fewer than all means that the socket
    /// takes no more now.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return write_some(&mut &self.stream, bytes) };
        let mut taken = 0;
        loop {
            if taken < bytes.len() {
                taken += tls.writer().write(&bytes[taken..])?;
            }
            while tls.wants_write() {
                match tls.write_tls(&mut &self.stream) {
                    Ok(_) => {}
                    Err(error) if error.kind() == Io::Interrupted => {}
                    Err(error) if error.kind() == Io::WouldBlock => return Ok(taken),
                    Err(error) => return Err(error),
                }
            }
            if taken == bytes.len() {
                return Ok(taken);
            }
        }
    }

    /// Reads once. With TLS, call it until nothing is left: bytes that are already decrypted cause no
    /// wake-up.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let Some(tls) = &mut self.tls else { return read_once(&mut &self.stream, buffer) };
        loop {
            match tls.reader().read(buffer) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => return Ok(Received::Bytes(count)),
                Err(error) if error.kind() == Io::WouldBlock => {}
                // The socket ended without TLS's close_notify. Some servers do that; the framing
                // shows whether the answer is complete.
                Err(error) if error.kind() == Io::UnexpectedEof => return Ok(Received::End),
                Err(error) => return Err(error),
            }
            match tls.read_tls(&mut &self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == Io::Interrupted => continue,
                Err(error) if error.kind() == Io::WouldBlock => return Ok(Received::Nothing),
                Err(error) => return Err(error),
            }
            let state = tls.process_new_packets().map_err(|why| io::Error::new(Io::InvalidData, why))?;
            if state.plaintext_bytes_to_read() == 0 && tls.is_handshaking() {
                return Ok(Received::Nothing);
            }
        }
    }
}

fn write_some(stream: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match stream.write(&bytes[written..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) if error.kind() == Io::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

fn read_once(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        return match stream.read(buffer) {
            Ok(0) => Ok(Received::End),
            Ok(count) => Ok(Received::Bytes(count)),
            Err(error) if error.kind() == Io::Interrupted => continue,
            Err(error) if error.kind() == Io::WouldBlock => Ok(Received::Nothing),
            Err(error) => Err(error),
        };
    }
}

/// The kind of an error while connecting, or on an open connection.
pub(crate) fn kind_of(error: &io::Error, connected: bool) -> ErrorKind {
    match error.kind() {
        Io::InvalidData => return ErrorKind::Tls,
        // This error comes from the server, not from the kernel.
        Io::PermissionDenied if error.raw_os_error().is_none() => return ErrorKind::Server,
        _ => {}
    }
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED) => ErrorKind::Refused,
        Some(Errno::TIMEDOUT) if !connected => ErrorKind::ConnectTimeout,
        Some(Errno::TIMEDOUT) => ErrorKind::Timeout,
        Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE | Errno::AGAIN) => ErrorKind::PortsExhausted,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => ErrorKind::FilesExhausted,
        Some(Errno::CONNRESET | Errno::PIPE) => ErrorKind::Reset,
        _ if connected => ErrorKind::Reset,
        _ => ErrorKind::Unreachable,
    }
}
