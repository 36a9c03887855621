//! Upstreams that are slow, endless or mute.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// One thread serves one connection.
const STACK_BYTES: usize = 128 * 1024;

/// More than the kernel keeps for a client of this machine that reads nothing, some 2.5 MiB, and the server.
const ENDLESS_BYTES: usize = 4 << 20;

/// So long that all who ask wait for one answer.
pub const LATE: Duration = Duration::from_millis(300);

/// What an upstream does with a request.
#[derive(Clone)]
pub enum Behaviour {
    /// Accepts and reads nothing.
    Mute,
    /// Sends these bytes for each request.
    Says(Arc<[u8]>),
    /// The same, a moment later.
    SaysLate(Arc<[u8]>),
    /// Sends these bytes, then more than is read ahead, and no end.
    Endless(&'static str),
}

/// The answer whose body never ends.
pub const STREAM: Behaviour = Behaviour::Endless("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n");
const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

impl Behaviour {
    /// A tunnel in which the upstream is silent.
    pub fn tunnel() -> Behaviour {
        Behaviour::Says(SWITCH.as_bytes().into())
    }

    /// A tunnel in which the upstream sends without end.
    pub fn flood() -> Behaviour {
        Behaviour::Endless(SWITCH)
    }

    /// An answer of `length` bytes, of which `sent` are sent.
    pub fn answer(length: u64, sent: u64) -> Behaviour {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        bytes.resize(bytes.len() + sent as usize, b'a');
        Behaviour::Says(bytes.into())
    }

    /// The same behaviour with a pause before each answer.
    pub fn late(self) -> Behaviour {
        match self {
            Behaviour::Says(bytes) => Behaviour::SaysLate(bytes),
            other => other,
        }
    }

    pub fn start(self) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (streams, ends) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::<AtomicBool>::default());
        let (own_streams, own_ends) = (streams.clone(), ends.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if own_ends.load(Relaxed) {
                    return;
                }
                let own = stream.try_clone().expect("room for files");
                own_streams.lock().expect("no panic").push(own);
                let behaviour = self.clone();
                let serve = move || serve(stream, &behaviour);
                if !matches!(self, Behaviour::Mute) {
                    thread::Builder::new().stack_size(STACK_BYTES).spawn(serve).expect("room for a thread");
                }
            }
        });
        Upstream { address, streams, ends }
    }
}

/// Closes its connections when dropped.
pub struct Upstream {
    pub address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    ends: Arc<AtomicBool>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        // Wakes the accepting thread.
        let _woken = TcpStream::connect(self.address);
        for stream in self.streams.lock().expect("no panic").iter() {
            // The other side may have ended it.
            let _ended = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Answers until the connection ends. A request is taken to end with its head.
fn serve(mut stream: TcpStream, behaviour: &Behaviour) {
    let mut input = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        while let Some(end) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            input.drain(..end + 4);
            let is_sent = match behaviour {
                Behaviour::Mute => true,
                Behaviour::Says(bytes) => stream.write_all(bytes).is_ok(),
                Behaviour::SaysLate(bytes) => {
                    thread::sleep(LATE);
                    stream.write_all(bytes).is_ok()
                }
                Behaviour::Endless(head) => {
                    let piece = [b'a'; 16 * 1024];
                    stream.write_all(head.as_bytes()).is_ok()
                        && (0..ENDLESS_BYTES / piece.len()).all(|_| stream.write_all(&piece).is_ok())
                }
            };
            if !is_sent {
                return;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(count) => input.extend_from_slice(&buffer[..count]),
        }
    }
}
