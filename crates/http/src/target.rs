//! The request target: its four forms, percent-decoding, query pairs.
//!
//! Promises that a path starts with `/`, is `*` (OPTIONS only) or an authority (CONNECT only), and
//! that path and query are visible ASCII. Leaves routing and the meaning of parameters to others;
//! a component is decoded when it is read.

use crate::request::Method;
use std::borrow::Cow;
use std::fmt;

/// A request target, split but not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The authority of a target in absolute form: it stands for Host (RFC 9112 section 3.2.2).
    pub authority: Option<&'a str>,
    /// The path, still percent-encoded; `*` for `OPTIONS *`, the authority for CONNECT.
    pub path: &'a str,
    /// What follows the first `?`, still percent-encoded.
    pub query: Option<&'a str>,
}

impl<'a> Target<'a> {
    /// Splits a target (RFC 9112 section 3.2). `None` when it has none of the four forms or
    /// characters that no target has.
    pub fn parse(method: Method, raw: &'a str) -> Option<Target<'a>> {
        if !raw.bytes().all(|byte| TARGET_BYTES[usize::from(byte)]) {
            return None;
        }
        if method == Method::Connect {
            return (!raw.starts_with('/')).then_some(Target { authority: None, path: raw, query: None });
        }
        if raw.starts_with('/') {
            return Some(Target::split(raw));
        }
        if raw == "*" {
            return (method == Method::Options).then_some(Target { authority: None, path: raw, query: None });
        }
        Target::absolute(method, raw)
    }

    fn split(raw: &'a str) -> Target<'a> {
        match raw.split_once('?') {
            Some((path, query)) => Target { authority: None, path, query: Some(query) },
            None => Target { authority: None, path: raw, query: None },
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
        if authority.is_empty() || !authority.bytes().all(is_authority_byte) {
            return None;
        }
        let Target { path, query, .. } = match tail.as_bytes().first() {
            None if method == Method::Options => Target::split("*"),
            None => Target::split("/"),
            Some(b'?') => Target { query: Some(&tail[1..]), ..Target::split("/") },
            Some(_) => Target::split(tail),
        };
        Some(Target { authority: Some(authority), path, query })
    }
}

/// Whether a byte may stand in a Host field or an authority (RFC 3986 section 3.2, without user information).
pub(crate) fn is_authority_byte(byte: u8) -> bool {
    AUTHORITY_BYTES[usize::from(byte)]
}

/// A table, because every request's target is looked through: 0x21..=0x7e without '#', since a
/// fragment never goes over the wire.
const TARGET_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21;
    while byte <= 0x7e {
        table[byte] = byte as u8 != b'#';
        byte += 1;
    }
    table
};

/// A table: every request's Host is looked through.
const AUTHORITY_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"-._~%!$&'()*+,;=:[]";
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
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
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        Ok((decode(name, true)?, decode(value, true)?))
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

    #[test]
    fn target_forms() {
        let check = |method, raw, expected: Option<(&str, Option<&str>)>| {
            let found = Target::parse(method, raw).map(|target| (target.path, target.query));
            assert_eq!(found, expected, "{raw}");
        };
        check(Method::Get, "/", Some(("/", None)));
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
    fn decoding() {
        assert_eq!(percent_decode("plain+x"), Ok(Cow::Borrowed("plain+x")));
        assert_eq!(percent_decode("a%20b%C3%a9"), Ok(Cow::Owned("a bé".into())));
        for bad in ["%", "%2", "%zz", "a%2", "%+1", "%é"] {
            assert_eq!(percent_decode(bad), Err(DecodeError::Escape), "{bad}");
        }
        assert_eq!(percent_decode("%ff"), Err(DecodeError::Utf8));
        let pairs: Vec<_> = query_pairs("a=1&&b=x+y%26&c&=d").collect::<Result<_, _>>().expect("valid");
        let expected = [("a", "1"), ("b", "x y&"), ("c", ""), ("", "d")];
        assert_eq!(pairs, expected.map(|(name, value)| (name.into(), value.into())));
        assert!(query_pairs("a=%").any(|pair| pair.is_err()));
    }
}
