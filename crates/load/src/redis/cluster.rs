//! Which master of a cluster has which slots: asked once, at the start, and corrected by what MOVED says.

use crate::limits::{HEAD_BYTES_MAX, SLOTS};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A master, and the ranges of slots that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    /// First and last.
    pub slots: Vec<(u16, u16)>,
}

/// A value of a reply, as far as CLUSTER SLOTS needs it.
#[derive(Debug)]
enum Value {
    Text(String),
    Number(i64),
    List(Vec<Value>),
}

/// Asks one node for the masters (CLUSTER SLOTS).
pub(crate) fn nodes(address: SocketAddr, timeout: Duration) -> io::Result<Vec<Node>> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    (&stream).write_all(b"*2\r\n$7\r\nCLUSTER\r\n$5\r\nSLOTS\r\n")?;
    let mut nodes: Vec<Node> = Vec::new();
    let Value::List(ranges) = read(&mut BufReader::new(stream), 0)? else {
        return Err(strange("no list of slots"));
    };
    for range in &ranges {
        let (first, last, node) =
            master(range, address).ok_or_else(|| strange("a range of slots without master"))?;
        match nodes.iter_mut().find(|known| known.address == node) {
            Some(known) => known.slots.push((first, last)),
            None => nodes.push(Node { address: node, slots: vec![(first, last)] }),
        }
    }
    if nodes.is_empty() {
        return Err(strange("no node has slots"));
    }
    Ok(nodes)
}

fn master(range: &Value, asked: SocketAddr) -> Option<(u16, u16, SocketAddr)> {
    let Value::List(range) = range else { return None };
    let [Value::Number(first), Value::Number(last), Value::List(node), ..] = range.as_slice() else {
        return None;
    };
    let [Value::Text(host), Value::Number(port), ..] = node.as_slice() else { return None };
    let port = u16::try_from(*port).ok()?;
    // No name: the node that was asked (it does not know how it is seen from here).
    let address = match host.as_str() {
        "" => SocketAddr::new(asked.ip(), port),
        host => (host, port).to_socket_addrs().ok()?.next()?,
    };
    let slot = |number: &i64| u16::try_from(*number).ok().filter(|slot| *slot < SLOTS);
    Some((slot(first)?, slot(last)?, address))
}

fn strange(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no node of a Redis cluster: {why}"))
}

fn read(reader: &mut impl BufRead, depth: usize) -> io::Result<Value> {
    let mut line = String::new();
    reader.take(HEAD_BYTES_MAX as u64).read_line(&mut line)?;
    let line = line.strip_suffix("\r\n").ok_or_else(|| strange("its answer is cut"))?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(|| strange("an empty answer"))?;
    let number = || rest.parse::<i64>().map_err(|_| strange(line));
    match kind {
        "-" => Err(strange(rest)),
        "+" => Ok(Value::Text(rest.to_owned())),
        ":" => Ok(Value::Number(number()?)),
        "_" => Ok(Value::Text(String::new())),
        "$" => {
            let length = usize::try_from(number()?).unwrap_or(0);
            if rest == "-1" {
                return Ok(Value::Text(String::new()));
            }
            if length > HEAD_BYTES_MAX {
                return Err(strange("too long a text"));
            }
            let mut bytes = vec![0; length + 2];
            reader.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Value::Text(String::from_utf8_lossy(&bytes).into_owned()))
        }
        "*" | "%" if depth < 8 => {
            let count = number()?.max(0) * if kind == "%" { 2 } else { 1 };
            (0..count).map(|_| read(reader, depth + 1)).collect::<io::Result<_>>().map(Value::List)
        }
        _ => Err(strange(line)),
    }
}

/// Who has each slot, for one worker: connection `c` belongs to node `c % nodes`.
#[derive(Debug)]
pub(super) struct Slots {
    addresses: Vec<SocketAddr>,
    owners: Vec<u16>,
}

impl Slots {
    pub fn of(nodes: &[Node]) -> Slots {
        let mut owners = vec![u16::MAX; usize::from(SLOTS)];
        for (place, node) in nodes.iter().enumerate() {
            for (first, last) in &node.slots {
                (*first..=*last).for_each(|slot| owners[usize::from(slot)] = place as u16);
            }
        }
        Slots { addresses: nodes.iter().map(|node| node.address).collect(), owners }
    }

    pub fn is_of(&self, slot: u16, connection: usize) -> bool {
        usize::from(self.owners[usize::from(slot)]) == connection % self.addresses.len()
    }

    /// `-MOVED 3999 127.0.0.1:6381`: from now on that node's. One that was not there at the start has no connection.
    pub fn moved(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_ascii_whitespace().skip(1);
        let slot = words.next().and_then(|word| word.parse::<usize>().ok());
        let address = words.next().and_then(|word| word.parse::<SocketAddr>().ok());
        let place = self.addresses.iter().position(|known| Some(*known) == address);
        if let Some((owner, place)) = slot.and_then(|slot| self.owners.get_mut(slot)).zip(place) {
            *owner = place as u16;
        }
    }
}

/// The slot of a key without a hash tag: CRC16 (XMODEM) of it.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    let crc = key.iter().fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]);
    crc % SLOTS
}

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut place = 0;
    while place < 256 {
        let mut crc = (place as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[place] = crc;
        place += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of the cluster specification: CRC16 of "123456789" is 0x31C3.
        assert_eq!(slot_of(b"123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot_of(b"foo"), 12182);
    }

    #[test]
    fn a_slot_that_moved_is_asked_for_elsewhere() {
        let node =
            |port, slots| Node { address: SocketAddr::from(([127, 0, 0, 1], port)), slots: vec![slots] };
        let mut slots = Slots::of(&[node(1, (0, 9000)), node(2, (9001, 16383))]);
        assert!(slots.is_of(5, 0) && slots.is_of(5, 2) && !slots.is_of(5, 1));
        slots.moved(b"-MOVED 5 127.0.0.1:2\r\n");
        assert!(slots.is_of(5, 1) && !slots.is_of(5, 0));
        slots.moved(b"-MOVED 99999 127.0.0.1:2\r\n");
        slots.moved(b"-MOVED 6 127.0.0.1:7\r\n");
        assert!(slots.is_of(6, 0));
    }

    #[test]
    fn ranges_of_a_reply() {
        let reply = b"*2\r\n*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n*3\r\n:5461\r\n:16383\r\n*4\r\n$0\r\n\r\n:7001\r\n$1\r\nx\r\n*0\r\n";
        let Value::List(ranges) = read(&mut reply.as_slice(), 0).unwrap() else { panic!("no list") };
        let asked = SocketAddr::from(([10, 0, 0, 1], 7001));
        assert_eq!(master(&ranges[0], asked), Some((0, 5460, SocketAddr::from(([127, 0, 0, 1], 7000)))));
        assert_eq!(master(&ranges[1], asked), Some((5461, 16383, asked)));
        for broken in
            [&b"-ERR This instance has cluster support disabled\r\n"[..], b"*1\r\n", b"HTTP\r\n", b""]
        {
            assert!(read(&mut &*broken, 0).is_err(), "{broken:?}");
        }
    }
}
