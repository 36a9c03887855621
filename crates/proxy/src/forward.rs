//! Header fields on their way through: what ends here, and what is said of whom the request came from.
//!
//! Sources: RFC 9110 sections 7.6.1 (Connection, and what else is for one hop) and 7.6.3 (Via), RFC
//! 7239 (Forwarded).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;

/// Whom to believe about where a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Nobody: what clients say of it is replaced.
    Nobody,
    /// Whoever is in front of this server: it is added to.
    Front,
}

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// The address, unspecified when it is not known; `None`: the request is asked for everybody, and the
    /// upstream is not told of anybody.
    pub address: Option<IpAddr>,
    /// Whether it was asked by https.
    pub is_secure: bool,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Fields for one hop only, whether Connection names them or not.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
];

/// Takes out everything that is between two neighbours alone; of what frames a body, nothing stays.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers.remove(header::TRANSFER_ENCODING);
    headers.remove(header::CONTENT_LENGTH);
}

/// The protocols of an Upgrade field that may be passed on; `None`: there is none. What carries requests of
/// its own is left out (HTTP/2 by `h2c`, other versions of HTTP, TLS): no guard would see those requests.
pub(crate) fn passable_protocols(upgrade: &[u8]) -> Option<HeaderValue> {
    let carries_requests = |protocol: &[u8]| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
        [&b"h2c"[..], b"h2", b"h3", b"http", b"tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let protocols = upgrade.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let protocols: Vec<_> = protocols.filter(|name| !name.is_empty() && !carries_requests(name)).collect();
    if protocols.is_empty() { None } else { HeaderValue::from_bytes(&protocols.join(&b", "[..])).ok() }
}

/// Whether an answer 101 takes one of the protocols that were asked for, as RFC 9110 section 7.8 wants it.
pub(crate) fn takes_protocol(headers: &HeaderMap, asked: &HeaderValue) -> bool {
    let has_token = |name: &HeaderName, token: &[u8]| {
        let lists = headers.get_all(name).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
        lists.map(<[u8]>::trim_ascii).any(|found| found.eq_ignore_ascii_case(token))
    };
    let mut asked = asked.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    has_token(&header::CONNECTION, b"upgrade") && asked.any(|protocol| has_token(&header::UPGRADE, protocol))
}

/// The client's fields as the upstream is to see them. `host` is what it is asked for.
pub(crate) fn prepare_request(
    headers: &mut HeaderMap,
    sender: Sender,
    trust: Trust,
    host: Option<&HeaderValue>,
) {
    let asked = headers.remove(header::HOST);
    strip_hop_by_hop(headers);
    // Answered here already.
    headers.remove(header::EXPECT);
    say_where_from(headers, sender, trust, asked.as_ref());
    headers.append(header::VIA, HeaderValue::from_static("1.1 forebay"));
    if let Some(host) = host.or(asked.as_ref()) {
        headers.insert(header::HOST, host.clone());
    }
}

fn say_where_from(headers: &mut HeaderMap, sender: Sender, trust: Trust, asked: Option<&HeaderValue>) {
    let scheme = if sender.is_secure { "https" } else { "http" };
    if trust == Trust::Nobody {
        for name in [&X_FORWARDED_FOR, &X_FORWARDED_HOST, &X_FORWARDED_PROTO, &header::FORWARDED] {
            headers.remove(name);
        }
    }
    if let (Some(asked), false) = (asked, headers.contains_key(&X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, asked.clone());
    }
    if !headers.contains_key(&X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    let Some(address) = sender.address.map(|address| address.to_canonical()) else { return };
    let (list_item, node) = match address {
        address if address.is_unspecified() => ("unknown".to_owned(), "unknown".to_owned()),
        IpAddr::V4(address) => (address.to_string(), address.to_string()),
        IpAddr::V6(address) => (address.to_string(), format!("\"[{address}]\"")),
    };
    append(headers, &X_FORWARDED_FOR, &list_item);
    let host = asked.and_then(|asked| asked.to_str().ok()).map(|host| format!(";host=\"{host}\""));
    append(headers, &header::FORWARDED, &format!("for={node}{};proto={scheme}", host.unwrap_or_default()));
}

/// Adds to a list, in one field: some applications read only the first.
fn append(headers: &mut HeaderMap, name: &HeaderName, item: &str) {
    let mut list = Vec::new();
    for value in headers.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(item.as_bytes());
    // An item of ours has only characters that a value may have (an address, or the Host that was checked).
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<_> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("ASCII")))
            .collect();
        lines.sort();
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
        assert_eq!(lines(&headers), ["x-kept: 3"]);
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
            assert_eq!(passed.as_ref().map(|value| value.to_str().expect("ASCII")), expected, "{sent}");
        }
    }

    #[test]
    fn only_a_protocol_that_was_asked_for_is_taken() {
        let asked = HeaderValue::from_static("tcp, websocket");
        for (lines, expected) in [
            (&[("Connection", "Upgrade"), ("Upgrade", "WebSocket")][..], true),
            (&[("Connection", "keep-alive, upgrade"), ("Upgrade", "tcp")], true),
            (&[("Connection", "upgrade")], false),
            (&[("Upgrade", "websocket")], false),
            (&[("Connection", "upgrade"), ("Upgrade", "h2c")], false),
            (&[], false),
        ] {
            assert_eq!(takes_protocol(&map(lines), &asked), expected, "{lines:?}");
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
            // Naming what is added here does not take it out again.
            ("Connection", "X-Forwarded-For, Host, Via"),
            ("Expect", "100-continue"),
        ];
        let mut headers = map(&sent);
        let from = |text: &str| Sender { address: Some(text.parse().expect("an address")), is_secure: false };
        prepare_request(&mut headers, from("10.1.2.3"), Trust::Nobody, None);
        assert_eq!(
            lines(&headers),
            [
                "forwarded: for=10.1.2.3;host=\"shop.example\";proto=http",
                "host: shop.example",
                "via: 1.1 forebay",
                "x-forwarded-for: 10.1.2.3",
                "x-forwarded-host: shop.example",
                "x-forwarded-proto: http",
            ]
        );
        let mut headers = map(&sent[..5]);
        let host = HeaderValue::from_static("app:8080");
        prepare_request(&mut headers, from("2001:db8::1"), Trust::Front, Some(&host));
        assert_eq!(
            lines(&headers),
            [
                "forwarded: for=6.6.6.6, for=\"[2001:db8::1]\";host=\"shop.example\";proto=http",
                "host: app:8080",
                "via: 1.1 forebay",
                "x-forwarded-for: 6.6.6.6, 2001:db8::1",
                "x-forwarded-host: evil.example",
                "x-forwarded-proto: https",
            ]
        );
    }

    #[test]
    fn what_is_asked_for_everybody_names_nobody() {
        let mut headers = map(&[("Host", "shop.example"), ("X-Forwarded-For", "6.6.6.6")]);
        prepare_request(&mut headers, Sender { address: None, is_secure: true }, Trust::Nobody, None);
        assert_eq!(
            lines(&headers),
            [
                "host: shop.example",
                "via: 1.1 forebay",
                "x-forwarded-host: shop.example",
                "x-forwarded-proto: https",
            ]
        );
        let mut headers = map(&[("Host", "shop.example")]);
        let unknown = Sender { address: Some(IpAddr::from([0; 4])), is_secure: true };
        prepare_request(&mut headers, unknown, Trust::Nobody, None);
        assert_eq!(
            lines(&headers)[..2],
            ["forwarded: for=unknown;host=\"shop.example\";proto=https", "host: shop.example"]
        );
        assert_eq!(headers["x-forwarded-for"], "unknown");
    }
}
