//! Addresses of nodes, which can be connected to and compared.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The address on which a node listens. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// A host and its port.
    Tcp(Arc<str>, u16),
    /// A Unix socket.
    Unix(Arc<PathBuf>),
}

impl Address {
    /// Host and port.
    pub fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp(host.into(), port)
    }

    /// Reads `host:port`, the host possibly an IPv6 address with or without brackets.
    pub(crate) fn parse(text: &str) -> Option<Address> {
        let (host, port) = text.rsplit_once(':')?;
        Some(Address::tcp(host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?))
    }

    /// The host, for TLS; `None` for a Unix socket.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Address::Tcp(host, _) => Some(host),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}
