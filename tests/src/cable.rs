//! A cable between a client and a server: it can be held or cut, and what went over it can be looked for.
//!
//! Its threads end with their connections, the one that takes connections with the process.

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
    /// Nothing of what clients send arrives.
    is_held: bool,
    /// Nothing of what the server sends arrives either.
    is_cut: bool,
    /// Bytes of clients that were read and not sent on, since the cable is held.
    held_bytes: usize,
    /// Everything that the server has sent since the last release; `None` before the first.
    answers: Option<Vec<u8>>,
}

impl Cable {
    /// To a server on this machine.
    pub fn to(port: u16) -> Cable {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is away: the client sees its connection closed.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                // Small messages at once, as the two ends send them; where it is refused, they are late.
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

    /// Lets nothing of what clients send arrive, until it is released. Connections stay.
    pub fn hold(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.held_bytes) = (true, 0);
    }

    /// How much was sent and did not arrive.
    pub fn held_bytes(&self) -> usize {
        self.shared.state.lock().expect("no thread panics").held_bytes
    }

    /// Lets everything arrive. What the server sends from here on is remembered.
    pub fn release(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        state.is_held = false;
        state.answers = Some(Vec::new());
        self.shared.changed.notify_all();
    }

    /// Lets nothing through in either direction, until it is mended. Connections stay, and new ones are
    /// taken: nobody is told.
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.is_cut, state.held_bytes) = (true, true, 0);
    }

    /// Lets everything through again, what was sent meanwhile first.
    pub fn mend(&self) {
        let mut state = self.shared.state.lock().expect("no thread panics");
        (state.is_held, state.is_cut) = (false, false);
        self.shared.changed.notify_all();
    }

    /// Whether the server has sent this since the release, on one connection without a break.
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
