//! Who goes when room is needed: those that have waited longest, of the network that holds most.
//!
//! Promises that a client that alone holds much loses its own before anybody else does, whatever addresses of
//! its network it uses.

use crate::client::Network;
use std::collections::{BTreeMap, BinaryHeap};

/// One of those that may have to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) network: Network,
    /// What it holds, in any unit; 0: its end would make no room.
    pub(crate) weight: usize,
    /// Since when it has waited for its client.
    pub(crate) since_ms: u64,
}

/// The members in the order in which they go: each time the one that has waited longest, of the network that
/// then holds most, of the wider network that then holds most.
pub(crate) fn going(crowd: &[Member]) -> impl Iterator<Item = usize> {
    let mut wide: BTreeMap<u64, BTreeMap<u64, Vec<usize>>> = BTreeMap::new();
    for (at, member) in crowd.iter().enumerate().filter(|(_, member)| member.weight > 0) {
        wide.entry(member.network.wide()).or_default().entry(member.network.0).or_default().push(at);
    }
    let of_network = |mut members: Vec<usize>| {
        members.sort_by_key(|at| std::cmp::Reverse(crowd[*at].since_ms));
        Group::of(members.into_iter().map(|at| (crowd[at].weight, at)).collect())
    };
    let of_wide = |networks: BTreeMap<u64, Vec<usize>>| Heap::of(networks.into_values().map(of_network));
    let mut all = Heap::of(wide.into_values().map(of_wide));
    std::iter::from_fn(move || all.take().map(|(_, at)| at))
}

/// What members can be taken from, one after the other.
trait Take {
    /// What the rest holds.
    fn weight(&self) -> usize;

    /// The next member with its weight.
    fn take(&mut self) -> Option<(usize, usize)>;
}

/// The members of one network, the next one last.
struct Group {
    weight: usize,
    members: Vec<(usize, usize)>,
}

impl Group {
    fn of(members: Vec<(usize, usize)>) -> Group {
        Group { weight: members.iter().map(|(weight, _)| weight).sum(), members }
    }
}

impl Take for Group {
    fn weight(&self) -> usize {
        self.weight
    }

    fn take(&mut self) -> Option<(usize, usize)> {
        let next = self.members.pop()?;
        self.weight -= next.0;
        Some(next)
    }
}

/// Parts, of which the heaviest gives the next member.
struct Heap<T> {
    weight: usize,
    parts: Vec<T>,
    /// The weight of each part that holds something, and its place.
    order: BinaryHeap<(usize, usize)>,
}

impl<T: Take> Heap<T> {
    fn of(parts: impl Iterator<Item = T>) -> Heap<T> {
        let parts: Vec<T> = parts.collect();
        let order: BinaryHeap<_> = parts.iter().map(T::weight).zip(0..).collect();
        Heap { weight: parts.iter().map(T::weight).sum(), parts, order }
    }
}

impl<T: Take> Take for Heap<T> {
    fn weight(&self) -> usize {
        self.weight
    }

    fn take(&mut self) -> Option<(usize, usize)> {
        let (_, heaviest) = self.order.pop()?;
        let part = &mut self.parts[heaviest];
        let next = part.take()?;
        self.weight -= next.0;
        if part.weight() > 0 {
            self.order.push((part.weight(), heaviest));
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn order(crowd: &[(&str, usize, u64)]) -> Vec<usize> {
        let member = |(address, weight, since_ms): &(&str, usize, u64)| {
            let address: IpAddr = address.parse().expect("an address");
            Member { network: Network::of(address), weight: *weight, since_ms: *since_ms }
        };
        going(&crowd.iter().map(member).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn who_has_waited_longest_of_the_network_that_holds_most_goes_first() {
        assert_eq!(order(&[]), [] as [usize; 0]);
        assert_eq!(order(&[("192.0.2.1", 0, 1)]), [] as [usize; 0], "it has nothing to give");
        assert_eq!(order(&[("192.0.2.1", 9, 5)]), [0]);
        let two = [("192.0.2.1", 50, 1), ("198.51.100.1", 30, 7), ("198.51.100.1", 30, 6)];
        assert_eq!(order(&two), [2, 0, 1], "after the first has gone, another one holds most");
        // A network of 256 addresses counts together, and so do those of one customer of IPv6.
        let wide = [
            ("192.0.2.1", 1, 1),
            ("192.0.2.1", 1, 2),
            ("198.51.100.1", 1, 3),
            ("198.51.100.2", 1, 4),
            ("198.51.100.2", 0, 1),
            ("198.51.100.3", 2, 9),
        ];
        assert_eq!(order(&wide)[0], 5);
        let wide = [("2001:db8:1:1::1", 1, 9), ("2001:db8:1:2::1", 2, 8), ("2001:db8:2::1", 2, 1)];
        assert_eq!(order(&wide)[0], 1);
    }

    #[test]
    fn many_networks_take_no_longer_than_one() {
        let member = |at: u64| Member { network: Network(at << 24), weight: 20_000, since_ms: at };
        let crowd: Vec<_> = (0..100_000).map(member).collect();
        let began = std::time::Instant::now();
        assert_eq!(going(&crowd).count(), crowd.len());
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }
}
