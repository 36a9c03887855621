//! One connection: bytes out, bytes in, and which requests wait for an answer. Knows no epoll and counts nothing.

use crate::limits::READ_BYTES;
use crate::response::{Head, Malformed, Response, parse_head};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// A request without its answer.
#[derive(Clone, Copy)]
pub(crate) struct Pending {
    /// When its latency begins.
    pub since: Instant,
    /// When it was given to the socket: what the time-out counts from.
    pub sent: Instant,
    pub to_head: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing there: made anew at the next sweep, or never.
    Closed,
    Connecting,
    Open,
}

/// What a read came to.
pub(crate) enum Received {
    Bytes(usize),
    /// The server has closed its side.
    End,
    /// Nothing there now.
    Nothing,
}

pub(crate) struct Connection {
    stream: Option<TcpStream>,
    pub state: State,
    pub pending: VecDeque<Pending>,
    /// The server has said that it closes: nothing more is sent.
    pub closing: bool,
    /// Requests not yet written, from `written` on.
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// The head of an answer whose body has not come whole.
    head: Option<Head>,
}

impl Connection {
    pub fn new(pipelining: usize) -> Connection {
        Connection {
            stream: None,
            state: State::Closed,
            pending: VecDeque::with_capacity(pipelining),
            closing: false,
            out: Vec::with_capacity(4096),
            written: 0,
            input: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            head: None,
        }
    }

    /// Begins to connect. The stream is to be watched for writing.
    pub fn connect(&mut self, address: SocketAddr) -> io::Result<&TcpStream> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        match socket.connect(&address.into()) {
            Err(error) if error.raw_os_error() != Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {
                return Err(error);
            }
            _ => {}
        }
        self.state = State::Connecting;
        Ok(self.stream.insert(socket.into()))
    }

    /// Whether connecting has succeeded.
    pub fn connected(&mut self) -> io::Result<()> {
        let stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        stream.peer_addr()?;
        self.state = State::Open;
        Ok(())
    }

    pub fn stream(&self) -> Option<&TcpStream> {
        self.stream.as_ref()
    }

    /// Closes, forgets all bytes, and returns how many requests will have no answer.
    pub fn close(&mut self) -> usize {
        self.stream = None;
        self.state = State::Closed;
        self.closing = false;
        self.out.clear();
        self.written = 0;
        (self.start, self.end) = (0, 0);
        self.head = None;
        let lost = self.pending.len();
        self.pending.clear();
        lost
    }

    /// Where the next request is appended.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what it can; true when all is written. The count is of bytes written now.
    pub fn flush(&mut self) -> io::Result<(usize, bool)> {
        let mut stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let before = self.written;
        while self.written < self.out.len() {
            match stream.write(&self.out[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok((self.written - before, false));
                }
                Err(error) => return Err(error),
            }
        }
        let count = self.written - before;
        self.out.clear();
        self.written = 0;
        Ok((count, true))
    }

    /// Reads once.
    pub fn receive(&mut self) -> io::Result<Received> {
        self.make_room();
        let mut stream = self.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            return match stream.read(&mut self.input[self.end..]) {
                Ok(0) => Ok(Received::End),
                Ok(count) => {
                    self.end += count;
                    Ok(Received::Bytes(count))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
                Err(error) => Err(error),
            };
        }
    }

    /// Moves what is left to the front and grows only when an answer does not fit.
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.input.len() - self.end >= READ_BYTES {
            return;
        }
        self.input.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let answer = self.head.map_or(0, |head| head.head_bytes + head.body_bytes);
        let needed = answer.max(self.end) + READ_BYTES;
        if self.input.len() < needed {
            self.input.resize(needed, 0);
        }
    }

    /// The next whole answer and the request it belongs to; `None` when more bytes are needed. Interim answers (1xx) are passed over.
    pub fn next(&mut self) -> Result<Option<(Pending, Head, Response<'_>)>, Malformed> {
        loop {
            if self.start == self.end {
                return Ok(None);
            }
            let Some(pending) = self.pending.front().copied() else { return Err(Malformed::Unsolicited) };
            let head = match self.head {
                Some(head) => head,
                None => match parse_head(&self.input[self.start..self.end], pending.to_head)? {
                    Some(head) => *self.head.insert(head),
                    None => return Ok(None),
                },
            };
            let whole = head.head_bytes + head.body_bytes;
            if self.end - self.start < whole {
                return Ok(None);
            }
            let from = self.start;
            self.start += whole;
            self.head = None;
            if head.status < 200 {
                continue;
            }
            self.pending.pop_front();
            self.closing |= head.close;
            let (head_bytes, body) = self.input[from..from + whole].split_at(head.head_bytes);
            return Ok(Some((pending, head, Response { status: head.status, head: head_bytes, body })));
        }
    }

    /// What was read and not yet understood.
    pub fn rest(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }
}
