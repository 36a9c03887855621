//! Small servers of known behaviour, on real sockets.

#![allow(dead_code, reason = "each test file uses some of them")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The smallest good answer.
pub const HI: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Serves each connection on its own thread until the client closes.
pub fn serve(connection: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, connection) = (stream.unwrap(), connection.clone());
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || connection(stream));
        }
    });
    address
}

/// Reads requests without a body; calls back with each complete one, until the callback returns
/// false.
pub fn each_request(stream: &mut TcpStream, mut answer: impl FnMut(&mut TcpStream, &[u8]) -> bool) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
        while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let request: Vec<u8> = bytes.drain(..end + 4).collect();
            if !answer(stream, &request) {
                return;
            }
        }
    }
}

/// Hands out turns that are `interval` apart while threads always wait. A thread that wakes late
/// delays no later turn, so the capacity is exact on a busy machine too. A thread that arrives an
/// interval after the last turn finds an idle server, and waits a whole interval.
#[derive(Clone)]
pub struct Turnstile(Arc<Mutex<Option<Instant>>>, Duration);

impl Turnstile {
    pub fn new(interval: Duration) -> Turnstile {
        Turnstile(Arc::default(), interval)
    }

    /// Waits for the next turn.
    pub fn pass(&self) {
        let turn = {
            let mut last = self.0.lock().unwrap();
            let now = Instant::now();
            let next = last.map(|last| last + self.1).filter(|next| *next > now);
            let turn = next.unwrap_or(now + self.1);
            *last = Some(turn);
            turn
        };
        thread::sleep(turn.saturating_duration_since(Instant::now()));
    }
}

/// Retries a check that a busy machine can spoil but never make succeed: one of five attempts must
/// succeed.
#[track_caller]
pub fn once_of_five(mut attempt: impl FnMut() -> Result<(), String>) {
    let mut failures = Vec::new();
    for _ in 0..5 {
        match attempt() {
            Ok(()) => return,
            Err(why) => failures.push(why),
        }
    }
    panic!("five times in a row:\n{}", failures.join("\n"));
}

/// Answers `per_s` requests a second over all connections, one after the other.
pub fn with_capacity(per_s: u32) -> SocketAddr {
    let turnstile = Turnstile::new(Duration::from_secs(1) / per_s);
    serve(move |mut stream| {
        each_request(&mut stream, |stream, _| {
            turnstile.pass();
            stream.write_all(HI).is_ok()
        });
    })
}
