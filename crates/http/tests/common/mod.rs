//! A server in this process and a client that speaks bytes.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_http::{
    Answer, Gate, Head, HeaderLines, Limits, Method, Options, Outcome, Reply, Request, Server, Service,
    Stats, percent_decode,
};
use tokio::sync::{oneshot, watch};

/// What the tests ask of a service, by path:
/// `/echo…` method, target and body · `/big/N` N bytes · `/held/M` held until mark M · `/later/M` deferred until the
/// signal reaches M · `/later-held/M/N` deferred until M, then held until N · `/close` · `/panic` · `/later-panic` · `/silent`.
pub struct Probe {
    text: Arc<Head>,
    signal: watch::Receiver<u64>,
}

impl Probe {
    fn defer(&self, wanted: u64, mark: u64) -> Outcome {
        let (mut signal, head) = (self.signal.clone(), self.text.clone());
        Outcome::Later(Box::pin(async move {
            signal.wait_for(|signal| *signal >= wanted).await.expect("the test holds the sender");
            let mut extra = Vec::new();
            HeaderLines::new(&mut extra).add("X-Deferred", "yes").expect("a valid field");
            Reply { head, extra, body: format!("later {wanted}").into_bytes(), mark }
        }))
    }
}

impl Service for Probe {
    fn call(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        let mut parts = request.path().split('/').skip(1);
        let route = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).unwrap_or(0);
        match route {
            "big" => {
                let size_bytes = usize::try_from(number()).expect("64 bits");
                answer.respond_with(&self.text, size_bytes, |out| out.resize(out.len() + size_bytes, b'x'));
            }
            "held" => {
                let mark = number();
                answer.hold_until(mark);
                answer.respond(&self.text, format!("held {mark}").as_bytes());
            }
            "later" => return self.defer(number(), 0),
            "later-held" => return self.defer(number(), number()),
            "close" => {
                answer.close();
                answer.respond(&self.text, b"closing");
            }
            "panic" => panic!("asked to"),
            "later-panic" => return Outcome::Later(Box::pin(async { panic!("asked to") })),
            "silent" => {}
            "nothing" => answer.respond(&Head::new(204), b"never sent"),
            "worker" => answer.respond(&self.text, request.worker().to_string().as_bytes()),
            _ => echo(request, answer, &self.text),
        }
        Outcome::Done
    }
}

fn echo(request: &Request<'_>, answer: &mut Answer<'_>, head: &Head) {
    let path = percent_decode(request.path()).expect("the tests escape well");
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let body = String::from_utf8_lossy(request.body());
    assert!(request.peer().ip().is_loopback());
    assert!(request.method() != Method::Other || !request.method_name().is_empty());
    let seen = format!("{} {path}{query} [{body}]", request.method_name());
    answer.respond(head, seen.as_bytes());
}

pub struct TestServer {
    pub address: SocketAddr,
    pub gate: Arc<Gate>,
    pub stats: Stats,
    /// Deferred answers wait for this.
    pub signal: watch::Sender<u64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start(limits: Limits, workers: usize) -> TestServer {
        let (signal, receiver) = watch::channel(0);
        let gate = Gate::new(workers);
        let text = Arc::new(Head::new(200).content_type("text/plain"));
        let service = Arc::new(Probe { text, signal: receiver });
        let options = Options { listen: vec![([127, 0, 0, 1], 0).into()], workers, limits };
        let server = Server::bind(options, service, gate.clone()).expect("a free port");
        let (stop, stopped) = oneshot::channel::<()>();
        let (address, stats) = (server.addresses().expect("bound")[0], server.stats());
        let thread = std::thread::spawn(move || {
            server.run(stopped).expect("the server runs");
        });
        TestServer { address, gate, stats, signal, stop: Some(stop), thread: Some(thread) }
    }

    pub fn default() -> TestServer {
        TestServer::start(Limits::default(), 1)
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_nodelay(true).expect("a live socket");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a live socket");
        Client { stream, unread: Vec::new() }
    }

    /// Sends `input`, shuts down our side and returns all that comes back, in short form.
    pub fn exchange(&self, input: &[u8]) -> String {
        let mut client = self.connect();
        client.send(input);
        client.stream.shutdown(std::net::Shutdown::Write).expect("a live socket");
        client.rest()
    }

    /// Begins the graceful stop.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the end of the graceful stop.
    pub fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends well");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop();
        // Whatever a failed test left waiting must not keep the server.
        self.signal.send_replace(u64::MAX);
        self.gate.fail();
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server takes it");
    }

    /// The next answer as `STATUS body`, with ` (close)` when it closes; `None` at the end of the connection.
    /// `head_only`: the answer is to a HEAD request.
    pub fn next(&mut self, head_only: bool) -> Option<String> {
        let head_end = loop {
            match self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None if self.fill() => {}
                None => {
                    assert!(self.unread.is_empty(), "cut off: {:?}", String::from_utf8_lossy(&self.unread));
                    return None;
                }
            }
        };
        let head = String::from_utf8(self.unread[..head_end].to_vec()).expect("ASCII");
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(": "));
            fields.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let length: usize = field("Content-Length").map_or(0, |digits| digits.parse().expect("digits"));
        let interim = head.starts_with("HTTP/1.1 100 ");
        assert_eq!(field("Date").is_some(), !interim, "{head}");
        let body_bytes = if head_only { 0 } else { length };
        while self.unread.len() < head_end + body_bytes {
            assert!(self.fill(), "the body is cut off");
        }
        let body: Vec<u8> = self.unread.drain(..head_end + body_bytes).skip(head_end).collect();
        let body = String::from_utf8(body).expect("UTF-8");
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        let detail = body.split("\"detail\":\"").nth(1).and_then(|rest| rest.strip_suffix("\"}"));
        let close = if field("Connection").as_deref() == Some("close") { " (close)" } else { "" };
        let shown = if head_only { format!("length {length}") } else { detail.unwrap_or(&body).to_owned() };
        Some(format!("{status} {shown}{close}").replace("  ", " ").trim().to_owned())
    }

    pub fn answer(&mut self) -> String {
        self.next(false).expect("an answer")
    }

    /// All answers to the end of the connection, joined by ` | `.
    pub fn rest(&mut self) -> String {
        std::iter::from_fn(|| self.next(false)).collect::<Vec<_>>().join(" | ")
    }

    /// Whether nothing has come, as far as one can know: another connection's whole exchange goes first.
    pub fn has_nothing(&mut self, server: &TestServer) -> bool {
        for _ in 0..3 {
            let mut other = server.connect();
            other.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(other.answer(), "200 GET /echo []");
        }
        self.stream.set_nonblocking(true).expect("a live socket");
        let nothing = matches!(self.stream.read(&mut [0]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).expect("a live socket");
        nothing && self.unread.is_empty()
    }

    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        let count = self.stream.read(&mut buffer).expect("an answer or the end, not a reset or a timeout");
        self.unread.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Waits until `done`; fails after a time in which even a machine under load would have done it.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..4_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}
