//! A server in this process and a client that speaks bytes.

#![allow(dead_code, reason = "each test program uses its own part")]

pub mod tls;

use forebay_http::{
    Answer, BodySource, BodyStream, Filled, Gate, Head, HeaderLines, Limits, Listen, Method, Networks,
    Options, Outcome, OwnedRequest, Reject, Reply, Request, Scheme, Server, Service, ServiceAnswer, Stats,
    Streamed, TunnelEnd, Upgraded, detached, percent_decode,
};
use futures_util::StreamExt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The service of these tests, by path: `/echo…` method, target and body · `/big/N` N bytes · `/held/M`
/// held until mark M · `/later/M` deferred until the signal reaches M · `/later-held/M/N` deferred until M,
/// then held until N · `/close` · `/panic` · `/later-panic` · `/silent`. Streamed answers: `/stream/N` N
/// bytes of a known length, `/chunks/N` of an unknown one, `/chunks-later/N/M` N bytes, and N more when the
/// signal reaches M · `/breaks/N`, `/breaks-chunks/N` N bytes and then nothing more · `/overflows/N` more
/// than was announced · `/stream-panic`. Streamed request bodies of at most 1 GiB: `/upload` length and
/// sum, `/upload-later/M` not read before the signal reaches M · `/upload-small` at most 1000 bytes ·
/// `/ignore` answered at once, `/ignore-keeps` too, but the body is dropped 2 s later, `/ignore-later/M`
/// when the signal reaches M. Another protocol: `/tunnel/P/M/S` is connected to port P when the signal
/// reaches M, until no byte moves for S ms, if the client asks for it; `/tunnel-always` even if it does
/// not.
#[derive(Clone)]
pub struct Probe {
    body_bytes_max: u64,
    text: Arc<Head>,
    signal: watch::Receiver<u64>,
    /// The bytes sent to the client of each tunnel that has ended.
    ended_bytes: Arc<Mutex<Vec<u64>>>,
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
        if request.is_arriving() && !["upload", "ignore"].iter().any(|name| route.starts_with(name)) {
            return self.with_body(request, answer);
        }
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
            "stream" | "chunks" | "chunks-later" | "breaks" | "breaks-chunks" | "overflows"
            | "stream-panic" => {
                return self.stream(route, number(), number());
            }
            "upload" | "upload-later" | "upload-small" => return self.upload(request, number()),
            "ignore" => answer.respond(&self.text, b"ignored"),
            "ignore-keeps" => {
                let stream = request.take_stream();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(2)).await;
                    drop(stream);
                });
                let reply =
                    Reply { head: self.text.clone(), extra: Vec::new(), body: b"ignored".to_vec(), mark: 0 };
                return Outcome::Later(Box::pin(async { reply }));
            }
            "ignore-later" => {
                let later = self.defer(number(), 0);
                drop(request.take_stream());
                return later;
            }
            "tunnel" if request.upgrade().is_none() => answer.respond(&self.text, b"not upgraded"),
            "tunnel" | "tunnel-always" => return self.tunnel(number(), number(), number()),
            "worker" => answer.respond(&self.text, request.worker().to_string().as_bytes()),
            _ => echo(request, answer, &self.text),
        }
        Outcome::Done
    }
}

impl Probe {
    /// Answers once the whole body has arrived.
    fn with_body(&self, request: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        let body = request.take_stream().expect("it arrives");
        let refused = |Reject { status, detail }, service: &Probe| {
            let (head, mut body) = (Head::new(status).content_type("application/problem+json"), Vec::new());
            service.error(status, detail, &mut body);
            (Arc::new(head), body)
        };
        if body.length().is_some_and(|length| length > self.body_bytes_max) {
            let (head, body) = refused(Reject::new(413, "the request body is too large"), self);
            answer.respond(&head, &body);
            return Outcome::Done;
        }
        let (service, mut kept) = (self.clone(), OwnedRequest::new(request));
        Outcome::Later(Box::pin(async move {
            match body.whole(service.body_bytes_max).await {
                Ok(body) => {
                    kept.set_body(body);
                    let (_, reply) =
                        detached(|answer| kept.with(|request| drop(service.call(request, answer))));
                    reply.expect("these routes answer at once")
                }
                Err(broken) => {
                    let (head, body) = refused(broken.reject(), &service);
                    Reply { head, extra: Vec::new(), body, mark: 0 }
                }
            }
        }))
    }

    fn stream(&self, route: &str, count: u64, signal: u64) -> Outcome {
        let (length, mut steps) = match route {
            "stream" => (Some(count), vec![Step::Bytes(count)]),
            "chunks" => (None, vec![Step::Bytes(count)]),
            "breaks" => (Some(count + 10), vec![Step::Bytes(count), Step::Break]),
            "breaks-chunks" => (None, vec![Step::Bytes(count), Step::Break]),
            "overflows" => (Some(count), vec![Step::Bytes(count + 1)]),
            "stream-panic" => (None, vec![Step::Bytes(10), Step::Panic]),
            _ => {
                let mut receiver = self.signal.clone();
                let wait = async move {
                    receiver.wait_for(|found| *found >= signal).await.expect("the test holds the sender");
                };
                (None, vec![Step::Bytes(count), Step::Wait(Box::pin(wait)), Step::Bytes(count)])
            }
        };
        steps.reverse();
        Outcome::Streamed(Box::pin(async move {
            let mut lines = Vec::new();
            HeaderLines::new(&mut lines).add("Content-Type", "text/plain").expect("a valid field");
            let body: Pin<Box<dyn BodySource>> = Box::pin(Script { steps });
            ServiceAnswer::Streamed(Streamed { status: 200, lines, dated: false, length, body: Some(body) })
        }))
    }

    fn tunnel(&self, port: u64, signal: u64, silence_ms: u64) -> Outcome {
        let (mut receiver, ended_bytes) = (self.signal.clone(), self.ended_bytes.clone());
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).expect("a port")));
        Outcome::Streamed(Box::pin(async move {
            receiver.wait_for(|found| *found >= signal).await.expect("the test holds the sender");
            let far = tokio::net::TcpStream::connect(address).await.expect("the test listens");
            let mut lines = Vec::new();
            HeaderLines::new(&mut lines).add("Upgrade", "echo").expect("a valid field");
            let ends: Vec<TunnelEnd> =
                vec![Box::new(move |bytes| ended_bytes.lock().expect("no test panics in here").push(bytes))];
            ServiceAnswer::Upgraded(Box::new(Upgraded { lines, far: Box::pin(far), silence_ms, ends }))
        }))
    }

    fn upload(&self, request: &Request<'_>, signal: u64) -> Outcome {
        let (head, mut receiver, mut body) = (self.text.clone(), self.signal.clone(), request.take_stream());
        if request.path() == "/upload-small"
            && let Some(body) = &mut body
        {
            body.limit(1000);
        }
        let whole = request.body().to_vec();
        if request.path() == "/upload-small" && whole.len() > 1000 {
            let (head, body) = (Arc::new(Head::new(413)), b"the request body is too large".to_vec());
            let refused = Reply { head, extra: Vec::new(), body, mark: 0 };
            return Outcome::Later(Box::pin(async { refused }));
        }
        Outcome::Streamed(Box::pin(async move {
            receiver.wait_for(|found| *found >= signal).await.expect("the test holds the sender");
            let mut answer = (whole.len() as u64, whole.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            let announced = body.as_ref().and_then(BodyStream::length);
            if let Some(mut body) = body {
                while let Some(piece) = body.next().await {
                    match piece {
                        Ok(piece) => {
                            answer.0 += piece.len() as u64;
                            answer.1 += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                        }
                        Err(broken) => {
                            let Reject { status, detail } = broken.reject();
                            let (head, body) = (Arc::new(Head::new(status)), detail.as_bytes().to_vec());
                            return ServiceAnswer::Whole(Reply { head, extra: Vec::new(), body, mark: 0 });
                        }
                    }
                }
            }
            let body = format!("{answer:?} {announced:?}").into_bytes();
            ServiceAnswer::Whole(Reply { head, extra: Vec::new(), body, mark: 0 })
        }))
    }
}

/// A scripted body; the last step is executed first.
struct Script {
    steps: Vec<Step>,
}

enum Step {
    Bytes(u64),
    Wait(Pin<Box<dyn Future<Output = ()> + Send>>),
    Break,
    Panic,
}

impl BodySource for Script {
    fn poll_fill(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled> {
        match self.steps.last_mut() {
            None => return Poll::Ready(Filled::End),
            Some(Step::Break) => return Poll::Ready(Filled::Broken),
            Some(Step::Panic) => panic!("asked to"),
            Some(Step::Wait(future)) => std::task::ready!(future.as_mut().poll(cx)),
            Some(Step::Bytes(left)) => {
                let count = (*left).min(10_000);
                out.resize(out.len() + count as usize, b'x');
                *left -= count;
                if *left > 0 {
                    return Poll::Ready(Filled::More);
                }
            }
        }
        self.steps.pop();
        Poll::Ready(Filled::More)
    }
}

fn echo(request: &Request<'_>, answer: &mut Answer<'_>, head: &Head) {
    let path = percent_decode(request.path()).expect("the tests escape well");
    let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
    let body = String::from_utf8_lossy(request.body());
    assert!(request.origin().peer.ip().is_loopback());
    assert!(request.method() != Method::Other || !request.method_name().is_empty());
    let seen = format!("{} {path}{query} [{body}]", request.method_name());
    answer.respond(head, seen.as_bytes());
}

/// Whether the test runs over TLS, as a part of `secure.rs`.
pub fn is_secure() -> bool {
    module_path!().starts_with("secure::")
}

pub struct TestServer {
    /// The address at which tests speak HTTP without TLS.
    pub address: SocketAddr,
    /// The address on which the server listens; with TLS it is behind a bridge.
    pub listens: SocketAddr,
    pub gate: Arc<Gate>,
    pub stats: Stats,
    /// The signal that deferred answers wait for.
    pub signal: watch::Sender<u64>,
    /// The bytes sent to the clients of tunnels that have ended.
    pub ended_bytes: Arc<Mutex<Vec<u64>>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub fn start(limits: Limits, workers: usize) -> TestServer {
        let (signal, receiver) = watch::channel(0);
        let gate = Gate::new(workers);
        let text = Arc::new(Head::new(200).content_type("text/plain"));
        let ended_bytes = Arc::<Mutex<Vec<u64>>>::default();
        let body_bytes_max = limits.body_bytes as u64;
        let service =
            Arc::new(Probe { body_bytes_max, text, signal: receiver, ended_bytes: ended_bytes.clone() });
        let plain: Listen = ([127, 0, 0, 1], 0).into();
        let scheme = if is_secure() { Scheme::Https } else { Scheme::Http };
        let options = Options {
            listen: vec![Listen { scheme, ..plain }],
            workers,
            limits,
            trusted: Networks::default(),
            tls: Some(tls::server()),
        };
        let server = Server::bind(options, service, gate.clone()).expect("a free port");
        let (stop, stopped) = oneshot::channel::<()>();
        let (listens, stats) = (server.addresses().expect("bound")[0], server.stats());
        let address = if is_secure() { tls::bridge(listens) } else { listens };
        let thread = std::thread::spawn(move || {
            server.run(stopped).expect("the server runs");
        });
        TestServer {
            address,
            listens,
            gate,
            stats,
            signal,
            ended_bytes,
            stop: Some(stop),
            thread: Some(thread),
        }
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

    /// Sends `input`, shuts down the client's side and returns everything that the server sends, in short
    /// form.
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
        // An answer that a failed test left waiting must not block the server.
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

    /// Whether nothing has arrived, as far as can be known: a complete exchange on another connection goes
    /// first.
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
        let count = loop {
            match self.stream.read(&mut buffer) {
                // The process was stopped by a signal and continues.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.expect("an answer or the end, not a reset or a timeout"),
            }
        };
        self.unread.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

/// Waits until `done`; fails after a time in which even a loaded machine would have finished.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}
