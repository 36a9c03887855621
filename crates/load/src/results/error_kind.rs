//! Errors by kind.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a request has no answer, or a connection attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The name has no address.
    Dns,
    /// Connection refused.
    Refused,
    /// No route to the address.
    Unreachable,
    /// This machine has no free port (or address) left.
    PortsExhausted,
    /// This process may open no more files.
    FilesExhausted,
    /// Connecting took longer than its time-out.
    ConnectTimeout,
    /// The TLS handshake or a TLS record failed.
    Tls,
    /// Reset by the server, or another error of the socket.
    Reset,
    /// The server closed before the answer was complete.
    ClosedEarly,
    /// No answer in time; the connection was closed.
    Timeout,
    /// The received bytes were not a valid answer.
    Malformed,
    /// The server answered with an error of its protocol (Redis).
    Server,
}

impl ErrorKind {
    /// Every kind, in the order of the enum: `ALL[kind as usize] == kind`.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::Dns,
        ErrorKind::Refused,
        ErrorKind::Unreachable,
        ErrorKind::PortsExhausted,
        ErrorKind::FilesExhausted,
        ErrorKind::ConnectTimeout,
        ErrorKind::Tls,
        ErrorKind::Reset,
        ErrorKind::ClosedEarly,
        ErrorKind::Timeout,
        ErrorKind::Malformed,
        ErrorKind::Server,
    ];
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorKind::Dns => "name not found",
            ErrorKind::Refused => "connection refused",
            ErrorKind::Unreachable => "unreachable",
            ErrorKind::PortsExhausted => "local ports used up",
            ErrorKind::FilesExhausted => "open files used up",
            ErrorKind::ConnectTimeout => "connect timeout",
            ErrorKind::Tls => "TLS",
            ErrorKind::Reset => "reset",
            ErrorKind::ClosedEarly => "closed early",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Malformed => "malformed",
            ErrorKind::Server => "error answer",
        })
    }
}
