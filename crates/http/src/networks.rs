//! Networks of addresses, as a configuration names them: the proxies that are trusted to name the client.
//!
//! Leaves to [`crate::client`] and [`crate::proxy_protocol`] how such a proxy names the client.

use std::net::IpAddr;

/// Networks of addresses. An IPv4 address in its IPv6 form counts as the IPv4 address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<(u128, u128)>);

impl Networks {
    /// The networks with these addresses and prefix lengths in bits. A prefix longer than the address
    /// matches that address only.
    pub fn new(networks: impl IntoIterator<Item = (IpAddr, u8)>) -> Networks {
        let masked = |(address, bits): (IpAddr, u8)| {
            let bits = match address {
                IpAddr::V4(_) => 96 + u32::from(bits.min(32)),
                IpAddr::V6(_) => u32::from(bits.min(128)),
            };
            let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
            (as_bits(address) & mask, mask)
        };
        Networks(networks.into_iter().map(masked).collect())
    }

    /// Whether one of the networks contains an address.
    #[inline]
    pub fn contains(&self, address: IpAddr) -> bool {
        !self.0.is_empty() && self.0.iter().any(|(network, mask)| as_bits(address) & mask == *network)
    }
}

fn as_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let networks = Networks::new([
            (ip("10.0.0.0"), 8),
            (ip("192.168.1.7"), 32),
            (ip("2001:db8::"), 32),
            (ip("172.16.5.5"), 12),
        ]);
        for inside in [
            "10.255.0.1",
            "::ffff:10.1.2.3",
            "192.168.1.7",
            "2001:db8:ffff::1",
            "172.31.255.255",
            "172.16.0.0",
        ] {
            assert!(networks.contains(ip(inside)), "{inside}");
        }
        for outside in
            ["11.0.0.1", "192.168.1.8", "2001:db9::1", "172.32.0.0", "::1", "::10.0.0.1", "0.0.0.0"]
        {
            assert!(!networks.contains(ip(outside)), "{outside}");
        }
        assert!(!Networks::default().contains(ip("127.0.0.1")));
        let all = Networks::new([(ip("0.0.0.0"), 0)]);
        assert!(all.contains(ip("8.8.8.8")) && !all.contains(ip("::1")), "all of IPv4, and nothing else");
        assert!(Networks::new([(ip("::"), 0)]).contains(ip("8.8.8.8")));
    }
}
