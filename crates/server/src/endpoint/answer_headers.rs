//! Headers that an endpoint adds to its answers for browsers: CORS (the Fetch standard, section 3.2), and
//! header fields that the config sets.
//!
//! Promises that an answer names an allowed origin only to that origin, and that `Vary` tells caches that the
//! answer differs by origin.

use forebay_http::{Head, HeaderLines, Request};
use std::sync::LazyLock;

/// 204.
pub static NO_CONTENT: LazyLock<Head> = LazyLock::new(|| Head::new(204));

/// Headers that an endpoint adds to its answers for browsers.
pub struct AnswerHeaders {
    /// Header lines of every answer.
    pub lines: Vec<u8>,
    /// Further header lines for answers that are sent over https.
    pub secure_lines: Vec<u8>,
    /// The CORS headers; `None`: none are added.
    pub cors: Option<Cors>,
}

/// Which web pages may read answers.
pub struct Cors {
    /// The origins that may read answers; `None`: every origin.
    pub origins: Option<Vec<String>>,
    /// Header lines of answers to these origins, besides Access-Control-Allow-Origin.
    pub lines: Vec<u8>,
    /// Further header lines for preflight requests, besides Access-Control-Allow-Methods.
    pub preflight_lines: Vec<u8>,
}

impl AnswerHeaders {
    /// The lines of the answer to a request.
    pub fn lines(&self, request: &Request<'_>) -> Vec<u8> {
        let mut lines = self.lines.clone();
        if !self.secure_lines.is_empty() && request.client().is_secure {
            lines.extend_from_slice(&self.secure_lines);
        }
        if let Some(cors) = &self.cors {
            cors.admit(request, &mut lines);
        }
        lines
    }

    /// The header lines of the answer to a CORS preflight request; `None` when the endpoint has no `cors`.
    pub fn preflight(&self, request: &Request<'_>, methods: &str) -> Option<Vec<u8>> {
        let mut lines = self.lines(request);
        let cors = self.cors.as_ref()?;
        if cors.admitted(request).is_some() {
            add(&mut lines, "Access-Control-Allow-Methods", methods.as_bytes());
            lines.extend_from_slice(&cors.preflight_lines);
        }
        Some(lines)
    }
}

impl Cors {
    /// The value of Access-Control-Allow-Origin for a request; `None` when its origin may not read answers.
    fn admitted<'a>(&self, request: &Request<'a>) -> Option<&'a [u8]> {
        let Some(origins) = &self.origins else { return Some(b"*") };
        let origin = request.header("Origin")?;
        origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin)).then_some(origin)
    }

    fn admit(&self, request: &Request<'_>, lines: &mut Vec<u8>) {
        if self.origins.is_some() {
            add(lines, "Vary", b"Origin");
        }
        if let Some(origin) = self.admitted(request) {
            add(lines, "Access-Control-Allow-Origin", origin);
            lines.extend_from_slice(&self.lines);
        }
    }
}

fn add(lines: &mut Vec<u8>, name: &str, value: &[u8]) {
    HeaderLines::new(lines).add(name, value).expect("a name of ours, and a value that was checked");
}
