//! The canonical form of a path: routing, guards, caches and upstreams use this form, however a client
//! spells it.
//!
//! Sources: RFC 3986 sections 6.2.2 (`%61` is `a`, `%2f` is `%2F` and is not `/`) and 5.2.4 (dot segments).
//! Several slashes in a row are one, because most servers read them so. A path that servers read differently
//! is an error: NUL, a bare backslash, a dot segment after an encoded slash or before a `;`.

use crate::target::{DecodeError, hex_digit, percent_decode};
use std::fmt;

/// A path in canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanonicalPath {
    /// The path, decoded where encoding is not needed, without dot segments.
    pub path: String,
    /// Whether the path contains an encoded control character, which ends a line for some servers.
    pub has_control: bool,
    /// Whether the path contains an encoded slash or backslash, which some servers treat as an unencoded
    /// one.
    pub has_encoded_slash: bool,
}

/// Why a path has no canonical form on which all servers agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathError {
    /// The path cannot be decoded.
    Encoding(DecodeError),
    /// The path contains a NUL, which ends a text for some readers.
    Nul,
    /// The path contains a backslash that is not encoded.
    Backslash,
    /// The path contains a part that some servers read as `.` or `..`, and others do not.
    Dots,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Encoding(error) => error.fmt(f),
            PathError::Nul => f.write_str("a NUL"),
            PathError::Backslash => f.write_str("a backslash"),
            PathError::Dots => f.write_str("a part that is only dots"),
        }
    }
}

impl std::error::Error for PathError {}

/// Returns the canonical form of a path that begins with `/`. Any other target (`*`, an authority) is
/// unchanged.
pub fn canonical_path(path: &str, merge_slashes: bool) -> Result<CanonicalPath, PathError> {
    if path.contains('\\') {
        return Err(PathError::Backslash);
    }
    let decoded = percent_decode(path).map_err(PathError::Encoding)?;
    let has_control = decoded.bytes().any(|byte| byte.is_ascii_control());
    if decoded.contains('\0') {
        return Err(PathError::Nul);
    }
    let unescaped = unescape(path);
    let has_encoded_slash = unescaped.contains("%2F") || unescaped.contains("%5C");
    let path = without_dots(&unescaped, merge_slashes);
    let is_dots = |part: &str| matches!(part.split(';').next(), Some("." | ".."));
    // The decoded form: what a server sees that decodes before it splits.
    let read = percent_decode(&path).map_err(PathError::Encoding)?;
    if read.split(['/', '\\']).any(is_dots) {
        return Err(PathError::Dots);
    }
    drop(read);
    Ok(CanonicalPath { path, has_control, has_encoded_slash })
}

/// Decodes what needs no encoding and writes the other escapes in upper case. Every `%` must have two
/// digits.
fn unescape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        let (escape, after) = escape.split_at(3);
        let digit = |index: usize| hex_digit(escape.as_bytes()[index]).unwrap_or_default();
        let byte = digit(1) << 4 | digit(2);
        out.push_str(before);
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(byte.into()),
            false => out.push_str(&escape.to_ascii_uppercase()),
        }
        rest = after;
    }
    out + rest
}

/// Removes the parts `.` and `..` (with the part before it), and with `merge_slashes` also empty parts.
pub(crate) fn without_dots(path: &str, merge_slashes: bool) -> String {
    let Some(inside) = path.strip_prefix('/') else { return path.to_owned() };
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for part in inside.split('/') {
        ends_open = matches!(part, "" | "." | "..");
        match part {
            "." => {}
            "" if merge_slashes => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    // A path whose last part was a dot segment ends in a slash, and so does a path that ended in a slash.
    let mut out = format!("/{}", kept.join("/"));
    if ends_open && !out.ends_with('/') {
        out.push('/');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(path: &str) -> Result<String, PathError> {
        let form = canonical_path(path, true)?;
        let path = form.path;
        // Canonicalizing a canonical path changes nothing.
        assert_eq!(canonical_path(&path, true).expect("a form").path, path);
        Ok(path)
    }

    #[test]
    fn every_spelling_has_one_form() {
        for (path, expected) in [
            ("/", "/"),
            ("*", "*"),
            ("/shop/a", "/shop/a"),
            ("/shop/", "/shop/"),
            ("/shop/%61", "/shop/a"),
            ("/%73hop/%7Ea%2db%5f", "/shop/~a-b_"),
            ("/shop/a%2fb", "/shop/a%2Fb"),
            ("/shop//a", "/shop/a"),
            ("//shop///a//", "/shop/a/"),
            ("//", "/"),
            ("/shop/a%2eb", "/shop/a.b"),
            ("/shop/%c3%a9", "/shop/%C3%A9"),
            ("/shop/%2561", "/shop/%2561"),
            ("/shop/%25%36%31", "/shop/%2561"),
            ("/shop/a%20b+c", "/shop/a%20b+c"),
            ("/shop/../admin", "/admin"),
            ("/shop/..", "/"),
            ("/shop/.", "/shop/"),
            ("/shop/./a", "/shop/a"),
            ("/../../a", "/a"),
            ("/shop/%2e%2E/admin", "/admin"),
            ("/shop/.%2e/admin", "/admin"),
            ("/shop//../a", "/a"),
            ("/shop/.well-known", "/shop/.well-known"),
            ("/shop/a.b/..c/...", "/shop/a.b/..c/..."),
            ("/shop/%252e%252e/a", "/shop/%252e%252e/a"),
        ] {
            assert_eq!(form(path).as_deref(), Ok(expected), "{path}");
        }
    }

    #[test]
    fn slashes_stay_where_they_are_not_merged() {
        for (path, expected) in [
            ("/shop//a", "/shop//a"),
            ("//", "//"),
            ("/shop/a/", "/shop/a/"),
            ("/shop//../a", "/shop/a"),
            ("/shop/./", "/shop/"),
            ("/shop/..", "/"),
            ("/%61//", "/a//"),
        ] {
            assert_eq!(canonical_path(path, false).expect(path).path, expected, "{path}");
        }
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for (path, expected) in [
            ("/shop/%", PathError::Encoding(DecodeError::Escape)),
            ("/shop/%6", PathError::Encoding(DecodeError::Escape)),
            ("/shop/%zz", PathError::Encoding(DecodeError::Escape)),
            ("/shop/%c0%ae%c0%ae/a", PathError::Encoding(DecodeError::Utf8)),
            ("/shop/%00", PathError::Nul),
            ("/shop/..\\admin", PathError::Backslash),
            ("/shop/..%2fadmin", PathError::Dots),
            ("/shop/..%5cadmin", PathError::Dots),
            ("/shop/%2e%2e%2fadmin", PathError::Dots),
            ("/shop/..;/admin", PathError::Dots),
            ("/shop/..;a=b/admin", PathError::Dots),
            ("/shop/.%3b/admin", PathError::Dots),
        ] {
            assert_eq!(form(path), Err(expected), "{path}");
        }
    }

    #[test]
    fn a_control_character_is_told() {
        for (path, expected) in [("/a%0a", true), ("/a%7f/b", true), ("/a%20b", false)] {
            assert_eq!(canonical_path(path, true).expect(path).has_control, expected, "{path}");
        }
    }

    #[test]
    fn an_encoded_slash_is_told() {
        for (path, expected) in
            [("/a%2Fb", true), ("/a%2fb", true), ("/a%5cb", true), ("/a%252Fb", false), ("/a//b", false)]
        {
            assert_eq!(canonical_path(path, true).expect(path).has_encoded_slash, expected, "{path}");
        }
    }
}
