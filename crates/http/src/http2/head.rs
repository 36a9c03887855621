//! The head of a request in HTTP/2, converted to the head of a request in HTTP/1.
//!
//! Sources: RFC 9113 section 8. The `h2` crate has already refused everything for which a stream must be
//! reset: missing, repeated or misplaced pseudo-header fields, names that are not lower case,
//! connection-specific fields, two lengths. Promises the limits and the refusals of [`crate::parse`] for the
//! rest: one host, no white space around values, nothing but a path in `:path`.

use crate::limits::{FIELDS_MAX, Limits, METHOD_BYTES_MAX};
use crate::method::Method;
use crate::parse::{Framing, RequestHead, Version};
use crate::reject::Reject;
use crate::target::{Target, is_authority};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST};
use http::request::Parts;
use httparse::Header;

/// The head of a request that passed every check of RFC 9113.
pub(super) struct CheckedHead {
    parts: Parts,
    /// The host of the request: `:authority`, else Host.
    host: String,
    /// All cookies joined into one field, as in HTTP/1 (RFC 9113 section 8.2.3).
    cookie: Option<Vec<u8>>,
    /// The announced length of the body.
    pub(super) length: Option<u64>,
    pub(super) expects_continue: bool,
    pub(super) method: Method,
}

impl CheckedHead {
    /// # Errors
    /// The reason why the request is refused.
    pub(super) fn read(parts: Parts, limits: &Limits) -> Result<CheckedHead, Reject> {
        let method = Method::from_name(parts.method.as_str());
        check_sizes(&parts, limits)?;
        let trimmed = |value: &[u8]| value.trim_ascii().len() == value.len();
        if !parts.headers.values().all(|value| trimmed(value.as_bytes())) {
            return Err(Reject::new(400, "a header field value is malformed"));
        }
        let host = host(&parts)?;
        let length = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let expects_continue = expects_continue(&parts.headers)?;
        let cookie = cookie(&parts.headers);
        let head = CheckedHead { parts, host, cookie, length, expects_continue, method };
        head.target().ok_or(Reject::new(400, "the request target is malformed"))?;
        Ok(head)
    }

    /// The target. `:path` must be a path: an absolute target would have a second host beside `:authority`.
    fn target(&self) -> Option<Target<'_>> {
        let uri = &self.parts.uri;
        let raw = match self.method {
            Method::Connect => uri.authority()?.as_str(),
            _ => uri.path_and_query()?.as_str(),
        };
        let target = Target::parse(self.method, raw).filter(|target| target.authority.is_none())?;
        Some(Target { authority: uri.authority().map(|authority| authority.as_str()), ..target })
    }

    /// Passes the head to `read` as a head of HTTP/1.
    pub(super) fn with<R>(&self, framing: Framing, read: impl FnOnce(&RequestHead<'_>) -> R) -> Option<R> {
        let fields = self.parts.headers.iter().filter(|(name, _)| **name != HOST && **name != COOKIE);
        let host = Header { name: "host", value: self.host.as_bytes() };
        let cookie = self.cookie.as_deref().map(|value| Header { name: "cookie", value });
        let fields = fields.map(|(name, value)| Header { name: name.as_str(), value: value.as_bytes() });
        let headers: Vec<Header<'_>> = std::iter::once(host).chain(fields).chain(cookie).collect();
        let head = RequestHead {
            method: self.method,
            method_name: self.parts.method.as_str(),
            target: self.target()?,
            version: Version::Http11,
            headers: &headers,
            length: 0,
            framing,
            persistent: true,
            expects_continue: self.expects_continue,
            upgrades: false,
        };
        Some(read(&head))
    }
}

fn check_sizes(parts: &Parts, limits: &Limits) -> Result<(), Reject> {
    let target_bytes = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    // The size in HTTP/1: `name: value` and the line end.
    let lines = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let host_bytes = parts.uri.authority().map_or(0, |authority| authority.as_str().len() + 8);
    let head_bytes = parts.method.as_str().len() + target_bytes + host_bytes + lines.sum::<usize>();
    if parts.method.as_str().len() > METHOD_BYTES_MAX {
        return Err(Reject::new(400, "the method is too long"));
    }
    if target_bytes > limits.target_bytes {
        return Err(Reject::new(414, "the request target is too long"));
    }
    if parts.headers.len() > limits.fields.min(FIELDS_MAX) {
        return Err(Reject::new(431, "the request has too many header fields"));
    }
    if head_bytes > limits.head_bytes {
        return Err(Reject::new(431, "the request head is too large"));
    }
    Ok(())
}

/// `:authority`, else Host; if both are given, they must be equal (RFC 9113 section 8.3.1).
fn host(parts: &Parts) -> Result<String, Reject> {
    let bad = |detail| Err(Reject::new(400, detail));
    let mut hosts = parts.headers.get_all(HOST).iter();
    let field = hosts.next().map(|value| value.as_bytes());
    if hosts.next().is_some() {
        return bad("Host is given more than once");
    }
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    let host = match (authority.map(str::as_bytes), field) {
        (None, None) => return bad("Host is missing"),
        (Some(authority), Some(field)) if !authority.eq_ignore_ascii_case(field) => {
            return bad("Host and :authority differ");
        }
        (Some(host), _) | (None, Some(host)) => host,
    };
    match std::str::from_utf8(host) {
        Ok(text) if is_authority(host) => Ok(text.to_owned()),
        _ => bad("Host is malformed"),
    }
}

fn expects_continue(headers: &HeaderMap) -> Result<bool, Reject> {
    let mut expected = headers.get_all(EXPECT).iter();
    match (expected.next(), expected.next()) {
        (None, _) => Ok(false),
        (Some(_), Some(_)) => Err(Reject::new(400, "Expect is given more than once")),
        (Some(value), None) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => Ok(true),
        (Some(_), None) => Err(Reject::new(417, "only 100-continue can be expected")),
    }
}

fn cookie(headers: &HeaderMap) -> Option<Vec<u8>> {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(|value| value.as_bytes()).collect();
    (!cookies.is_empty()).then(|| cookies.join(&b"; "[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str, method: &str, lines: &[(&'static str, &str)]) -> Result<String, (u16, &'static str)> {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let limits = Limits { head_bytes: 400, target_bytes: 100, fields: 5, ..Limits::default() };
        let head = CheckedHead::read(parts, &limits).map_err(|reject| (reject.status, reject.detail))?;
        let shown = head.with(Framing::Length(0), |head| {
            let fields = head.headers.iter();
            let fields =
                fields.map(|field| format!("{}={}", field.name, String::from_utf8_lossy(field.value)));
            let target = head.target;
            format!(
                "{} {} {:?} {:?} {}",
                head.method_name,
                target.path,
                target.query,
                target.authority,
                fields.collect::<Vec<_>>().join(",")
            )
        });
        Ok(shown.expect("a target"))
    }

    #[test]
    fn a_request_reads_as_in_http_1() {
        for (uri, method, lines, expected) in [
            ("http://a/b?c=d", "GET", &[][..], "GET /b Some(\"c=d\") Some(\"a\") host=a"),
            ("http://a", "GET", &[("host", "A")], "GET / None Some(\"a\") host=a"),
            ("/b", "PUT", &[("host", "h:1"), ("x", "y")], "PUT /b None None host=h:1,x=y"),
            ("*", "OPTIONS", &[("host", "h")], "OPTIONS * None None host=h"),
            ("h:443", "CONNECT", &[], "CONNECT h:443 None Some(\"h:443\") host=h:443"),
            (
                "http://a/",
                "GET",
                &[("cookie", "a=b"), ("x", "y"), ("cookie", "c=d")],
                "GET / None Some(\"a\") host=a,x=y,cookie=a=b; c=d",
            ),
        ] {
            assert_eq!(read(uri, method, lines).as_deref(), Ok(expected), "{uri}");
        }
    }

    #[test]
    fn refusals_are_those_of_http_1() {
        let long = "x".repeat(300);
        let longer = "x".repeat(400);
        let target = format!("http://a/{}", "x".repeat(100));
        for (uri, method, lines, expected) in [
            ("/", "GET", &[][..], (400, "Host is missing")),
            ("http://a/", "GET", &[("host", "b")], (400, "Host and :authority differ")),
            ("/", "GET", &[("host", "a"), ("host", "a")], (400, "Host is given more than once")),
            ("http://user@a/", "GET", &[], (400, "Host is malformed")),
            ("http://a/", "GET", &[("x", " y")], (400, "a header field value is malformed")),
            ("http://a/", "GET", &[("expect", "else")], (417, "only 100-continue can be expected")),
            ("*", "GET", &[("host", "a")], (400, "the request target is malformed")),
            ("http://a/", "GET", &[("x", &long), ("y", &long)], (431, "the request head is too large")),
            ("http://a/", "GET", &[("x", &longer)], (431, "the request head is too large")),
            ("http://a/", "GET", &[("x", "y"); 6], (431, "the request has too many header fields")),
            (&target, "GET", &[], (414, "the request target is too long")),
        ] {
            assert_eq!(read(uri, method, lines), Err(expected), "{uri}");
        }
    }
}
