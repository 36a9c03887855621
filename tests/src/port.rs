//! Ports that no other test uses.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// A port of 127.0.0.1 that no other test gets while this value exists, in this process or another one: a
/// server that binds it later finds it free, also after a restart. It is below the ports of topologies
/// (from 10,000) and those that the system assigns.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The UDP socket of the same port reserves it; the servers here listen on TCP only.
    _reserved: UdpSocket,
}

impl Port {
    /// Reserves a free port.
    pub fn free() -> Port {
        loop {
            let address = ("127.0.0.1", rand::random_range(5_500..9_500));
            let Ok(reserved) = UdpSocket::bind(address) else { continue };
            if TcpListener::bind(address).is_ok() {
                return Port { number: address.1, _reserved: reserved };
            }
        }
    }

    /// The address of the port.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

/// The number of a port that is reserved until this process ends.
pub fn free_port() -> u16 {
    static TAKEN: Mutex<Vec<Port>> = Mutex::new(Vec::new());
    let port = Port::free();
    let number = port.number;
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner).push(port);
    number
}
