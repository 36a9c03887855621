//! Sends as fast as possible for a fixed time, and counts what arrives.

use crate::limits::{PROBE_BUFFER_BYTES, PROBE_DATAGRAM_BYTES, PROBE_FIRST_MS, PROBE_MS, PROBE_TICK_MS};
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The zero of this process's ticks.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

const TICKS: u64 = PROBE_MS / PROBE_TICK_MS;

/// Bytes or datagrams that arrived on one stream, by tick, from the first arrival on.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(in crate::agent) struct Counted {
    first_tick: u64,
    by_tick: Vec<u64>,
}

/// The sum of the streams a second, over a time in which all of them were sending; one process has counted
/// them all. Streams take turns on a full link, so the sum of their individual rates would be too high.
pub(super) fn per_s(streams: &[Counted]) -> f64 {
    let with_some = || streams.iter().filter(|stream| !stream.by_tick.is_empty());
    // The first and the last tick are incomplete.
    let first = with_some().map(|stream| stream.first_tick).min().unwrap_or(0) + 1;
    let ticks = TICKS - 2;
    let within = |stream: &Counted| -> u64 {
        let numbered = (stream.first_tick..).zip(&stream.by_tick);
        numbered.filter(|(tick, _)| (first..first + ticks).contains(tick)).map(|(_, count)| count).sum()
    };
    with_some().map(within).sum::<u64>() as f64 * 1_000.0 / (ticks * PROBE_TICK_MS) as f64
}

/// Counts what `next` returns, until it returns `None` or the time of a measurement is over.
fn count(mut next: impl FnMut() -> io::Result<Option<usize>>) -> io::Result<Counted> {
    let mut counted = Counted::default();
    while (counted.by_tick.len() as u64) < TICKS {
        let Some(more) = next()? else { break };
        let tick = u64::try_from(EPOCH.elapsed().as_millis()).unwrap_or(u64::MAX) / PROBE_TICK_MS;
        if counted.by_tick.is_empty() {
            counted.first_tick = tick;
        }
        let place = (tick - counted.first_tick).min(TICKS) as usize;
        if place >= counted.by_tick.len() {
            counted.by_tick.resize(place + 1, 0);
        }
        counted.by_tick[place] += more as u64;
    }
    Ok(counted)
}

/// Counts the bytes of a stream.
pub(super) fn bytes(stream: &mut impl Read) -> io::Result<Counted> {
    let mut buffer = vec![0; PROBE_BUFFER_BYTES];
    count(|| Ok(Some(stream.read(&mut buffer)?).filter(|count| *count > 0)))
}

/// Writes until the time is over, or the other side has counted enough.
pub(super) fn pour(stream: &mut TcpStream) -> io::Result<()> {
    let buffer = vec![0; PROBE_BUFFER_BYTES];
    let ends = Instant::now() + Duration::from_millis(PROBE_MS);
    while Instant::now() < ends {
        match stream.write_all(&buffer) {
            Ok(()) => {}
            Err(error) if has_left(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads and discards until the other side closes.
pub(super) fn discard_until_closed(stream: &mut TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; PROBE_BUFFER_BYTES];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if has_left(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn has_left(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Makes closing the connection a reset, so that bytes left in its buffers are discarded.
pub(super) fn leave(stream: TcpStream) -> io::Result<()> {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO))
}

/// A datagram socket between two addresses. Several sockets may share a local address, each with a
/// different peer.
pub(super) fn socket(local: IpAddr, port: u16, peer: SocketAddr) -> io::Result<UdpSocket> {
    let local = SocketAddr::new(local, port);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&local.into())?;
    socket.connect(&peer.into())?;
    Ok(socket.into())
}

/// Sends datagrams until the time is over. Datagrams that the network or the kernel drops are missing at
/// the receiver.
pub(super) fn flood(socket: &UdpSocket) {
    let ends = Instant::now() + Duration::from_millis(PROBE_MS);
    while Instant::now() < ends {
        // An error reports a lost datagram: the peer refused one, or no buffer was free.
        let _ = socket.send(&[0; PROBE_DATAGRAM_BYTES]);
    }
}

/// Counts datagrams. The count is empty if the first one does not arrive in time.
pub(super) fn datagrams(socket: &UdpSocket) -> io::Result<Counted> {
    let gives_up = Instant::now() + Duration::from_millis(PROBE_FIRST_MS + PROBE_MS);
    let mut patience = Duration::from_millis(PROBE_FIRST_MS);
    let mut buffer = [0; PROBE_DATAGRAM_BYTES];
    count(|| {
        while Instant::now() < gives_up {
            socket.set_read_timeout(Some(patience))?;
            match socket.recv(&mut buffer) {
                Ok(_) => {
                    patience = Duration::from_millis(PROBE_MS);
                    return Ok(Some(1));
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Ok(None),
                    // An earlier datagram met a closed port, or a signal arrived.
                    ErrorKind::ConnectionRefused | ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_take_turns_are_no_faster_together() {
        let half = TICKS as usize / 2;
        let stream = |first_tick: u64, ticks: usize| Counted { first_tick, by_tick: vec![10; ticks] };
        let one = 10.0 * 1_000.0 / PROBE_TICK_MS as f64;
        assert_eq!(per_s(&[stream(5, 2 * half), Counted::default()]), one);
        assert_eq!(per_s(&[stream(5, 2 * half), stream(5, 2 * half)]), 2.0 * one);
        assert_eq!(per_s(&[stream(5, half), stream(5 + half as u64, half)]), one);
        // What the second stream carries after the first has ended does not count.
        assert_eq!(per_s(&[stream(5, 2 * half), stream(5 + 2 * half as u64, 2 * half)]), one);
        assert_eq!(per_s(&[Counted::default()]), 0.0);
    }

    #[test]
    fn what_arrives_is_counted() {
        let sum = |counted: &Counted| counted.by_tick.iter().sum::<u64>();
        assert_eq!(sum(&bytes(&mut [7; 300_000].as_slice()).unwrap()), 300_000);
        let local = IpAddr::from([127, 0, 0, 1]);
        let free = UdpSocket::bind((local, 0)).unwrap();
        let sender = socket(local, 0, free.local_addr().unwrap()).unwrap();
        free.connect(sender.local_addr().unwrap()).unwrap();
        for _ in 0..50 {
            assert_eq!(sender.send(&[0; PROBE_DATAGRAM_BYTES]).unwrap(), PROBE_DATAGRAM_BYTES);
        }
        assert_eq!(sum(&datagrams(&free).unwrap()), 50);
        assert_eq!(datagrams(&free).unwrap(), Counted::default(), "nothing came");
    }

    #[test]
    fn a_slow_link_is_not_waited_for_to_the_end() {
        let counted = count(|| {
            std::thread::sleep(Duration::from_millis(PROBE_MS / 4));
            Ok(Some(1))
        });
        assert!((2..=5).contains(&counted.unwrap().by_tick.iter().sum::<u64>()));
    }
}
