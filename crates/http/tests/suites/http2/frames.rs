//! Frames that no client library sends: floods, which end their connection, and broken prefaces.

use super::*;

/// The preface and settings of a client.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// `GET path` from the static table, with an authority `a`.
fn head_block(path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x41, 1, b'a', 0x44, u8::try_from(path.len()).expect("short")];
    block.extend(path.as_bytes());
    block
}

/// Sends the bytes of `flood` again and again until the server ends the connection; returns the reasons of
/// its GOAWAY frames.
fn flooded(server: &TestServer, rounds: u32, mut flood: impl FnMut(u32) -> Vec<u8>) -> Vec<u32> {
    let mut client = server.connect();
    client.send(HELLO);
    let mut writer = client.stream.try_clone().expect("a live socket");
    let sending: Vec<Vec<u8>> = (0..rounds).map(&mut flood).collect();
    let sender = std::thread::spawn(move || {
        for bytes in sending {
            if std::io::Write::write_all(&mut writer, &bytes).is_err() {
                return;
            }
        }
    });
    let mut bytes = Vec::new();
    // A reset may cut the frames off.
    let _end = client.stream.read_to_end(&mut bytes);
    sender.join().expect("no panic");
    let (mut reasons, mut rest) = (Vec::new(), &bytes[..]);
    while let [a, b, c, kind, _, _, _, _, _, after @ ..] = rest {
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some((payload, after)) = after.split_at_checked(length) else { break };
        if *kind == 7 {
            reasons.push(u32::from_be_bytes(payload[4..8].try_into().expect("four bytes")));
        }
        rest = after;
    }
    reasons
}

const ENHANCE_YOUR_CALM: u32 = 11;

#[test]
fn floods_end_their_own_connection() {
    let server = TestServer::default();
    let ping = |_| frame(6, 0, 0, &[0; 8]).repeat(100);
    assert_eq!(flooded(&server, 2_000, ping), [ENHANCE_YOUR_CALM], "pings");
    let settings = |_| frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]).repeat(100);
    assert_eq!(flooded(&server, 2_000, settings), [ENHANCE_YOUR_CALM], "settings");
    let priorities = |_| frame(2, 0, 1, &[0, 0, 0, 0, 9]).repeat(100);
    assert_eq!(flooded(&server, 2_000, priorities), [ENHANCE_YOUR_CALM], "priorities");
    let unknown = |_| frame(0x77, 0, 0, &[0; 100]).repeat(100);
    assert_eq!(flooded(&server, 2_000, unknown), [ENHANCE_YOUR_CALM], "unknown frames");
    let reset_at_once = |round: u32| {
        let pair =
            |id: u32| [frame(1, 5, id, &head_block("/later/9")), frame(3, 0, id, &[0, 0, 0, 8])].concat();
        (0..50).flat_map(|number| pair((round * 50 + number) * 2 + 1)).collect()
    };
    assert_eq!(flooded(&server, 1_000, reset_at_once), [ENHANCE_YOUR_CALM], "streams that are reset at once");
    let mut client = server.connect();
    client.send(get("/echo"));
    assert_eq!(client.answer(), "200 GET /echo []", "nobody else is hurt");
    wait_until("they are gone", || server.stats.total().connections == 1);
}

/// Each request is reset only after it was accepted.
#[test]
fn requests_that_are_reset_one_by_one_are_bounded() {
    let server = TestServer::default();
    run(async {
        let (mut requests, driving) = connect(&server).await;
        let mut count = 0;
        while let Ok(ready) = requests.clone().ready().await {
            requests = ready;
            let taken = server.stats.total().requests;
            let Ok((_response, mut send)) = requests.send_request(request(Method::GET, "/later/9"), true)
            else {
                break;
            };
            while server.stats.total().requests == taken && !driving.is_finished() {
                tokio::task::yield_now().await;
            }
            send.send_reset(Reason::CANCEL);
            count += 1;
            assert!(count < 1_000, "without end");
        }
        let error = driving.await.expect("no panic").expect_err("not a good end");
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM));
        assert!(count > 100, "{count} are no flood");
    });
}

#[test]
fn heads_without_an_end_are_bounded() {
    let server = TestServer::default();
    let literal = [&[0, 1, b'x', 100][..], &[b'y'; 100]].concat();
    let endless = |round: u32| match round {
        0 => frame(1, 1, 1, &head_block("/echo")),
        _ => frame(9, 0, 1, &literal.repeat(10)),
    };
    // GOAWAY with a reason, or an immediate end.
    let reasons = flooded(&server, 10_000, endless);
    assert!(reasons.iter().all(|reason| *reason != 0), "{reasons:?}");
    let empty = |round: u32| match round {
        0 => frame(1, 1, 1, &head_block("/echo")),
        _ => frame(9, 0, 1, &[]).repeat(100),
    };
    let reasons = flooded(&server, 10_000, empty);
    assert!(reasons.iter().all(|reason| *reason != 0), "{reasons:?}");
    wait_until("they are gone", || server.stats.total().connections == 0);
    assert_eq!(server.stats.total().requests, 0);
}

#[test]
fn empty_pieces_of_a_body_are_bounded() {
    let server = TestServer::default();
    let endless = |round: u32| match round {
        0 => [&[0x83][..], &head_block("/upload")[1..]].concat(),
        _ => Vec::new(),
    };
    let flood = |round: u32| match round {
        0 => frame(1, 4, 1, &endless(0)),
        _ => frame(0, 0, 1, &[]).repeat(100),
    };
    assert_eq!(flooded(&server, 10_000, flood), [ENHANCE_YOUR_CALM]);
}

/// A client that reads no answers, with the largest possible windows.
#[test]
fn answers_that_are_not_taken_are_bounded() {
    let limits = Limits { write_timeout_ms: 500, ..Limits::default() };
    let server = TestServer::start(limits, 1);
    let mut client = server.connect();
    client.send(HELLO);
    client.send(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
    client.send(frame(8, 0, 0, &[0x7f, 0, 0, 0]));
    let head = head_block("/big/100000");
    let all: Vec<u8> = (0..100_000).flat_map(|number| frame(1, 5, number * 2 + 1, &head)).collect();
    let mut writer = client.stream.try_clone().expect("a live socket");
    let sender = std::thread::spawn(move || drop(std::io::Write::write_all(&mut writer, &all)));
    wait_until("they come", || server.stats.total().requests > 0);
    wait_until("the connection is closed", || server.stats.total().connections == 0);
    let taken = server.stats.total().requests;
    assert!(taken * 100_000 < 64 << 20, "{taken} answers of 100 KB were made");
    drop(client);
    sender.join().expect("no panic");
}

#[test]
fn only_a_connection_that_begins_so_speaks_http_2() {
    let server = TestServer::default();
    let late = [get("/echo").as_bytes(), HELLO].concat();
    let refused = "505 only HTTP/1.0 and HTTP/1.1 are spoken here (close)";
    assert_eq!(server.exchange(&late), format!("200 GET /echo [] | {refused}"));
    let other = "PRI * HTTP/2.1\r\n\r\n";
    assert_eq!(server.exchange(other.as_bytes()), refused);
    // A preface may arrive in pieces; what follows it need not be HTTP/2.
    let mut client = server.connect();
    for byte in HELLO {
        client.send([*byte]);
    }
    let mut head = [0; 9];
    client.stream.read_exact(&mut head).expect("settings");
    assert_eq!(head[3], 4);
    assert!(flooded(&server, 1, |_| b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()).iter().all(|it| *it != 0));
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n");
    let mut rest = Vec::new();
    let _end = client.stream.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP"), "{rest:?}");
}

#[test]
fn a_preface_that_does_not_come_to_its_end_is_ended() {
    let server = TestServer::start(Limits { head_timeout_ms: 300, ..Limits::default() }, 1);
    for begin in [&HELLO[..14], &HELLO[..20]] {
        let mut client = server.connect();
        client.send(begin);
        let _end = client.stream.read_to_end(&mut Vec::new());
    }
    wait_until("they are gone", || server.stats.total().connections == 0);
}

/// WebSocket over HTTP/2 (RFC 8441) is not offered, so browsers open an HTTP/1.1 connection for it. A client
/// that asks anyway breaks the rules (section 3); only its stream is reset.
#[test]
fn extended_connect_is_not_offered_and_costs_its_stream() {
    let server = TestServer::default();
    run(async {
        let (mut requests, _driving) = connect(&server).await;
        assert!(!requests.is_extended_connect_protocol_enabled());
        let mut extended = request(Method::CONNECT, "/echo");
        extended.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
        let (response, _send) = requests.send_request(extended, false).expect("a request");
        let error = response.await.expect_err("a reset");
        assert_eq!(error.reason(), Some(Reason::PROTOCOL_ERROR), "{error}");
        assert_eq!(ask(&mut requests, Method::GET, "/echo").await, "200 GET /echo []");
    });
}

/// All cases of h2spec, including the strict ones. Without TLS, bytes that are no preface are HTTP/1, which
/// answers 400.
#[test]
fn h2spec_finds_nothing() {
    let server = TestServer::default();
    let folder = Command::new("go").args(["env", "GOPATH"]).output().expect("go is installed");
    let folder = String::from_utf8(folder.stdout).expect("a path");
    let port = server.listens.port().to_string();
    let mut command = Command::new(Path::new(folder.trim()).join("bin/h2spec"));
    command.args(["--strict", "--host", "127.0.0.1", "--port", &port, "--timeout", "10", "--path", "/echo"]);
    if is_secure() {
        command.args(["--tls", "--insecure"]);
    }
    let output = command.output().expect("scripts/install-tools installs h2spec");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, count) = said.rsplit_once("Finished").expect("a summary");
    let expected = if is_secure() { "146 tests, 146 passed" } else { "146 tests, 145 passed" };
    assert!(count.contains(expected), "{said}");
    let is_known = |line: &&str| !is_secure() && line.ends_with("2: Sends invalid connection preface");
    let failed = said.lines().filter(|line| line.contains('×') && !is_known(line)).count();
    assert_eq!(failed, 0, "{said}");
}
