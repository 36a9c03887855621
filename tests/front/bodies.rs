//! Long bodies, both ways, against real nginx, Express and real sockets: complete, in memory that does
//! not grow with them, and never shortened unnoticed.
//!
//! Bodies have 64 MiB, or `FOREBAY_BODY_MIB` (1024 in `make test-bodies`).

use super::Front;
use super::upstream::{Express, Nginx, Scripted};
use forebay_tests::{Client, wait_for};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

const MIB: u64 = 1 << 20;
/// How much more memory the server may use, whatever the length of a body: buffers of two connections, and
/// memory that the allocator retains.
const MEMORY_MIB: u64 = 24;

fn body_bytes() -> u64 {
    let mib = std::env::var("FOREBAY_BODY_MIB")
        .map_or(64, |text| text.parse().expect("FOREBAY_BODY_MIB is a number"));
    mib * MIB
}

/// The server's current and highest resident memory, in MiB.
fn memory_mib(front: &Front) -> (u64, u64) {
    let path = format!("/proc/{}/status", front.server.pid());
    let status = std::fs::read_to_string(path).expect("the server runs");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a field of Linux");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("kB") / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn front(upstream: SocketAddr, more: &str) -> Front {
    Front::start(&format!(
        "[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{upstream}'\nbody = '4GiB'\n{more}"
    ))
}

/// The bytes of a long body from a position on, so that a missing or doubled piece is found.
fn pattern(from: u64, count: usize) -> Vec<u8> {
    (from..from + count as u64).map(|at| (at % 65_521 % 251) as u8).collect()
}

/// Reads an answer of that many bytes and checks each.
fn check_body(client: &mut Client, size: u64, mut head: Vec<u8>) {
    let mut stream = client.stream();
    let mut buffer = vec![0; 256 * 1024];
    let end = loop {
        match head.windows(4).position(|four| four == b"\r\n\r\n") {
            Some(at) => break at + 4,
            None => {
                let count = stream.read(&mut buffer).expect("an answer");
                assert!(count > 0, "cut off in the head");
                head.extend_from_slice(&buffer[..count]);
            }
        }
    };
    let text = String::from_utf8_lossy(&head[..end]).into_owned();
    assert!(
        text.starts_with("HTTP/1.1 200 ")
            && text.to_lowercase().contains(&format!("content-length: {size}\r\n")),
        "{text}"
    );
    let mut at = (head.len() - end) as u64;
    assert!(head[end..] == pattern(0, head.len() - end));
    while at < size {
        let count = stream.read(&mut buffer).expect("more of it");
        assert!(count > 0, "cut off after {at} of {size} bytes");
        assert!(buffer[..count] == pattern(at, count), "other bytes at {at}");
        at += count as u64;
    }
    assert_eq!(at, size);
}

/// Sends a body of that many bytes.
fn send_body(client: &mut Client, size: u64, chunked: bool) {
    let mut at = 0;
    while at < size {
        let piece = pattern(at, 128 * 1024);
        if chunked {
            client.send(format!("{:x}\r\n", piece.len()).as_bytes()).expect("it is taken");
        }
        client.send(&piece).expect("it is taken");
        if chunked {
            client.send(b"\r\n").expect("it is taken");
        }
        at += piece.len() as u64;
    }
    if chunked {
        client.send(b"0\r\n\r\n").expect("it is taken");
    }
}

#[test]
fn a_long_download_from_nginx_in_constant_memory() {
    let size = body_bytes();
    let nginx = Nginx::start(&[]);
    let mut file = std::fs::File::create(nginx.folder().join("long.bin")).expect("a file");
    let mut at = 0;
    while at < size {
        file.write_all(&pattern(at, MIB as usize)).expect("room on the disk");
        at += MIB;
    }
    let front = front(nginx.address, "");
    let mut client = front.server.client();
    client.get("/missing");
    let (before, _) = memory_mib(&front);
    client.send(b"GET /long.bin HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
    check_body(&mut client, size, Vec::new());
    let (_, most) = memory_mib(&front);
    assert!(most <= before + MEMORY_MIB, "{before} MiB before, {most} MiB at most");
    assert_eq!(client.get("/missing").status, 404, "the connection goes on");
}

#[test]
fn a_long_upload_to_nginx_in_constant_memory() {
    let size = body_bytes();
    let nginx = Nginx::start(&[]);
    let front = front(nginx.address, "timeout = '120s'");
    let mut client = front.server.client();
    client.get("/missing");
    let (before, _) = memory_mib(&front);
    for (name, chunked) in [("length.bin", false), ("chunks.bin", true)] {
        let framing =
            if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {size}") };
        client
            .send(format!("PUT /put/{name} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes())
            .expect("a live socket");
        send_body(&mut client, size, chunked);
        assert_eq!(client.receive(false).expect("an answer").status, 201, "{name}");
        let mut direct = Client::connect(nginx.address).expect("nginx");
        direct
            .send(format!("GET /put/{name} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .expect("a live socket");
        check_body(&mut direct, size, Vec::new());
    }
    let (_, most) = memory_mib(&front);
    assert!(most <= before + MEMORY_MIB, "{before} MiB before, {most} MiB at most");
}

#[test]
fn long_bodies_from_and_to_express_in_constant_memory() {
    let size = body_bytes();
    let express = Express::start();
    let front = front(express.address, "timeout = '120s'");
    let mut client = front.server.client();
    assert_eq!(client.get("/missing").status, 404);
    let (before, _) = memory_mib(&front);
    client.send(format!("GET /long/{size} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("a live socket");
    check_body(&mut client, size, Vec::new());
    for framing in [format!("Content-Length: {size}"), "Transfer-Encoding: chunked".to_owned()] {
        client
            .send(format!("PUT /long HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes())
            .expect("a live socket");
        send_body(&mut client, size, framing.contains("chunked"));
        let answer = client.receive(false).expect("an answer");
        let expected = serde_json::json!({ "bytes": size, "wrong": false });
        assert_eq!((answer.status, answer.json()), (200, expected), "{framing}");
    }
    let (_, most) = memory_mib(&front);
    assert!(most <= before + MEMORY_MIB, "{before} MiB before, {most} MiB at most");
}

#[test]
fn express_that_dies_in_the_middle_breaks_the_answer() {
    const SIZE: usize = 4_000_000;
    let express = Express::start();
    let front = front(express.address, "");
    let mut client = front.server.client();
    client.send(format!("GET /dies/{SIZE} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("a live socket");
    let mut bytes = Vec::new();
    let ended = client.stream().read_to_end(&mut bytes);
    assert!((1_000..SIZE).contains(&bytes.len()), "{} bytes, {ended:?}", bytes.len());
    front.server.client().get("/long/5").expect_problem(502, "");
}

/// An upstream for one connection that announces that many bytes, sends half of them and closes.
fn dying(size: u64, framing: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("one connection");
        let mut request = [0; 4096];
        let _read = stream.read(&mut request).expect("a request");
        let head = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
        let sent = stream.write_all(head.as_bytes()).and_then(|()| {
            let half = pattern(0, (size / 2) as usize);
            match framing.contains("chunked") {
                true => half.chunks(50_000).try_for_each(|chunk| {
                    stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
                    stream.write_all(chunk)?;
                    stream.write_all(b"\r\n")
                }),
                false => stream.write_all(&half),
            }
        });
        sent.expect("the proxy takes it");
    });
    address
}

#[test]
fn an_upstream_that_dies_in_the_middle_breaks_the_answer() {
    for framing in ["Content-Length: 4000000", "Transfer-Encoding: chunked"] {
        let front = front(dying(4_000_000, framing), "");
        let mut client = front.server.client();
        client.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
        let mut bytes = Vec::new();
        // A reset is an error; an orderly end is an incomplete body.
        let ended = client.stream().read_to_end(&mut bytes);
        let is_whole = bytes.ends_with(b"0\r\n\r\n") || bytes.len() >= 4_000_000;
        assert!(!is_whole && bytes.len() > 1_000, "{framing}: {} bytes, {ended:?}", bytes.len());
    }
}

#[test]
fn an_upstream_that_falls_silent_in_the_middle_breaks_the_answer() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let receiver = std::sync::Mutex::new(receiver);
    let upstream = Scripted::new(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").expect("it is taken");
        // Waits until the test is over.
        let _over = receiver.lock().expect("one script").recv();
        false
    });
    let front = front(upstream.address, "silence_timeout = '200ms'");
    let mut client = front.server.client();
    client.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
    let error = client.receive(false).expect_err("half an answer is none");
    assert!(error.kind() != std::io::ErrorKind::WouldBlock, "{error}");
    drop(sender);
}

#[test]
fn a_client_that_goes_away_in_the_middle_of_its_body_leaves_no_short_one() {
    let upstream = Scripted::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let front = front(upstream.address, "");
    for framing in ["Content-Length: 1000000", "Transfer-Encoding: chunked"] {
        let mut client = front.server.client();
        client
            .send(format!("POST /a HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes())
            .expect("a live socket");
        client.send(b"5\r\nhello\r\n").expect("a live socket");
        drop(client);
    }
    // A later request is served, and only that request was complete.
    let mut client = front.server.client();
    assert_eq!(client.post_json("/a", "{}").text(), "ok");
    let seen = upstream.seen();
    assert!(seen.iter().all(|seen| seen.body == b"{}"), "{seen:?}");
}

#[test]
fn a_slow_upstream_slows_the_client_down() {
    let size = 64 * MIB;
    // The upstream reads the head, and nothing more until the test says so.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (go, told) = std::sync::mpsc::channel::<()>();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("one connection");
        told.recv().expect("the test goes on");
        let (mut buffer, mut bytes) = (vec![0; 1 << 20], Vec::new());
        let mut total = 0;
        while total < size {
            let count = stream.read(&mut buffer).expect("more");
            assert!(count > 0, "cut off");
            match bytes.windows(4).position(|four: &[u8]| four == b"\r\n\r\n") {
                Some(_) => total += count as u64,
                None => {
                    bytes.extend_from_slice(&buffer[..count]);
                    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
                    total += end.map_or(0, |end| (bytes.len() - end - 4) as u64);
                }
            }
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").expect("it is taken");
    });
    let front = front(address, "timeout = '120s'");
    let mut client = front.server.client();
    let (before, _) = memory_mib(&front);
    client
        .send(format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n").as_bytes())
        .expect("a live socket");
    client.stream().set_nonblocking(true).expect("a live socket");
    let (piece, mut sent, mut stuck) = (vec![1; MIB as usize], 0u64, 0);
    while stuck < 20 {
        let mut stream: &TcpStream = client.stream();
        match stream.write(&piece[..piece.len().min((size - sent) as usize)]) {
            Ok(count) => (sent, stuck) = (sent + count as u64, 0),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                stuck += 1;
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent < size, "all of it was taken, and nobody reads it");
    let (_, most) = memory_mib(&front);
    assert!(most <= before + MEMORY_MIB, "{before} MiB before, {most} MiB at most");
    client.stream().set_nonblocking(false).expect("a live socket");
    go.send(()).expect("the upstream waits");
    while sent < size {
        let count = piece.len().min((size - sent) as usize);
        client.send(&piece[..count]).expect("it is taken");
        sent += count as u64;
    }
    assert_eq!(client.receive(false).expect("an answer").text(), "ok");
    upstream.join().expect("the upstream has seen all of it");
}

/// An upstream for one connection that answers after the head of the request, and then reads the body
/// to its end.
fn answering_early(answer: &'static [u8], size: u64) -> (SocketAddr, std::thread::JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("one connection");
        let mut bytes = Vec::new();
        while !bytes.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            bytes.extend(byte);
        }
        stream.write_all(answer).expect("it is taken");
        let mut body = vec![0; size as usize];
        stream.read_exact(&mut body).expect("the whole body");
        assert!(body == pattern(0, size as usize), "other bytes");
        stream
    });
    (address, upstream)
}

#[test]
fn an_upload_goes_on_behind_an_early_answer() {
    const SIZE: u64 = 4 * MIB;
    let (address, upstream) = answering_early(b"HTTP/1.1 202 Taken\r\nContent-Length: 2\r\n\r\nok", SIZE);
    let front = front(address, "");
    let mut client = front.server.client();
    client
        .send(format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n").as_bytes())
        .expect("a live socket");
    let answer = client.receive(false).expect("an answer before the body");
    assert_eq!((answer.status, answer.text()), (202, "ok"));
    send_body(&mut client, SIZE, false);
    let mut again = upstream.join().expect("the upstream has seen all of it");
    // Both connections stay usable.
    client.send(b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n").expect("a live socket");
    let mut request = [0; 1024];
    let count = again.read(&mut request).expect("the next request");
    assert!(request[..count].starts_with(b"GET /b HTTP/1.1\r\n"));
    again.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain").expect("it is taken");
    assert_eq!(client.receive(false).expect("an answer").text(), "again");
}

#[test]
fn an_answer_may_follow_its_request_piece_by_piece() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let front = front(listener.local_addr().expect("bound"), "");
    let mut client = front.server.client();
    client.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n").expect("a live socket");
    let (mut upstream, _) = listener.accept().expect("one connection");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        upstream.read_exact(&mut byte).expect("a head");
        head.extend(byte);
    }
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n").expect("it is taken");
    let mut client_head = Vec::new();
    while !client_head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.stream().read_exact(&mut byte).expect("a head");
        client_head.extend(byte);
    }
    for piece in ["0123456789", "abcdefghij", "ABCDEFGHIJ", "----------"] {
        let mut seen = [0; 10];
        client.send(piece.as_bytes()).expect("it is taken");
        upstream.read_exact(&mut seen).expect("it comes through");
        upstream.write_all(&seen).expect("it is taken");
        client.stream().read_exact(&mut seen).expect("it comes back");
        assert_eq!(seen, piece.as_bytes());
    }
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    let upstream = Scripted::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let config =
        format!("[[endpoint]]\nroute = 'POST /a'\nproxy = 'http://{}'\nbody = '2MiB'", upstream.address);
    let front = Front::start(&config);
    let mut client = front.server.client();
    client.send(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2097153\r\n\r\n").expect("a live socket");
    client.receive(false).expect("an answer").expect_problem(413, "too large");
    let mut client = front.server.client();
    client.send(b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").expect("a live socket");
    client.send(b"200001\r\n").expect("a live socket");
    client.receive(false).expect("an answer").expect_problem(413, "too large");
    // More than [server.limits] allows elsewhere, and within the limit of this endpoint.
    let body = "x".repeat(2 << 20);
    let mut client = front.server.client();
    assert_eq!(client.post_json("/a", &body).text(), "ok");
    wait_for("the upstream has it whole", || {
        upstream.seen().iter().any(|seen| seen.body.len() == body.len()).then_some(())
    });
}

/// Path, query and header stay as they are: only members of the body are refused.
#[test]
fn a_strict_body_has_only_what_the_endpoint_reads() {
    let front = Front::start(
        "[table.notes]\ncolumns = { id = 'bigint key', text = 'text', by = 'text null' }\n\
         [[endpoint]]\nroute = 'PUT /notes/{id}'\nupsert = 'notes'\nbody = 'strict'\n\
         headers = { X-By = 'by' }\nparams = { by = 'text?' }\nvalues = { text = '$text', by = '$by' }\n\
         [[endpoint]]\nroute = 'PUT /loose/{id}'\nupsert = 'notes'\nbody = 'any'\nvalues = { text = '$text' }\n\
         [[endpoint]]\nroute = 'POST /none'\nsql = 'SELECT 1 AS one'\nbody = 'strict'\n\
         [[endpoint]]\nroute = 'GET /api'\nopenapi = true\n",
    );
    let mut client = front.server.client();
    let mut put = |path: &str, body: &str| {
        client
            .call("PUT", path, &[("Content-Type", "application/json"), ("X-By", "ann")], Some(body))
            .expect("an answer")
    };
    put("/notes/1", r#"{"text":"a"}"#).expect(200);
    put("/notes/1?other=1", r#"{"text":"a"}"#).expect(200);
    put("/notes/1", r#"{"text":"a","txet":"b"}"#).expect_problem(400, "`txet` is no field of the body here");
    put("/notes/1", r#"{"text":"a","id":2}"#).expect_problem(400, "`id` is no field");
    put("/notes/1", r#"{"text":"a","by":"eve"}"#).expect_problem(400, "`by` is no field");
    put("/loose/1", r#"{"text":"a","txet":"b"}"#).expect(200);
    let mut client = front.server.client();
    client.ask("POST", "/none", Some("{}")).expect(200);
    client.ask("POST", "/none", None).expect(200);
    client
        .ask("POST", "/none", Some(r#"{"a":1}"#))
        .expect_problem(400, "`a` is no field of the body here (there are none)");
    let document = client.get("/api").json();
    let schema = |path: &str| {
        document["paths"][path]["put"]["requestBody"]["content"]["application/json"]["schema"]["additionalProperties"].clone()
    };
    assert_eq!((schema("/notes/{id}"), schema("/loose/{id}").is_null()), (false.into(), true));
}
