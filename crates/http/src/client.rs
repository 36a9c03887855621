//! The client of a request: the peer of its connection, or the client that a trusted proxy in front names.
//!
//! Sources: RFC 7239 (Forwarded), and X-Forwarded-For and X-Forwarded-Proto as proxies write them. A list is
//! read from its end, where the nearest proxy wrote: the first address that does not belong to a trusted
//! proxy is the client's. Everything before it was written by the client.
//!
//! Promises that a client cannot choose its address: the fields count only on connections from trusted
//! proxies. A proxy may pass on one of the two fields as the client sent it and write the other. So where
//! both fields exist, they must name the same client. A field that cannot be read, or that contradicts the
//! other field, names the client [`UNKNOWN`].

use crate::networks::Networks;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The address of a client for which a trusted proxy gives no readable address.
pub const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The peer that a connection's bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The peer's address, or the address that a PROXY header gave.
    pub peer: SocketAddr,
    /// Whether the bytes came through TLS.
    pub is_secure: bool,
    /// Whether a PROXY header gave the address.
    pub is_forwarded: bool,
}

impl Origin {
    /// The connection of a client without TLS and without a PROXY header.
    pub fn direct(peer: SocketAddr) -> Origin {
        Origin { peer, is_secure: false, is_forwarded: false }
    }
}

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The client's address; [`UNKNOWN`] when a trusted proxy gave no readable address.
    pub address: IpAddr,
    /// Whether the client used https.
    pub is_secure: bool,
}

impl Client {
    /// The network that one client can choose its addresses from: an IPv4 address, or the first 64 bits of an
    /// IPv6 address. An IPv4 address behind NAT64 (RFC 6052) is itself.
    pub fn network(self) -> u64 {
        Network::of(self.address).0
    }
}

/// The network that one client can choose its addresses from ([`Client::network`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network(pub(crate) u64);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Network {
        const NAT64: u128 = 0x64_ff9b << 96;
        let of_v4 = |bits: u32| 0xffff_0000_0000 | u64::from(bits);
        Network(match address.to_canonical() {
            IpAddr::V4(address) => of_v4(address.to_bits()),
            IpAddr::V6(address) if address.to_bits() >> 32 == NAT64 >> 32 => of_v4(address.to_bits() as u32),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        })
    }

    /// The network that one customer may be given: 256 addresses of IPv4, 65,536 networks of IPv6.
    pub(crate) fn wide(self) -> u64 {
        if self.0 >> 32 == 0xffff { self.0 >> 8 } else { self.0 >> 16 }
    }
}

/// The client that a field names: its address, its number of hops from the end of the list, and its scheme
/// if the field gives one.
struct NamedClient {
    address: IpAddr,
    hop: usize,
    is_secure: Option<bool>,
}

/// The client of a request with these header fields.
pub(crate) fn client<'a>(
    origin: Origin,
    trusted: &Networks,
    fields: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
) -> Client {
    let direct = Client { address: origin.peer.ip().to_canonical(), is_secure: origin.is_secure };
    if !trusted.contains(direct.address) {
        return direct;
    }
    let list = |name: &'static str| list(fields.clone(), name);
    let by_forwarded = list("Forwarded").map(|list| forwarded(list.as_deref(), trusted));
    let by_list = list("X-Forwarded-For").map(|list| forwarded_for(list.as_deref(), trusted));
    let schemes = list("X-Forwarded-Proto").map(|list| list.unwrap_or_default());
    let (address, hop) = match (&by_forwarded, &by_list) {
        (None, None) => (direct.address, 0),
        (Some(named), None) | (None, Some(named)) => (named.address, named.hop),
        (Some(named), Some(other)) if named.address == other.address => (named.address, named.hop),
        (Some(_), Some(_)) => (UNKNOWN, 0),
    };
    let by_word = schemes.map(|schemes| {
        let words: Vec<_> = schemes.split(',').map(str::trim).collect();
        let word = words.iter().rev().nth(hop).or(words.last());
        word.is_some_and(|word| word.eq_ignore_ascii_case("https"))
    });
    let is_secure = match (by_forwarded.and_then(|named| named.is_secure), by_word) {
        (None, None) => direct.is_secure,
        (Some(is_secure), None) | (None, Some(is_secure)) => is_secure,
        (Some(is_secure), Some(other)) => is_secure && other,
    };
    Client { address, is_secure }
}

/// Whether only proxies write this field.
pub(crate) fn is_of_proxy(name: &str) -> bool {
    const PREFIX: &str = "X-Forwarded-";
    ["Forwarded", "Via", "X-Real-IP"].iter().any(|known| name.eq_ignore_ascii_case(known))
        || name.get(..PREFIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(PREFIX))
}

/// Whether a Host field names the loopback interface.
pub(crate) fn is_loopback_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    let name = host.split(':').next().unwrap_or_default();
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// All lines of a field as one list; the inner `None` when they are not UTF-8.
fn list<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])>, name: &str) -> Option<Option<String>> {
    let lines: Vec<_> =
        fields.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect();
    (!lines.is_empty()).then(|| String::from_utf8(lines.join(&b", "[..])).ok())
}

/// The client in a list of hops, ordered from the first hop to the last: the last hop that is no trusted
/// proxy, or the first hop when all are trusted proxies.
fn named(hops: &[(Option<IpAddr>, Option<bool>)], trusted: &Networks) -> NamedClient {
    for (hop, (address, is_secure)) in hops.iter().rev().enumerate() {
        let address = address.unwrap_or(UNKNOWN);
        if hop + 1 == hops.len() || !trusted.contains(address) {
            return NamedClient { address, hop, is_secure: *is_secure };
        }
    }
    NamedClient { address: UNKNOWN, hop: 0, is_secure: None }
}

fn forwarded_for(list: Option<&str>, trusted: &Networks) -> NamedClient {
    let hops = list.unwrap_or_default().split(',').map(str::trim).filter(|hop| !hop.is_empty());
    named(&hops.map(|hop| (address(hop), None)).collect::<Vec<_>>(), trusted)
}

fn forwarded(list: Option<&str>, trusted: &Networks) -> NamedClient {
    named(&list.and_then(elements).unwrap_or_default(), trusted)
}

/// An address with an optional port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn address(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let bare = bracketed.map_or_else(|| text.parse().ok(), |text| text.parse().ok().map(IpAddr::V6));
    bare.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .map(|address: IpAddr| address.to_canonical())
}

/// The elements of Forwarded (RFC 7239 section 4), each with its address and whether its scheme is https.
/// `None` when the list is malformed: a quote that the client left open could swallow the proxy's element.
fn elements(list: &str) -> Option<Vec<(Option<IpAddr>, Option<bool>)>> {
    let mut elements = Vec::new();
    let (mut node, mut is_secure, mut pairs) = (None::<String>, None, 0);
    let mut rest = list.trim();
    while !rest.is_empty() {
        if !rest.starts_with([',', ';']) {
            let (name, value, after) = pair(rest)?;
            pairs += 1;
            let is_repeated = match name {
                name if name.eq_ignore_ascii_case("for") => node.replace(value).is_some(),
                name if name.eq_ignore_ascii_case("proto") => {
                    is_secure.replace(value.eq_ignore_ascii_case("https")).is_some()
                }
                _ => false,
            };
            rest = after.trim_start();
            if is_repeated || !(rest.is_empty() || rest.starts_with([',', ';'])) {
                return None;
            }
        }
        if rest.starts_with(';') && !rest[1..].trim_start().is_empty() {
            rest = rest[1..].trim_start();
            continue;
        }
        if pairs > 0 {
            elements.push((node.take().and_then(|node| address(&node)), is_secure.take()));
            pairs = 0;
        }
        rest = rest.get(1..).unwrap_or_default().trim_start();
    }
    Some(elements)
}

/// Parses `name=value` at the start of a text; returns the rest as well.
fn pair(text: &str) -> Option<(&str, String, &str)> {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let (name, rest) = text.split_once('=')?;
    if name.is_empty() || !name.chars().all(is_token) {
        return None;
    }
    let Some(quoted) = rest.strip_prefix('"') else {
        // Many proxies write IPv6 addresses and ports without the required quotes.
        let end = rest.find(|c: char| !is_token(c) && !matches!(c, ':' | '[' | ']')).unwrap_or(rest.len());
        return (end > 0).then(|| (name, rest[..end].to_owned(), &rest[end..]));
    };
    let (mut value, mut chars) = (String::new(), quoted.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((name, value, &quoted[at + 1..])),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn found(peer: &str, fields: &[(&str, &str)]) -> (String, bool) {
        let trusted = Networks::new([(ip("10.0.0.0"), 8), (ip("::1"), 128)]);
        let origin = Origin::direct(SocketAddr::new(ip(peer), 999));
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let Client { address, is_secure } = client(origin, &trusted, fields);
        (address.to_string(), is_secure)
    }

    #[test]
    fn the_last_address_that_is_no_trusted_proxy_is_the_client() {
        for (list, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("6.6.6.6, 192.0.2.1", "192.0.2.1"),
            ("6.6.6.6, 192.0.2.1, 10.9.9.9", "192.0.2.1"),
            ("127.0.0.1, 192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("::ffff:10.0.0.1, 10.2.2.2", "10.0.0.1"),
            (",192.0.2.1,, 10.0.0.7 ,", "192.0.2.1"),
            ("garbage, 192.0.2.1", "192.0.2.1"),
            // An unreadable address makes the client unknown.
            ("192.0.2.1, garbage", "0.0.0.0"),
            ("garbage, 10.0.0.1", "0.0.0.0"),
            ("unknown", "0.0.0.0"),
            ("", "0.0.0.0"),
            ("192.0.2.256", "0.0.0.0"),
            ("[192.0.2.1]", "0.0.0.0"),
            ("\u{e9}", "0.0.0.0"),
        ] {
            assert_eq!(found("10.0.0.1", &[("x-forwarded-for", list)]).0, expected, "{list:?}");
            assert_eq!(found("11.0.0.1", &[("X-Forwarded-For", list)]).0, "11.0.0.1", "{list:?}");
        }
        let lines =
            [("X-Forwarded-For", "6.6.6.6"), ("Other", ""), ("X-Forwarded-For", "192.0.2.1, 10.1.1.1")];
        assert_eq!(found("::1", &lines).0, "192.0.2.1");
    }

    #[test]
    fn elements_of_forwarded() {
        for (list, expected, is_secure) in [
            ("for=192.0.2.1;proto=https", "192.0.2.1", true),
            ("For=\"[2001:db8::1]:80\"; Proto=HTTPS;by=_x", "2001:db8::1", true),
            ("for=[2001:db8::1]:80", "2001:db8::1", false),
            ("for=192.0.2.1:80;host=\"a,b;for=6.6.6.6\"", "192.0.2.1", false),
            ("for=6.6.6.6;proto=https, for=192.0.2.1;proto=http", "192.0.2.1", false),
            ("for=192.0.2.1;proto=https, for=10.1.1.1;proto=http", "192.0.2.1", true),
            ("for=\"192.\\0.2.1\"", "192.0.2.1", false),
            ("for=192.0.2.1,", "192.0.2.1", false),
            ("for=192.0.2.1; , for=10.1.1.1;", "192.0.2.1", false),
            (";, ;for=192.0.2.1;;proto=https;", "192.0.2.1", true),
            ("for=unknown", "0.0.0.0", false),
            ("for=_hidden, for=10.1.1.1", "0.0.0.0", false),
            ("proto=https", "0.0.0.0", true),
            // A quote that the client left open, followed by the proxy's element.
            ("for=127.0.0.1;x=\", for=192.0.2.1", "0.0.0.0", false),
            ("for=127.0.0.1;x=\", for=\"[2001:db8::1]\"", "0.0.0.0", false),
            ("for=127.0.0.1;for=192.0.2.1", "0.0.0.0", false),
            ("for=", "0.0.0.0", false),
            ("for", "0.0.0.0", false),
            ("for =192.0.2.1", "0.0.0.0", false),
            ("for=192.0.2.1 x", "0.0.0.0", false),
            ("for=\"192.0.2.1\\", "0.0.0.0", false),
        ] {
            assert_eq!(
                found("10.0.0.1", &[("Forwarded", list)]),
                (expected.to_owned(), is_secure),
                "{list:?}"
            );
        }
    }

    #[test]
    fn two_fields_must_name_the_same_client() {
        let both =
            |forwarded, list| found("10.0.0.1", &[("Forwarded", forwarded), ("X-Forwarded-For", list)]).0;
        assert_eq!(both("for=192.0.2.1", "6.6.6.6, 192.0.2.1"), "192.0.2.1");
        assert_eq!(both("for=127.0.0.1", "192.0.2.1"), "0.0.0.0", "one of them is the client's own");
        assert_eq!(both("for=192.0.2.1", "127.0.0.1"), "0.0.0.0");
        assert_eq!(both("malformed", "192.0.2.1"), "0.0.0.0");
    }

    #[test]
    fn schemes() {
        let of = |fields: &[(&str, &str)]| found("10.0.0.1", fields).1;
        assert!(of(&[("X-Forwarded-Proto", "https")]));
        assert!(!of(&[("X-Forwarded-Proto", "https, http")]), "the word of the nearest proxy");
        assert!(of(&[("X-Forwarded-For", "192.0.2.1, 10.1.1.1"), ("X-Forwarded-Proto", "https, http")]));
        assert!(of(&[("X-Forwarded-For", "192.0.2.1, 10.1.1.1"), ("X-Forwarded-Proto", "https")]));
        assert!(!of(&[("Forwarded", "for=192.0.2.1;proto=http"), ("X-Forwarded-Proto", "https")]));
        assert!(of(&[("Forwarded", "for=192.0.2.1"), ("X-Forwarded-Proto", "https")]));
        assert!(!found("11.0.0.1", &[("X-Forwarded-Proto", "https")]).1);
    }

    #[test]
    fn networks_are_what_a_client_chooses_addresses_from() {
        let network = |text: &str| Client { address: ip(text), is_secure: false }.network();
        for (one, other) in [
            ("192.0.2.1", "::ffff:192.0.2.1"),
            ("192.0.2.1", "64:ff9b::192.0.2.1"),
            ("2001:db8::1", "2001:db8::ffff:1:2:3"),
        ] {
            assert_eq!(network(one), network(other), "{one} {other}");
        }
        for (one, other) in
            [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8:0:1::1"), ("64:ff9b::1", "64:ff9b::2")]
        {
            assert_ne!(network(one), network(other), "{one} {other}");
        }
    }

    #[test]
    fn hosts_of_the_loopback_interface() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:3000", "127.1.2.3", "[::1]", "[::1]:3000"] {
            assert!(is_loopback_host(host.as_bytes()), "{host}");
        }
        for host in ["", "localhost.example", "shop.example:80", "10.0.0.1", "[::2]", "::1:", "\u{e9}"] {
            assert!(!is_loopback_host(host.as_bytes()), "{host}");
        }
    }
}
