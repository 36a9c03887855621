//! The traits for what is sent and for reading the answers.

use crate::recorder::Kind;
use crate::response::{HeadParser, Response, parse_head};

/// Writes requests and may read answers. Connections are numbered from 0; on each of them answers
/// come in the order of the requests.
pub trait Traffic {
    /// Appends one whole request (head and body) to `out`. Called once for each request, on the hot
    /// path: allocate nothing.
    fn request(&mut self, connection: usize, out: &mut Vec<u8>);

    /// The kind of the last written request: an index in [`Traffic::kinds`].
    fn kind(&self) -> usize {
        0
    }

    /// The kinds of requests, which are counted separately. At least one; called once, at the
    /// start.
    fn kinds(&self) -> Vec<Kind> {
        vec![Kind::named("all")]
    }

    /// How many uncounted replies come before the answer to the last written request.
    fn replies_before(&self) -> u8 {
        0
    }

    /// Whether the next request may go to this connection. A connection that refuses is asked again
    /// after the next request was sent elsewhere.
    fn takes(&mut self, connection: usize) -> bool {
        let _ = connection;
        true
    }

    /// The reader of answers' heads: HTTP/1.1 by default.
    fn head_parser(&self) -> HeadParser {
        parse_head
    }

    /// Whether [`Traffic::response`] is to be called. Then answers are buffered until they are
    /// complete; otherwise they are skipped.
    fn reads_answers(&self) -> bool {
        true
    }

    /// Called for every answer except the replies of [`Traffic::replies_before`].
    fn response(&mut self, connection: usize, response: &Response<'_>) {
        let _ = (connection, response);
    }

    /// A connection was lost with `unanswered` requests, which will never be answered.
    fn lost(&mut self, connection: usize, unanswered: usize) {
        let _ = (connection, unanswered);
    }
}

/// Sends the same bytes every time.
#[derive(Clone, Debug)]
pub struct Fixed(Vec<u8>);

impl Fixed {
    /// A request with the fields that every request of this driver has. `body` adds Content-Length
    /// and its JSON type.
    pub fn new(method: &str, target: &str, body: Option<&[u8]>) -> Fixed {
        let mut bytes = Vec::new();
        write_request(&mut bytes, method, target, body);
        Fixed(bytes)
    }

    /// Bytes as they are; nothing is checked.
    pub fn raw(bytes: Vec<u8>) -> Fixed {
        Fixed(bytes)
    }
}

impl Traffic for Fixed {
    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn reads_answers(&self) -> bool {
        false
    }
}

/// A closure that writes each request: `Generated(|connection, out| …)`.
pub struct Generated<F>(pub F);

impl<F: FnMut(usize, &mut Vec<u8>)> Traffic for Generated<F> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        (self.0)(connection, out);
    }

    fn reads_answers(&self) -> bool {
        false
    }
}

/// Appends a request: Host, and for a body its length and type. Other crates use it through
/// [`Fixed`].
fn write_request(out: &mut Vec<u8>, method: &str, target: &str, body: Option<&[u8]>) {
    out.extend_from_slice(method.as_bytes());
    out.push(b' ');
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\n");
    if let Some(body) = body {
        let length = body.len();
        out.extend_from_slice(
            format!("Content-Type: application/json\r\nContent-Length: {length}\r\n").as_bytes(),
        );
    } else if !matches!(method, "GET" | "HEAD" | "DELETE" | "OPTIONS") {
        // A method that expects a body states that it has none (RFC 9110, 8.6).
        out.extend_from_slice(b"Content-Length: 0\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body.unwrap_or_default());
}
