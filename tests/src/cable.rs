//! A TCP proxy between a client and a server: traffic can be held or cut, and the server's bytes can be
//! searched.
//!
//! Its threads end with their connections; the accepting thread ends with the process.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A TCP address that leads to another one.
pub struct Cable {
    /// Where clients connect to.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether bytes of clients are held back.
    is_held: bool,
    /// Whether bytes of the server are held back too.
    is_cut: bool,
    /// Bytes of clients that were read and not sent on since the hold.
    held_bytes: usize,
    /// Everything that the server has sent since the last release; `None` before the first.
    answers: Option<Vec<u8>>,
}

impl Cable {
    /// A cable to a server on this machine.
    pub fn to(port: u16) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // The server is unreachable: the client sees its connection closed.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                // Sends small messages at once, as the two ends do. An error is ignored: messages are
                // then delayed.
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                let (own, back) = (own.clone(), own.clone());
                let (from, to) = (client.try_clone(), server.try_clone());
                if let (Ok(from), Ok(to)) = (from, to) {
                    thread::spawn(move || own.questions(from, to));
                }
                thread::spawn(move || back.answers(server, client));
            }
        });
        Cable { address, shared }
    }

    /// Holds back the bytes of clients until [`Cable::release`]. Connections stay open.
    pub fn hold(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.held_bytes) = (true, 0);
    }

    /// The number of bytes that clients have sent and that are held back.
    pub fn held_bytes(&self) -> usize {
        self.shared.state.lock().expect("no thread panics").held_bytes
    }

    /// Delivers everything. The server's bytes are recorded from here on.
    pub fn release(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        state.is_held = false;
        state.answers = Some(Vec::new());
        self.shared.changed.notify_all();
    }

    /// Delivers nothing in either direction until [`Cable::mend`]. Connections stay open and new ones
    /// are accepted, so neither side sees an error.
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.is_cut, state.held_bytes) = (true, true, 0);
    }

    /// Delivers everything again, beginning with the bytes that were sent meanwhile.
    pub fn mend(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.is_cut) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Whether the server has sent these bytes since the release, contiguously on one connection.
    pub fn answered(&self, bytes: &[u8]) -> bool {
        let state = self.shared.state.lock().expect("no thread panics");
        state.answers.iter().any(|answers| answers.windows(bytes.len()).any(|window| window == bytes))
    }
}

impl Shared {
    fn questions(&self, mut client: TcpStream, mut server: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = client.read(&mut buffer) {
            let mut state = self.state.lock().expect("no thread panics");
            if state.is_held {
                state.held_bytes += length;
            }
            while state.is_held {
                state = self.changed.wait(state).expect("no thread panics");
            }
            drop(state);
            if server.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        // One of them may be closed already.
        let _ = (server.shutdown(Shutdown::Write), client.shutdown(Shutdown::Read));
    }

    fn answers(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = server.read(&mut buffer) {
            let mut state = self.state.lock().expect("no thread panics");
            while state.is_cut {
                state = self.changed.wait(state).expect("no thread panics");
            }
            if let Some(answers) = &mut state.answers {
                answers.extend(&buffer[..length]);
            }
            drop(state);
            if client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Write), server.shutdown(Shutdown::Read));
    }
}
