//! A relay between a store and its server that reads the client's messages, and disturbs one BEGIN, one
//! COMMIT or everything.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The disturbance of the next COMMIT or BEGIN. At a COMMIT the client's connection is closed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Harm {
    /// The server refuses a BEGIN, and the connection continues without a transaction.
    Begin,
    /// The server executes it, and its answer is lost.
    Answer,
    /// The COMMIT never reaches the server.
    Commit,
    /// The COMMIT reaches the server after this delay.
    Late(Duration),
}

pub(crate) struct Relay {
    pub(crate) port: u16,
    harm: Arc<Mutex<Option<Harm>>>,
    is_silent: Arc<AtomicBool>,
}

impl Relay {
    /// Starts a relay in front of the server at this address.
    pub(crate) fn before(server: String) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (harm, is_silent) = (Arc::<Mutex<Option<Harm>>>::default(), Arc::<AtomicBool>::default());
        let (next, silent) = (harm.clone(), is_silent.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (server, next, silent) = (server.clone(), next.clone(), silent.clone());
                std::thread::spawn(move || {
                    // The relay ends connections on purpose.
                    let _ =
                        TcpStream::connect(server).and_then(|server| carry(&client, &server, &next, silent));
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Relay { port, harm, is_silent }
    }

    pub(crate) fn harm(&self, harm: Harm) {
        *self.harm.lock().unwrap() = Some(harm);
    }

    /// Whether the disturbance has happened.
    pub(crate) fn is_harmless(&self) -> bool {
        self.harm.lock().unwrap().is_none()
    }

    /// From now on the relay forwards nothing and closes nothing; it accepts new connections and does not
    /// answer them.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }
}

fn carry(
    mut client: &TcpStream,
    mut server: &TcpStream,
    next: &Mutex<Option<Harm>>,
    silent: Arc<AtomicBool>,
) -> std::io::Result<()> {
    let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
    let is_silent = silent.clone();
    std::thread::spawn(move || {
        let (mut bytes, mut is_gone) = ([0; 8 << 10], false);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            // Reads on when the client is gone: a server that cannot send its answers executes no COMMIT.
            if !is_gone && !is_silent.load(Ordering::SeqCst) {
                is_gone = to.write_all(&bytes[..count]).is_err();
            }
        }
    });
    let mut is_first = true;
    loop {
        // The first message has no type.
        let mut message = vec![0; if is_first { 4 } else { 5 }];
        client.read_exact(&mut message)?;
        let length = u32::from_be_bytes(message[message.len() - 4..].try_into().unwrap()) as usize;
        let start = message.len();
        message.resize(start + length - 4, 0);
        client.read_exact(&mut message[start..])?;
        is_first = false;
        if silent.load(Ordering::SeqCst) {
            continue;
        }
        let is_commit = message[0] == b'Q' && message[start..] == *b"COMMIT\0";
        let is_begin = message[0] == b'Q' && message[start..].starts_with(b"BEGIN ISOLATION ");
        let is_met = |harm: &mut Harm| if matches!(harm, Harm::Begin) { is_begin } else { is_commit };
        match next.lock().unwrap().take_if(is_met) {
            None => server.write_all(&message)?,
            Some(Harm::Begin) => {
                message[start..start + 5].copy_from_slice(b"BEGUN");
                server.write_all(&message)?;
            }
            Some(harm) => {
                client.shutdown(Shutdown::Both)?;
                match harm {
                    Harm::Answer => server.write_all(&message)?,
                    Harm::Begin | Harm::Commit => {}
                    Harm::Late(time) => {
                        std::thread::sleep(time);
                        server.write_all(&message)?;
                    }
                }
                // The end of the client's data, behind the COMMIT.
                return server.shutdown(Shutdown::Write);
            }
        }
    }
}
