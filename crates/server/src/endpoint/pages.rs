//! Requests that browsers send for pages of other origins, where the client's identity travels by itself: a
//! password that the browser remembers, an application's cookies, a client's certificate.
//!
//! Promises that such a page cannot write and cannot open a tunnel, unless its origin is named. What it reads
//! is for `cors` to decide.

use crate::problem::Problem;
use forebay_http::{Method, Request};
use std::sync::Arc;

/// Takes requests of pages of the server's own origin, and of programs that are no browsers.
#[derive(Clone)]
pub struct OwnPages {
    /// Other origins whose pages are the server's own.
    pub origins: Arc<[String]>,
    /// Whether a GET writes too.
    pub get_writes: bool,
}

impl OwnPages {
    /// 403 for a write and for an upgrade that a page of another origin makes a browser send.
    pub fn check(&self, request: &Request<'_>) -> Result<(), Problem> {
        let is_read = match request.method() {
            Method::Get | Method::Head => !self.get_writes,
            method => method == Method::Options,
        };
        if is_read && request.upgrade().is_none() || !request.is_from_other_page() {
            return Ok(());
        }
        let is_own =
            |origin: &[u8]| self.origins.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin));
        let mut origins = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("Origin"));
        match (origins.next(), origins.next()) {
            (Some((_, origin)), None) if is_own(origin) => Ok(()),
            _ => Err(Problem::new(403, "a web page of another origin may not send this request")),
        }
    }
}

/// Whether the type of a body is one of JSON: pages of other origins cannot send one without asking first
/// (the Fetch standard section 2.2.2).
pub fn has_json_type(request: &Request<'_>) -> bool {
    let is_json = |given: &[u8]| {
        let essence =
            given.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        essence == b"application/json" || essence.starts_with(b"application/") && essence.ends_with(b"+json")
    };
    let mut given = request.headers().filter(|(name, _)| name.eq_ignore_ascii_case("Content-Type"));
    given.next().is_some_and(|(_, value)| is_json(value)) && given.next().is_none()
}
