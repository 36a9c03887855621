//! The agent's end of one stream of a probe.

use super::count::{bytes, datagrams, discard_until_closed, flood, pour, socket};
use crate::agent::frame::{receive, send};
use crate::agent::message::{FromAgent, Probe, ToAgent};
use crate::limits::FRAME_BYTES_STRANGER_MAX;
use std::io;
use std::net::{SocketAddr, TcpStream};

/// Sends or counts as `probe` says; then the connection ends.
pub(in crate::agent) fn serve(mut stream: TcpStream, probe: Probe) -> io::Result<()> {
    match probe {
        Probe::Download => {
            begin(&mut stream)?;
            pour(&mut stream)
        }
        Probe::Upload => {
            let counted = bytes(&mut stream)?;
            send(&mut stream, &FromAgent::Counted(counted))?;
            discard_until_closed(&mut stream)
        }
        Probe::Packets { port } => {
            let (local, tester) = (stream.local_addr()?, stream.peer_addr()?);
            let socket = socket(local.ip(), local.port(), SocketAddr::new(tester.ip(), port))?;
            send(&mut stream, &FromAgent::Ready)?;
            send(&mut stream, &FromAgent::Counted(datagrams(&socket)?))?;
            begin(&mut stream)?;
            flood(&socket);
            Ok(())
        }
    }
}

/// Waits for the tester's message that all of its streams are ready.
fn begin(stream: &mut TcpStream) -> io::Result<()> {
    match receive(stream, FRAME_BYTES_STRANGER_MAX)? {
        ToAgent::Ping => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it did not begin the probe")),
    }
}
