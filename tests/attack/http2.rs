//! As much of a client of HTTP/2 as attacks need (RFC 9113): frames by hand, fields as literals.

use crate::crowd::{Hold, dial};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW: u16 = 4;
const WINDOW_START: i64 = 65_535;
const FRAME_BYTES_MAX: usize = 16 * 1024;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A client that can send nothing for this long waits for a window that stays shut.
const STUCK: Duration = Duration::from_millis(100);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A literal field without indexing (RFC 7541 section 6.2.2); names and values below 127 bytes.
fn field(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.push(0);
    for text in [name, value] {
        bytes.push(text.len() as u8);
        bytes.extend(text.as_bytes());
    }
}

/// A request's HEADERS; without `body_bytes` it ends the stream.
pub fn request(stream: u32, method: &str, path: &str, body_bytes: Option<u64>) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [(":method", method), (":scheme", "http"), (":path", path), (":authority", "a")] {
        field(&mut block, name, value);
    }
    if let Some(bytes) = body_bytes {
        field(&mut block, "content-length", &bytes.to_string());
    }
    let ends = if body_bytes.is_none() { END_STREAM } else { 0 };
    frame(HEADERS, END_HEADERS | ends, stream, &block)
}

/// HEADERS that a CONTINUATION should follow.
pub fn unfinished_head(bytes: usize) -> Vec<u8> {
    let mut block = Vec::new();
    field(&mut block, ":method", "GET");
    while block.len() + 128 < bytes.min(FRAME_BYTES_MAX) {
        field(&mut block, "x-long", &"a".repeat(100));
    }
    frame(HEADERS, 0, 1, &block)
}

/// One connection, and the windows that the server has opened.
pub struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    window: i64,
    initial: i64,
    streams: BTreeMap<u32, Body>,
    is_open: bool,
}

struct Body {
    window: i64,
    left: usize,
}

impl Connection {
    /// Connects from the address of that number; the server may send that much of each answer.
    #[track_caller]
    pub fn open(address: SocketAddr, number: usize, window: u32) -> Connection {
        let stream = dial(address, number, window > 0).expect("the server listens");
        let mut settings = INITIAL_WINDOW.to_be_bytes().to_vec();
        settings.extend(window.to_be_bytes());
        let mut connection = Connection {
            stream,
            input: Vec::new(),
            window: WINDOW_START,
            initial: WINDOW_START,
            streams: BTreeMap::new(),
            is_open: true,
        };
        connection.put(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat());
        connection
    }

    /// Sends bytes that fit into the socket.
    pub fn put(&mut self, bytes: &[u8]) {
        self.is_open &= self.stream.write_all(bytes).is_ok();
    }

    /// Begins a body of which `bytes` are to be sent soon.
    fn upload(&mut self, stream: u32, path: &str, length: u64, bytes: usize) {
        self.put(&request(stream, "POST", path, Some(length)));
        self.streams.insert(stream, Body { window: self.initial, left: bytes });
    }

    /// Reads what the server has sent, and takes its windows.
    fn receive(&mut self) {
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.is_open = false,
                Ok(count) => {
                    self.input.extend_from_slice(&buffer[..count]);
                    continue;
                }
                Err(error) => self.is_open &= error.kind() == ErrorKind::WouldBlock,
            }
            break;
        }
        while let Some(head) = self.input.first_chunk::<9>().copied() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if self.input.len() < 9 + length {
                break;
            }
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            let payload: Vec<u8> = self.input.drain(..9 + length).skip(9).collect();
            self.take(head[3], head[4], stream, &payload);
        }
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        match kind {
            SETTINGS if flags & ACK == 0 => {
                for entry in payload.chunks_exact(6) {
                    if u16::from_be_bytes([entry[0], entry[1]]) == INITIAL_WINDOW {
                        let initial = i64::from(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]));
                        for body in self.streams.values_mut() {
                            body.window += initial - self.initial;
                        }
                        self.initial = initial;
                    }
                }
                self.put(&frame(SETTINGS, ACK, 0, &[]));
            }
            WINDOW_UPDATE => {
                let Some(bytes) = payload.first_chunk::<4>() else { return };
                let more = i64::from(u32::from_be_bytes(*bytes));
                match self.streams.get_mut(&stream) {
                    Some(body) => body.window += more,
                    None if stream == 0 => self.window += more,
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// Sends one frame of each body whose window has room. Returns whether any was sent.
    fn push(&mut self) -> bool {
        let mut frames = Vec::new();
        for (stream, body) in &mut self.streams {
            let room = self.window.min(body.window).clamp(0, FRAME_BYTES_MAX as i64) as usize;
            let bytes = room.min(body.left);
            if bytes > 0 {
                frames.push(frame(DATA, 0, *stream, &vec![b'a'; bytes]));
                self.window -= bytes as i64;
                body.window -= bytes as i64;
                body.left -= bytes;
            }
        }
        for frame in &frames {
            self.put_whole(frame);
        }
        self.is_open && !frames.is_empty()
    }

    /// A frame must not be cut: waits for room in the socket.
    fn put_whole(&mut self, bytes: &[u8]) {
        let set = |blocks: bool| {
            self.stream.set_nonblocking(!blocks).and_then(|()| self.stream.set_write_timeout(Some(STUCK)))
        };
        set(true).expect("a live socket");
        let is_sent = (&self.stream).write_all(bytes).is_ok();
        set(false).expect("a live socket");
        self.is_open &= is_sent;
    }
}

/// Connections whose bodies arrive slowly.
pub struct Connections {
    pub all: Vec<Connection>,
    /// Streams of each.
    pub streams: usize,
    /// What each stream sends at a time.
    pub drop_bytes: usize,
}

impl Connections {
    /// Opens that many connections, each with that many bodies of `length`, of which almost all is sent.
    #[track_caller]
    pub fn upload(
        address: SocketAddr,
        count: usize,
        streams: usize,
        length: u64,
        almost: usize,
    ) -> Connections {
        let mut all: Vec<_> = (0..count).map(|number| Connection::open(address, number, 65_535)).collect();
        for connection in &mut all {
            connection.receive();
            for number in 0..streams as u32 {
                connection.upload(1 + 2 * number, "/post", length, almost);
            }
        }
        let mut moved = Instant::now();
        while moved.elapsed() < STUCK {
            for connection in all.iter_mut().filter(|connection| connection.is_open) {
                connection.receive();
                if connection.push() {
                    moved = Instant::now();
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        Connections { all, streams, drop_bytes: 0 }
    }
}

impl Hold for Connections {
    fn drip(&mut self) {
        for connection in self.all.iter_mut().filter(|connection| connection.is_open) {
            connection.receive();
            for body in connection.streams.values_mut() {
                body.left += self.drop_bytes;
            }
            connection.push();
        }
    }

    fn count(&self) -> usize {
        self.all.len() * self.streams
    }
}
