//! A relay in front of PostgreSQL that knows the message boundaries of its protocol and can inject a fault
//! at any message.
//!
//! Both directions are read message by message
//! (<https://www.postgresql.org/docs/current/protocol-message-formats.html>) and counted together. An
//! armed [`Fault`] happens once, at its message, on that message's connection. Connections must not be
//! encrypted. The relay's threads end with their connections; the accepting thread ends with the
//! process.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A TCP address that leads to a PostgreSQL.
pub struct Relay {
    /// Where clients connect to.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// The message at which a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// This many messages from now, in either direction, on any connection.
    Message(u64),
    /// The next COMMIT.
    Commit,
    /// The server's answer to the next COMMIT.
    Committed,
}

/// What a fault does to its message and connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// The connection is closed, and the message is not delivered.
    Cut,
    /// The message arrives, then the connection is closed.
    CutBehind,
    /// The message, and all later ones in its direction, are delayed by this time.
    Delay(Duration),
    /// The message, and all later ones in its direction, are dropped; the connection is closed after
    /// this time.
    Swallow(Duration),
}

/// One fault, which happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// When.
    pub at: At,
    /// What.
    pub harm: Harm,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Messages in either direction, on all connections.
    messages: u64,
    /// `At::Message` counts from the first message of the relay here.
    armed: Vec<Fault>,
    happened: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// The state that both directions of a connection share.
struct Link {
    client: TcpStream,
    server: TcpStream,
    /// The client has asked for encryption: the answer is one byte without a frame.
    awaits_byte: AtomicBool,
    /// The client has sent a COMMIT, and nothing else with it.
    awaits_commit: AtomicBool,
}

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

impl Relay {
    /// A relay to a server on this machine.
    pub fn to(port: u16) -> Relay {
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
                let link = Arc::new(Link {
                    client,
                    server,
                    awaits_byte: AtomicBool::new(false),
                    awaits_commit: AtomicBool::new(false),
                });
                for side in [Side::Client, Side::Server] {
                    let (own, link) = (own.clone(), link.clone());
                    thread::spawn(move || {
                        // An error means that the connection has ended.
                        let _ = own.pass_on(&link, side);
                        link.close();
                    });
                }
            }
        });
        Relay { address, shared }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().expect("no thread panics")
    }

    /// Arms a fault, which happens once.
    pub fn arm(&self, fault: Fault) {
        let mut state = self.state();
        let at = match fault.at {
            At::Message(later) => At::Message(state.messages + later.max(1)),
            other => other,
        };
        state.armed.push(Fault { at, ..fault });
    }

    /// How many armed faults have not happened.
    pub fn armed(&self) -> usize {
        self.state().armed.len()
    }

    /// Removes the faults that have not happened.
    pub fn disarm(&self) {
        self.state().armed.clear();
    }

    /// How many messages have passed.
    pub fn messages(&self) -> u64 {
        self.state().messages
    }

    /// The faults that have happened, as text.
    pub fn happened(&self) -> Vec<String> {
        self.state().happened.clone()
    }
}

impl Link {
    fn ends(&self, side: Side) -> (&TcpStream, &TcpStream) {
        match side {
            Side::Client => (&self.client, &self.server),
            Side::Server => (&self.server, &self.client),
        }
    }

    fn close(&self) {
        // An error means that the connection is already closed.
        let _ = (self.client.shutdown(Shutdown::Both), self.server.shutdown(Shutdown::Both));
    }
}

impl Shared {
    fn pass_on(&self, link: &Link, side: Side) -> std::io::Result<()> {
        let (mut from, mut to) = link.ends(side);
        let mut input: Vec<u8> = Vec::new();
        let mut buffer = [0; 16 << 10];
        let mut is_starting = side == Side::Client;
        loop {
            while let Some(length) = message_length(&input, &mut is_starting, side, link) {
                let message: Vec<u8> = input.drain(..length).collect();
                let is_commit = match side {
                    Side::Client if is_commit(&message) => {
                        link.awaits_commit.store(true, Ordering::SeqCst);
                        true
                    }
                    Side::Server if is_committed(&message) => {
                        link.awaits_commit.swap(false, Ordering::SeqCst)
                    }
                    _ => false,
                };
                match self.harm(side, &message, is_commit) {
                    None => to.write_all(&message)?,
                    Some(Harm::Cut) => return Ok(()),
                    Some(Harm::CutBehind) => return to.write_all(&message),
                    Some(Harm::Delay(time)) => {
                        thread::sleep(time);
                        to.write_all(&message)?;
                    }
                    Some(Harm::Swallow(time)) => return swallow(from, time),
                }
            }
            match from.read(&mut buffer)? {
                0 => return Ok(()),
                count => input.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Counts a message; `is_commit`: it is a COMMIT or the answer to one. Returns the fault that happens
    /// at it.
    fn harm(&self, side: Side, message: &[u8], is_commit: bool) -> Option<Harm> {
        let mut state = self.state.lock().expect("no thread panics");
        state.messages += 1;
        let number = state.messages;
        let place = state.armed.iter().position(|fault| match fault.at {
            At::Message(at) => at <= number,
            At::Commit => side == Side::Client && is_commit,
            At::Committed => side == Side::Server && is_commit,
        })?;
        let fault = state.armed.remove(place);
        let name = char::from(message.first().copied().unwrap_or(b'?'));
        let whose = if side == Side::Client { "client" } else { "server" };
        state.happened.push(format!("message {number} ({whose}, {name:?}): {:?} {:?}", fault.at, fault.harm));
        Some(fault.harm)
    }
}

/// Reads and discards until the time is over.
fn swallow(mut from: &TcpStream, time: Duration) -> std::io::Result<()> {
    let until = Instant::now() + time;
    let mut buffer = [0; 16 << 10];
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        from.set_read_timeout(Some(left))?;
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The length of the first message in `input`, once the message is complete.
fn message_length(input: &[u8], is_starting: &mut bool, side: Side, link: &Link) -> Option<usize> {
    let number = |at: usize| Some(u32::from_be_bytes(input.get(at..at + 4)?.try_into().ok()?));
    if side == Side::Server && !input.is_empty() && link.awaits_byte.swap(false, Ordering::SeqCst) {
        return Some(1);
    }
    if !*is_starting {
        let length = number(1)? as usize + 1;
        return (input.len() >= length).then_some(length);
    }
    let (length, code) = (number(0)? as usize, number(4)?);
    if input.len() < length {
        return None;
    }
    match code {
        SSL_REQUEST | GSS_REQUEST => link.awaits_byte.store(true, Ordering::SeqCst),
        _ => *is_starting = false,
    }
    Some(length)
}

/// Whether a message is a simple query that consists of COMMIT only.
fn is_commit(message: &[u8]) -> bool {
    message.first() == Some(&b'Q') && message.get(5..) == Some(b"COMMIT\0")
}

fn is_committed(message: &[u8]) -> bool {
    message.first() == Some(&b'C') && message.get(5..11) == Some(b"COMMIT")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![name];
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend(body);
        message
    }

    #[test]
    fn faults_happen_once_and_at_their_message() {
        let shared = Shared::default();
        let relay = Relay { address: "127.0.0.1:1".parse().expect("an address"), shared: Arc::new(shared) };
        let commit = message(b'Q', b"COMMIT\0");
        let committed = message(b'C', b"COMMIT\0");
        let other = message(b'Q', b"SELECT 1\0");
        relay.arm(Fault { at: At::Committed, harm: Harm::Cut });
        relay.arm(Fault { at: At::Message(3), harm: Harm::CutBehind });
        let harm = |side, message: &[u8]| {
            relay.shared.harm(side, message, is_commit(message) || is_committed(message))
        };
        assert_eq!(harm(Side::Client, &commit), None);
        assert_eq!(harm(Side::Server, &committed), Some(Harm::Cut));
        assert_eq!(harm(Side::Client, &other), Some(Harm::CutBehind));
        assert_eq!(harm(Side::Server, &committed), None);
        assert_eq!((relay.messages(), relay.happened().len()), (4, 2));
        relay.arm(Fault { at: At::Commit, harm: Harm::Cut });
        relay.disarm();
        assert_eq!(harm(Side::Client, &commit), None);
    }
}
