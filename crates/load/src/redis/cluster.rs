//! Which node owns which slots: known at the start and corrected by MOVED replies. ASK replies redirect
//! one command.

use crate::limits::SLOTS;
use std::net::SocketAddr;

/// A node that has connections, and the ranges of slots that it answers for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    /// The node's own address, or that of its master.
    pub master: SocketAddr,
    /// First and last. None outside a cluster, where every node has every key.
    pub slots: Vec<(u16, u16)>,
}

impl Node {
    /// Whether the node replicates another one.
    pub fn is_replica(&self) -> bool {
        self.address != self.master
    }
}

/// The owner of each slot, for one worker: connection `c` belongs to node `c % nodes`.
#[derive(Debug)]
pub(super) struct Slots {
    nodes: Vec<SocketAddr>,
    /// For each node, its master's index.
    masters: Vec<u16>,
    addresses: Vec<SocketAddr>,
    /// For each slot, its owner's index.
    owners: Vec<u16>,
}

/// The redirection of a command by a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Redirect {
    slot: u16,
    to: SocketAddr,
}

impl Redirect {
    /// `-MOVED 3999 127.0.0.1:6381`, `-ASK 3999 127.0.0.1:6381`.
    pub fn parse(line: &[u8]) -> Option<Redirect> {
        let text = str::from_utf8(line).ok()?;
        let mut words = text.split_ascii_whitespace().skip(1);
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        Some(Redirect { slot, to: words.next()?.parse().ok()? })
    }
}

impl Slots {
    pub fn of(nodes: &[Node]) -> Slots {
        let mut slots = Slots {
            nodes: nodes.iter().map(|node| node.address).collect(),
            masters: Vec::new(),
            addresses: Vec::new(),
            owners: vec![u16::MAX; usize::from(SLOTS)],
        };
        for node in nodes {
            let known = slots.addresses.iter().position(|address| *address == node.master);
            let master = known.unwrap_or_else(|| {
                slots.addresses.push(node.master);
                slots.addresses.len() - 1
            }) as u16;
            slots.masters.push(master);
            for (first, last) in &node.slots {
                (*first..=*last).for_each(|slot| slots.owners[usize::from(slot)] = master);
            }
        }
        slots
    }

    pub fn is_of(&self, slot: u16, connection: usize) -> bool {
        self.owners[usize::from(slot)] == self.masters[connection % self.masters.len()]
    }

    /// Assigns the slot to the named node. Returns whether the owner changed. A node that was
    /// unknown at the start has no connection.
    pub fn moved(&mut self, redirect: Redirect) -> bool {
        let place = self.addresses.iter().position(|known| *known == redirect.to);
        let owner = &mut self.owners[usize::from(redirect.slot)];
        place.is_some_and(|place| std::mem::replace(owner, place as u16) != place as u16)
    }

    /// The index of the named node, if it has connections.
    pub fn node(&self, redirect: Redirect) -> Option<usize> {
        self.nodes.iter().position(|known| *known == redirect.to)
    }
}

/// The slot of a key: CRC16 (XMODEM) of its hash tag (the text between the first `{` and the next
/// `}`), or of the whole key when the tag is missing or empty.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    const TABLE: [u16; 256] = table();
    let tag = memchr::memchr(b'{', key).and_then(|open| {
        let rest = &key[open + 1..];
        memchr::memchr(b'}', rest).filter(|length| *length > 0).map(|length| &rest[..length])
    });
    let hashed = tag.unwrap_or(key);
    let crc =
        hashed.iter().fold(0, |crc: u16, byte| (crc << 8) ^ TABLE[usize::from((crc >> 8) as u8 ^ byte)]);
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

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of the cluster specification: CRC16 of "123456789" is 0x31C3.
        assert_eq!(slot_of(b"123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot_of(b"foo"), 12182);
        // The specification's examples of hash tags.
        for (key, hashed) in
            [("{user1000}.following", "user1000"), ("foo{{bar}}zap", "{bar"), ("foo{bar}{zap}", "bar")]
        {
            assert_eq!(slot_of(key.as_bytes()), slot_of(hashed.as_bytes()), "{key}");
        }
        for whole in ["foo{}{bar}", "foo{bar", "foo}bar{"] {
            let padded = format!("{{{whole}");
            assert_ne!(slot_of(whole.as_bytes()), slot_of(b"bar"), "{whole}");
            assert_ne!(slot_of(whole.as_bytes()), slot_of(padded.as_bytes()), "{whole}");
        }
    }

    #[test]
    fn a_slot_that_moved_is_asked_for_elsewhere() {
        let node = |port, slots| Node { address: local(port), master: local(port), slots: vec![slots] };
        let mut slots = Slots::of(&[node(1, (0, 9000)), node(2, (9001, 16383))]);
        assert!(slots.is_of(5, 0) && slots.is_of(5, 2) && !slots.is_of(5, 1));
        let moved = Redirect::parse(b"-MOVED 5 127.0.0.1:2\r\n").unwrap();
        assert!(slots.moved(moved) && !slots.moved(moved));
        assert!(slots.is_of(5, 1) && !slots.is_of(5, 0));
        let unknown = Redirect::parse(b"-ASK 6 127.0.0.1:7\r\n").unwrap();
        assert!(!slots.moved(unknown));
        assert!(slots.is_of(6, 0) && slots.node(unknown).is_none());
        for line in ["-MOVED 99999 127.0.0.1:2\r\n", "-MOVED 5\r\n", "-ASK x y\r\n"] {
            assert_eq!(Redirect::parse(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_replica_has_the_slots_of_its_master() {
        let node =
            |port, master, slots| Node { address: local(port), master: local(master), slots: vec![slots] };
        let nodes = [
            node(1, 1, (0, 9000)),
            node(2, 2, (9001, 16383)),
            node(3, 1, (0, 9000)),
            node(4, 2, (9001, 16383)),
        ];
        let mut slots = Slots::of(&nodes);
        assert!(slots.is_of(5, 2) && !slots.is_of(5, 3));
        slots.moved(Redirect::parse(b"-MOVED 5 127.0.0.1:2\r\n").unwrap());
        assert!(slots.is_of(5, 3) && !slots.is_of(5, 2));
        // The same without connections to the masters.
        let slots = Slots::of(&nodes[2..]);
        assert!(slots.is_of(5, 0) && slots.is_of(9001, 1));
    }
}
