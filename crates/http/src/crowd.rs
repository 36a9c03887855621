//! Who goes when room is needed: those that have waited longest, of the network that holds most.
//!
//! Promises that a client that alone holds much loses its own before anybody else does, whatever addresses of
//! its network it uses.

use crate::client::Network;
use std::collections::HashMap;

/// One of those that may have to go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    pub(crate) network: Network,
    /// What it holds, in any unit; 0: its end would make no room.
    pub(crate) weight: usize,
    /// Since when it has waited for its client.
    pub(crate) since_ms: u64,
}

/// The members of the network that holds most, of the wider network that holds most: those first that have
/// waited longest.
pub(crate) fn who_goes(crowd: &[Member]) -> Vec<usize> {
    let weighs = |member: &Member| member.weight > 0;
    let Some(wide) = heaviest(crowd.iter().filter(|member| weighs(member)), Network::wide) else {
        return Vec::new();
    };
    let is_of_wide = |member: &Member| weighs(member) && member.network.wide() == wide;
    let network = heaviest(crowd.iter().filter(|member| is_of_wide(member)), |network| network.0);
    let is_of_it = |member: &Member| is_of_wide(member) && Some(member.network.0) == network;
    let mut going: Vec<usize> = (0..crowd.len()).filter(|at| is_of_it(&crowd[*at])).collect();
    going.sort_by_key(|at| crowd[*at].since_ms);
    going
}

/// The group that weighs most.
fn heaviest<'a>(members: impl Iterator<Item = &'a Member>, group: impl Fn(Network) -> u64) -> Option<u64> {
    let mut sums: HashMap<u64, usize> = HashMap::new();
    members.for_each(|member| *sums.entry(group(member.network)).or_default() += member.weight);
    sums.into_iter().max_by_key(|(_, weight)| *weight).map(|(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn going(crowd: &[(&str, usize, u64)]) -> Vec<usize> {
        let member = |(address, weight, since_ms): &(&str, usize, u64)| {
            let address: IpAddr = address.parse().expect("an address");
            Member { network: Network::of(address), weight: *weight, since_ms: *since_ms }
        };
        who_goes(&crowd.iter().map(member).collect::<Vec<_>>())
    }

    #[test]
    fn who_has_waited_longest_of_the_network_that_holds_most_goes_first() {
        assert_eq!(going(&[]), [] as [usize; 0]);
        assert_eq!(going(&[("192.0.2.1", 0, 1)]), [] as [usize; 0], "it has nothing to give");
        assert_eq!(going(&[("192.0.2.1", 9, 5)]), [0]);
        let two = [("192.0.2.1", 50, 1), ("198.51.100.1", 30, 7), ("198.51.100.1", 30, 6)];
        assert_eq!(going(&two), [2, 1]);
        // A network of 256 addresses counts together, and so do those of one customer of IPv6.
        let wide = [
            ("192.0.2.1", 1, 1),
            ("192.0.2.1", 1, 2),
            ("198.51.100.1", 1, 3),
            ("198.51.100.2", 1, 4),
            ("198.51.100.2", 0, 1),
            ("198.51.100.3", 2, 9),
        ];
        assert_eq!(going(&wide), [5]);
        let wide = [("2001:db8:1:1::1", 1, 9), ("2001:db8:1:2::1", 2, 8), ("2001:db8:2::1", 2, 1)];
        assert_eq!(going(&wide), [1]);
    }
}
