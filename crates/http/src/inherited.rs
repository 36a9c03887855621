//! Listeners that were opened before this process started, by a service manager or by the previous process.
//!
//! Promises that each listener is used only for the address that it listens on, and only once.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

/// Listeners that may be used instead of new ones.
#[derive(Debug, Clone, Default)]
pub struct Inherited(Arc<Mutex<Vec<TcpListener>>>);

impl Inherited {
    /// Makes these listeners available.
    pub fn new(listeners: Vec<TcpListener>) -> Inherited {
        Inherited(Arc::new(Mutex::new(listeners)))
    }

    /// Takes the first listener on this address; port 0 matches any port of the address.
    pub(crate) fn take(&self, wanted: SocketAddr) -> io::Result<Option<TcpListener>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for place in 0..all.len() {
            let address = all[place].local_addr()?;
            if address.ip() == wanted.ip() && (wanted.port() == 0 || address.port() == wanted.port()) {
                let listener = all.remove(place);
                listener.set_nonblocking(true)?;
                return Ok(Some(listener));
            }
        }
        Ok(None)
    }

    /// Closes the listeners that no address has claimed and returns the addresses of those.
    ///
    /// # Errors
    /// The operating system's.
    pub fn close_rest(&self) -> io::Result<Vec<SocketAddr>> {
        let rest = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        rest.iter().map(TcpListener::local_addr).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_used_once_and_for_its_address() {
        let open = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (one, two) = (open(), open());
        let (first, second) = (one.local_addr().expect("one"), two.local_addr().expect("two"));
        let inherited = Inherited::new(vec![one, two]);
        let taken = |wanted: SocketAddr| {
            let taken = inherited.take(wanted).expect("it can be asked");
            taken.map(|listener| listener.local_addr().expect("an address"))
        };
        assert_eq!(taken("127.0.0.2:0".parse().expect("an address")), None);
        assert_eq!((taken(second), taken(second)), (Some(second), None));
        assert_eq!(taken("127.0.0.1:0".parse().expect("an address")), Some(first));
        assert_eq!(inherited.close_rest().expect("none"), []);
    }
}
