//! The bytes on the wire: malformed and smuggling requests with the exact answer to each, limits with their
//! statuses, and the forms of well-formed requests.

use crate::common::{TestServer, get};
use forebay_http::Limits;

/// Each input is followed by this request, which must not be answered after an error: it would be the
/// smuggled request.
const FOLLOWER: &str = "GET /echo/follower HTTP/1.1\r\nHost: a\r\n\r\n";
const FOLLOWED: &str = " | 200 GET /echo/follower []";

#[test]
fn malformed_and_smuggling_requests() {
    let server = TestServer::default();
    let check = |input: &str, expected: &str| {
        let found = server.exchange(format!("{input}{FOLLOWER}").as_bytes());
        assert_eq!(found, format!("{expected} (close)"), "{input:?}");
    };
    for (input, expected) in include!("malformed.in") {
        check(input, expected);
    }
    // Bytes that are not valid UTF-8.
    for (head, byte, detail) in [
        ("GET /echo HTTP/1.1\r\nHost: a\r\nA: ", 0x00, "400 a header field value is malformed"),
        ("GET /echo HTTP/1.1\r\nHost: a\r\nA: ", 0x7f, "400 a header field value is malformed"),
        ("GET /echo HTTP/1.1\r\nHost: a\r\nA", 0xff, "400 a header field name is malformed"),
        ("GET /ec", 0xff, "400 the request line is malformed"),
        ("GET /ec", 0x00, "400 the request line is malformed"),
    ] {
        let input = [head.as_bytes(), &[byte], b": x HTTP/1.1\r\n\r\n", FOLLOWER.as_bytes()].concat();
        assert_eq!(server.exchange(&input), format!("{detail} (close)"), "{head:?} {byte}");
    }
}

#[test]
fn well_formed_requests() {
    let server = TestServer::default();
    let check = |input: &str, expected: &str| {
        let found = server.exchange(format!("{input}{FOLLOWER}").as_bytes());
        assert_eq!(found, format!("{expected}{FOLLOWED}"), "{input:?}");
    };
    check(&get("/echo?a=b%20c"), "200 GET /echo?a=b%20c []");
    check(&get("/echo/%C3%A9"), "200 GET /echo/é []");
    check("GET http://h:1/echo?q HTTP/1.1\r\nHost: h:1\r\n\r\n", "200 GET /echo?q []");
    check("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "200 OPTIONS * []");
    check("BREW /echo HTTP/1.1\r\nhOST:a\r\n\r\n", "200 BREW /echo []");
    check("\r\nGET /echo HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "200 GET /echo []");
    check("GET /echo HTTP/1.1\r\nHost: a_b.c.:65535\r\nA: b\tc\u{e9} \r\n\r\n", "200 GET /echo []");
    check("POST /echo HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 3\r\n\r\nabc", "200 POST /echo [abc]");
    check("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "200 POST /echo []");
    check("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 00003\r\n\r\nabc", "200 POST /echo [abc]");
    let chunked = "PUT /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n";
    check(&format!("{chunked}3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: x\r\n\r\n"), "200 PUT /echo [abcde]");
    check(&format!("{chunked}0\r\n\r\n"), "200 PUT /echo []");
    check("GET /echo HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "200 GET /echo []");
    check("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\nExpect: anything\r\n\r\n", "200 GET /echo []");
    check(&get("/nothing"), "204");
    check(&get("/silent"), "500 the handler gave no answer");
    check(&get("/panic"), "500 the handler failed");
    check(&get("/later-panic"), "500 the handler failed");
}

#[test]
fn connections_that_close_after_the_answer() {
    let server = TestServer::default();
    for input in [
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE\r\n\r\n",
        "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
        "GET /echo HTTP/1.0\r\n\r\n",
        "GET /echo HTTP/1.0\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(
            server.exchange(format!("{input}{FOLLOWER}").as_bytes()),
            "200 GET /echo [] (close)",
            "{input:?}"
        );
    }
    let closing = format!("{}{FOLLOWER}", get("/close"));
    assert_eq!(server.exchange(closing.as_bytes()), "200 closing (close)");
}

#[test]
fn head_has_the_length_and_no_body() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("HEAD /big/5000 HTTP/1.1\r\nHost: a\r\n\r\nHEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(get("/echo"));
    assert_eq!(client.next(true).as_deref(), Some("200 length 5000"));
    assert_eq!(client.next(true).as_deref(), Some("200 length 13"));
    assert_eq!(client.answer(), "200 GET /echo []");
    client.send("HEAD /later/1 HTTP/1.1\r\nHost: a\r\n\r\n");
    server.signal.send_replace(1);
    assert_eq!(client.next(true).as_deref(), Some("200 length 7"));
}

#[test]
fn expect_continue() {
    let server = TestServer::default();
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\n";
    let mut client = server.connect();
    client.send(format!("{}{head}Content-Length: 3\r\n\r\n", get("/echo")));
    assert_eq!(client.answer(), "200 GET /echo []");
    assert_eq!(client.answer(), "100");
    client.send("abc");
    assert_eq!(client.answer(), "200 POST /echo [abc]");
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n"));
    assert_eq!(client.answer(), "100");
    client.send("3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.answer(), "200 POST /echo [abc]");
    // A client that has begun the body does not wait.
    client.send(format!("{head}Content-Length: 3\r\n\r\na"));
    client.send("bc");
    assert_eq!(client.answer(), "200 POST /echo [abc]");
    client.send(format!("{head}Content-Length: 0\r\n\r\n"));
    assert_eq!(client.answer(), "200 POST /echo []");
    // A body that is too long is refused before it is sent.
    client.send(format!("{head}Content-Length: 99999999\r\n\r\n"));
    assert_eq!(client.rest(), "413 the request body is too large (close)");
    let other = "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(server.exchange(other.as_bytes()), "417 only 100-continue can be expected (close)");
}

#[test]
fn limits_and_their_statuses() {
    let limits =
        Limits { head_bytes: 400, target_bytes: 100, body_bytes: 10, fields: 5, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let check = |input: String, expected: &str| {
        assert_eq!(server.exchange(format!("{input}{FOLLOWER}").as_bytes()), expected, "{input:?}");
    };
    let target = |bytes: usize| get(&format!("/echo?{}", "x".repeat(bytes - 6)));
    check(target(100), &format!("200 GET /echo?{} []{FOLLOWED}", "x".repeat(94)));
    check(target(101), "414 the request target is too long (close)");
    check(format!("GET /{}", "x".repeat(2000)), "414 the request target is too long (close)");
    let fields =
        |count: usize| format!("GET /echo HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(count - 1));
    check(fields(5), &format!("200 GET /echo []{FOLLOWED}"));
    check(fields(6), "431 the request has too many header fields (close)");
    let head =
        |bytes: usize| format!("GET /echo HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "x".repeat(bytes - 36));
    assert_eq!(head(400).len(), 400);
    check(head(400), &format!("200 GET /echo []{FOLLOWED}"));
    check(head(401), "431 the request head is too large (close)");
    check(head(4000), "431 the request head is too large (close)");
    let post = "POST /echo HTTP/1.1\r\nHost: a\r\n";
    check(
        format!("{post}Content-Length: 10\r\n\r\n0123456789"),
        &format!("200 POST /echo [0123456789]{FOLLOWED}"),
    );
    check(
        format!("{post}Content-Length: 11\r\n\r\n01234567890"),
        &format!("413 the request body is too large{FOLLOWED}"),
    );
    let huge = "9".repeat(60);
    check(format!("{post}Content-Length: {huge}\r\n\r\n"), "413 the request body is too large (close)");
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n");
    let ten = format!("{chunked}5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n");
    check(ten, &format!("200 POST /echo [0123456789]{FOLLOWED}"));
    check(format!("{chunked}5\r\n01234\r\n6\r\n567890\r\n"), "413 the request body is too large (close)");
    check(format!("{chunked}ffffffffffffffff\r\n"), "413 the request body is too large (close)");
    check(format!("{}Z", "M".repeat(70)), "400 the method is too long (close)");
}

/// A request line that arrives as one byte and then a long rest, without a line end.
#[test]
fn a_long_target_in_two_reads() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send("G");
    // The first byte is read alone: an exchange on another connection precedes the rest.
    assert!(client.has_nothing(&server));
    client.send(format!("ET /{}", "x".repeat(9_000)));
    assert_eq!(client.rest(), "414 the request target is too long (close)");
}

/// A client that is still sending its large body can read the refusal.
#[test]
fn a_refusal_is_not_lost_in_a_reset() {
    let server = TestServer::default();
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n".to_owned();
    let input = [head.into_bytes(), vec![b'x'; 2_000_000]].concat();
    for _ in 0..5 {
        assert_eq!(server.exchange(&input), "413 the request body is too large (close)");
    }
}
