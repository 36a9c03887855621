//! Ambiguous and malformed answers: they are never passed on as good ones, and bytes that follow them on
//! the connection are never taken for the answer to another request.

use super::Front;
use super::upstream::Scripted;
use std::io::Read;

/// The bytes behind the broken answers, which must never reach a client.
const STOLEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";

fn front(upstream: &Scripted) -> Front {
    Front::start(&format!(
        "[[endpoint]]\nroute = 'GET /{{path...}}'\nretries = 0\nproxy = 'http://{}'",
        upstream.address
    ))
}

#[test]
fn answers_that_can_be_read_in_two_ways_are_refused() {
    let long = "x".repeat(200 * 1024);
    for (name, answer) in [
        ("both", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned()),
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!".into()),
        ("the same twice", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello".into()),
        ("a signed length", "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello".into()),
        ("a length in hex", "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello".into()),
        ("an endless length", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\nhello".into()),
        ("another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".into()),
        ("chunked is not last", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\nhello".into()),
        ("a coding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".into()),
        ("space before a colon", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello".into()),
        ("a folded line", "HTTP/1.1 200 OK\r\nX-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("a line that is none", "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("a NUL", "HTTP/1.1 200 OK\r\nX-A: a\0b\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("a status that does not exist", "HTTP/1.1 999 X\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("a status that is no number", "HTTP/1.1 2x0 OK\r\nContent-Length: 5\r\n\r\nhello".into()),
        ("another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n".into()),
        ("a head without end", format!("HTTP/1.1 200 OK\r\nX-A: {long}\r\n\r\n")),
        ("endless fields", format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-A: b\r\n".repeat(2_000))),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Le".into()),
        ("nothing", String::new()),
        ("a switch of protocols", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".into()),
    ] {
        let upstream = Scripted::saying(format!("{answer}{}", if answer.is_empty() { "" } else { STOLEN }));
        let front = front(&upstream);
        let mut client = front.server.client();
        for _ in 0..2 {
            let answer = client.get("/a");
            assert!(answer.status == 502, "{name}: {answer:?}");
            answer.expect_problem(502, "");
        }
    }
}

/// All received bytes, and whether the connection ended in a reset.
fn everything(front: &Front, request: &str) -> (String, bool) {
    let mut client = front.server.client();
    client.send(request.as_bytes()).expect("a live socket");
    let mut bytes = Vec::new();
    let ended = client.stream().read_to_end(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), ended.is_err())
}

#[test]
fn bodies_that_break_off_break_the_client_s_connection() {
    for (name, answer) in [
        ("short of its length", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello"),
        ("without its last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        ("in the middle of a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello"),
        ("with a bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n"),
        (
            "with an endless chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nfffffffffffffffff\r\n",
        ),
    ] {
        let upstream = Scripted::saying(answer);
        let front = front(&upstream);
        let (text, reset) = everything(&front, "GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let is_whole = match head.contains("chunked") {
            true => body.ends_with("0\r\n\r\n"),
            false => head.contains("Content-Length: 5\r\n"),
        };
        assert!(!is_whole || reset, "{name}: {text}");
        // A client of HTTP/1.0 finds the end of a body without a length by the end of the connection, so
        // only a reset can show that the body is incomplete.
        if answer.contains("chunked") {
            let (text, reset) = everything(&front, "GET /a HTTP/1.0\r\n\r\n");
            assert!(reset, "{name}: {text}");
        }
    }
}

#[test]
fn what_follows_an_answer_is_nobody_else_s() {
    let upstream = Scripted::saying(format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood{STOLEN}"));
    let front = front(&upstream);
    let mut client = front.server.client();
    for _ in 0..20 {
        let answer = client.get("/a");
        assert!(answer.status >= 502 || answer.text() == "good", "{answer:?}");
    }
}

#[test]
fn a_body_to_the_end_of_the_connection_is_passed_on() {
    let upstream = Scripted::saying("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nto the end");
    let front = front(&upstream);
    let (text, reset) = everything(&front, "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert!(text.ends_with("00000a\r\nto the end\r\n0\r\n\r\n") && !reset, "{text}");
    let (text, reset) = everything(&front, "GET /a HTTP/1.0\r\n\r\n");
    assert!(text.ends_with("\r\n\r\nto the end") && !reset, "{text}");
}
