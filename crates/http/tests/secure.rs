//! The other suites over TLS: the same bytes get the same answers. Further tests that concern only TLS:
//! handshakes that do not complete, records cut at arbitrary places, endings.

mod common;
mod suites;

use common::{TestServer, get, tls, wait_until};
use forebay_http::Limits;
use rustls::{ClientConnection, ProtocolVersion, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

type Secure = StreamOwned<ClientConnection, TcpStream>;

fn connect(server: &TestServer, config: rustls::ClientConfig) -> Secure {
    let name = "localhost".try_into().expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a good configuration");
    let stream = TcpStream::connect(server.listens).expect("the server listens");
    stream.set_nodelay(true).expect("a live socket");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a live socket");
    StreamOwned::new(session, stream)
}

/// Everything up to the end, which must be announced by close_notify.
fn rest(stream: &mut impl Read) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("close_notify");
    text
}

#[test]
fn both_versions_keep_alive_pipeline_and_end_with_close_notify() {
    let server = TestServer::default();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut stream = connect(&server, tls::client(&[version]));
        for _ in 0..2 {
            stream.write_all(get("/echo/once").as_bytes()).expect("a live connection");
            let mut head = [0; 15];
            stream.read_exact(&mut head).expect("an answer");
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            let mut byte = [0];
            let mut seen = Vec::new();
            while !seen.ends_with(b"GET /echo/once []") {
                stream.read_exact(&mut byte).expect("an answer");
                seen.extend(byte);
            }
        }
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
        let many: String = (0..200).map(|i| get(&format!("/big/{}", i * 7))).collect();
        stream.write_all((many + &get("/close")).as_bytes()).expect("a live connection");
        let text = rest(&mut stream);
        let lengths: Vec<usize> = text.split("Content-Length: ").skip(1).map(digits).collect();
        assert_eq!(lengths[..200], (0..200).map(|i| i * 7).collect::<Vec<_>>()[..]);
        assert!(text.ends_with("closing"), "{version:?}");
    }
}

/// This happens when another process takes over while a distant client connects: its handshake and its
/// request arrive after connections without a request were closed.
#[test]
fn a_stop_answers_a_client_that_was_shaking_hands() {
    let mut server = TestServer::default();
    let mut stream = connect(&server, tls::client(&[&rustls::version::TLS13]));
    wait_until("it is accepted", || server.stats.total().accepted == 1);
    let mut used = connect(&server, tls::client(&[&rustls::version::TLS13]));
    used.write_all(get("/echo").as_bytes()).expect("a live connection");
    used.read_exact(&mut [0; 15]).expect("an answer");
    server.stop();
    rest(&mut used);
    stream.write_all(get("/echo/late").as_bytes()).expect("a handshake");
    assert!(rest(&mut stream).ends_with("GET /echo/late []"));
    server.join();
}

fn digits(text: &str) -> usize {
    text.split('\r').next().and_then(|digits| digits.parse().ok()).expect("a length")
}

#[test]
fn answers_larger_than_a_write_arrive_whole() {
    let server = TestServer::default();
    for size in [16_384, 65_535, 65_536, 65_537, 1_000_000] {
        let mut stream = connect(&server, tls::client(rustls::ALL_VERSIONS));
        let asked = get(&format!("/big/{size}")) + &get(&format!("/chunks/{size}")) + &get("/close");
        stream.write_all(asked.as_bytes()).expect("a live connection");
        let text = rest(&mut stream);
        assert_eq!(text.matches('x').count(), 2 * size + text.matches("text/plain").count(), "{size}");
    }
}

#[test]
fn a_session_is_resumed_by_its_ticket() {
    let server = TestServer::default();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let config = tls::client(&[version]);
        let kinds: Vec<_> = (0..2)
            .map(|_| {
                let mut stream = connect(&server, config.clone());
                stream.write_all(get("/close").as_bytes()).expect("a live connection");
                rest(&mut stream);
                stream.conn.handshake_kind()
            })
            .collect();
        assert_eq!(
            kinds,
            [Some(rustls::HandshakeKind::Full), Some(rustls::HandshakeKind::Resumed)],
            "{version:?}"
        );
    }
}

/// The bytes that a client has sent and received, one byte per segment.
#[test]
fn records_in_pieces_are_the_same_records() {
    let server = TestServer::default();
    let mut stream = connect(&server, tls::client(rustls::ALL_VERSIONS));
    while stream.conn.is_handshaking() {
        let mut records = Vec::new();
        while stream.conn.wants_write() {
            stream.conn.write_tls(&mut records).expect("memory");
        }
        for byte in records {
            stream.sock.write_all(&[byte]).expect("a live socket");
        }
        if stream.conn.wants_read() && stream.conn.is_handshaking() {
            stream.conn.read_tls(&mut stream.sock).expect("a live socket");
            stream.conn.process_new_packets().expect("TLS");
        }
    }
    // Each byte of the request is sent in its own record, each record in pieces of three bytes.
    for byte in get("/close").bytes() {
        stream.conn.writer().write_all(&[byte]).expect("memory");
        let mut records = Vec::new();
        stream.conn.write_tls(&mut records).expect("memory");
        for piece in records.chunks(3) {
            stream.sock.write_all(piece).expect("a live socket");
        }
    }
    assert!(rest(&mut stream).ends_with("closing"));
}

/// Begins handshakes and continues none of them.
fn begin_handshakes(server: &TestServer) -> Vec<TcpStream> {
    let (config, name) = (tls::client(rustls::ALL_VERSIONS), "localhost".try_into().expect("a name"));
    let mut session = ClientConnection::new(Arc::new(config), name).expect("a good configuration");
    let mut hello = Vec::new();
    session.write_tls(&mut hello).expect("memory");
    let begin = |length: usize| {
        let mut stream = TcpStream::connect(server.listens).expect("the server listens");
        stream.write_all(&hello[..length]).expect("a live socket");
        stream
    };
    [0, 1, hello.len() - 1].map(begin).into()
}

#[test]
fn a_handshake_that_does_not_end_is_ended() {
    let server = TestServer::start(Limits { head_timeout_ms: 2_000, ..Limits::default() }, 1);
    for mut stream in begin_handshakes(&server) {
        // Closed, or reset where some of the client's bytes were not read.
        assert!(!matches!(stream.read(&mut [0; 16]), Ok(1..)), "nothing to say");
    }
    wait_until("they are gone", || server.stats.total().connections == 0);
    let mut served = connect(&server, tls::client(rustls::ALL_VERSIONS));
    served.write_all(get("/close").as_bytes()).expect("a live connection");
    assert!(rest(&mut served).ends_with("closing"));
}

#[test]
fn the_oldest_handshake_makes_room() {
    let server = TestServer::start(Limits { handshakes: 3, ..Limits::default() }, 1);
    let begun = begin_handshakes(&server);
    wait_until("all have begun", || server.stats.total().accepted == 3);
    let mut served = connect(&server, tls::client(rustls::ALL_VERSIONS));
    served.write_all(get("/close").as_bytes()).expect("a live connection");
    assert!(rest(&mut served).ends_with("closing"));
    wait_until("one has made room", || server.stats.total().connections == 2);
    assert_eq!(server.stats.refused(), 0);
    drop(begun);
    wait_until("they are gone", || server.stats.total().connections == 0);
}

#[test]
fn a_stop_does_not_wait_for_handshakes() {
    let mut server = TestServer::default();
    let half_open = TcpStream::connect(server.listens).expect("the server listens");
    wait_until("it is there", || server.stats.total().accepted == 1);
    let mut busy = connect(&server, tls::client(rustls::ALL_VERSIONS));
    busy.write_all(get("/later/1").as_bytes()).expect("a live connection");
    wait_until("it is asked", || server.stats.total().requests == 1);
    server.stop();
    wait_until("the half-open one is closed", || server.stats.total().connections == 1);
    server.signal.send_replace(1);
    assert!(rest(&mut busy).ends_with("later 1"));
    server.join();
    drop(half_open);
}

#[test]
fn what_is_no_tls_is_told() {
    let server = TestServer::default();
    let exchange = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.listens).expect("the server listens");
        stream.write_all(bytes).expect("a live socket");
        stream.shutdown(Shutdown::Write).expect("a live socket");
        let mut answer = Vec::new();
        // A reset may cut the answer off.
        let _end = stream.read_to_end(&mut answer);
        answer
    };
    let answer = String::from_utf8(exchange(get("/echo").as_bytes())).expect("ASCII");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("HTTPS only\"}"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    for noise in [&[0x16; 100][..], &[0; 100], &[0x80, 0x2e, 1, 0, 2], b"\x16\x03\x01\x00\x00"] {
        let answer = exchange(noise);
        // A TLS alert, or nothing.
        assert!(answer.is_empty() || answer[0] == 21, "{noise:?}: {answer:?}");
    }
    let mut served = connect(&server, tls::client(rustls::ALL_VERSIONS));
    served.write_all(get("/close").as_bytes()).expect("a live connection");
    assert!(rest(&mut served).ends_with("closing"));
    assert_eq!(served.conn.protocol_version(), Some(ProtocolVersion::TLSv1_3));
}

/// The rest of the input is read and discarded: if the connection were closed with unread bytes, it would be
/// reset before the client has read the reason.
#[test]
fn what_is_no_tls_is_told_however_much_of_it_there_is() {
    let server = TestServer::default();
    let mut stream = TcpStream::connect(server.listens).expect("the server listens");
    let request =
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n{}", "x".repeat(1_000_000));
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a good end");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("HTTPS only\"}"), "{answer}");
}

#[test]
fn a_record_that_is_damaged_ends_the_connection() {
    let server = TestServer::default();
    let mut stream = connect(&server, tls::client(rustls::ALL_VERSIONS));
    stream.write_all(get("/echo").as_bytes()).expect("a live connection");
    stream.read_exact(&mut [0; 15]).expect("an answer");
    stream.conn.writer().write_all(get("/echo/damaged").as_bytes()).expect("memory");
    let mut records = Vec::new();
    stream.conn.write_tls(&mut records).expect("memory");
    *records.last_mut().expect("a record") ^= 1;
    stream.sock.write_all(&records).expect("a live socket");
    let mut text = String::new();
    assert!(stream.read_to_string(&mut text).is_err(), "an alert");
    assert!(!text.contains("damaged"));
    wait_until("it is gone", || server.stats.total().connections == 0);
}

#[test]
fn a_client_that_vanishes_is_no_end_of_a_body() {
    let server = TestServer::default();
    let mut stream = connect(&server, tls::client(rustls::ALL_VERSIONS));
    let head = "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc";
    stream.write_all(head.as_bytes()).expect("a live connection");
    stream.sock.shutdown(Shutdown::Write).expect("a live socket");
    let mut text = String::new();
    let _end = stream.read_to_string(&mut text);
    assert!(!text.starts_with("HTTP/1.1 200"), "{text}");
}
