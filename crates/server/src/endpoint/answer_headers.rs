//! What answers tell browsers, beside what they are: which web pages may read them (CORS, the Fetch standard,
//! section 3.2), and header fields that the config sets.
//!
//! Promises that an origin is named only to itself, and that caches are told where answers differ by it.

use forebay_http::{Head, HeaderLines, Request};
use std::sync::LazyLock;

/// 204.
pub static NO_CONTENT: LazyLock<Head> = LazyLock::new(|| Head::new(204));

/// What answers of an endpoint tell browsers.
pub struct AnswerHeaders {
    /// Header lines of every answer.
    pub lines: Vec<u8>,
    /// Further ones of those that go by https.
    pub secure_lines: Vec<u8>,
    /// Which web pages may read them.
    pub cors: Option<Cors>,
}

/// Which web pages may read answers.
pub struct Cors {
    /// Whose pages; `None`: all.
    pub origins: Option<Vec<String>>,
    /// Lines of answers to them, beside that which names the origin.
    pub lines: Vec<u8>,
    /// Further lines for what asks in advance, but for the methods.
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

    /// The lines of the answer to what a browser asks in advance; `None`: without `cors` nothing is said.
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
    /// The origin of a request, as the answer has to name it, if its pages may read answers.
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
