//! The request target: its four forms, percent-decoding, query pairs.
//!
//! Promises that a path starts with `/`, is `*` (OPTIONS only) or an authority (CONNECT only), and
//! that path and query are visible ASCII. Leaves routing and the meaning of parameters to others;
//! a component is decoded when it is read.

use crate::method::Method;
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// A request target, split but not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The authority of a target in absolute form; it replaces Host (RFC 9112 section 3.2.2).
    pub authority: Option<&'a str>,
    /// The path, still percent-encoded; `*` for `OPTIONS *`, the authority for CONNECT.
    pub path: &'a str,
    /// What follows the first `?`, still percent-encoded.
    pub query: Option<&'a str>,
    /// Whether the path is certain to be canonical, judged by its bytes alone ([`crate::canonical_path`]).
    pub is_canonical: bool,
}

impl<'a> Target<'a> {
    /// Splits a target (RFC 9112 section 3.2). `None` when it has none of the four forms, or has characters
    /// that no target contains.
    pub fn parse(method: Method, raw: &'a str) -> Option<Target<'a>> {
        let (mut seen, mut odd, mut before) = (0, 0, ODD);
        for byte in raw.bytes() {
            let class = CLASSES[usize::from(byte)];
            seen |= class;
            odd |= class & before;
            before = class << 1 | ODD;
        }
        if seen & FORBIDDEN != 0 {
            return None;
        }
        let whole = Target { authority: None, path: raw, query: None, is_canonical: odd == 0 };
        match raw.as_bytes().first() {
            Some(b'/') if method == Method::Connect => None,
            Some(b'/') if seen & QUERY == 0 => Some(whole),
            Some(b'/') => Some(whole.split()),
            _ if method == Method::Connect => Some(Target { is_canonical: false, ..whole }),
            _ if raw == "*" => (method == Method::Options).then_some(whole),
            _ => Target::absolute(method, raw),
        }
    }

    /// Splits the query from the path. An odd byte in the query marks the path as not certainly canonical.
    fn split(self) -> Target<'a> {
        match self.path.split_once('?') {
            Some((path, query)) => Target { path, query: Some(query), ..self },
            None => self,
        }
    }

    /// `http://authority/path?query`. An empty path means `/`, or `*` for OPTIONS (RFC 9112 section 3.2.4).
    fn absolute(method: Method, raw: &'a str) -> Option<Target<'a>> {
        let (scheme, rest) = raw.split_once("://")?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return None;
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        if !is_authority(authority.as_bytes()) {
            return None;
        }
        let path = match tail.as_bytes().first() {
            None if method == Method::Options => "*",
            None | Some(b'?') => "/",
            Some(_) => tail.split('?').next().unwrap_or_default(),
        };
        let query = tail.split_once('?').map(|(_, query)| query);
        Some(Target { authority: Some(authority), path, query, is_canonical: false })
    }
}

/// Whether this is a host with an optional port: a name, an IPv4 address or `[an IPv6 address]`. Marks and
/// escapes that no host name has are refused, though RFC 3986 section 3.2.2 lets a name have them:
/// applications put the host into links.
pub(crate) fn is_authority(bytes: &[u8]) -> bool {
    let (has_host, rest) = match bytes.strip_prefix(b"[") {
        Some(rest) => {
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            let address =
                std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
            (address.is_some(), rest.get(end + 1..).unwrap_or(b"]"))
        }
        None => {
            let end = bytes.iter().position(|byte| !NAME_BYTES[usize::from(*byte)]).unwrap_or(bytes.len());
            (end > 0, &bytes[end..])
        }
    };
    has_host && is_port(rest)
}

/// Whether this is the port behind a host: nothing, or `:` and a number.
fn is_port(bytes: &[u8]) -> bool {
    match bytes {
        [] => true,
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            let add = |port: u32, digit: &u8| port.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
            digits.iter().fold(0, add) <= u32::from(u16::MAX)
        }
        _ => false,
    }
}

/// In a path: not canonical in any position.
const ODD: u8 = 1;
/// A slash: shifted left by one bit it equals [`ODD_BEHIND`].
const SLASH: u8 = 2;
/// In a path: not canonical after a slash.
const ODD_BEHIND: u8 = 4;
/// No target contains it.
const FORBIDDEN: u8 = 8;
/// The start of the query.
const QUERY: u8 = 16;

/// A table, because every request's target is scanned. Targets contain 0x21..=0x7e without '#', since a
/// fragment is never sent. A path without escapes, in which no part is empty or begins with a dot, is
/// canonical.
const CLASSES: [u8; 256] = {
    let mut classes = [FORBIDDEN; 256];
    let mut byte = 0x21;
    while byte <= 0x7e {
        classes[byte] = 0;
        byte += 1;
    }
    classes[b'#' as usize] = FORBIDDEN;
    classes[b'?' as usize] = QUERY;
    classes[b'%' as usize] = ODD;
    classes[b'\\' as usize] = ODD;
    classes[b'.' as usize] = ODD_BEHIND;
    classes[b'/' as usize] = SLASH | ODD_BEHIND;
    classes
};

/// The bytes of a host's name. A table, because every request's Host is scanned.
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

/// A path segment or query part that cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// `%` without two hex digits after it.
    Escape,
    /// The decoded bytes are not UTF-8.
    Utf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::Escape => "a % that is not followed by two hexadecimal digits",
            DecodeError::Utf8 => "percent-encoded bytes that are not UTF-8",
        })
    }
}

impl std::error::Error for DecodeError {}

/// Decodes `%XX`; borrows when there is nothing to decode. `+` stays as it is.
pub fn percent_decode(encoded: &str) -> Result<Cow<'_, str>, DecodeError> {
    decode(encoded, false)
}

/// The pairs of a query in order, decoded; `+` is a space, a part without `=` has an empty value,
/// empty parts are skipped.
pub fn query_pairs(query: &str) -> impl Iterator<Item = Result<(Cow<'_, str>, Cow<'_, str>), DecodeError>> {
    let mut rest = query;
    std::iter::from_fn(move || {
        let begin = rest.bytes().position(|byte| byte != b'&')?;
        // Queries are short: one pass over their bytes takes less than a search for each character.
        let (mut equals, mut is_encoded, mut end) = (None, false, rest.len());
        for (at, byte) in rest.bytes().enumerate().skip(begin) {
            match byte {
                b'&' => {
                    end = at;
                    break;
                }
                b'=' if equals.is_none() => equals = Some(at),
                b'%' | b'+' => is_encoded = true,
                _ => {}
            }
        }
        let (name, value) = match equals {
            Some(at) => (&rest[begin..at], &rest[at + 1..end]),
            None => (&rest[begin..end], ""),
        };
        rest = &rest[end..];
        match is_encoded {
            false => Some(Ok((name.into(), value.into()))),
            true => Some(decode(name, true).and_then(|name| Ok((name, decode(value, true)?)))),
        }
    })
}

fn decode(encoded: &str, plus_is_space: bool) -> Result<Cow<'_, str>, DecodeError> {
    let special = |byte: u8| byte == b'%' || (plus_is_space && byte == b'+');
    let Some(first) = encoded.bytes().position(special) else {
        return Ok(Cow::Borrowed(encoded));
    };
    let bytes = encoded.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    decoded.extend_from_slice(&bytes[..first]);
    let mut at = first;
    while at < bytes.len() {
        match bytes[at] {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).ok_or(DecodeError::Escape)?;
                let high = hex_digit(digits[0]).ok_or(DecodeError::Escape)?;
                let low = hex_digit(digits[1]).ok_or(DecodeError::Escape)?;
                decoded.push(high << 4 | low);
                at += 3;
            }
            b'+' if plus_is_space => {
                decoded.push(b' ');
                at += 1;
            }
            byte => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| DecodeError::Utf8)
}

pub(crate) fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::canonical_path;
    use proptest::prelude::*;

    #[test]
    fn target_forms() {
        let check = |method, raw, expected: Option<(&str, Option<&str>)>| {
            let found = Target::parse(method, raw);
            assert_eq!(found.map(|target| (target.path, target.query)), expected, "{raw}");
            if let Some(Target { path, is_canonical: true, .. }) = found {
                assert_eq!(canonical_path(path, true).expect(path).path, path, "{raw}");
            }
        };
        check(Method::Get, "/", Some(("/", None)));
        check(Method::Get, "/a//b", Some(("/a//b", None)));
        check(Method::Get, "/a/../b", Some(("/a/../b", None)));
        check(Method::Get, "/%61", Some(("/%61", None)));
        check(Method::Get, "/a.b/?/.%", Some(("/a.b/", Some("/.%"))));
        check(Method::Get, "/a/b?c=d?e", Some(("/a/b", Some("c=d?e"))));
        check(Method::Get, "/?", Some(("/", Some(""))));
        check(Method::Get, "http://h:80/a?b", Some(("/a", Some("b"))));
        check(Method::Get, "HTTP://h", Some(("/", None)));
        check(Method::Get, "http://h?x=1", Some(("/", Some("x=1"))));
        check(Method::Options, "http://h", Some(("*", None)));
        check(Method::Options, "*", Some(("*", None)));
        check(Method::Connect, "h:443", Some(("h:443", None)));
        check(Method::Get, "*", None);
        check(Method::Get, "h:443", None);
        check(Method::Get, "a/b", None);
        check(Method::Get, "ftp://h/", None);
        check(Method::Get, "http:///a", None);
        check(Method::Get, "http://user@h/", None);
        check(Method::Get, "/a#b", None);
        check(Method::Get, "/é", None);
        check(Method::Connect, "/a", None);
    }

    #[test]
    fn hosts() {
        for host in [
            "a",
            "A.example:80",
            "my_app-1.internal.",
            "127.0.0.1:3000",
            "[::1]",
            "[2001:db8::1]:65535",
            "a:",
        ] {
            assert!(is_authority(host.as_bytes()), "{host}");
        }
        for host in [
            "",
            ":80",
            "a b",
            "a/b",
            "a,b",
            "a@b",
            "a%2e",
            "a:b",
            "a:80:80",
            "a:65536",
            "a:99999999999999999999",
            "a:-1",
            "a\\b",
            "a'b",
            "::1",
            "[::1",
            "[::1]x",
            "[::g]",
            "[127.0.0.1]",
            "[]",
            "é",
        ] {
            assert!(!is_authority(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn most_paths_are_known_to_be_in_their_one_form() {
        for (raw, expected) in [
            ("/", true),
            ("/a.b/c~d/", true),
            ("/a?b=c", true),
            ("/a/.b", false),
            ("/.", false),
            ("//", false),
            ("/a%62", false),
            ("/a\\b", false),
            ("http://h/a", false),
        ] {
            assert_eq!(Target::parse(Method::Get, raw).expect(raw).is_canonical, expected, "{raw}");
        }
    }

    #[test]
    fn decoding() {
        assert_eq!(percent_decode("plain+x"), Ok(Cow::Borrowed("plain+x")));
        assert_eq!(percent_decode("a%20b%C3%a9"), Ok(Cow::Owned("a bé".into())));
        for bad in ["%", "%2", "%zz", "a%2", "%+1", "%é"] {
            assert_eq!(percent_decode(bad), Err(DecodeError::Escape), "{bad}");
        }
        assert_eq!(percent_decode("%ff"), Err(DecodeError::Utf8));
        let pairs: Vec<_> = query_pairs("&a=1&&b=x+y%26=&c&=d&").collect::<Result<_, _>>().expect("valid");
        let expected = [("a", "1"), ("b", "x y&="), ("c", ""), ("", "d")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.into(), value.into())));
        assert!(query_pairs("a=%").any(|pair| pair.is_err()));
    }

    proptest! {
        #[test]
        fn pairs_are_what_is_between_ampersands(query in "[a=&%+2é]{0,12}") {
            let parts = query.split('&').filter(|part| !part.is_empty());
            let expected: Vec<_> = parts
                .map(|part| part.split_once('=').unwrap_or((part, "")))
                .map(|(name, value)| Ok((decode(name, true)?, decode(value, true)?)))
                .collect();
            prop_assert_eq!(query_pairs(&query).collect::<Vec<Result<_, DecodeError>>>(), expected);
        }
    }
}
