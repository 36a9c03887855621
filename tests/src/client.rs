//! HTTP over a raw socket: a test controls every byte that is sent, and answers are parsed strictly.

use forebay_load::{Response, parse_head};
use serde_json::Value;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Timeout for an answer, so that a test fails rather than hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Whether the body of a request is sent after its head: `FOREBAY_TEST_BODIES=later`.
fn sends_bodies_later() -> bool {
    std::env::var("FOREBAY_TEST_BODIES").is_ok_and(|text| text == "later")
}

/// One connection, kept alive.
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A whole answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Every field in order, names as received.
    pub headers: Vec<(String, String)>,
    /// The body; empty for HEAD.
    pub body: Vec<u8>,
}

/// A request as bytes: Host, the headers, and Content-Length when there is a body (or the method expects
/// one).
pub fn request_bytes(method: &str, target: &str, headers: &[(&str, &str)], body: Option<&str>) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = body {
        text += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    } else if matches!(method, "POST" | "PUT" | "PATCH") {
        text += "Content-Length: 0\r\n\r\n";
    } else {
        text += "\r\n";
    }
    text.into_bytes()
}

impl Client {
    /// Opens a TCP connection, on which requests follow each other.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Client { stream, input: Vec::new() })
    }

    /// The socket, for operations that this client lacks.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next answer. `UnexpectedEof` when the connection ends before a whole answer, `InvalidData` for
    /// a malformed one.
    pub fn receive(&mut self, to_head: bool) -> io::Result<Answer> {
        loop {
            let malformed = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
            if let Some(head) =
                parse_head(&self.input, to_head).map_err(|why| malformed(&format!("{why:?}")))?
            {
                let body = head.body_bytes().ok_or_else(|| malformed("the answer has no length"))?;
                let whole = head.head_bytes + body;
                if self.input.len() >= whole {
                    let bytes: Vec<u8> = self.input.drain(..whole).collect();
                    if head.status >= 200 {
                        return Ok(Answer::new(head.status, &bytes, head.head_bytes));
                    }
                    continue;
                }
            }
            let mut buffer = [0; 64 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                // The process was stopped and continues.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether bytes were received that `receive` has not returned.
    pub fn has_rest(&self) -> bool {
        !self.input.is_empty()
    }

    /// Sends a request and waits for its answer.
    pub fn call(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> io::Result<Answer> {
        let request = request_bytes(method, target, headers, body);
        match body {
            Some(body) if !body.is_empty() && sends_bodies_later() => {
                self.send_apart(&request, request.len() - body.len())
            }
            _ => {
                self.send(&request)?;
                self.receive(method == "HEAD")
            }
        }
    }

    /// Sends the head, and later the body. A server that needs no body to refuse ends the connection; the
    /// next request uses a new one.
    fn send_apart(&mut self, request: &[u8], head_bytes: usize) -> io::Result<Answer> {
        self.send(&request[..head_bytes])?;
        std::thread::sleep(Duration::from_millis(2));
        // An error means that the answer is already there.
        let _sent = self.send(&request[head_bytes..]);
        let answer = self.receive(false)?;
        if answer.header("connection") == Some("close") {
            *self = Client::connect(self.stream.peer_addr()?)?;
        }
        Ok(answer)
    }

    /// Like [`Client::call`] without headers; panics when there is no answer.
    pub fn ask(&mut self, method: &str, target: &str, body: Option<&str>) -> Answer {
        match self.call(method, target, &[], body) {
            Ok(answer) => answer,
            Err(error) => panic!("{method} {target}: no answer: {error}"),
        }
    }

    /// Sends `GET target` and reads the answer.
    pub fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, None)
    }

    /// POST without a body.
    pub fn post(&mut self, target: &str) -> Answer {
        self.ask("POST", target, None)
    }

    /// Sends `POST target` with a JSON body and reads the answer.
    pub fn post_json(&mut self, target: &str, body: &str) -> Answer {
        self.ask("POST", target, Some(body))
    }
}

impl Answer {
    fn new(status: u16, bytes: &[u8], head_bytes: usize) -> Answer {
        let (head, body) = bytes.split_at(head_bytes);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = Response { status, head, body }
            .headers()
            .map(|(name, value)| (text(name), text(value)))
            .collect();
        Answer { status, headers, body: body.to_vec() }
    }

    /// The first field of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body)
            .unwrap_or_else(|error| panic!("the body is not UTF-8: {error}\n{self:?}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("the body is not JSON: {error}\n{self:?}"))
    }

    /// Asserts the status, and returns the body as JSON.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/json"), "{self:?}");
        assert!(is_compact(self.text()), "the body is not compact: {self:?}");
        self.json()
    }

    /// Asserts that the object at `pointer` (RFC 6901, "" for the whole body) has exactly these fields, in
    /// this order.
    #[track_caller]
    pub fn expect_fields(&self, pointer: &str, names: &[&str]) {
        let value = self.json();
        let object = value.pointer(pointer).and_then(Value::as_object);
        let object = object.unwrap_or_else(|| panic!("no object at {pointer:?}: {self:?}"));
        let mut expected = names.to_vec();
        expected.sort_unstable();
        let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{self:?}");
        let mut rest = self.text();
        // Array indexes are not names.
        let is_name = |name: &&str| !name.bytes().all(|byte| byte.is_ascii_digit());
        for name in pointer.split('/').skip(1).filter(is_name).chain(names.iter().copied()) {
            let field = format!("\"{name}\":");
            let at = rest
                .find(&field)
                .unwrap_or_else(|| panic!("{name} is not in its place among {names:?}: {self:?}"));
            rest = &rest[at + field.len()..];
        }
    }

    /// Asserts a problem detail (RFC 9457) with that status whose text names `what`.
    #[track_caller]
    pub fn expect_problem(&self, status: u16, what: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self:?}");
        for member in ["type", "title", "detail"] {
            let text = problem[member].as_str();
            assert!(text.is_some_and(|text| !text.is_empty()), "`{member}` is missing: {self:?}");
        }
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(what), "the detail does not name {what:?}: {self:?}");
    }
}

/// Whether there is no white space outside of strings.
fn is_compact(json: &str) -> bool {
    let (mut in_text, mut escaped) = (false, false);
    json.bytes().all(|byte| {
        if in_text {
            (escaped, in_text) = (byte == b'\\' && !escaped, byte != b'"' || escaped);
            return true;
        }
        in_text = byte == b'"';
        !byte.is_ascii_whitespace()
    })
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(600)];
        write!(f, "\n{}", String::from_utf8_lossy(shown))?;
        if shown.len() < self.body.len() { write!(f, "… ({} bytes)", self.body.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::is_compact;

    #[test]
    fn compact() {
        for (json, expected) in [
            (r#"{"a b":"c \" d","e":[1,2]}"#, true),
            (r#"{"a": 1}"#, false),
            (r#"{"a":"\\", "b":1}"#, false),
            ("1\n", false),
        ] {
            assert_eq!(is_compact(json), expected, "{json}");
        }
    }
}
