//! Reports the server's state to the service manager that started this process, as sd_notify(3) describes:
//! one datagram to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is sent.
//!
//! The caller decides when a state is reached.

use forebay_terminal::warn;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// A state of the server that a service manager waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Clients can connect. While the database is unreachable they get 503; a manager that waited for the
    /// database would restart the server meanwhile.
    Listening,
    /// No new connections are accepted; requests that have arrived are answered.
    Stopping,
}

/// Sends the state to the service manager. An unreachable manager is logged, because it may kill the process
/// for not reporting in time.
pub(crate) fn tell(state: State) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        warn!("the service manager at {} was not told: {error}", socket.display());
    }
}

fn send(socket: &OsStr, state: State) -> io::Result<()> {
    let message = match state {
        State::Listening => "READY=1",
        State::Stopping => "STOPPING=1",
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address(socket)?).map(drop)
}

/// A path, or after `@` a name without a file (the abstract namespace of unix(7)).
fn address(socket: &OsStr) -> io::Result<SocketAddr> {
    match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(OsString::from(socket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify").into_os_string();
        let name = OsString::from(format!("@forebay-test-{}", std::process::id()));
        for socket in [path, name] {
            let manager =
                UnixDatagram::bind_addr(&address(&socket).expect("an address")).expect("a free address");
            for (state, expected) in [(State::Listening, "READY=1"), (State::Stopping, "STOPPING=1")] {
                send(&socket, state).expect("the manager listens");
                let mut message = [0; 64];
                let length = manager.recv(&mut message).expect("a message");
                assert_eq!(&message[..length], expected.as_bytes(), "{}", socket.display());
            }
        }
        assert!(send(OsStr::new("/nowhere/notify"), State::Listening).is_err());
    }
}
