//! A constant load over HTTP/2 and TLS, by a client that does only what RFC 9113 requires.
//!
//! Each connection has its own thread, which sends the due requests in one write and reads until all are
//! answered. After a GOAWAY it finishes the connection and continues with a new one.

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Streams of a connection at one time: the least that the server allows.
const STREAMS_MAX: u64 = 100;
/// How often a connection checks for due requests.
const TICK: Duration = Duration::from_millis(2);
/// Timeout for an answer and for the end of a connection.
const TIMEOUT: Duration = Duration::from_secs(60);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// The counts of a load. Any answer other than 200 has panicked.
#[derive(Default, Debug)]
pub(super) struct LoadCounts {
    /// Requests, each of which was answered 200.
    pub(super) answered: u64,
    /// Connections that the server has ended, each by GOAWAY and close_notify.
    pub(super) ended: u64,
}

/// Sends POST requests to this path at a constant rate.
pub(super) fn load(
    address: SocketAddr,
    tls: &Arc<ClientConfig>,
    path: &str,
    rate_per_s: u64,
    seconds: u64,
) -> LoadCounts {
    let connections = 8;
    let run = |place: u64| {
        let rate_per_s = rate_per_s / connections + u64::from(place < rate_per_s % connections);
        let (tls, block) = (tls.clone(), request(path));
        let ask = move || ask(|| Connection::open(address, tls.clone()), &block, rate_per_s, seconds);
        thread::Builder::new().name(format!("http2-{place}")).spawn(ask).expect("a thread")
    };
    let threads: Vec<_> = (0..connections).map(run).collect();
    let mut all = LoadCounts::default();
    for thread in threads {
        let told = thread.join().expect("every request was answered well");
        all.answered += told.answered;
        all.ended += told.ended;
    }
    all
}

/// A field block (RFC 7541) that does not use the dynamic table.
fn request(path: &str) -> Vec<u8> {
    let text = |value: &str| [&[u8::try_from(value.len()).expect("short")], value.as_bytes()].concat();
    // `:method POST` and `:scheme https` are in the static table, as are the names `:path` and `:authority`.
    [&[0x83, 0x87, 0x04][..], &text(path), &[0x01], &text("localhost")].concat()
}

fn ask(open: impl Fn() -> Connection, block: &[u8], rate_per_s: u64, seconds: u64) -> LoadCounts {
    let (mut told, mut sent, began) = (LoadCounts::default(), 0, Instant::now());
    let mut connection = open();
    let all = rate_per_s * seconds;
    while sent < all {
        let due = ((began.elapsed().as_secs_f64() * rate_per_s as f64) as u64).min(all) - sent;
        if due == 0 {
            thread::sleep(TICK);
            continue;
        }
        if connection.last_stream.is_some() {
            std::mem::replace(&mut connection, open()).finish();
            told.ended += 1;
        }
        let now = due.min(STREAMS_MAX);
        connection.send(block, now);
        let answered = connection.receive(now);
        // Requests that the server reports as not processed are sent again: they are still due.
        sent += answered;
        told.answered += answered;
    }
    told
}

struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// Bytes of an incomplete frame.
    input: Vec<u8>,
    next_stream: u32,
    /// The last stream of the latest GOAWAY: no later stream is answered.
    last_stream: Option<u32>,
    has_ended: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

impl Connection {
    fn open(address: SocketAddr, tls: Arc<ClientConfig>) -> Connection {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).expect("no connection is refused");
        stream.set_nodelay(true).expect("a live socket");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a live socket");
        let session = ClientConnection::new(tls, "localhost".try_into().expect("a name")).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        // The dynamic table has size 0, so that every block can be decoded by itself.
        let settings = frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        let window = frame(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes());
        stream.write_all(&[PREFACE, &settings, &window].concat()).expect("a handshake, and a preface");
        Connection { stream, input: Vec::new(), next_stream: 1, last_stream: None, has_ended: false }
    }

    /// Sends the requests in one write. If the server has closed the connection, the reader
    /// notices.
    fn send(&mut self, block: &[u8], count: u64) {
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.extend(frame(HEADERS, END_STREAM | END_HEADERS, self.next_stream, block));
            self.next_stream += 2;
        }
        match self.stream.write_all(&frames) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.expect("a live connection"),
        }
    }

    /// Reads until the last `count` requests are answered. Returns how many were answered rather than left to
    /// another connection.
    fn receive(&mut self, count: u64) -> u64 {
        let first = self.next_stream - 2 * u32::try_from(count).expect("few");
        let mut answered = 0;
        loop {
            // Odd stream numbers below the next one, and not above the last one served.
            let end = self
                .last_stream
                .map_or(self.next_stream, |last| self.next_stream.min(last.saturating_add(1)));
            let expected = u64::from(end.saturating_sub(first).div_ceil(2));
            if answered == expected {
                return answered;
            }
            assert!(!self.has_ended, "{answered} of {expected} answers before the end");
            answered += self.read();
        }
    }

    /// The server has sent GOAWAY, and everything is answered: it must now close in order.
    fn finish(mut self) {
        while !self.has_ended {
            assert_eq!(self.read(), 0, "an answer to nothing");
        }
    }

    /// Reads once. Returns how many answers ended in it.
    fn read(&mut self) -> u64 {
        let mut buffer = [0; 64 * 1024];
        // An end without close_notify is an error.
        let count = self.stream.read(&mut buffer).expect("a live connection, or close_notify");
        self.has_ended = count == 0;
        self.input.extend_from_slice(&buffer[..count]);
        let (mut at, mut answered) = (0, 0);
        while let Some(head) = self.input.get(at..at + 9) {
            let (kind, flags, stream) = (head[3], head[4], number(&head[5..9]) & 0x7fff_ffff);
            let end = at + 9 + number(&head[..3]) as usize;
            let Some(payload) = self.input.get(at + 9..end) else { break };
            let reply = match kind {
                HEADERS => {
                    // The first block begins with the size of the table.
                    let fields = payload.iter().skip_while(|byte| **byte == 0x20);
                    assert_eq!(fields.clone().next(), Some(&0x88), "stream {stream} is not answered 200");
                    None
                }
                SETTINGS if flags & ACK == 0 => Some(frame(SETTINGS, ACK, 0, &[])),
                PING if flags & ACK == 0 => Some(frame(PING, ACK, 0, payload)),
                GOAWAY => {
                    assert_eq!(number(&payload[4..8]), 0, "GOAWAY for a reason");
                    self.last_stream = Some(number(&payload[..4]));
                    None
                }
                DATA | SETTINGS | PING | WINDOW_UPDATE => None,
                other => panic!("a frame of kind {other} on stream {stream}"),
            };
            answered += u64::from(kind <= HEADERS && flags & END_STREAM > 0);
            at = end;
            if let Some(reply) = reply {
                // As with requests, the reader notices a closed connection.
                let _sent = self.stream.write_all(&reply);
            }
        }
        self.input.drain(..at);
        answered
    }
}
