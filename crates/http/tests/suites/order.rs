//! The order of answers, deferred answers, the gate; and the split of the input into reads does not change
//! the answers.

use crate::common::{Client, TestServer, get, wait_until};
use forebay_http::Limits;
use proptest::prelude::*;

#[test]
fn pipelined_answers_come_in_order() {
    let server = TestServer::default();
    let mut client = server.connect();
    let count = 5_000;
    let mut writer = client.stream.try_clone().expect("a live socket");
    let sending = std::thread::spawn(move || {
        for number in 0..count {
            std::io::Write::write_all(&mut writer, get(&format!("/echo/{number}")).as_bytes())
                .expect("taken");
        }
    });
    for number in 0..count {
        assert_eq!(client.answer(), format!("200 GET /echo/{number} []"));
    }
    sending.join().expect("all sent");
}

#[test]
fn a_deferred_answer_takes_its_place_and_holds_up_only_what_follows() {
    let server = TestServer::default();
    let mut client = server.connect();
    let requests = ["/echo/a", "/later/2", "/echo/b", "/later/1", "/later/3", "/echo/c"];
    client.send(requests.map(get).concat());
    assert_eq!(client.answer(), "200 GET /echo/a []");
    // The second answer is ready first, and all requests after the first were parsed and answered meanwhile.
    wait_until("all six are taken", || server.stats.total().requests >= 6);
    server.signal.send_replace(1);
    assert!(client.has_nothing(&server));
    server.signal.send_replace(2);
    for expected in ["200 later 2", "200 GET /echo/b []", "200 later 1"] {
        assert_eq!(client.answer(), expected);
    }
    assert!(client.has_nothing(&server));
    server.signal.send_replace(3);
    assert_eq!(client.answer(), "200 later 3");
    assert_eq!(client.answer(), "200 GET /echo/c []");
}

#[test]
fn a_closing_deferred_answer_is_the_last() {
    let server = TestServer::default();
    let mut client = server.connect();
    let close = "GET /later/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    client.send(format!("{}{close}{}", get("/echo/a"), get("/echo/b")));
    assert_eq!(client.answer(), "200 GET /echo/a []");
    server.signal.send_replace(1);
    assert_eq!(client.rest(), "200 later 1 (close)");
}

#[test]
fn a_client_that_shuts_down_its_side_still_gets_its_answers() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(get("/later/1") + &get("/held/5"));
    client.stream.shutdown(std::net::Shutdown::Write).expect("a live socket");
    server.signal.send_replace(1);
    assert_eq!(client.answer(), "200 later 1");
    server.gate.advance(5);
    assert_eq!(client.rest(), "200 held 5");
}

#[test]
fn more_deferred_requests_than_the_depth_wait_unread() {
    let limits = Limits { pipeline_depth: 3, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(get("/later/1").repeat(10) + &get("/echo"));
    wait_until("three are taken", || server.stats.total().requests >= 3);
    assert!(client.has_nothing(&server));
    // The three requests of `has_nothing` are counted a moment after they are answered.
    let others = 3;
    wait_until("the others are counted", || server.stats.total().requests >= 3 + others);
    assert_eq!(server.stats.total().requests, 3 + others, "no more than the depth");
    server.signal.send_replace(1);
    for _ in 0..10 {
        assert_eq!(client.answer(), "200 later 1");
    }
    assert_eq!(client.answer(), "200 GET /echo []");
}

#[test]
fn the_gate_holds_what_is_not_passed() {
    let server = TestServer::start(Limits::default(), 2);
    let mut clients: Vec<Client> = (0..6).map(|_| server.connect()).collect();
    for (client, mark) in clients.iter_mut().zip(1..) {
        client.send(get("/echo/before"));
        assert_eq!(client.answer(), "200 GET /echo/before []");
        client.send(get(&format!("/held/{mark}")));
    }
    wait_until("all are taken", || server.stats.total().requests >= 12);
    for client in &mut clients {
        assert!(client.has_nothing(&server));
    }
    server.gate.advance(4);
    for (client, mark) in clients.iter_mut().zip(1..=4) {
        assert_eq!(client.answer(), format!("200 held {mark}"));
        // A mark that was passed is not held again.
        client.send(get("/held/2"));
        assert_eq!(client.answer(), "200 held 2");
    }
    assert!(clients[4].has_nothing(&server) && clients[5].has_nothing(&server));
    server.gate.advance(3);
    assert!(clients[4].has_nothing(&server), "a lower mark changes nothing");
    server.gate.advance(100);
    assert_eq!(clients[4].answer(), "200 held 5");
    assert_eq!(clients[5].answer(), "200 held 6");
}

#[test]
fn a_held_answer_holds_what_follows_and_is_not_held_by_it() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(get("/held/1") + &get("/echo/a"));
    wait_until("both are taken", || server.stats.total().requests >= 2);
    client.send(get("/held/2") + &get("/later-held/1/3") + &get("/echo/b"));
    wait_until("all are taken", || server.stats.total().requests >= 5);
    assert!(client.has_nothing(&server));
    server.gate.advance(1);
    assert_eq!(client.answer(), "200 held 1");
    assert_eq!(client.answer(), "200 GET /echo/a []");
    server.gate.advance(2);
    assert_eq!(client.answer(), "200 held 2");
    server.signal.send_replace(1);
    assert!(client.has_nothing(&server));
    server.gate.advance(3);
    assert_eq!(client.answer(), "200 later 1");
    assert_eq!(client.answer(), "200 GET /echo/b []");
}

#[test]
fn a_failed_gate_closes_what_it_holds_and_lets_nothing_out() {
    let server = TestServer::start(Limits::default(), 2);
    server.gate.advance(10);
    let mut held: Vec<Client> = (0..4).map(|_| server.connect()).collect();
    let mut free = server.connect();
    for client in &mut held {
        client.send(get("/held/10") + &get("/echo"));
        assert_eq!(client.answer(), "200 held 10");
        assert_eq!(client.answer(), "200 GET /echo []");
        client.send(get("/held/11"));
    }
    wait_until("all are taken", || server.stats.total().requests >= 12);
    server.gate.fail();
    server.gate.advance(11);
    for client in &mut held {
        let mut end = Vec::new();
        // Closed or reset, but without a single byte of the answer.
        let _closed = std::io::Read::read_to_end(&mut client.stream, &mut end);
        assert_eq!(String::from_utf8_lossy(&end), "");
    }
    // An answer without a mark, or with a mark that was passed, is still sent.
    free.send(get("/echo"));
    assert_eq!(free.answer(), "200 GET /echo []");
    free.send(get("/held/9"));
    assert_eq!(free.answer(), "200 held 9");
}

/// Marks from many threads against many connections: no wake-up may be lost.
#[test]
fn no_release_is_lost_under_load() {
    let server = TestServer::start(Limits::default(), 2);
    let gate = server.gate.clone();
    let rounds = 300;
    let advancing = std::thread::spawn(move || {
        for mark in 1..=rounds * 8 {
            gate.advance(mark);
            std::thread::yield_now();
        }
    });
    std::thread::scope(|scope| {
        for lane in 1..=8 {
            let mut client = server.connect();
            scope.spawn(move || {
                for round in 0..rounds {
                    let mark = round * 8 + lane;
                    client.send(get(&format!("/held/{mark}")));
                    assert_eq!(client.answer(), format!("200 held {mark}"));
                }
            });
        }
    });
    advancing.join().expect("no panic");
}

fn request() -> impl Strategy<Value = String> {
    let path = prop_oneof![
        Just("/echo/a?b=c"),
        Just("/nothing"),
        Just("/held/1"),
        Just("/big/3000"),
        Just("/later/1")
    ];
    let host = "HTTP/1.1\r\nHost: a";
    prop_oneof![
        6 => path.prop_map(get),
        2 => "[a-z]{0,40}".prop_map(move |body| {
            format!("POST /echo {host}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        }),
        2 => proptest::collection::vec("[a-z]{1,20}", 0..4).prop_map(move |chunks| {
            let chunks: String = chunks.iter().map(|chunk| format!("{:x};e\r\n{chunk}\r\n", chunk.len())).collect();
            format!("PUT /echo {host}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\nT: x\r\n\r\n")
        }),
        1 => Just("GET /echo HTTP/1.1\r\n\r\n".to_owned()),
        1 => Just("GET /echo HTTP/1.1\nHost: a\r\n\r\n".to_owned()),
        1 => Just("\r\nGET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned()),
        1 => Just(format!("POST /echo {host}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several requests are answered the same whether they arrive at once, byte by byte or in pieces.
    #[test]
    fn the_cut_into_reads_changes_nothing(
        requests in proptest::collection::vec(request(), 1..6),
        cuts in proptest::collection::vec(1usize..200, 1..12),
    ) {
        let server = TestServer::default();
        server.gate.advance(1);
        server.signal.send_replace(1);
        let stream = requests.concat().into_bytes();
        let whole = server.exchange(&stream);
        prop_assert!(!whole.is_empty());
        let mut cuts = cuts.iter().copied().cycle();
        for piece_bytes in [Some(1), None] {
            let mut client = server.connect();
            let mut rest = &stream[..];
            while !rest.is_empty() {
                let bytes = piece_bytes.or_else(|| cuts.next()).unwrap_or(1).min(rest.len());
                // After an error the server may already have closed the connection; its answers are compared
                // below.
                if std::io::Write::write_all(&mut client.stream, &rest[..bytes]).is_err() {
                    break;
                }
                rest = &rest[bytes..];
            }
            let _closed = client.stream.shutdown(std::net::Shutdown::Write);
            prop_assert_eq!(client.rest(), whole.clone());
        }
    }
}
