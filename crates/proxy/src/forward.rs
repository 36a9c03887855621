//! Header fields that are passed on: which fields are removed, and which fields name the client.
//!
//! Sources: RFC 9110 sections 7.6.1 (Connection, and other hop-by-hop fields) and 7.6.3 (Via), RFC 7239
//! (Forwarded).

use crate::asserted::is_asserted;
use crate::fields::Fields;
use std::io::Write;
use std::net::IpAddr;

/// Which statements about the origin of a request are trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// None: the fields in which applications believe such statements are not passed on.
    Nobody,
    /// Those of the proxy in front of this server: its forwarding fields are extended.
    Front,
}

/// The client that sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The address, unspecified when it is not known; `None`: the request is made on behalf of all clients,
    /// and the upstream receives no client address.
    pub address: Option<IpAddr>,
    /// Whether the client used https.
    pub is_secure: bool,
}

/// Hop-by-hop fields, whether Connection names them or not, and those that frame a body.
fn is_hop_by_hop(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection"
            | b"keep-alive"
            | b"proxy-connection"
            | b"proxy-authenticate"
            | b"proxy-authorization"
            | b"te"
            | b"trailer"
            | b"upgrade"
            | b"transfer-encoding"
            | b"content-length"
    )
}

/// Removes all hop-by-hop fields and all fields that frame a body.
pub(crate) fn strip_hop_by_hop(fields: &mut Fields) {
    let named = Named::of(fields);
    fields.retain(|name, _| !is_hop_by_hop(name) && !named.has(name));
}

/// The fields that Connection names.
struct Named(Vec<String>);

impl Named {
    fn of(fields: &Fields) -> Named {
        let lists = fields.all("connection").flat_map(|list| list.split(|byte| *byte == b','));
        let names = lists.map(<[u8]>::trim_ascii).filter(|name| !is_usual(name));
        Named(names.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect())
    }

    fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|named| named.as_bytes() == name)
    }
}

/// Whether Connection has one of its usual options, which name no field.
fn is_usual(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close")
}

/// The protocols of an Upgrade field that may be passed on; `None`: there is none. Protocols that carry
/// requests themselves are left out (HTTP/2 by `h2c`, other versions of HTTP, TLS): no guard would see those
/// requests.
pub(crate) fn passable_protocols(upgrade: &[u8]) -> Option<Vec<u8>> {
    let carries_requests = |protocol: &[u8]| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
        [&b"h2c"[..], b"h2", b"h3", b"http", b"tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let protocols = upgrade.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let protocols: Vec<_> = protocols.filter(|name| !name.is_empty() && !carries_requests(name)).collect();
    if protocols.is_empty() { None } else { Some(protocols.join(&b", "[..])) }
}

/// Whether an answer 101 accepts one of the requested protocols, as RFC 9110 section 7.8 requires.
pub(crate) fn takes_protocol(fields: &Fields, asked: &[u8]) -> bool {
    let has_token = |name: &str, token: &[u8]| {
        let mut lists = fields.all(name).flat_map(|list| list.split(|byte| *byte == b','));
        lists.any(|found| found.trim_ascii().eq_ignore_ascii_case(token))
    };
    let mut asked = asked.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    has_token("connection", b"upgrade") && asked.any(|protocol| has_token("upgrade", protocol))
}

/// What an upstream is told in addition to the client's fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForwardingContext<'a> {
    pub(crate) sender: Sender,
    pub(crate) trust: Trust,
    /// Fields that are passed on whoever states something in them, in lower case.
    pub(crate) kept: &'a [String],
    /// Fields that replace the client's fields of the same names.
    pub(crate) set: &'a Fields,
    /// The host that replaces the host in the client's request.
    pub(crate) host: Option<&'a str>,
    /// The host for a request without a Host field: HTTP/1.1 requires one, HTTP/1.0 does not.
    pub(crate) own_host: &'a str,
}

/// Writes the client's fields as the upstream must receive them.
pub(crate) fn write_fields(fields: &Fields, told: ForwardingContext<'_>, out: &mut Vec<u8>) {
    let asked = fields.get("host");
    let host = told.host.map(str::as_bytes).or(asked).unwrap_or(told.own_host.as_bytes());
    write_field(out, b"host: ", host);
    let named = Named::of(fields);
    let is_believed = told.trust == Trust::Front;
    let is_kept = |name: &[u8]| told.kept.iter().any(|kept| kept.as_bytes() == name);
    let (mut has_host, mut has_proto) = (false, false);
    let mut lists = [Vec::new(), Vec::new()];
    let passed = fields.each_line().filter(|(name, ..)| !is_hop_by_hop(name) && !named.has(name));
    for (name, value, line) in passed {
        match name {
            // Expect was already handled by this server.
            b"host" | b"expect" => continue,
            _ if told.set.has(name) => continue,
            _ if !is_believed && is_asserted(name) && !is_kept(name) => continue,
            b"x-forwarded-for" | b"forwarded" if told.sender.address.is_some() => {
                // Joined into one field with the added element: some applications read only the first field.
                let list = &mut lists[usize::from(name == b"forwarded")];
                list.extend_from_slice(value);
                list.extend_from_slice(b", ");
                continue;
            }
            b"x-forwarded-host" => has_host = true,
            b"x-forwarded-proto" => has_proto = true,
            _ => {}
        }
        out.extend_from_slice(line);
    }
    if let (Some(asked), false) = (asked, has_host) {
        write_field(out, b"x-forwarded-host: ", asked);
    }
    if !has_proto {
        let proto = match told.sender.is_secure {
            true => &b"x-forwarded-proto: https\r\n"[..],
            false => b"x-forwarded-proto: http\r\n",
        };
        out.extend_from_slice(proto);
    }
    if let Some(address) = told.sender.address {
        write_sender(address.to_canonical(), told.sender.is_secure, asked, &lists, out);
    }
    told.set.each_line().for_each(|(_, _, line)| out.extend_from_slice(line));
    out.extend_from_slice(b"via: 1.1 forebay\r\n");
}

/// Appends the client to the lists of earlier hops.
fn write_sender(
    address: IpAddr,
    is_secure: bool,
    asked: Option<&[u8]>,
    lists: &[Vec<u8>; 2],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"x-forwarded-for: ");
    if !lists[0].is_empty() {
        out.extend_from_slice(&lists[0]);
    }
    let from = out.len();
    write_address(address, out);
    let node = from..out.len();
    out.extend_from_slice(b"\r\nforwarded: ");
    if !lists[1].is_empty() {
        out.extend_from_slice(&lists[1]);
    }
    let is_quoted = address.is_ipv6() && !address.is_unspecified();
    out.extend_from_slice(if is_quoted { &b"for=\"["[..] } else { b"for=" });
    out.extend_from_within(node);
    if is_quoted {
        out.extend_from_slice(b"]\"");
    }
    // The fold visits every byte, so that it needs no branch per byte.
    let is_text = |host: &&[u8]| {
        host.iter().fold(true, |fits, byte| fits & ((*byte == b'\t') | (b' '..=b'~').contains(byte)))
    };
    if let Some(host) = asked.filter(is_text) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    out.extend_from_slice(if is_secure { &b";proto=https\r\n"[..] } else { b";proto=http\r\n" });
}

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        address if address.is_unspecified() => out.extend_from_slice(b"unknown"),
        // Takes a tenth of the time of formatting.
        IpAddr::V4(address) => {
            let mut text = [0; "255.255.255.255".len()];
            let mut length = 0;
            for (place, octet) in address.octets().into_iter().enumerate() {
                if place > 0 {
                    text[length] = b'.';
                    length += 1;
                }
                for (digit, least) in [(octet / 100, 100), (octet / 10 % 10, 10), (octet % 10, 0)] {
                    if octet >= least {
                        text[length] = b'0' + digit;
                        length += 1;
                    }
                }
            }
            out.extend_from_slice(&text[..length]);
        }
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

/// Writes a field; `name` contains the name, the colon and the space.
#[inline]
fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in lines {
            fields.append(name, value.as_bytes()).expect("a field");
        }
        fields
    }

    /// The fields that an upstream receives, in alphabetical order.
    fn lines(fields: &Fields, sender: Sender, trust: Trust, host: Option<&str>) -> Vec<String> {
        let mut out = Vec::new();
        let (kept, set) = (["x-original-url".to_owned()], map(&[("X-Tenant", "7")]));
        let told = ForwardingContext { sender, trust, kept: &kept, set: &set, host, own_host: "own" };
        write_fields(fields, told, &mut out);
        let text = String::from_utf8(out).expect("ASCII");
        assert!(text.ends_with("\r\n") && !text.contains("\r\n\r\n"), "{text:?}");
        let mut lines: Vec<_> = text.trim_end().split("\r\n").map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines.pop().as_deref(), Some("x-tenant: 7"));
        lines
    }

    #[test]
    fn what_is_between_neighbours_ends_here() {
        let mut headers = map(&[
            ("Connection", "close, X-Secret,  Upgrade"),
            ("Connection", "keep-alive, x-other"),
            ("X-Secret", "1"),
            ("X-Other", "2"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Proxy-Authorization", "Basic x"),
            ("TE", "trailers"),
            ("Trailer", "X-Sum"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "5"),
            ("Upgrade", "websocket"),
            ("X-Kept", "3"),
        ]);
        strip_hop_by_hop(&mut headers);
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("x-kept", &b"3"[..])]);
    }

    #[test]
    fn protocols_that_carry_requests_are_not_asked_for() {
        for (sent, expected) in [
            ("websocket", Some("websocket")),
            ("h2c", None),
            ("H2C, websocket,", Some("websocket")),
            ("HTTP/2.0, tls/1.2 , h2", None),
            ("tcp , SPDY/3.1", Some("tcp, SPDY/3.1")),
            ("", None),
        ] {
            let passed = passable_protocols(sent.as_bytes());
            assert_eq!(passed.as_deref(), expected.map(str::as_bytes), "{sent}");
        }
    }

    #[test]
    fn only_a_protocol_that_was_asked_for_is_taken() {
        let asked = b"tcp, websocket";
        for (lines, expected) in [
            (&[("Connection", "Upgrade"), ("Upgrade", "WebSocket")][..], true),
            (&[("Connection", "keep-alive, upgrade"), ("Upgrade", "tcp")], true),
            (&[("Connection", "upgrade")], false),
            (&[("Upgrade", "websocket")], false),
            (&[("Connection", "upgrade"), ("Upgrade", "h2c")], false),
            (&[], false),
        ] {
            assert_eq!(takes_protocol(&map(lines), asked), expected, "{lines:?}");
        }
    }

    #[test]
    fn nobody_is_believed_unless_told_to() {
        let sent = [
            ("Host", "shop.example"),
            ("X-Forwarded-For", "6.6.6.6"),
            ("X-Forwarded-Host", "evil.example"),
            ("X-Forwarded-Proto", "https"),
            ("Forwarded", "for=6.6.6.6"),
            ("X-Tenant", "6"),
            ("X-Real-IP", "6.6.6.6"),
            ("X-Original-URL", "/admin"),
            // Connection cannot remove the fields that this server adds.
            ("Connection", "X-Forwarded-For, Host, Via, X-Tenant"),
            ("Expect", "100-continue"),
        ];
        let headers = map(&sent);
        let from = |text: &str| Sender { address: Some(text.parse().expect("an address")), is_secure: false };
        assert_eq!(
            lines(&headers, from("10.1.2.3"), Trust::Nobody, None),
            [
                "forwarded: for=10.1.2.3;host=\"shop.example\";proto=http",
                "host: shop.example",
                "via: 1.1 forebay",
                "x-forwarded-for: 10.1.2.3",
                "x-forwarded-host: shop.example",
                "x-forwarded-proto: http",
                "x-original-url: /admin",
            ]
        );
        let headers = map(&sent[..7]);
        assert_eq!(
            lines(&headers, from("2001:db8::1"), Trust::Front, Some("app:8080")),
            [
                "forwarded: for=6.6.6.6, for=\"[2001:db8::1]\";host=\"shop.example\";proto=http",
                "host: app:8080",
                "via: 1.1 forebay",
                "x-forwarded-for: 6.6.6.6, 2001:db8::1",
                "x-forwarded-host: evil.example",
                "x-forwarded-proto: https",
                "x-real-ip: 6.6.6.6",
            ]
        );
    }

    #[test]
    fn every_octet_is_written_as_it_is_formatted() {
        for octet in 0..=255 {
            let address = std::net::Ipv4Addr::from([10, octet, 255 - octet, octet]);
            let mut out = Vec::new();
            write_address(IpAddr::V4(address), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), address.to_string());
        }
    }

    #[test]
    fn what_is_asked_for_everybody_names_nobody() {
        let headers = map(&[("Host", "shop.example"), ("X-Forwarded-For", "6.6.6.6")]);
        let everybody = Sender { address: None, is_secure: true };
        assert_eq!(
            lines(&headers, everybody, Trust::Nobody, None),
            [
                "host: shop.example",
                "via: 1.1 forebay",
                "x-forwarded-host: shop.example",
                "x-forwarded-proto: https",
            ]
        );
        let headers = map(&[("Host", "shop.example")]);
        let unknown = Sender { address: Some(IpAddr::from([0; 4])), is_secure: true };
        assert_eq!(
            lines(&headers, unknown, Trust::Nobody, None)[..2],
            ["forwarded: for=unknown;host=\"shop.example\";proto=https", "host: shop.example"]
        );
        assert!(lines(&headers, unknown, Trust::Nobody, None).contains(&"x-forwarded-for: unknown".into()));
        assert_eq!(lines(&map(&[]), everybody, Trust::Nobody, None)[0], "host: own");
    }
}
