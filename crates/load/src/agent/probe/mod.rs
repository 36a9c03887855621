//! The capacity of the network between a tester and a server, measured before a run: bytes and packets,
//! each way. The other end is the agent beside the server (`--monitor agent://…`).
//!
//! Every stream is a connection whose login says which [`Probe`] it is. Bytes travel over that connection;
//! packets are datagrams between the same two addresses, at the port of the agent. All streams are logged in
//! before the first one begins. The sender sends as fast as it can for a time, and the receiver counts. The
//! tester sends datagrams first, so that a stateful firewall lets the agent's datagrams through.

pub(super) mod count;
mod paths;
mod serve;

pub use paths::paths;
pub(super) use serve::serve;

use super::control::{login, lost, strange};
use super::frame::{receive, send};
use super::message::{FromAgent, Probe, ToAgent};
use crate::limits::FRAME_BYTES_STRANGER_MAX;
use crate::report::Error;
use crate::results::Path;
use count::{Counted, bytes, datagrams, flood, leave, per_s, pour, socket};
use std::io;
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::thread;

/// Measures the path from here to the agent at `place`, over `streams` streams at once.
pub(super) fn measure(place: &str, token: &str, streams: usize) -> Result<Path, Error> {
    let failed = |error| lost(place, error);
    let log_in =
        |probe| (0..streams).map(|_| login(place, token, Some(probe))).collect::<Result<Vec<_>, _>>();
    let down = together(log_in(Probe::Download)?, download).map_err(failed)?;
    let up = together(log_in(Probe::Upload)?, upload).map_err(failed)?;
    let sockets: Result<Vec<_>, _> = (0..streams).map(|_| datagram_stream(place, token)).collect();
    let (packets_up, sockets): (Vec<_>, Vec<_>) =
        together(sockets?, datagrams_up).map_err(failed)?.into_iter().unzip();
    let packets_down = together(sockets, datagrams_down).map_err(failed)?;
    let some = |streams: &[Counted]| Some(per_s(streams)).filter(|rate| *rate > 0.0);
    Ok(Path {
        tester: String::new(),
        server: place.to_owned(),
        to_server_bits_per_s: per_s(&up) * 8.0,
        from_server_bits_per_s: per_s(&down) * 8.0,
        to_server_packets_per_s: some(&packets_up),
        from_server_packets_per_s: some(&packets_down),
    })
}

/// Runs `each` for every stream on its own thread, all from the same moment.
fn together<S: Send, R: Send>(streams: Vec<S>, each: fn(S) -> io::Result<R>) -> io::Result<Vec<R>> {
    let panicked = || io::Error::other("a stream of the probe panicked");
    thread::scope(|scope| {
        let running: Vec<_> = streams.into_iter().map(|stream| scope.spawn(move || each(stream))).collect();
        running.into_iter().map(|stream| stream.join().unwrap_or_else(|_| Err(panicked()))).collect()
    })
}

fn download(mut stream: TcpStream) -> io::Result<Counted> {
    send(&mut stream, &ToAgent::Ping)?;
    let counted = bytes(&mut stream)?;
    leave(stream).map(|()| counted)
}

fn upload(mut stream: TcpStream) -> io::Result<Counted> {
    pour(&mut stream)?;
    stream.shutdown(Shutdown::Write)?;
    let counted = told(&mut stream)?;
    leave(stream).map(|()| counted)
}

/// A connection and a datagram socket between the same two addresses; the agent is ready for both.
fn datagram_stream(place: &str, token: &str) -> Result<(TcpStream, UdpSocket), Error> {
    let failed = |error| lost(place, error);
    // The connection shows which local address the route to the agent uses.
    let facing = login(place, token, None)?;
    let (local, agent) = (facing.local_addr().map_err(failed)?, facing.peer_addr().map_err(failed)?);
    let socket = socket(local.ip(), 0, agent).map_err(failed)?;
    let port = socket.local_addr().map_err(failed)?.port();
    let mut stream = login(place, token, Some(Probe::Packets { port }))?;
    match receive(&mut stream, FRAME_BYTES_STRANGER_MAX).map_err(failed)? {
        FromAgent::Ready => Ok((stream, socket)),
        _ => Err(failed(strange())),
    }
}

fn datagrams_up(
    (mut stream, socket): (TcpStream, UdpSocket),
) -> io::Result<(Counted, (TcpStream, UdpSocket))> {
    flood(&socket);
    Ok((told(&mut stream)?, (stream, socket)))
}

/// Runs after all uploads have ended, so that a firewall already knows the flow and lets the
/// agent's datagrams through.
fn datagrams_down((mut stream, socket): (TcpStream, UdpSocket)) -> io::Result<Counted> {
    send(&mut stream, &ToAgent::Ping)?;
    datagrams(&socket)
}

/// Receives the count of the other side.
fn told(stream: &mut TcpStream) -> io::Result<Counted> {
    match receive(stream, FRAME_BYTES_STRANGER_MAX)? {
        FromAgent::Counted(counted) => Ok(counted),
        _ => Err(strange()),
    }
}
