//! The PROXY protocol, versions 1 and 2: the header with which a proxy that passes on bytes names their
//! client.
//!
//! Source: "The PROXY protocol, versions 1 & 2", HAProxy Technologies. A header is accepted only from
//! trusted proxies, at the beginning of a connection; a connection without a header is served unchanged,
//! because no HTTP request begins like a header. Promises that a client which the proxy does not name is the
//! unknown client ([`UNKNOWN`]), and that a malformed header ends the connection.

use crate::client::{Origin, UNKNOWN};
use crate::limits::{Limits, PROXY_HEADER_BYTES_MAX, TICK_MS};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The signature at the start of a version 2 header.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, version and command, family, and the length of the rest.
const FIXED_BYTES: usize = 16;
/// The longest header of version 1, its line end included.
const LINE_BYTES_MAX: usize = 107;
/// The field of version 2 that describes TLS between the client and the proxy.
const TLV_SSL: u8 = 0x20;
/// The pause before a header that has arrived in part is read again.
const PAUSE: Duration = Duration::from_millis(5);

/// What the first bytes of a connection are.
#[derive(Debug, PartialEq, Eq)]
enum HeaderStart {
    /// No header.
    Other,
    /// A part of a header.
    Part,
    /// A header of this many bytes, and the client that it names; `None`: the proxy speaks for itself.
    Header(usize, Option<Origin>),
    /// Bytes that begin like a header but are not one.
    Malformed,
}

/// Reads the header that a connection from a trusted proxy may begin with. `None` ends the connection; a
/// stop before the first byte also ends it.
pub(crate) async fn origin(
    stream: &mut TcpStream,
    direct: Origin,
    limits: &Limits,
    is_stopping: impl Fn() -> bool,
) -> Option<Origin> {
    let mut bytes = [0; PROXY_HEADER_BYTES_MAX];
    let mut waited_ms = 0;
    loop {
        let Ok(peeked) = tokio::time::timeout(Duration::from_millis(TICK_MS), stream.peek(&mut bytes)).await
        else {
            waited_ms += TICK_MS;
            if is_stopping() || waited_ms >= limits.idle_timeout_ms {
                return None;
            }
            continue;
        };
        match begin(&bytes[..peeked.ok().filter(|count| *count > 0)?]) {
            HeaderStart::Other => return Some(direct),
            HeaderStart::Header(length, origin) => {
                stream.read_exact(&mut bytes[..length]).await.ok()?;
                return Some(origin.unwrap_or(direct));
            }
            HeaderStart::Malformed => return None,
            HeaderStart::Part if waited_ms >= limits.head_timeout_ms => return None,
            HeaderStart::Part => {
                tokio::time::sleep(PAUSE).await;
                waited_ms += PAUSE.as_millis() as u64;
            }
        }
    }
}

fn begin(bytes: &[u8]) -> HeaderStart {
    let begins_with = |mark: &[u8]| bytes.iter().zip(mark).all(|(byte, expected)| byte == expected);
    match bytes {
        _ if begins_with(SIGNATURE) => binary(bytes),
        _ if begins_with(b"PROXY ") => line(bytes),
        _ => HeaderStart::Other,
    }
}

/// Parses version 1, a line of text.
fn line(bytes: &[u8]) -> HeaderStart {
    let window = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.windows(2).position(|pair| pair == b"\r\n") else {
        return if window.len() < LINE_BYTES_MAX { HeaderStart::Part } else { HeaderStart::Malformed };
    };
    let Ok(text) = std::str::from_utf8(&window[..end]) else { return HeaderStart::Malformed };
    let words: Vec<_> = text.split(' ').collect();
    let source =
        match words[..] {
            ["PROXY", "UNKNOWN", ..] => Some(SocketAddr::new(UNKNOWN, 0)),
            ["PROXY", "TCP4", source, to, port, to_port] => named::<Ipv4Addr>(source, to, port, to_port)
                .map(|(ip, port)| SocketAddr::new(ip.into(), port)),
            ["PROXY", "TCP6", source, to, port, to_port] => named::<Ipv6Addr>(source, to, port, to_port)
                .map(|(ip, port)| SocketAddr::new(ip.into(), port)),
            _ => None,
        };
    source.map_or(HeaderStart::Malformed, |peer| {
        HeaderStart::Header(end + 2, Some(Origin { peer, is_secure: false, is_forwarded: true }))
    })
}

fn named<A: std::str::FromStr>(source: &str, to: &str, port: &str, to_port: &str) -> Option<(A, u16)> {
    let _: (A, u16) = (to.parse().ok()?, to_port.parse().ok()?);
    Some((source.parse().ok()?, port.parse().ok()?))
}

/// Parses version 2, a binary header.
fn binary(bytes: &[u8]) -> HeaderStart {
    let Some(fixed) = bytes.get(..FIXED_BYTES) else { return HeaderStart::Part };
    let length = FIXED_BYTES + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if length > PROXY_HEADER_BYTES_MAX {
        return HeaderStart::Malformed;
    }
    let Some(rest) = bytes.get(FIXED_BYTES..length) else { return HeaderStart::Part };
    match (fixed[12], fixed[13]) {
        (0x20, _) => HeaderStart::Header(length, None),
        (0x21, family) => match client(family, rest) {
            Some(origin) => HeaderStart::Header(length, Some(origin)),
            None => HeaderStart::Malformed,
        },
        _ => HeaderStart::Malformed,
    }
}

/// The client that a header of version 2 names, by the protocol family of its connection.
fn client(family: u8, rest: &[u8]) -> Option<Origin> {
    let port = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
    let (peer, fields) = match family {
        0x11 => {
            let address: [u8; 4] = rest.get(..12)?[..4].try_into().ok()?;
            (SocketAddr::new(IpAddr::from(address), port(8)), &rest[12..])
        }
        0x21 => {
            let address: [u8; 16] = rest.get(..36)?[..16].try_into().ok()?;
            (SocketAddr::new(IpAddr::from(address), port(32)), &rest[36..])
        }
        // Unix sockets on the proxy's machine, datagrams, and connections that the proxy does not know.
        0x00 | 0x12 | 0x22 | 0x31 | 0x32 => (SocketAddr::new(UNKNOWN, 0), &[][..]),
        _ => return None,
    };
    Some(Origin { peer, is_secure: came_by_tls(fields)?, is_forwarded: true })
}

/// Whether the fields after the addresses say that the client used TLS; `None` when they are malformed.
fn came_by_tls(mut fields: &[u8]) -> Option<bool> {
    let mut by_tls = false;
    while let [kind, high, low, rest @ ..] = fields {
        let (value, after) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
        if *kind == TLV_SSL {
            by_tls = value.first()? & 1 == 1;
        }
        fields = after;
    }
    fields.is_empty().then_some(by_tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(length: usize, peer: &str, is_secure: bool) -> HeaderStart {
        let peer = peer.parse().expect("an address");
        HeaderStart::Header(length, Some(Origin { peer, is_secure, is_forwarded: true }))
    }

    #[test]
    fn lines_of_version_1() {
        let whole = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\nGET / HTTP/1.1\r\n";
        assert_eq!(begin(whole), given(39, "192.0.2.1:4711", false));
        for length in 1..39 {
            assert_eq!(begin(&whole[..length]), HeaderStart::Part, "{length}");
        }
        assert_eq!(begin(b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n"), given(32, "[2001:db8::1]:1", false));
        assert_eq!(begin(b"PROXY UNKNOWN\r\n"), given(15, "0.0.0.0:0", false));
        assert_eq!(begin(b"PROXY UNKNOWN ff 1 2\r\n"), given(22, "0.0.0.0:0", false));
        for malformed in [
            "PROXY TCP4 192.0.2.1 10.0.0.1 4711\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80 1\r\n",
            "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 10.0.0.1 1 2\r\n",
            "PROXY TCP4 192.0.2.1 10.0.0.1 4711 65536\r\n",
            "PROXY TCP4  192.0.2.1 10.0.0.1 4711 80\r\n",
            "PROXY UDP4 192.0.2.1 10.0.0.1 4711 80\r\n",
            "PROXY /a HTTP/1.1\r\n",
        ] {
            assert_eq!(begin(malformed.as_bytes()), HeaderStart::Malformed, "{malformed:?}");
        }
        assert_eq!(begin(format!("PROXY UNKNOWN {}", "x".repeat(200)).as_bytes()), HeaderStart::Malformed);
        for other in ["G", "POST / HTTP/1.1\r\n", "PROPFIND / HTTP/1.1", "\r\nGET / HTTP/1.1\r\n", "proxy "] {
            assert_eq!(begin(other.as_bytes()), HeaderStart::Other, "{other:?}");
        }
    }

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([command, family]);
        bytes.extend((rest.len() as u16).to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn headers_of_version_2() {
        let four = [192, 0, 2, 1, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        let whole = version_2(0x21, 0x11, &four);
        assert_eq!(begin(&whole), given(28, "192.0.2.1:4711", false));
        for length in 1..28 {
            assert_eq!(begin(&whole[..length]), HeaderStart::Part, "{length}");
        }
        let mut six = [0; 36];
        (six[0], six[1], six[15], six[33]) = (0x20, 0x01, 1, 9);
        assert_eq!(begin(&version_2(0x21, 0x21, &six)), given(52, "[2001::1]:9", false));
        let with = |fields: &[u8]| begin(&version_2(0x21, 0x11, &[&four, fields].concat()));
        assert_eq!(with(&[4, 0, 1, 9, 0x20, 0, 5, 1, 0, 0, 0, 0]), given(40, "192.0.2.1:4711", true));
        assert_eq!(with(&[0x20, 0, 5, 0, 0, 0, 0, 0]), given(36, "192.0.2.1:4711", false));
        assert_eq!(with(&[0x20, 0, 6, 1, 0, 0, 0, 0]), HeaderStart::Malformed, "a field beyond the end");
        assert_eq!(with(&[0x20, 0]), HeaderStart::Malformed);
        assert_eq!(with(&[0x20, 0, 0]), HeaderStart::Malformed);
        assert_eq!(
            begin(&version_2(0x20, 0x11, &four)),
            HeaderStart::Header(28, None),
            "about the proxy itself"
        );
        assert_eq!(begin(&version_2(0x21, 0x31, &[0; 216])), given(232, "0.0.0.0:0", false));
        assert_eq!(begin(&version_2(0x21, 0x00, &[])), given(16, "0.0.0.0:0", false));
        assert_eq!(begin(&version_2(0x21, 0x11, &four[..11])), HeaderStart::Malformed);
        assert_eq!(begin(&version_2(0x11, 0x11, &four)), HeaderStart::Malformed);
        assert_eq!(begin(&version_2(0x22, 0x11, &four)), HeaderStart::Malformed);
        assert_eq!(begin(&version_2(0x21, 0x41, &four)), HeaderStart::Malformed);
        assert_eq!(begin(&version_2(0x21, 0x11, &[0; PROXY_HEADER_BYTES_MAX])), HeaderStart::Malformed);
    }
}
