//! Many sockets of attackers, from many addresses of this machine. None of them waits for the server.

use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Addresses that attackers use; the normal client uses 127.0.0.1.
const SOURCES: usize = 200;
/// The room for answers of a client that reads none: the kernel keeps little of them.
const SMALL_BUFFER_BYTES: usize = 4 * 1024;
/// Bytes that the server has not taken for this long are kept back.
const STUCK: Duration = Duration::from_millis(100);

/// What is held open until it is dropped.
pub trait Hold: Send {
    /// Sends what keeps it open, when it needs that.
    fn drip(&mut self) {}
    /// How many things are held, as far as the attacker knows.
    fn count(&self) -> usize;
}

/// Connects from an address of its own by the number; without a place the connection may already be closed.
pub fn dial(address: SocketAddr, number: usize, reads: bool) -> io::Result<TcpStream> {
    let SocketAddr::V4(address) = address else { return Err(io::ErrorKind::Unsupported.into()) };
    let source = SocketAddrV4::new(Ipv4Addr::new(127, 1, 0, (1 + number % SOURCES) as u8), 0);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if !reads {
        set_socket_recv_buffer_size(&socket, SMALL_BUFFER_BYTES)?;
    }
    bind(&socket, &source)?;
    connect(&socket, &address)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

pub struct Crowd {
    pub streams: Vec<TcpStream>,
    drop: Option<Vec<u8>>,
}

impl Crowd {
    /// Connects that many; `reads`: with the usual room for answers.
    #[track_caller]
    pub fn open(address: SocketAddr, count: usize, reads: bool) -> Crowd {
        let dial = |number| dial(address, number, reads).expect("the server listens");
        Crowd { streams: (0..count).map(dial).collect(), drop: None }
    }

    /// Each sends the bytes of its number, as far as the server takes them.
    pub fn send(self, bytes: impl Fn(usize) -> Vec<u8>) -> Crowd {
        let mut left: Vec<(usize, Vec<u8>, usize)> =
            (0..self.streams.len()).map(|number| (number, bytes(number), 0)).collect();
        let mut moved = Instant::now();
        while !left.is_empty() && moved.elapsed() < STUCK {
            left.retain_mut(|(number, bytes, sent)| match (&self.streams[*number]).write(&bytes[*sent..]) {
                Ok(count) => {
                    moved = Instant::now();
                    *sent += count;
                    *sent < bytes.len()
                }
                // A connection that the server has ended is not replaced.
                Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            });
            thread::sleep(Duration::from_millis(1));
        }
        self
    }

    /// Reads what has arrived, and forgets it.
    pub fn read(&mut self) -> usize {
        let mut buffer = [0; 16 * 1024];
        let mut read = 0;
        for mut stream in &self.streams {
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                read += count;
            }
        }
        read
    }

    /// Each sends these bytes again and again.
    pub fn dripping(self, bytes: &[u8]) -> Crowd {
        Crowd { drop: Some(bytes.to_vec()), ..self }
    }
}

impl Hold for Crowd {
    fn drip(&mut self) {
        let Some(drop) = &self.drop else { return };
        for mut stream in &self.streams {
            // A full or ended connection gets nothing.
            let _sent = stream.write(drop);
        }
    }

    fn count(&self) -> usize {
        self.streams.len()
    }
}
