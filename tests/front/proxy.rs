//! `proxy`: which parts of a request reach the upstream, which parts of its answer reach the client, and
//! what happens when the upstream is unreachable.

use super::Front;
use super::upstream::{Nginx, Scripted};
use forebay_tests::{Client, free_port, wait_for};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

fn config(upstreams: &[SocketAddr], more: &str) -> String {
    let upstreams: Vec<_> = upstreams.iter().map(|address| format!("'http://{address}'")).collect();
    format!(
        "[[endpoint]]\nroute = '* /shop/{{path...}}'\nproxy = [{}]\n{more}\n\
         [[endpoint]]\nroute = 'GET /shop/own'\nconstant = {{ own = true }}\n",
        upstreams.join(", ")
    )
}

fn plain(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Answers 200 `ok` to everything.
fn ok() -> Scripted {
    Scripted::new(|_, stream| stream.write_all(plain("200 OK", "ok").as_bytes()).is_ok())
}

/// An address without a listener.
fn nobody() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

#[test]
fn every_method_goes_through_with_its_path_query_fields_and_body() {
    let upstream = Scripted::new(|seen, stream| {
        let answer = format!(
            "HTTP/1.1 201 Made\r\nContent-Length: {}\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nETag: \"x\"\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nKeep-Alive: timeout=5\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n\r\n",
            if seen.head.starts_with("HEAD") { 5 } else { seen.body.len() }
        );
        stream.write_all(answer.as_bytes()).is_ok() && stream.write_all(&seen.body).is_ok()
    });
    let front = Front::start(&config(&[upstream.address], ""));
    let mut client = front.server.client();
    for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let headers =
            [("X-Own", "é"), ("Connection", "X-Mine"), ("X-Mine", "1"), ("X-Forwarded-For", "6.6.6.6")];
        let body = (method != "GET").then_some("{\"a\":1}");
        let answer = client.call(method, "/shop/a%20b/c?d=e&f=%2F", &headers, body).expect("an answer");
        assert_eq!((answer.status, answer.text()), (201, body.unwrap_or("")), "{method}: {answer:?}");
        let cookies: Vec<_> = answer.headers.iter().filter(|(name, _)| name == "set-cookie").collect();
        assert_eq!(cookies.len(), 2, "{answer:?}");
        assert_eq!(answer.header("etag"), Some("\"x\""));
        assert_eq!(answer.header("date"), Some("Sun, 06 Nov 1994 08:49:37 GMT"), "the upstream's own");
        assert!(answer.header("x-hop").is_none() && answer.header("keep-alive").is_none(), "{answer:?}");
        let seen = upstream.seen().pop().expect("a request");
        assert!(seen.head.starts_with(&format!("{method} /shop/a%20b/c?d=e&f=%2F HTTP/1.1\r\n")), "{seen:?}");
        assert_eq!(seen.header("host"), Some("localhost"), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-host"), Some("localhost"), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"), "{seen:?}");
        assert_eq!(seen.header("forwarded"), Some("for=127.0.0.1;host=\"localhost\";proto=http"), "{seen:?}");
        assert!(seen.header("x-mine").is_none() && seen.head.contains("x-own: é"), "{seen:?}");
        assert_eq!(seen.body, body.unwrap_or("").as_bytes());
    }
    let head = client.ask("HEAD", "/shop/a", None);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (201, Some("5"), 0));
    assert!(upstream.connections() < 4, "connections are kept: {}", upstream.connections());
    client.get("/shop/own").expect(200);
    assert_eq!(
        client.ask("POST", "/shop/own", Some("{}")).status,
        201,
        "what has no endpoint of its own goes through"
    );
    client.ask("TRACE", "/shop/a", None).expect_problem(405, "");
    client.get("/elsewhere").expect_problem(404, "");
    let before = upstream.seen().len();
    for path in ["/shop/../admin", "/shop/%2e%2e/admin", "/shop/.%2e/admin"] {
        client.get(path).expect_problem(404, "there is nothing here");
    }
    for path in ["/shop/..%2fadmin", "/shop/..%5cadmin", "/shop/..;/admin"] {
        client.get(path).expect_problem(400, "dots");
    }
    client.get("/shop/a%2Fb").expect_problem(400, "an encoded slash");
    assert_eq!(upstream.seen().len(), before);
}

#[test]
fn a_front_that_is_trusted_is_added_to() {
    let upstream = ok();
    let front = Front::start(&config(&[upstream.address], "forwarded = 'append'\nhost = 'upstream'"));
    let headers = [
        ("X-Forwarded-For", "6.6.6.6, 7.7.7.7"),
        ("X-Forwarded-Proto", "https"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    let answer = front.server.client().call("GET", "/shop/a", &headers, None).expect("an answer");
    assert_eq!(answer.text(), "ok");
    let seen = upstream.seen().pop().expect("a request");
    assert_eq!(seen.header("x-forwarded-for"), Some("6.6.6.6, 7.7.7.7, 127.0.0.1"));
    assert_eq!(seen.header("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.header("host"), Some(upstream.address.to_string().as_str()));
    assert_eq!(seen.header("forwarded"), Some("for=6.6.6.6, for=127.0.0.1;host=\"localhost\";proto=http"));
}

#[test]
fn interim_answers_are_not_the_answer() {
    let upstream = Scripted::new(|_, stream| {
        let bytes = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n{}",
            plain("200 OK", "ok")
        );
        stream.write_all(bytes.as_bytes()).is_ok()
    });
    let front = Front::start(&config(&[upstream.address], ""));
    let mut client = front.server.client();
    for _ in 0..3 {
        let answer = client.get("/shop/a");
        assert_eq!((answer.status, answer.text(), answer.header("link")), (200, "ok", None));
    }
}

#[test]
fn answers_without_bodies_have_none() {
    let upstream = Scripted::new(|seen, stream| {
        let status = seen.head.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).expect("a path");
        let length = if status == "304" { "Content-Length: 10\r\n" } else { "" };
        stream.write_all(format!("HTTP/1.1 {status} X\r\n{length}\r\n").as_bytes()).is_ok()
    });
    let front = Front::start(&config(&[upstream.address], ""));
    let mut client = front.server.client();
    for status in [204, 304, 204, 304] {
        let answer = client.get(&format!("/shop/{status}"));
        assert_eq!((answer.status, answer.body.len(), answer.header("content-length")), (status, 0, None));
        assert_eq!(answer.header("transfer-encoding"), None);
    }
}

#[test]
fn an_upstream_that_is_away_is_a_problem_each_time() {
    let away = nobody();
    let front = Front::start(&config(&[away], "retries = 0"));
    let mut client = front.server.client();
    for _ in 0..5 {
        client.get("/shop/a").expect_problem(502, "cannot be reached");
    }
    client.get("/shop/own").expect(200);
    // The upstream receives requests again as soon as it listens.
    let back = TcpListener::bind(away).expect("the port is free again");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = back.accept().expect("it is asked");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a request");
            request.extend(byte);
        }
        stream.write_all(plain("200 OK", "back").as_bytes()).expect("a live socket");
    });
    assert_eq!(client.get("/shop/a").text(), "back");
    answering.join().expect("it answers");
}

#[test]
fn a_failing_url_took_the_others_of_a_sole_upstream_with_it() {
    for count in [1, 2] {
        let upstream = || {
            Scripted::new(|seen, stream| {
                !seen.head.contains("/bad") && stream.write_all(plain("200 OK", "ok").as_bytes()).is_ok()
            })
        };
        let upstreams: Vec<Scripted> = std::iter::repeat_with(upstream).take(count).collect();
        let addresses: Vec<_> = upstreams.iter().map(|upstream| upstream.address).collect();
        let front = Front::start(&config(&addresses, ""));
        let mut client = front.server.client();
        for i in 0..40 {
            client.get("/shop/bad").expect_problem(502, "cannot be reached");
            assert_eq!(client.get("/shop/good").text(), "ok", "{i} of {count}");
        }
    }
}

#[test]
fn an_upstream_that_fails_its_health_check_is_not_asked() {
    let ill = Scripted::saying(plain("500 Ill", "ill"));
    let front = Front::start(&config(&[ill.address], "health = '/healthz'"));
    let mut client = front.server.client();
    wait_for("it is out", || (client.get("/shop/a").status == 503).then_some(()));
    let answer = client.get("/shop/a");
    answer.expect_problem(503, "not available");
    let wait_s: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((1..=6).contains(&wait_s), "{answer:?}");
    // An upload of any length is refused just as fast.
    client
        .send(b"POST /shop/a HTTP/1.1\r\nHost: a\r\nContent-Length: 500000000\r\n\r\nabc")
        .expect("a live socket");
    let answer = client.receive(false).expect("an answer");
    answer.expect_problem(503, "not available");
    assert_eq!(answer.header("connection"), Some("close"), "{answer:?}");
}

#[test]
fn an_upstream_that_says_nothing_is_a_timeout() {
    let upstream = Scripted::holding();
    let front = Front::start(&config(&[upstream.address], "timeout = '200ms'"));
    front.server.client().get("/shop/a").expect_problem(504, "in time");
}

#[test]
fn one_upstream_stands_in_for_another() {
    let (first, second) = (ok(), ok());
    let front = Front::start(&config(&[first.address, nobody(), second.address], ""));
    let mut client = front.server.client();
    for i in 0..30 {
        // Nothing was sent to the unreachable upstream, so any method may be retried.
        let answer = if i % 2 == 0 { client.get("/shop/a") } else { client.post_json("/shop/a", "{}") };
        assert_eq!(answer.text(), "ok", "{i}");
    }
    let counts = (first.seen().len(), second.seen().len());
    assert!(counts.0 >= 5 && counts.1 >= 5 && counts.0 + counts.1 == 30, "{counts:?}");
}

/// An upstream that closes its first connection and answers on later ones.
fn closing_once() -> Scripted {
    let is_first = std::sync::atomic::AtomicBool::new(true);
    Scripted::new(move |_, stream| {
        !is_first.swap(false, std::sync::atomic::Ordering::SeqCst)
            && stream.write_all(plain("200 OK", "ok").as_bytes()).is_ok()
    })
}

#[test]
fn only_what_may_be_done_twice_is_sent_again() {
    for (method, body, is_again) in [
        ("GET", None, true),
        ("PUT", Some("{}"), true),
        ("DELETE", None, true),
        ("POST", Some("{}"), false),
        ("PATCH", Some("{}"), false),
    ] {
        let upstream = closing_once();
        let front = Front::start(&config(&[upstream.address], ""));
        let answer = front.server.client().ask(method, "/shop/a", body);
        let asked = upstream.seen().len();
        match is_again {
            true => assert_eq!((answer.text(), asked), ("ok", 2), "{method}"),
            false => {
                answer.expect_problem(502, "");
                assert_eq!(asked, 1, "{method}");
            }
        }
    }
    // A body that is still arriving cannot be sent again.
    let upstream = closing_once();
    let front = Front::start(&config(&[upstream.address], ""));
    let mut client = front.server.client();
    client.send(b"PUT /shop/a HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\nabc").expect("a live socket");
    wait_for("the upstream is asked", || (upstream.connections() == 1).then_some(()));
    client.send(b"abc").expect("a live socket");
    client.receive(false).expect("an answer").expect_problem(502, "");
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn health_checks_take_an_upstream_out_and_back() {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    static IS_WELL: AtomicBool = AtomicBool::new(false);
    let ill = Scripted::new(|seen, stream| {
        let bad = seen.head.starts_with("GET /healthz") && !IS_WELL.load(SeqCst);
        stream.write_all(plain(if bad { "500 Ill" } else { "200 OK" }, "ill").as_bytes()).is_ok()
    });
    let well = ok();
    let front = Front::start(&config(&[ill.address, well.address], "health = '/healthz'"));
    let mut client = front.server.client();
    let mut one_after_another = |wanted: &str| {
        wait_for(wanted, || {
            let texts: Vec<String> = (0..6).map(|_| client.get("/shop/a").text().to_owned()).collect();
            (texts.iter().any(|text| text == "ill") == (wanted == "both")).then_some(())
        });
    };
    one_after_another("only the one that is well");
    IS_WELL.store(true, SeqCst);
    one_after_another("both");
}

#[test]
fn nginx_is_passed_on_as_it_is() {
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let nginx = Nginx::start(&[("a.txt", b"some text"), ("large.bin", &bytes), ("empty.txt", b"")]);
    let config = format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'", nginx.address);
    let front = Front::start(&config);
    let (mut client, mut direct) = (front.server.client(), Client::connect(nginx.address).expect("nginx"));
    for target in ["/a.txt", "/empty.txt", "/large.bin", "/missing", "/moved"] {
        for method in ["GET", "HEAD"] {
            let (through, own) = (client.ask(method, target, None), direct.ask(method, target, None));
            assert_eq!((through.status, &through.body), (own.status, &own.body), "{method} {target}");
            for name in
                ["content-length", "content-type", "etag", "last-modified", "location", "accept-ranges"]
            {
                assert_eq!(through.header(name), own.header(name), "{name} of {method} {target}");
            }
        }
    }
    let etag = client.get("/a.txt").header("etag").expect("a tag").to_owned();
    let same = client.call("GET", "/a.txt", &[("If-None-Match", &etag)], None).expect("an answer");
    assert_eq!((same.status, same.body.len()), (304, 0));
    let part = client.call("GET", "/large.bin", &[("Range", "bytes=1000-1999")], None).expect("an answer");
    assert_eq!((part.status, part.body.as_slice()), (206, &bytes[1000..2000]));
    let said = client.get("/say");
    assert_eq!(said.text(), "GET localhost 127.0.0.1 1.1 forebay ");
    // Pipelined, in order, over several connections to nginx.
    let targets = ["/large.bin", "/a.txt", "/missing", "/large.bin"];
    let requests: Vec<_> =
        targets.iter().map(|target| forebay_tests::request_bytes("GET", target, &[], None)).collect();
    client.send(&requests.concat()).expect("a live socket");
    for target in targets {
        assert_eq!(
            client.receive(false).expect("an answer").body,
            direct.get(target).body.clone(),
            "{target}"
        );
    }
}
