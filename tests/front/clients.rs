//! The client's address behind proxies: which fields only trusted proxies may set, and what depends on
//! them.

use super::Front;
use super::upstream::{Nginx, Scripted};
use forebay_tests::{Answer, Client};
use std::io::{Read, Write};
use std::net::SocketAddr;

const GUARDED: &str = "[[endpoint]]\nroute = 'POST /generate'\nguard = { query = 'secret', secret = 'sesame', from = 'outside' }\n\
                       constant = { done = true }\nreply = { status = 202 }\n";
const TRUSTED: &str = "[server]\ntrusted_proxies = ['127.0.0.1', '10.0.0.0/8']\n";

fn post(address: SocketAddr, headers: &[(&str, &str)]) -> Answer {
    let mut client = Client::connect(address).expect("it listens");
    client.call("POST", "/generate", headers, None).expect("an answer")
}

/// The answer to bytes, up to the end of the connection.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    stream.write_all(bytes).expect("it reads");
    let mut answer = Vec::new();
    // A refused connection may be reset.
    let _ended = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_guard_against_outside_is_not_open_through_a_proxy_on_the_same_machine() {
    let front = Front::start(GUARDED);
    post(front.server.address, &[]).expect(202);
    for directives in [
        "",
        "proxy_set_header Host $http_host;",
        "proxy_http_version 1.1; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header X-Real-IP $remote_addr;",
        "proxy_http_version 1.1; proxy_set_header Host shop.example;",
        "proxy_http_version 1.1; proxy_set_header Forwarded \"for=$remote_addr\";",
    ] {
        let nginx = Nginx::before(front.server.address, directives);
        post(nginx.address, &[]).expect_problem(404, "nothing here");
        post(nginx.address, &[("X-Forwarded-For", "127.0.0.1"), ("Forwarded", "for=127.0.0.1")])
            .expect_problem(404, "nothing here");
    }
    // Each of these fields, which name another client, is believed.
    for field in ["X-Forwarded-For", "x-forwarded-proto", "Forwarded", "X-Real-IP", "Via"] {
        post(front.server.address, &[(field, "127.0.0.1")]).expect_problem(404, "nothing here");
    }
}

#[test]
fn nothing_is_local_that_comes_from_a_trusted_proxy() {
    let front = Front::start(&format!("{TRUSTED}{GUARDED}"));
    // In HTTP/1.1 with a loopback Host and no forwarding fields, nginx cannot be distinguished from a local
    // program.
    let nginx =
        Nginx::before(front.server.address, "proxy_http_version 1.1; proxy_set_header Connection '';");
    for address in [nginx.address, front.server.address] {
        for value in ["127.0.0.1", "::1", "unknown", "garbage"] {
            post(address, &[("X-Forwarded-For", value)]).expect_problem(404, "nothing here");
        }
        post(address, &[]).expect_problem(404, "nothing here");
    }
    for line in ["TCP4 127.0.0.1 127.0.0.1 1 2", "TCP6 ::1 ::1 1 2", "UNKNOWN"] {
        let request =
            "POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let text = exchange(front.server.address, format!("PROXY {line}\r\n{request}").as_bytes());
        assert!(text.starts_with("HTTP/1.1 404"), "{line}: {text}");
    }
}

#[test]
fn a_rate_per_ip_counts_the_client_behind_a_proxy() {
    let endpoint = "[[endpoint]]\nroute = 'GET /'\nconstant = {}\nrate = '2/h per ip'";
    let trusting = Front::start(&format!("{TRUSTED}{endpoint}"));
    let taken = |client: &mut Client, from: &str| {
        let ask = |_: &usize| {
            client.call("GET", "/", &[("X-Forwarded-For", from)], None).expect("an answer").status == 200
        };
        (0..4).filter(ask).count()
    };
    let mut client = trusting.server.client();
    for from in ["192.0.2.1", "192.0.2.2", "6.6.6.6, 192.0.2.3", "192.0.2.4, 10.9.9.9"] {
        assert_eq!(taken(&mut client, from), 2, "{from}");
    }
    assert_eq!(
        taken(&mut client, "7.7.7.7, 192.0.2.3"),
        0,
        "what a client writes before its address is nothing"
    );
    assert_eq!(taken(&mut client, "garbage"), 2, "clients that cannot be told apart share one count");
    assert_eq!(taken(&mut client, "unknown"), 0);
    let other = Front::start(endpoint);
    let mut client = other.server.client();
    assert_eq!(taken(&mut client, "192.0.2.1"), 2);
    assert_eq!(taken(&mut client, "192.0.2.2"), 0, "nobody is believed unless the config says so");
}

#[test]
fn an_app_behind_sees_the_client_that_a_trusted_proxy_names() {
    let app = Scripted::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let endpoint = format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'", app.address);
    let sent = [("X-Forwarded-For", "6.6.6.6, 192.0.2.1"), ("X-Forwarded-Proto", "https")];
    let named = |app: &Scripted| {
        let seen = app.seen();
        let last = seen.last().expect("it was asked");
        ["x-forwarded-for", "x-forwarded-proto", "forwarded"]
            .map(|name| last.header(name).unwrap_or_default().to_owned())
    };
    let trusting = Front::start(&format!("{TRUSTED}{endpoint}"));
    let nginx = Nginx::before(
        trusting.server.address,
        "proxy_set_header X-Forwarded-For \"$http_x_forwarded_for, 10.1.1.1\"; proxy_set_header X-Forwarded-Proto https;",
    );
    let answer = Client::connect(nginx.address).expect("it listens").call("GET", "/a", &sent[..1], None);
    assert_eq!(answer.expect("an answer").status, 200);
    assert_eq!(named(&app)[..2], ["192.0.2.1", "https"]);
    let other = Front::start(&endpoint);
    let answer = other.server.client().call("GET", "/a", &sent, None);
    assert_eq!(answer.expect("an answer").status, 200);
    assert_eq!(named(&app), ["127.0.0.1", "http", "for=127.0.0.1;host=\"localhost\";proto=http"]);
}

#[test]
fn an_answer_for_one_scheme_is_not_shown_to_the_other() {
    // The behaviour of many frameworks with `https only` switched on.
    let app = Scripted::new(|seen, stream| {
        let answer = match seen.header("x-forwarded-proto") {
            Some("https") => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            _ => {
                "HTTP/1.1 301 Moved Permanently\r\nLocation: https://shop.example/\r\nContent-Length: 0\r\n\r\n"
            }
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let front = Front::start(&format!(
        "{TRUSTED}[[endpoint]]\nroute = 'GET /'\nproxy = 'http://{}'\ncache = {{ local = '1m' }}\n\
         [[endpoint]]\nroute = 'GET /me'\ncache = {{ local = '1m' }}\nparams = {{ me = '{{base_url()}}/me' }}\n\
         sql = 'SELECT $me AS me'",
        app.address
    ));
    let mut client = front.server.client();
    for _ in 0..2 {
        for (scheme, status) in [("http", 301), ("https", 200)] {
            let answer = client.call("GET", "/", &[("X-Forwarded-Proto", scheme)], None);
            assert_eq!(answer.expect("an answer").status, status, "{scheme}");
        }
    }
    assert_eq!(app.seen().len(), 2, "each scheme was asked for once");
    for (scheme, expected) in [("http", "http://localhost/me"), ("https", "https://localhost/me")] {
        let answer = client.call("GET", "/me", &[("X-Forwarded-Proto", scheme)], None).expect("an answer");
        assert_eq!(answer.json()["me"], expected);
    }
}

#[test]
fn the_proxy_protocol_names_the_client_for_trusted_proxies_alone() {
    let app = Scripted::saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let endpoint = format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'", app.address);
    let trusting = Front::start(&format!("{TRUSTED}{endpoint}"));
    let request = b"GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 6.6.6.6\r\nConnection: close\r\n\r\n";
    let with = |header: &[u8]| exchange(trusting.server.address, &[header, request].concat());
    let named = || {
        let seen = app.seen();
        let last = seen.last().expect("it was asked");
        (
            last.header("x-forwarded-for").map(str::to_owned),
            last.header("x-forwarded-proto").map(str::to_owned),
        )
    };
    let named_is = |address: &str, scheme: &str| {
        assert_eq!(named(), (Some(address.to_owned()), Some(scheme.to_owned())));
    };
    assert!(with(b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n").ends_with("ok"));
    // The field is the client's own: the client is no trusted proxy.
    named_is("192.0.2.7", "http");
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x14\xc0\0\x02\x08\x0a\0\0\x01\x12\x67\0\x50".to_vec();
    binary.extend(b"\x20\0\x05\x01\0\0\0\0");
    assert!(with(&binary).ends_with("ok"));
    named_is("192.0.2.8", "https");
    assert!(with(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").ends_with("ok"), "the proxy asks for itself");
    named_is("6.6.6.6", "http");
    assert!(with(b"PROXY UNKNOWN\r\n").ends_with("ok"));
    named_is("unknown", "http");
    assert!(with(b"").ends_with("ok"), "a connection without a header goes on as it is");
    for malformed in [&b"PROXY TCP4 192.0.2.7\r\n"[..], b"\r\n\r\n\0\r\nQUIT\n\x31\0\0\0"] {
        assert_eq!(with(malformed), "", "{malformed:?}");
    }
    // A PROXY header that arrives byte by byte, and a request behind it.
    let mut stream = std::net::TcpStream::connect(trusting.server.address).expect("it listens");
    stream.set_nodelay(true).expect("a live socket");
    for byte in b"PROXY TCP4 192.0.2.9 10.0.0.1 4711 80\r\n".iter().chain(request) {
        stream.write_all(&[*byte]).expect("it reads");
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.ends_with("ok"), "{text}");
    named_is("192.0.2.9", "http");

    let other = Front::start(&endpoint);
    let text = exchange(
        other.server.address,
        &[&b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n"[..], request].concat(),
    );
    assert!(text.starts_with("HTTP/1.1 400"), "{text}");
}
