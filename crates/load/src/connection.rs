//! One connection: writes requests, reads answers, and knows which requests wait. Has no access to epoll
//! and counts nothing.
//!
//! A connection reads into its worker's buffer. It stores only the unparsed rest of an incomplete
//! answer, so that ten thousand connections fit into memory.

use crate::limits::BODY_BYTES_MAX;
use crate::recorder::Pending;
use crate::redis::Hello;
use crate::response::{Body, BodyStep, HeadParser, Malformed, Response, ResponseHead};
use crate::tls::Tls;
use crate::transport::{Received, Transport};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Not connected. Connected again at `retry_at`, or never.
    Closed,
    /// The socket, or TLS, is being set up.
    Connecting,
    Open,
}

/// An answer whose head has been read.
struct PartialAnswer {
    head: ResponseHead,
    body: Body,
    bytes: u64,
}

/// The answer to a request, when it is complete.
pub(crate) struct Answer {
    pub pending: Pending,
    pub head: ResponseHead,
    /// Bytes of the answer on the wire.
    pub bytes: u64,
}

pub(crate) struct Connection {
    transport: Option<Transport>,
    pub state: State,
    pub pending: VecDeque<Pending>,
    /// The server has announced that it closes: no more requests are sent.
    pub closing: bool,
    /// Whether the connection is in its worker's list of connections with room.
    pub listed: bool,
    /// Whether epoll watches the socket for room to write.
    pub watched_for_room: bool,
    /// When connecting began.
    pub since: Instant,
    /// The earliest time to connect again.
    pub retry_at: Instant,
    /// Attempts in a row without an answer.
    pub failures: u32,
    /// Whether the connection was open before.
    pub was_open: bool,
    /// Requests not yet written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// The received part of an incomplete head, or of an incomplete line of a chunked body.
    rest: Vec<u8>,
    current: Option<PartialAnswer>,
    /// The answer so far, for callbacks that read answers.
    answer_bytes: Vec<u8>,
    /// Replies to the hello that are still missing; `None` before the hello was sent.
    greeting: Option<usize>,
}

impl Connection {
    pub fn new(pipelining: usize, now: Instant) -> Connection {
        Connection {
            transport: None,
            state: State::Closed,
            pending: VecDeque::with_capacity(pipelining),
            closing: false,
            listed: false,
            watched_for_room: false,
            since: now,
            retry_at: now,
            failures: 0,
            was_open: false,
            out: Vec::new(),
            written: 0,
            rest: Vec::new(),
            current: None,
            answer_bytes: Vec::new(),
            greeting: None,
        }
    }

    /// Begins to connect. The caller watches the stream for writing.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        tls: Option<&Tls>,
        now: Instant,
    ) -> io::Result<&TcpStream> {
        self.since = now;
        let transport = Transport::connect(address, tls)?;
        self.state = State::Connecting;
        Ok(self.transport.insert(transport).stream())
    }

    /// Continues connecting. Returns true when the connection is open and the hello was answered.
    pub fn advance(&mut self, buffer: &mut [u8], hello: &Hello) -> io::Result<bool> {
        let transport = self.transport.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        transport.check_connected()?;
        if transport.is_tls() {
            transport.write(&[])?;
            if transport.is_shaking_hands() {
                if transport.read(buffer)? == Received::End {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "closed during the TLS handshake",
                    ));
                }
                transport.write(&[])?;
            }
            if transport.is_shaking_hands() {
                return Ok(false);
            }
        }
        if hello.replies > 0 && !self.greet(buffer, hello)? {
            return Ok(false);
        }
        self.state = State::Open;
        Ok(true)
    }

    /// Sends the hello and reads its replies, one line each. Returns false while replies are missing.
    fn greet(&mut self, buffer: &mut [u8], hello: &Hello) -> io::Result<bool> {
        let transport = self.transport.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut left = match self.greeting {
            Some(left) => left,
            // The socket's buffer is empty: some hundred bytes are written whole, or the connection
            // is broken.
            None if transport.write(&hello.bytes)? < hello.bytes.len() => {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            None => hello.replies,
        };
        while left > 0 {
            let count = match transport.read(buffer)? {
                Received::Bytes(count) => count,
                Received::End => return Err(io::ErrorKind::ConnectionReset.into()),
                Received::Nothing => break,
            };
            for byte in &buffer[..count] {
                if self.rest.is_empty() && *byte == b'-' {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the login is refused"));
                }
                self.rest.push(*byte);
                if *byte == b'\n' {
                    self.rest.clear();
                    left = left.saturating_sub(1);
                }
            }
        }
        self.greeting = Some(left);
        Ok(left == 0)
    }

    pub fn transport(&self) -> Option<&Transport> {
        self.transport.as_ref()
    }

    pub fn stream(&self) -> Option<&TcpStream> {
        self.transport.as_ref().map(Transport::stream)
    }

    /// Closes and discards all bytes. The caller accounts for `pending`.
    pub fn close(&mut self) {
        self.transport = None;
        self.state = State::Closed;
        self.closing = false;
        self.watched_for_room = false;
        self.out.clear();
        self.written = 0;
        self.rest.clear();
        self.answer_bytes.clear();
        self.current = None;
        self.greeting = None;
    }

    /// Where the next request is appended.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what the socket takes. Returns the number of bytes written now, and whether all bytes
    /// are written.
    pub fn flush(&mut self) -> io::Result<(usize, bool)> {
        let transport = self.transport.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let count = transport.write(&self.out[self.written..])?;
        self.written += count;
        let all = self.written == self.out.len();
        if all {
            self.out.clear();
            self.written = 0;
        }
        Ok((count, all && !transport.wants_write()))
    }

    /// Reads once into the worker's buffer, behind the unparsed rest. Returns what was received,
    /// and where the received bytes begin in the buffer.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(Received, usize)> {
        let transport = self.transport.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let from = self.rest.len();
        let received = transport.read(&mut buffer[from..])?;
        if let Received::Bytes(_) = received {
            buffer[..from].copy_from_slice(&self.rest);
            self.rest.clear();
        }
        Ok((received, from))
    }

    /// Stores bytes that are not a complete head or line yet.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// The next whole answer at the start of `input` from `at` on; `None` when more bytes are
    /// needed. Skips interim answers (1xx).
    pub fn next(
        &mut self,
        input: &[u8],
        at: &mut usize,
        heads: &mut HeadReader,
        reads_answers: bool,
    ) -> Result<Option<Answer>, Malformed> {
        loop {
            if self.current.is_none() && !self.begin(input, at, heads, reads_answers)? {
                return Ok(None);
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            loop {
                match current.body.step(&input[*at..])? {
                    BodyStep::Content(count) => {
                        if reads_answers {
                            if self.answer_bytes.len() + count > BODY_BYTES_MAX {
                                return Err(Malformed::TooLarge);
                            }
                            self.answer_bytes.extend_from_slice(&input[*at..*at + count]);
                        }
                        current.bytes += count as u64;
                        *at += count;
                    }
                    BodyStep::Framing(count) => {
                        current.bytes += count as u64;
                        *at += count;
                    }
                    BodyStep::More => return Ok(None),
                    BodyStep::Done => break,
                }
            }
            if let Some(answer) = self.end_answer() {
                return Ok(Some(answer));
            }
        }
    }

    /// Reads a head. Returns false when the head is incomplete.
    fn begin(
        &mut self,
        input: &[u8],
        at: &mut usize,
        heads: &mut HeadReader,
        reads_answers: bool,
    ) -> Result<bool, Malformed> {
        if *at == input.len() {
            return Ok(false);
        }
        let Some(pending) = self.pending.front() else { return Err(Malformed::Unsolicited) };
        let Some(head) = heads.read(&input[*at..], pending.to_head)? else { return Ok(false) };
        if reads_answers {
            self.answer_bytes.clear();
            self.answer_bytes.extend_from_slice(&input[*at..*at + head.head_bytes]);
        }
        *at += head.head_bytes;
        self.current =
            Some(PartialAnswer { head, body: Body::new(head.framing), bytes: head.head_bytes as u64 });
        Ok(true)
    }

    fn end_answer(&mut self) -> Option<Answer> {
        let PartialAnswer { head, bytes, .. } = self.current.take()?;
        let first = self.pending.front_mut()?;
        if head.status < 200 || first.replies_before > 0 {
            first.replies_before = first.replies_before.saturating_sub(1);
            return None;
        }
        let pending = self.pending.pop_front()?;
        self.closing |= head.close;
        Some(Answer { pending, head, bytes })
    }

    /// Called when the server has closed: an answer framed by the close is now whole.
    pub fn end(&mut self) -> Option<Answer> {
        let ends = self.current.as_ref().is_some_and(|current| current.body == Body::UntilClose);
        if ends { self.end_answer() } else { None }
    }

    /// The answer that [`Connection::next`] has just returned, if it was told to store the bytes.
    pub fn last_answer(&self, head: &ResponseHead) -> Response<'_> {
        let (head_bytes, body) = self.answer_bytes.split_at(head.head_bytes);
        Response { status: head.status, head: head_bytes, body }
    }
}

/// Reads heads and compares each with the last one: a server's heads change with the date once a
/// second, so that most need no parsing.
pub(crate) struct HeadReader {
    last: Vec<u8>,
    head: Option<ResponseHead>,
    to_head: bool,
    parse: HeadParser,
}

impl HeadReader {
    pub fn new(parse: HeadParser) -> HeadReader {
        HeadReader { last: Vec::new(), head: None, to_head: false, parse }
    }

    #[inline]
    fn read(&mut self, bytes: &[u8], to_head: bool) -> Result<Option<ResponseHead>, Malformed> {
        // The same bytes up to the empty line are the same head.
        if let Some(head) = self.head.filter(|_| self.to_head == to_head && bytes.starts_with(&self.last)) {
            return Ok(Some(head));
        }
        let head = (self.parse)(bytes, to_head)?;
        if let Some(head) = head {
            self.last.clear();
            self.last.extend_from_slice(&bytes[..head.head_bytes]);
            (self.head, self.to_head) = (Some(head), to_head);
        }
        Ok(head)
    }
}
