//! The one form of a path: however a client spells it, this is what is compared, kept and sent.
//!
//! Source: RFC 3986 section 6.2.2: `%61` is `a`, `%2f` is `%2F` and is not `/`. Segments, double slashes among them, stay as they are; a
//! path with a part that is only dots is refused, because the server behind may read another path in it.

use crate::problem::Problem;
use forebay_http::percent_decode;
use std::borrow::Cow;

/// The canonical form of a path.
///
/// # Errors
/// 400 for one that is malformed, or that has a part that is only dots.
pub fn canonical_path(path: &str) -> Result<Cow<'_, str>, Problem> {
    refuse_dots(path)?;
    if !path.contains('%') {
        return Ok(Cow::Borrowed(path));
    }
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        // Two digits follow, or it would have been refused.
        let (escape, after) = escape.split_at_checked(3).unwrap_or((escape, ""));
        match u8::from_str_radix(escape.get(1..).unwrap_or_default(), 16) {
            Ok(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(byte.into()),
            _ => out.push_str(&escape.to_ascii_uppercase()),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// A path with `.` or `..` in it, however written, may mean another one to the upstream than it did to the router here.
///
/// # Errors
/// 400 when it has, or when it cannot be decoded.
pub fn refuse_dots(path: &str) -> Result<(), Problem> {
    let decoded = percent_decode(path).map_err(|error| Problem::new(400, format!("the path has {error}")))?;
    match decoded.split(['/', '\\']).any(|part| part == "." || part == "..") {
        true => Err(Problem::new(400, "the path has a part that is only dots")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_has_one_form() {
        for (path, expected) in [
            ("/shop/a", Some("/shop/a")),
            ("/shop/%61", Some("/shop/a")),
            ("/%73hop/%7Ea%2db%5f", Some("/shop/~a-b_")),
            ("/shop/a%2fb", Some("/shop/a%2Fb")),
            ("/shop/a%2Fb", Some("/shop/a%2Fb")),
            ("/shop//a", Some("/shop//a")),
            ("/shop/a%2eb", Some("/shop/a.b")),
            ("/shop/%c3%a9", Some("/shop/%C3%A9")),
            ("/shop/%2561", Some("/shop/%2561")),
            ("/shop/%25%36%31", Some("/shop/%2561")),
            ("/shop/a%20b+c", Some("/shop/a%20b+c")),
            ("/shop/%", None),
            ("/shop/%6", None),
            ("/shop/%zz", None),
            ("/shop/%2e%2e/a", None),
        ] {
            let canonical = canonical_path(path).ok();
            assert_eq!(canonical.as_deref(), expected, "{path}");
            // The form of a form is itself.
            if let Some(form) = expected {
                assert_eq!(canonical_path(form).as_deref(), Ok(form));
            }
        }
    }

    #[test]
    fn dots_are_refused_however_they_are_written() {
        for (path, passes) in [
            ("/shop/a", true),
            ("/shop/a.b/..c/...", true),
            ("/shop/a%2Fb", true),
            ("/shop/%252e%252e/a", true),
            ("/shop/../admin", false),
            ("/shop/./a", false),
            ("/shop/..", false),
            ("/shop/%2e%2E/admin", false),
            ("/shop/.%2e/admin", false),
            ("/shop/..%2fadmin", false),
            ("/shop/..%5cadmin", false),
            ("/shop/%zz", false),
        ] {
            assert_eq!(refuse_dots(path).is_ok(), passes, "{path}");
        }
    }
}
