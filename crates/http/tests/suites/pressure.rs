//! Clients that misbehave and servers that stop: back-pressure, time-outs, connection limits,
//! spread, graceful stop.

use crate::common::{Client, TestServer, get, is_secure, wait_until};
use forebay_http::{Answer, Gate, Head, Limits, Networks, Options, Outcome, Request, Server, Service};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The server stops reading from a client that sends and never reads; once the client reads, it gets every
/// answer.
#[test]
fn a_client_that_does_not_read_is_not_read_either() {
    let server = TestServer::default();
    let mut client = server.connect();
    // 4 KB of request for 64 KB of answer: the requests that fit in the socket buffers would cause many more
    // bytes of answers.
    let request = get(&format!("/big/65536?{}", "x".repeat(4000)));
    let mut writer = client.stream.try_clone().expect("a live socket");
    writer.set_nonblocking(true).expect("a live socket");
    let (mut sent_bytes, mut stuck) = (0, 0);
    while stuck < 100 {
        match writer.write(&request.as_bytes()[sent_bytes % request.len()..]) {
            Ok(count) => {
                sent_bytes += count;
                stuck = 0;
            }
            Err(_) => {
                stuck += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(sent_bytes < 1 << 30, "the server reads without end");
    }
    writer.set_nonblocking(false).expect("a live socket");
    let sent = sent_bytes / request.len();
    let taken = usize::try_from(server.stats.total().requests).expect("64 bits");
    // Unread answers are in the output (256 KiB) or in the kernel's buffers (some megabytes at most).
    assert!(taken * 65_536 < 32 << 20, "{taken} answers of 64 KiB are pending");
    assert!(taken < sent, "{taken} of {sent} were taken");
    // Other clients are not affected.
    let mut other = server.connect();
    other.send(get("/echo"));
    assert_eq!(other.answer(), "200 GET /echo []");
    for number in 0..sent {
        assert_eq!(client.answer().len(), "200 ".len() + 65_536, "answer {number}");
    }
}

#[test]
fn a_stalled_client_is_closed() {
    let limits = Limits { write_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(get("/big/50000000"));
    wait_until("the request is taken", || server.stats.total().requests == 1);
    wait_until("the connection is closed", || server.stats.total().connections == 0);
}

#[test]
fn a_slow_head_ends_in_408() {
    let limits = Limits { head_timeout_ms: 600, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    for before in ["", "GET /echo/first HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = server.connect();
        client.send(before);
        // A byte now and then, and a line now and then: neither restarts the deadline.
        let mut writer = client.stream.try_clone().expect("a live socket");
        let trickle = std::thread::spawn(move || {
            let head = "GET /echo HTTP/1.1\r\nHost: a\r\n".bytes().chain("A: b\r\n".bytes().cycle());
            for byte in head.take(5_000) {
                if writer.write_all(&[byte]).is_err() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        });
        let first = if before.is_empty() { "" } else { "200 GET /echo/first [] | " };
        assert_eq!(client.rest(), format!("{first}408 the request head took too long (close)"));
        drop(client);
        assert!(trickle.join().expect("no panic"), "the server let the client go on");
    }
}

#[test]
fn a_slow_body_ends_in_408() {
    let limits = Limits { head_timeout_ms: 400, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let began = std::time::Instant::now();
    // What came fast at first does not excuse what follows.
    let (half, half_chunk) = ("x".repeat(1 << 19), format!("80000\r\n{}\r\n", "x".repeat(1 << 19)));
    for (framing, first, piece) in [
        ("Content-Length: 1000000", "", "x"),
        ("Content-Length: 1000000", &half, "x"),
        ("Transfer-Encoding: chunked", "", "1\r\nx\r\n"),
        ("Transfer-Encoding: chunked", &half_chunk, "1\r\nx\r\n"),
    ] {
        let mut client = server.connect();
        client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n{first}"));
        let mut writer = client.stream.try_clone().expect("a live socket");
        let trickle = std::thread::spawn(move || {
            for _ in 0..5_000 {
                if writer.write_all(piece.as_bytes()).is_err() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            false
        });
        assert_eq!(client.rest(), "408 the request body took too long (close)", "{framing}");
        drop(client);
        assert!(trickle.join().expect("no panic"), "the server let the client go on");
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn an_idle_connection_is_closed_and_a_waiting_one_is_not() {
    let limits = Limits {
        idle_timeout_ms: 1_500,
        head_timeout_ms: 1_500,
        write_timeout_ms: 1_500,
        ..Limits::default()
    };
    let server = TestServer::start(limits, 1);
    let (mut fresh, mut used, mut waiting, mut held) =
        (server.connect(), server.connect(), server.connect(), server.connect());
    used.send(get("/echo"));
    waiting.send(get("/later/1"));
    held.send(get("/held/1"));
    assert_eq!(used.answer(), "200 GET /echo []");
    assert_eq!(used.rest(), "");
    assert_eq!(fresh.rest(), "");
    drop((fresh, used));
    wait_until("only those that wait are left", || server.stats.total().connections == 2);
    // The engine's clock has passed all deadlines: the connections would be closed by now.
    std::thread::sleep(Duration::from_millis(2_500));
    server.signal.send_replace(1);
    server.gate.advance(1);
    assert_eq!(waiting.answer(), "200 later 1");
    assert_eq!(held.answer(), "200 held 1");
}

#[test]
fn connections_past_the_limit_are_told() {
    let limits = Limits { connections: 3, ..Limits::default() };
    let server = TestServer::start(limits, 2);
    let mut clients: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(get("/later/1"));
    }
    wait_until("all are asked", || server.stats.total().requests == 3);
    for number in 1..=5 {
        let mut refused = server.connect();
        refused.send(get("/echo"));
        // With TLS a handshake would cost more than the answer.
        let expected = if is_secure() { "" } else { "503 too many connections are open (close)" };
        assert_eq!(refused.rest(), expected);
        assert_eq!(server.stats.refused(), number);
    }
    server.signal.send_replace(1);
    for client in &mut clients {
        assert_eq!(client.answer(), "200 later 1");
    }
    clients.pop();
    wait_until("there is room again", || server.stats.total().connections == 2);
    let mut client = server.connect();
    client.send(get("/echo"));
    assert_eq!(client.answer(), "200 GET /echo []");
}

/// The one that has waited longest for its client ends; one with an open request does not.
#[test]
fn an_idle_connection_makes_room() {
    let limits = Limits { connections: 3, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let (mut waiting, mut first, mut second) = (server.connect(), server.connect(), server.connect());
    waiting.send(get("/later/1"));
    wait_until("it is asked", || server.stats.total().requests == 1);
    for client in [&mut first, &mut second] {
        client.send(get("/echo"));
        assert_eq!(client.answer(), "200 GET /echo []");
        // Longer than a tick of the engine's clock.
        std::thread::sleep(Duration::from_millis(400));
    }
    let mut newcomer = server.connect();
    newcomer.send(get("/echo"));
    assert_eq!(newcomer.answer(), "200 GET /echo []");
    assert_eq!(first.rest(), "");
    second.send(get("/echo"));
    assert_eq!(second.answer(), "200 GET /echo []");
    server.signal.send_replace(1);
    assert_eq!(waiting.answer(), "200 later 1");
    assert_eq!(server.stats.refused(), 0);
}

#[test]
fn few_connections_are_spread_evenly() {
    let server = TestServer::start(Limits::default(), 2);
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    let mut counts = [0; 2];
    for client in &mut clients {
        client.send(get("/worker"));
        let worker: usize = client.answer().trim_start_matches("200 ").parse().expect("a number");
        counts[worker] += 1;
    }
    assert!(counts.iter().all(|count| *count <= 11), "{counts:?}");
    let seen: Vec<usize> = server.stats.workers().iter().map(|worker| worker.connections).collect();
    assert_eq!(seen, counts);
}

#[test]
fn a_graceful_stop_answers_all_that_was_accepted() {
    let mut server = TestServer::start(Limits::default(), 2);
    let mut idle = server.connect();
    idle.send(get("/echo"));
    assert_eq!(idle.answer(), "200 GET /echo []");
    let mut waiting: Vec<Client> = (0..10).map(|_| server.connect()).collect();
    for client in &mut waiting {
        client.send(get("/echo") + &get("/later/1") + &get("/held/1"));
    }
    let mut fresh: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for client in &mut fresh {
        client.send(get("/echo/a") + &get("/echo/b"));
    }
    if is_secure() {
        // A handshake that is still in progress at the stop has one second.
        wait_until("the bridge has passed all on", || server.stats.total().requests == 1 + 10 * 3 + 50 * 2);
    }
    server.stop();
    for client in &mut fresh {
        let answers = client.rest();
        assert_eq!(answers.trim_end_matches(" (close)"), "200 GET /echo/a [] | 200 GET /echo/b []");
    }
    assert_eq!(idle.rest(), "");
    server.signal.send_replace(1);
    server.gate.advance(1);
    for client in &mut waiting {
        let answers = client.rest();
        assert_eq!(answers.trim_end_matches(" (close)"), "200 GET /echo [] | 200 later 1 | 200 held 1");
    }
    drop((idle, waiting, fresh));
    server.join();
    assert!(TcpStream::connect(server.listens).is_err(), "nobody listens any more");
    assert_eq!(server.stats.total().connections, 0);
}

#[test]
fn a_stop_waits_for_the_rest_of_a_request_that_has_begun() {
    let mut server = TestServer::start(Limits::default(), 1);
    let mut idle = server.connect();
    idle.send(get("/echo"));
    assert_eq!(idle.answer(), "200 GET /echo []");
    let mut slow: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    let request = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody";
    for (client, part) in
        slow.iter_mut().zip(["PO", "POST /echo HTTP/1.1\r\nHo", &request[..request.len() - 1]])
    {
        client.send(part);
    }
    wait_until("all are accepted", || server.stats.total().accepted == 4);
    server.stop();
    // Closed because it has no open request.
    assert_eq!(idle.rest(), "");
    for (client, part) in slow.iter_mut().zip([&request[2..], &request[23..], "y"]) {
        client.send(part);
        assert_eq!(client.rest(), "200 POST /echo [body] (close)");
    }
    server.join();
}

/// Answers everything with 204.
#[derive(Debug)]
struct Empty;

impl Service for Empty {
    fn call(&self, _: &Request<'_>, answer: &mut Answer<'_>) -> Outcome {
        answer.respond(&Head::new(204), b"");
        Outcome::Done
    }
}

/// A stop before the first accept: connections that the kernel has accepted since bind are still answered.
#[test]
fn a_stop_answers_what_only_the_kernel_has_accepted() {
    let options = Options {
        listen: vec![([127, 0, 0, 1], 0).into()],
        workers: 2,
        limits: Limits::default(),
        trusted: Networks::default(),
        tls: None,
    };
    let server = Server::bind(options, Arc::new(Empty), Gate::new(2)).expect("a free port");
    let address = server.addresses().expect("bound")[0];
    let mut clients: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(address).expect("the kernel")).collect();
    for client in &mut clients {
        client.write_all(get("/").as_bytes()).expect("the kernel takes it");
    }
    let stats = server.run(std::future::ready(())).expect("it runs");
    assert_eq!(stats.total().requests, 20);
    for client in &mut clients {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer, not a reset");
        // The request may have been answered before its worker received the stop, so `Connection: close` is
        // not certain.
        assert!(
            answer.starts_with("HTTP/1.1 204 No Content\r\n") && answer.ends_with("\r\n\r\n"),
            "{answer}"
        );
    }
}

/// Clients that send as fast as they are answered get an answer to every request, the last with `Connection:
/// close`.
#[test]
fn a_stop_under_load_loses_no_request() {
    let mut server = TestServer::start(Limits::default(), 2);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let mut client = server.connect();
            scope.spawn(move || {
                for number in 0.. {
                    client.send(get(&format!("/echo/{number}")));
                    let answer = client.answer();
                    assert_eq!(answer.trim_end_matches(" (close)"), format!("200 GET /echo/{number} []"));
                    if answer.ends_with("(close)") {
                        break;
                    }
                }
                assert_eq!(client.rest(), "");
            });
        }
        wait_until("they are at it", || server.stats.total().requests > 2_000);
        server.stop();
    });
    server.join();
}

#[test]
fn a_stop_does_not_wait_forever() {
    let limits = Limits { stop_timeout_ms: 300, ..Limits::default() };
    let mut server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(get("/later/1"));
    wait_until("it is taken", || server.stats.total().requests == 1);
    server.join();
    let mut rest = Vec::new();
    let _closed = client.stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_eq!(server.stats.total().connections, 0);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let check = |workers: usize, gate: usize, limits: Limits, expected: &str| {
        let options = Options {
            listen: vec![([127, 0, 0, 1], 0).into()],
            workers,
            limits,
            trusted: Networks::default(),
            tls: None,
        };
        let error = Server::bind(options, Arc::new(Empty), Gate::new(gate)).expect_err("refused");
        assert_eq!(error.to_string(), expected);
    };
    check(0, 0, Limits::default(), "at least one worker is needed");
    check(2, 1, Limits::default(), "the gate was made for another number of workers");
    let limits = Limits { fields: 1000, ..Limits::default() };
    check(1, 1, limits, "fields may be at most 128");
    let taken = TestServer::default();
    let options = Options {
        listen: vec![taken.address.into()],
        workers: 1,
        limits: Limits::default(),
        trusted: Networks::default(),
        tls: None,
    };
    let error = Server::bind(options, Arc::new(Empty), Gate::new(1)).expect_err("taken");
    assert!(error.to_string().starts_with(&format!("cannot listen on {}", taken.address)), "{error}");
}

/// The head of a request whose body of `bytes` is to follow.
fn announces(path: &str, bytes: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n")
}

#[test]
fn a_body_is_not_read_before_the_service_wants_it() {
    let server = TestServer::default();
    let mut client = server.connect();
    client.send(format!("{}Expect", "POST /ignore HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n"));
    client.send(": 100-continue\r\n\r\n");
    assert_eq!(client.rest(), "200 ignored (close)", "nobody asked for the body");
    let mut client = server.connect();
    client.send(announces("/upload-later/1", 40 << 20));
    let mut writer = client.stream.try_clone().expect("a live socket");
    let writing = std::thread::spawn(move || writer.write_all(&vec![1; 40 << 20]));
    std::thread::sleep(Duration::from_millis(500));
    let read_bytes = server.stats.total().read_bytes;
    assert!(read_bytes <= 256 << 10, "{read_bytes} bytes were read");
    server.signal.send_replace(1);
    assert_eq!(client.answer(), format!("200 ({0}, {0}) Some({0})", 40 << 20));
    writing.join().expect("no panic").expect("everything was read");
}

#[test]
fn the_body_that_has_not_moved_for_longest_makes_room() {
    let limits = Limits { bodies_bytes: 4 << 20, ..Limits::default() };
    let server = TestServer::start(limits, 2);
    let part = "x".repeat((1 << 20) - 1);
    // Each lacks one byte. Four fit, less what the memory is larger than its content.
    let mut slow: Vec<_> = (0..12)
        .map(|_| {
            let mut client = server.connect();
            client.send(announces("/echo", 1 << 20) + &part);
            wait_until("it was read", || server.stats.total().read_bytes > 0);
            std::thread::sleep(Duration::from_millis(300));
            client
        })
        .collect();
    // A client that sends its body at once is served.
    let mut quick = server.connect();
    quick.send(announces("/echo", 1 << 20) + &part + "y");
    assert!(quick.answer().ends_with("xy]"));
    for (at, client) in slow.iter_mut().enumerate().take(8) {
        assert_eq!(client.rest(), "503 too many request bodies arrive at one time (close)", "{at}");
    }
    let last = slow.last_mut().expect("twelve");
    last.send("z");
    assert!(last.answer().ends_with("xz]"), "it has moved later than the others");
}

#[test]
fn answers_that_nobody_takes_are_bounded() {
    let limits = Limits {
        output_bytes: 1 << 20,
        answers_bytes: 8 << 20,
        write_timeout_ms: 60_000,
        ..Limits::default()
    };
    let server = TestServer::start(limits, 1);
    let mut stuck: Vec<_> = (0..20)
        .map(|_| {
            let mut client = server.connect();
            // More than what the kernel takes for a client that does not read.
            client.send(get("/big/8000000").repeat(4));
            std::thread::sleep(Duration::from_millis(300));
            client
        })
        .collect();
    let mut quick = server.connect();
    quick.send(get("/big/3000000"));
    assert!(quick.answer().starts_with("200 xxx"), "a client that reads is served");
    let ended = stuck.iter_mut().map(|client| {
        let mut bytes = Vec::new();
        // Reset in the middle of an answer: nobody takes it for whole.
        let read = client.stream.read_to_end(&mut bytes).map_err(|error| error.kind());
        bytes.len() < 32_000_000 && read != Err(std::io::ErrorKind::WouldBlock)
    });
    let ended: Vec<_> = ended.take(16).collect();
    assert!(ended.iter().all(|ended| *ended), "{ended:?}");
}

#[test]
fn a_body_that_nobody_takes_causes_no_second_answer() {
    let limits = Limits { head_timeout_ms: 300, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    for body in ["x", &"x".repeat(300_000)] {
        let mut client = server.connect();
        client.send(announces("/ignore-keeps", 1 << 20) + body);
        assert_eq!(client.rest(), "200 ignored", "{}", body.len());
    }
}

#[test]
fn a_body_has_its_time_from_when_it_is_wanted() {
    let limits = Limits { head_timeout_ms: 600, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(announces("/upload-later/1", 6) + "abc");
    std::thread::sleep(Duration::from_millis(1_500));
    server.signal.send_replace(1);
    std::thread::sleep(Duration::from_millis(250));
    client.send("abc");
    assert_eq!(client.answer(), "200 (6, 588) Some(6)");
}
