//! The map: which node owns which slot, and the replicas of each primary. A map is immutable; a new one
//! replaces it.

use crate::addresses::Address;
use crate::slot::{SLOTS, Slot};

/// A primary and its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) primary: Address,
    /// Replicas that are reported to be up.
    pub(crate) replicas: Vec<Address>,
    /// Number of its replicas, up or down: what "all replicas" means.
    pub(crate) replicas_known: u32,
    /// Slot ranges, both ends included.
    pub(crate) slots: Vec<(u16, u16)>,
}

/// Which shard owns which slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) shards: Vec<Shard>,
    by_slot: Vec<u16>,
}

const NOBODY: u16 = u16::MAX;

impl Map {
    pub(crate) fn new(shards: Vec<Shard>) -> Map {
        let mut by_slot = vec![NOBODY; usize::from(SLOTS)];
        for (index, shard) in shards.iter().enumerate() {
            for &(first, last) in &shard.slots {
                by_slot[usize::from(first)..=usize::from(last.min(SLOTS - 1))].fill(index as u16);
            }
        }
        Map { shards, by_slot }
    }

    /// A map of one primary that owns every slot.
    pub(crate) fn single(primary: Address, replicas: Vec<Address>, replicas_known: u32) -> Map {
        Map::new(vec![Shard { primary, replicas, replicas_known, slots: vec![(0, SLOTS - 1)] }])
    }

    /// The shard that owns a slot; `None` while a cluster is incomplete.
    pub(crate) fn shard(&self, slot: Slot) -> Option<&Shard> {
        self.shards.get(usize::from(*self.by_slot.get(usize::from(slot.0))?))
    }

    /// The same map after a MOVED; `None` when the MOVED names a node that is not on it as a primary.
    pub(crate) fn moved(&self, slot: Slot, address: &Address) -> Option<Map> {
        let index = self.shards.iter().position(|shard| shard.primary == *address)?;
        let mut map = self.clone();
        *map.by_slot.get_mut(usize::from(slot.0))? = index as u16;
        Some(map)
    }

    pub(crate) fn is_primary(&self, address: &Address) -> bool {
        self.shards.iter().any(|shard| shard.primary == *address)
    }

    pub(crate) fn has(&self, address: &Address) -> bool {
        self.shards.iter().any(|shard| shard.primary == *address || shard.replicas.contains(address))
    }

    /// Parses CLUSTER NODES, as the node `answered_by` returned it.
    ///
    /// A line is `id ip:port@bus[,hostname] flags primary-id ping pong epoch link slot…`; a slot is `n`,
    /// `n-m`, or, in brackets, a slot in migration, which still counts for its owner. Source: the command's
    /// documentation.
    pub(crate) fn from_cluster_nodes(text: &str, answered_by: &Address, by_hostname: bool) -> Map {
        let lines: Vec<Line<'_>> =
            text.lines().filter_map(|line| Line::parse(line, answered_by, by_hostname)).collect();
        let mut shards: Vec<(&str, Shard)> = lines
            .iter()
            .filter(|line| line.flag("master") && !(line.flag("fail") && line.slots.is_empty()))
            .map(|line| {
                let shard = Shard {
                    primary: line.address.clone(),
                    replicas: Vec::new(),
                    replicas_known: 0,
                    slots: line.slots.clone(),
                };
                (line.id, shard)
            })
            .collect();
        for line in lines.iter().filter(|line| line.flag("slave")) {
            if let Some((_, shard)) = shards.iter_mut().find(|(id, _)| *id == line.primary) {
                shard.replicas_known += 1;
                if line.is_up {
                    shard.replicas.push(line.address.clone());
                }
            }
        }
        let mut shards: Vec<Shard> = shards.into_iter().map(|(_, shard)| shard).collect();
        shards
            .sort_by_key(|shard| (shard.slots.first().map_or(SLOTS, |range| range.0), shard.primary.clone()));
        Map::new(shards)
    }
}

struct Line<'a> {
    id: &'a str,
    address: Address,
    flags: &'a str,
    primary: &'a str,
    is_up: bool,
    slots: Vec<(u16, u16)>,
}

impl<'a> Line<'a> {
    fn parse(line: &'a str, answered_by: &Address, by_hostname: bool) -> Option<Line<'a>> {
        let mut words = line.split_ascii_whitespace();
        let (id, place, flags, primary) = (words.next()?, words.next()?, words.next()?, words.next()?);
        let link = words.nth(3)?;
        if flags.split(',').any(|flag| flag == "handshake" || flag == "noaddr") {
            return None;
        }
        let myself = flags.split(',').any(|flag| flag == "myself");
        let (place, names) = place.split_once(',').unwrap_or((place, ""));
        let endpoint = place.split('@').next()?;
        let (host, port) = endpoint.rsplit_once(':')?;
        let hostname =
            names.split(',').next().filter(|name| by_hostname && !name.is_empty() && !name.contains('='));
        let address = match (hostname.unwrap_or(host), answered_by) {
            // A node that was never reached from outside does not know its own address; use the one just
            // reached.
            ("", _) if myself => answered_by.clone(),
            ("", _) => return None,
            (host, _) => Address::tcp(host, port.parse().ok()?),
        };
        let failed = flags.split(',').any(|flag| flag == "fail");
        let is_up = !failed && (myself || link == "connected");
        let slots = words.filter(|word| !word.starts_with('[')).filter_map(range).collect();
        Some(Line { id, address, flags, primary, is_up, slots })
    }

    fn flag(&self, wanted: &str) -> bool {
        self.flags.split(',').any(|flag| flag == wanted)
    }
}

fn range(word: &str) -> Option<(u16, u16)> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_nodes_are_read() {
        let text = "\
a 127.0.0.1:7001@17001 master - 0 1 2 connected 5461-10922 [93->-b]
b :7000@17000,one.example myself,master - 0 0 1 connected 0-5460 10923
c 127.0.0.1:7002@17002,two.example,shard-id=9 slave a 0 1 2 connected
d 127.0.0.1:7003@17003 slave,fail a 0 1 2 disconnected
e 127.0.0.1:7004@17004 master,fail - 0 1 2 disconnected
f :0@0 master,noaddr - 0 1 2 disconnected
";
        let answered_by = Address::tcp("10.0.0.1", 7_000);
        let map = Map::from_cluster_nodes(text, &answered_by, false);
        assert_eq!(map.shards.len(), 2);
        assert_eq!(map.shard(Slot(0)).unwrap().primary, answered_by);
        let second = map.shard(Slot(5_461)).unwrap();
        assert_eq!(second.primary, Address::tcp("127.0.0.1", 7_001));
        assert_eq!(second.replicas, [Address::tcp("127.0.0.1", 7_002)]);
        assert_eq!(second.replicas_known, 2);
        assert_eq!(map.shard(Slot(10_923)).unwrap().primary, answered_by);
        assert_eq!(map.shard(Slot(10_924)), None);

        let moved = map.moved(Slot(10_924), &answered_by).unwrap();
        assert_eq!(moved.shard(Slot(10_924)).unwrap().primary, answered_by);
        assert_eq!(map.moved(Slot(1), &Address::tcp("elsewhere", 1)), None);

        let named = Map::from_cluster_nodes(text, &answered_by, true);
        assert_eq!(named.shard(Slot(0)).unwrap().primary, Address::tcp("one.example", 7_000));
    }
}
