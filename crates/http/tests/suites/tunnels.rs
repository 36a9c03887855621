//! Connections that continue in another protocol: every byte arrives, in both directions, and both ends of
//! input.

use crate::common::{Client, TestServer, get, wait_until};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

/// The server of the other protocol; the test serves its only connection.
struct Far {
    listener: TcpListener,
}

impl Far {
    fn new() -> Far {
        Far { listener: TcpListener::bind("127.0.0.1:0").expect("a free port") }
    }

    fn accept(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().expect("the server connects");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a live socket");
        stream
    }

    /// A request for a tunnel to this server when the signal has reached `signal`.
    fn request(&self, signal: u64, silence_ms: u64) -> String {
        let port = self.listener.local_addr().expect("bound").port();
        upgrade(&format!("/tunnel/{port}/{signal}/{silence_ms}"))
    }

    /// An open tunnel.
    fn join(&self, server: &TestServer) -> (Client, TcpStream) {
        let mut client = server.connect();
        client.send(self.request(0, 60_000));
        let far = self.accept();
        expect_101(&mut client.stream);
        (client, far)
    }
}

fn upgrade(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: echo\r\n\r\n")
}

/// Reads the head of a 101 and nothing behind it.
#[track_caller]
fn expect_101(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("ASCII");
    assert_eq!(head, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
}

fn expect_bytes(stream: &mut TcpStream, expected: &[u8]) {
    let mut found = vec![0; expected.len()];
    stream.read_exact(&mut found).expect("all bytes");
    assert!(found == expected, "{} bytes differ", expected.len());
}

fn expect_end(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 16]).expect("an end, not a reset"), 0);
}

/// Bytes that differ by position.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn what_is_sent_with_the_request_and_after_it_arrives_in_order() {
    let (server, far) = (TestServer::default(), Far::new());
    let mut client = server.connect();
    // Earlier answers are sent before the tunnel begins, and later input waits for it.
    client.send(get("/later/1") + &far.request(2, 60_000) + "GET /no HTTP/1.1\r\n\r\nmore");
    assert!(client.has_nothing(&server));
    server.signal.send_replace(2);
    let mut behind = far.accept();
    expect_bytes(&mut behind, b"GET /no HTTP/1.1\r\n\r\nmore");
    behind.write_all(b"not HTTP").expect("the server reads");
    let mut seen = vec![0; 4096];
    let mut text = String::new();
    while !text.ends_with("not HTTP") {
        let count = client.stream.read(&mut seen).expect("bytes");
        assert_ne!(count, 0, "{text}");
        text.push_str(std::str::from_utf8(&seen[..count]).expect("ASCII"));
    }
    let (before, tunnel) = text.split_once("later 1").expect("the answer before");
    assert!(before.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(tunnel.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{text}");
}

#[test]
fn large_bodies_pass_both_ways_at_the_same_time() {
    let (server, far) = (TestServer::default(), Far::new());
    let (client, behind) = far.join(&server);
    let bytes = pattern(24 << 20);
    std::thread::scope(|scope| {
        for stream in [&client.stream, &behind] {
            let bytes = &bytes;
            let writer = stream.try_clone().expect("a live socket");
            scope.spawn(move || (&writer).write_all(bytes).expect("the other side reads"));
            let mut reader = stream.try_clone().expect("a live socket");
            scope.spawn(move || expect_bytes(&mut reader, bytes));
        }
    });
    let total = server.stats.total();
    assert!(total.read_bytes.min(total.written_bytes) >= bytes.len() as u64, "{total:?}");
    drop((client, behind));
    wait_until("its end is told", || *server.ended_bytes.lock().expect("no panic") == [bytes.len() as u64]);
}

#[test]
fn the_end_of_one_side_is_the_end_for_the_other_and_no_sooner() {
    let (server, far) = (TestServer::default(), Far::new());
    let (mut client, mut behind) = far.join(&server);
    let bytes = pattern(300_000);
    client.send("last words");
    client.stream.shutdown(Shutdown::Write).expect("a live socket");
    let mut heard = Vec::new();
    behind.read_to_end(&mut heard).expect("an end");
    assert_eq!(heard, b"last words");
    // The other direction continues.
    std::thread::scope(|scope| {
        scope.spawn(|| expect_bytes(&mut client.stream, &bytes));
        behind.write_all(&bytes).expect("the client reads");
    });
    drop(behind);
    expect_end(&mut client.stream);

    let (mut client, mut behind) = far.join(&server);
    behind.write_all(&bytes).expect("there is room");
    drop(behind);
    expect_bytes(&mut client.stream, &bytes);
    expect_end(&mut client.stream);
    drop(client);
    wait_until("no connection is left", || server.stats.total().connections == 0);
}

#[test]
fn a_client_that_is_gone_ends_the_tunnel() {
    let (server, far) = (TestServer::default(), Far::new());
    let (client, mut behind) = far.join(&server);
    let reset = socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO));
    reset.expect("a live socket");
    drop(client);
    expect_end(&mut behind);
}

#[test]
fn a_silent_tunnel_is_closed_and_one_that_moves_is_not() {
    let (server, far) = (TestServer::default(), Far::new());
    let mut client = server.connect();
    client.send(far.request(0, 3_000));
    let mut behind = far.accept();
    expect_101(&mut client.stream);
    // In total longer than its silence, but never that long without a byte.
    for _ in 0..30 {
        client.send("a");
        expect_bytes(&mut behind, b"a");
        std::thread::sleep(Duration::from_millis(120));
    }
    expect_end(&mut behind);
    expect_end(&mut client.stream);
}

#[test]
fn a_stop_passes_on_what_was_read_and_ends_the_tunnel() {
    let (mut server, far) = (TestServer::default(), Far::new());
    let (mut client, mut behind) = far.join(&server);
    client.send("before");
    expect_bytes(&mut behind, b"before");
    server.stop();
    expect_end(&mut behind);
    expect_end(&mut client.stream);
    server.join();
}

#[test]
fn a_client_that_can_have_no_tunnel_gets_none() {
    let (server, far) = (TestServer::default(), Far::new());
    let port = far.listener.local_addr().expect("bound").port();
    for request in [
        format!("GET /tunnel/{port} HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\n\r\n"),
        format!("GET /tunnel/{port} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\r\n"),
        format!(
            "GET /tunnel/{port} HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: echo\r\n\r\n"
        ),
        format!("GET /tunnel/{port} HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"),
        format!(
            "POST /tunnel/{port} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\nContent-Length: 2\r\n\r\n{{}}"
        ),
    ] {
        let answer = server.exchange(request.as_bytes());
        assert!(answer.starts_with("200 not upgraded"), "{request}: {answer}");
    }
    // A service that returns a tunnel although the client did not ask for one.
    let forced = get(&format!("/tunnel-always/{port}")) + &get("/echo");
    let shown = server.exchange(forced.as_bytes());
    assert_eq!(shown, "503 this connection cannot change its protocol now | 200 GET /echo []");
}

#[test]
fn a_refused_upgrade_is_an_answer_as_any_other() {
    let server = TestServer::default();
    for path in ["/echo", "/later/0", "/chunks/5", "/later-panic"] {
        let mut client = server.connect();
        client.send(upgrade(path) + &get("/echo/next"));
        client.stream.shutdown(Shutdown::Write).expect("a live socket");
        let mut all = String::new();
        client.stream.read_to_string(&mut all).expect("an end");
        assert!(all.ends_with("GET /echo/next []"), "{path}: {all}");
        assert_eq!(all.matches("HTTP/1.1 ").count(), 2, "{path}: {all}");
    }
}
