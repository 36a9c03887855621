//! Streamed bodies, in both directions, over real sockets: in order, bounded, and never truncated without an
//! error.

use crate::common::{Client, TestServer, get, wait_until};
use forebay_http::Limits;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

const MIB: u64 = 1 << 20;

/// One answer as it is on the wire: the head, and everything after it to the end of the connection.
fn raw(server: &TestServer, request: &str) -> (String, Vec<u8>, bool) {
    let mut client = server.connect();
    client.send(request);
    let (mut bytes, mut reset) = (Vec::new(), false);
    loop {
        let mut buffer = [0; 64 * 1024];
        match client.stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                reset = true;
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // An answer that broke off before anything was sent has no head either.
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let body = bytes.split_off(end);
    (String::from_utf8(bytes).expect("ASCII"), body, reset)
}

/// The decoded chunks, and whether the last chunk was present.
fn dechunk(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut decoded = Vec::new();
    while let Some(line) = body.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&body[..line]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("a size");
        let rest = &body[line + 2..];
        if size == 0 {
            assert_eq!(rest, b"\r\n");
            return (decoded, true);
        }
        if rest.len() < size + 2 {
            break;
        }
        decoded.extend_from_slice(&rest[..size]);
        assert_eq!(&rest[size..size + 2], b"\r\n");
        body = &rest[size + 2..];
    }
    (decoded, false)
}

fn closing(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

#[test]
fn a_known_length_is_said_and_an_unknown_one_is_chunked() {
    let server = TestServer::default();
    for size in [0, 1, 9_999, 10_000, 70_000, 300_000] {
        let (head, body, _) = raw(&server, &closing(&format!("/stream/{size}")));
        assert!(head.contains(&format!("\r\nContent-Length: {size}\r\n")), "{head}");
        assert!(!head.contains("Transfer-Encoding"), "{head}");
        assert_eq!(body, vec![b'x'; size], "{size}");

        let (head, body, _) = raw(&server, &closing(&format!("/chunks/{size}")));
        assert!(
            head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("Content-Length"),
            "{head}"
        );
        assert_eq!(head.matches("Date: ").count(), 1, "{head}");
        assert_eq!(dechunk(&body), (vec![b'x'; size], true), "{size}");
    }
}

#[test]
fn http_1_0_finds_the_end_by_the_length_or_by_the_end_of_the_connection() {
    let server = TestServer::default();
    let old = |path: &str| format!("GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let mut client = server.connect();
    client.send(old("/stream/70000"));
    assert_eq!(client.answer(), format!("200 {}", "x".repeat(70_000)));
    client.send(old("/echo"));
    assert_eq!(client.answer(), "200 GET /echo []", "the length was known: the connection is kept");
    let (head, body, reset) = raw(&server, &(old("/chunks/70000") + &old("/echo")));
    assert!(head.contains("Connection: close") && !head.contains("Transfer-Encoding"), "{head}");
    assert!(!head.contains("Content-Length") && !reset, "{head}");
    assert_eq!(body, vec![b'x'; 70_000], "and nothing behind it");
}

#[test]
fn head_has_the_fields_and_no_body() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("HEAD /stream/12345 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.next(true).expect("an answer"), "200 length 12345");
    client.send("HEAD /chunks/5 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.next(true).expect("an answer"), "200 length 0");
    client.send(get("/echo"));
    assert_eq!(client.answer(), "200 GET /echo []");
}

#[test]
fn streamed_answers_keep_the_order_of_pipelined_ones() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(["/later/1", "/stream/100000", "/echo", "/stream/3", "/later/2", "/echo"].map(get).concat());
    assert!(client.has_nothing(&server));
    server.signal.send_replace(1);
    assert_eq!(client.answer(), "200 later 1");
    assert_eq!(client.answer(), format!("200 {}", "x".repeat(100_000)));
    assert_eq!(client.answer(), "200 GET /echo []");
    assert_eq!(client.answer(), "200 xxx");
    server.signal.send_replace(2);
    assert_eq!(client.answer(), "200 later 2");
    assert_eq!(client.answer(), "200 GET /echo []");
}

#[test]
fn what_is_there_leaves_before_the_rest_has_come() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(get("/chunks-later/5/1"));
    let mut seen = Vec::new();
    while !seen.ends_with(b"000005\r\nxxxxx\r\n") {
        let mut buffer = [0; 1024];
        let count = client.stream.read(&mut buffer).expect("the first half");
        assert!(count > 0);
        seen.extend_from_slice(&buffer[..count]);
    }
    server.signal.send_replace(1);
    let mut rest = [0; 20];
    client.stream.read_exact(&mut rest).expect("the second half");
    assert_eq!(&rest, b"000005\r\nxxxxx\r\n0\r\n\r\n"[..20].as_ref());
}

#[test]
fn a_body_that_breaks_off_is_never_taken_for_a_whole_one() {
    let server = TestServer::default();
    for path in ["/breaks/70000", "/breaks/0", "/overflows/5", "/overflows/70000"] {
        let (head, body, reset) = raw(&server, &get(path));
        let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.expect("a length").parse().expect("digits");
        // If a body exceeds its announced length, nothing beyond that length is sent and no answer follows
        // it.
        let is_short = body.len() < length || (path.starts_with("/overflows") && body.len() == length);
        assert!(is_short || reset, "{path}: {} of {length}", body.len());
    }
    for path in ["/breaks-chunks/70000", "/stream-panic"] {
        let (_, body, reset) = raw(&server, &get(path));
        assert!(!dechunk(&body).1 || reset, "{path}");
    }
    // Without a length or chunks only a reset can show that the body broke off.
    let (_, _, reset) = raw(&server, "GET /chunks/5 HTTP/1.0\r\n\r\n");
    assert!(!reset);
    let mut client = server.connect();
    client.send("GET /breaks-chunks/5 HTTP/1.0\r\n\r\n");
    let ended = client.stream.read_to_end(&mut Vec::new());
    assert_eq!(ended.expect_err("not a good end").kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.exchange(get("/echo").as_bytes()), "200 GET /echo []", "nobody else is hurt");
}

#[test]
fn a_slow_reader_holds_the_source_back() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(get(&format!("/stream/{}", 64 * MIB)));
    let written = || server.stats.total().written_bytes;
    // The kernel's buffers fill up; then the source is not polled any more.
    let mut last = 0;
    wait_until("the server waits for the client", || {
        let before = std::mem::replace(&mut last, written());
        std::thread::sleep(std::time::Duration::from_millis(50));
        last > 0 && last == before
    });
    assert!(last < 32 * MIB, "{last} bytes were sent to a client that reads nothing");
    let mut count = 0;
    let mut buffer = vec![0; 1 << 20];
    while count < 64 * MIB {
        count += client.stream.read(&mut buffer).expect("more") as u64;
    }
    client.send(get("/echo"));
}

/// Sends a body of `size` bytes in pieces and returns the answer.
fn upload(client: &mut Client, path: &str, size: u64, chunked: bool) -> String {
    let framing =
        if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {size}") };
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
    let mut left = size;
    while left > 0 {
        let piece = left.min(50_000);
        left -= piece;
        let bytes = vec![1; piece as usize];
        if chunked {
            client.send(format!("{piece:x}\r\n"));
            client.send(&bytes);
            client.send("\r\n");
        } else {
            client.send(&bytes);
        }
    }
    if chunked {
        client.send("0\r\n\r\n");
    }
    client.answer()
}

#[test]
fn uploads_of_any_length_are_handed_over_whole() {
    let server = TestServer::default();
    let mut client = server.connect();
    for size in [1, 1000, 70_000, 5 * MIB] {
        let announced = upload(&mut client, "/upload", size, false);
        assert!(
            announced == format!("200 ({size}, {size}) Some({size})")
                || announced == format!("200 ({size}, {size}) None"),
            "{announced}"
        );
        assert_eq!(upload(&mut client, "/upload", size, true), format!("200 ({size}, {size}) None"));
    }
    // The connection continues, with pipelined requests after a body too.
    client.send(format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab{}",
        "c".to_owned() + &get("/echo")
    ));
    assert_eq!(client.answer(), "200 (3, 294) None");
    assert_eq!(client.answer(), "200 GET /echo []");
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(format!("2\r\nab\r\n0\r\n\r\n{}", get("/echo")));
    assert_eq!(client.answer(), "200 (2, 195) None");
    assert_eq!(client.answer(), "200 GET /echo []");
}

#[test]
fn a_service_that_does_not_read_holds_the_client_back() {
    let server = TestServer::default();
    let mut client = server.connect();
    let size = 64 * MIB;
    client.send(format!("POST /upload-later/1 HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
    client.stream.set_nonblocking(true).expect("a live socket");
    let (piece, mut sent, mut stuck) = (vec![1; 1 << 20], 0u64, 0);
    while stuck < 20 {
        match client.stream.write(&piece) {
            Ok(count) => (sent, stuck) = (sent + count as u64, 0),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                stuck += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < 32 * MIB, "{sent} bytes were taken that nobody reads");
    assert!(server.stats.total().read_bytes < MIB, "a few reads are held, no more");
    client.stream.set_nonblocking(false).expect("a live socket");
    server.signal.send_replace(1);
    while sent < size {
        let count = piece.len().min((size - sent) as usize);
        client.send(&piece[..count]);
        sent += count as u64;
    }
    assert_eq!(client.answer(), format!("200 ({size}, {size}) Some({size})"));
}

#[test]
fn a_body_that_is_cut_off_is_an_error_for_its_reader() {
    let server = TestServer::default();
    for framing in ["Content-Length: 100000", "Transfer-Encoding: chunked"] {
        let mut client = server.connect();
        client.send(format!("POST /upload HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nabcde\r\n"));
        client.stream.shutdown(Shutdown::Write).expect("a live socket");
        assert_eq!(client.rest(), "", "{framing}: no answer as if it had been whole");
    }
    wait_until("the connections are gone", || server.stats.total().connections == 0);
}

#[test]
fn bodies_that_are_too_long_or_malformed_are_refused_and_the_connection_ends() {
    let server = TestServer::default();
    let post = |path: &str, rest: &str| {
        let mut client = server.connect();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{rest}"));
        client.rest()
    };
    let announced = post("/upload-small", "Content-Length: 1001\r\n\r\n");
    assert_eq!(announced, "413 the request body is too large (close)");
    let chunked = "Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(
        post("/upload-small", &format!("{chunked}3e9\r\n")),
        "413 the request body is too large (close)"
    );
    assert_eq!(post("/upload", &format!("{chunked}3\r\nabcd\r\n")), "400 a chunk is malformed (close)");
    assert_eq!(post("/upload", &format!("{chunked}x\r\n")), "400 a chunk size is malformed (close)");
    assert_eq!(post("/echo", "Content-Length: 9999999\r\n\r\n"), "413 the request body is too large (close)");
}

#[test]
fn a_body_that_nobody_reads_ends_the_connection_after_the_answer() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
    assert_eq!(client.rest(), "200 ignored (close)");
    let mut client = server.connect();
    client.send("POST /ignore-later/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
    server.signal.send_replace(1);
    assert_eq!(client.rest(), "200 later 1 (close)");
    // A body that arrived with its head is no reason to close.
    let mut client = server.connect();
    client.send(format!("POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc{}", get("/echo")));
    assert_eq!(client.answer(), "200 ignored");
    assert_eq!(client.answer(), "200 GET /echo []");
}

#[test]
fn a_body_that_comes_too_slowly_costs_its_connection() {
    let limits = Limits { head_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
    assert_eq!(client.rest(), "408 the request body took too long (close)");
}

#[test]
fn whoever_waits_for_100_continue_gets_it() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer(), "100");
    client.send("abc");
    assert_eq!(client.answer(), "200 (3, 294) Some(3)");
}

#[test]
fn connection_close_waits_for_the_body() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 6\r\n\r\nabc");
    client.send("abc");
    let answer = client.rest();
    assert!(answer.starts_with("200 (6, 588) ") && answer.ends_with(" (close)"), "{answer}");
}
