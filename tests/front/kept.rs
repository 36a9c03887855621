//! The cache in front of upstreams: what is cached and for how long, what is served from it, and one
//! request for all waiting clients.

use super::Front;
use super::upstream::{Nginx, Scripted, Seen};
use forebay_tests::{Answer, Client, request_bytes, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;

fn front(upstream: SocketAddr, more: &str) -> Front {
    Front::start(&format!(
        "[[endpoint]]\nroute = '* /shop/{{path...}}'\nproxy = 'http://{upstream}'\nretries = 0\nconcurrency = 5000\n{more}"
    ))
}

/// An upstream that answers 200 with the given fields and the number of the request.
fn numbered(fields: impl Fn(&Seen) -> String + Send + Sync + 'static) -> Scripted {
    let count = AtomicUsize::new(0);
    Scripted::new(move |seen, stream| {
        let body = format!("number {}", count.fetch_add(1, SeqCst) + 1);
        send(stream, "200 OK", &fields(seen), &body)
    })
}

fn send(stream: &mut TcpStream, status: &str, fields: &str, body: &str) -> bool {
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).is_ok()
}

/// The path of a request, without `/shop/`.
fn name(seen: &Seen) -> &str {
    seen.head.split(' ').nth(1).and_then(|path| path.strip_prefix("/shop/")).expect("a path of the shop")
}

#[track_caller]
fn text(client: &mut Client, target: &str) -> String {
    let answer = client.get(target);
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer.text().to_owned()
}

#[test]
fn what_the_upstream_says_counts() {
    const TABLE: &[(&str, bool)] = &[
        ("X-Nothing: said", true),
        ("Cache-Control: max-age=60", true),
        ("Cache-Control: max-age=60 , public\r\nAge: 30", true),
        ("Cache-Control: max-age=0, s-maxage=60", true),
        ("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nExpires: Sun, 06 Nov 1994 08:59:37 GMT", true),
        ("Vary: Accept-Encoding", true),
        ("Cache-Control: max-age=0", false),
        ("Cache-Control: max-age=60\r\nAge: 60", false),
        ("Cache-Control: no-cache", false),
        ("Cache-Control: max-age=60, no-store", false),
        ("Cache-Control: private", false),
        ("Expires: 0", false),
        ("Set-Cookie: a=b", false),
        ("Vary: *", false),
        ("Vary: User-Agent", false),
        ("Content-Encoding: gzip", false),
    ];
    let upstream = numbered(|seen| {
        let index: usize = name(seen).parse().expect("a number");
        format!("{}\r\n", TABLE[index].0)
    });
    let front = front(upstream.address, "cache = { local = '10m' }");
    let mut client = front.server.client();
    for (index, (fields, is_kept)) in TABLE.iter().enumerate() {
        let target = format!("/shop/{index}");
        let (first, second) = (text(&mut client, &target), text(&mut client, &target));
        assert_eq!(first == second, *is_kept, "{fields}: {first}, {second}");
    }
}

#[test]
fn what_has_ended_is_asked_for_again() {
    let upstream = numbered(|_| "Cache-Control: max-age=1\r\n".into());
    let front = front(upstream.address, "cache = { local = '10m' }");
    let mut client = front.server.client();
    let first = text(&mut client, "/shop/a");
    wait_for("it has ended", || (text(&mut client, "/shop/a") != first).then_some(()));
    assert!(upstream.seen().len() >= 2);
    // The config limits the time to live.
    let upstream = numbered(|_| "Cache-Control: max-age=1000\r\n".into());
    let front = self::front(upstream.address, "cache = { local = '200ms' }");
    let mut client = front.server.client();
    let first = text(&mut client, "/shop/a");
    wait_for("it has ended", || (text(&mut client, "/shop/a") != first).then_some(()));
}

#[test]
fn what_the_upstream_says_can_be_ignored_and_asked_for() {
    let upstream = numbered(|seen| match name(seen) {
        "silent" => String::new(),
        "said" => "Cache-Control: max-age=60\r\n".into(),
        "never" => "Cache-Control: no-store\r\nExpires: 0\r\n".into(),
        "cookie" => "Set-Cookie: a=b\r\n".into(),
        _ => "Cache-Control: private\r\n".into(),
    });
    for (more, expected) in [
        ("upstream = 'explicit'", [false, true, false, false, false]),
        ("upstream = 'ignore'", [true, true, true, false, false]),
        ("strip = ['Set-Cookie']", [true, true, false, true, false]),
        ("private = true, vary = ['X-User']", [true, true, false, false, true]),
    ] {
        let front = front(upstream.address, &format!("cache = {{ local = '10m', {more} }}"));
        let mut client = front.server.client();
        for (name, is_kept) in ["silent", "said", "never", "cookie", "private"].into_iter().zip(expected) {
            let target = format!("/shop/{name}");
            let answers = [client.get(&target), client.get(&target)];
            assert_eq!(answers[0].text() == answers[1].text(), is_kept, "{more}: {name}");
            let has_cookie = answers[1].header("set-cookie").is_some();
            assert_eq!(has_cookie, name == "cookie" && !is_kept, "{more}: {:?}", answers[1]);
        }
    }
}

#[test]
fn what_is_shown_of_a_kept_answer() {
    let long = "as good as new. ".repeat(100);
    let upstream = Scripted::new(move |seen, stream| {
        let fields = match name(seen) {
            "strong" => "ETag: \"x\"\r\nAge: 100\r\nCache-Control: max-age=1000\r\n",
            "never-transformed" => "ETag: \"y\"\r\nCache-Control: no-transform\r\n",
            _ => "Expires: Wed, 06 Nov 2199 08:49:37 GMT\r\n",
        };
        let fields = format!(
            "{fields}Content-Type: text/plain\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nX-Own: 1\r\n"
        );
        send(stream, "200 OK", &fields, &long)
    });
    let front = front(upstream.address, "compress = true\ncache = { local = '10m' }");
    let mut client = front.server.client();
    let mut ask = |target: &str, headers: &[(&str, &str)]| -> Answer {
        client.get(target);
        client.call("GET", target, headers, None).expect("an answer")
    };
    let plain = ask("/shop/strong", &[]);
    assert_eq!((plain.header("x-own"), plain.header("content-type")), (Some("1"), Some("text/plain")));
    assert_eq!(plain.header("last-modified"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
    assert_eq!(plain.header("cache-control"), Some("max-age=1000"));
    assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    // One validator for several content codings is a weak one.
    assert_eq!(plain.header("etag"), Some("W/\"x\""));
    let age_s: u64 = plain.header("age").and_then(|age| age.parse().ok()).expect("an age");
    assert!((100..=200).contains(&age_s), "{plain:?}");
    let encoded = ask("/shop/strong", &[("Accept-Encoding", "gzip, br")]);
    assert_eq!((encoded.header("content-encoding"), encoded.header("etag")), (Some("br"), Some("W/\"x\"")));
    assert!(encoded.body.len() < plain.body.len() / 4);
    let untouched = ask("/shop/never-transformed", &[("Accept-Encoding", "gzip, br")]);
    assert_eq!((untouched.header("content-encoding"), untouched.header("etag")), (None, Some("\"y\"")));
    let own = ask("/shop/own", &[]);
    assert!(own.header("etag").is_some_and(|etag| etag.starts_with("W/\"")), "{own:?}");
    assert_eq!(own.header("cache-control"), None, "Expires says it: {own:?}");
    for (target, etag) in
        [("/shop/strong", "\"x\""), ("/shop/strong", "\"z\", W/\"x\""), ("/shop/strong", "*")]
    {
        let same = ask(target, &[("If-None-Match", etag)]);
        assert_eq!((same.status, same.body.len()), (304, 0), "{etag}: {same:?}");
        assert_eq!(same.header("etag"), Some("W/\"x\""));
        assert_eq!(same.header("cache-control"), Some("max-age=1000"));
        assert!(same.header("content-type").is_none(), "{same:?}");
    }
    let head = client.ask("HEAD", "/shop/strong", None);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(plain.body.len().to_string().as_str()));
    let seen = upstream.seen();
    assert_eq!(seen.len(), 3, "one request for each: {seen:?}");
    assert!(seen.iter().all(|seen| seen.header("accept-encoding") == Some("identity")), "{seen:?}");
}

#[test]
fn a_head_fills_for_get() {
    let upstream = numbered(|_| String::new());
    let front = front(upstream.address, "cache = { local = '10m' }");
    let mut client = front.server.client();
    let head = client.ask("HEAD", "/shop/a", None);
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, Some("8"), 0));
    assert_eq!(text(&mut client, "/shop/a"), "number 1");
    assert!(upstream.seen()[0].head.starts_with("GET /shop/a "));
}

#[test]
fn statuses_and_what_is_missing() {
    let count = AtomicUsize::new(0);
    let upstream = Scripted::new(move |seen, stream| {
        let status = name(seen).split('/').next().expect("a status");
        let body = if status == "204" { String::new() } else { count.fetch_add(1, SeqCst).to_string() };
        let length =
            if status == "204" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let answer = format!("HTTP/1.1 {status} X\r\n{length}Location: /elsewhere\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let front = front(upstream.address, "cache = { local = '10m', missing = '10m' }");
    let mut client = front.server.client();
    for (status, is_kept) in [
        (200, true),
        (203, true),
        (204, true),
        (301, true),
        (308, true),
        (404, true),
        (410, true),
        (302, false),
        (206, false),
        (400, false),
        (401, false),
        (403, false),
    ] {
        let before = upstream.seen().len();
        let target = format!("/shop/{status}");
        let answers = [client.get(&target), client.get(&target)];
        for answer in &answers {
            assert_eq!(
                (answer.status, answer.header("location")),
                (status, Some("/elsewhere")),
                "{answer:?}"
            );
        }
        assert_eq!(answers[0].text() == answers[1].text(), is_kept || status == 204, "{status}");
        assert_eq!(upstream.seen().len() - before == 1, is_kept, "{status}");
    }
    let never = self::front(upstream.address, "cache = { local = '10m', missing = '0s' }");
    let mut client = never.server.client();
    assert_ne!(client.get("/shop/404").text(), client.get("/shop/404").text());
}

fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .expect("a limit can be raised to its maximum");
}

/// Clients that have each sent one request.
fn ask_all(front: &Front, count: usize, target: &str) -> Vec<Client> {
    let ask = |_| {
        let mut client = front.server.client();
        client.send(&request_bytes("GET", target, &[], None)).expect("a live socket");
        client
    };
    (0..count).map(ask).collect()
}

#[test]
fn one_request_for_a_thousand_clients_even_when_the_first_leaves() {
    raise_file_limit();
    let upstream = Scripted::holding();
    let front = front(upstream.address, "cache = { local = '10m' }");
    let first = ask_all(&front, 1, "/shop/a");
    wait_for("it is asked for", || (upstream.seen().len() == 1).then_some(()));
    let others = ask_all(&front, CLIENTS, "/shop/a");
    drop(first);
    upstream.release();
    for mut client in others {
        let answer = client.receive(false).expect("everybody is answered");
        assert_eq!((answer.status, answer.text()), (200, "held"));
    }
    assert_eq!(upstream.seen().len(), 1);
}

#[test]
fn what_is_for_one_client_is_asked_for_by_each() {
    // Uncacheable requests wait for no other, and each client gets its own answer.
    let upstream = Scripted::new(|seen, stream| {
        let user = seen.header("x-user").unwrap_or("nobody").to_owned();
        send(stream, "200 OK", "Cache-Control: private\r\n", &user)
    });
    let front = front(upstream.address, "cache = { local = '10m' }");
    for round in 0..3 {
        let mut clients: Vec<_> = (0..50)
            .map(|index| {
                let (mut client, user) = (front.server.client(), format!("user-{index}"));
                client
                    .send(&request_bytes("GET", "/shop/me", &[("X-User", &user)], None))
                    .expect("a live socket");
                (client, user)
            })
            .collect();
        for (client, user) in &mut clients {
            assert_eq!(client.receive(false).expect("an answer").text(), user, "round {round}");
        }
    }
}

#[test]
fn stale_answers_stand_in_for_an_upstream_that_fails() {
    for status in [500, 502, 503, 504, 429] {
        let (now, own) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicUsize::new(0)));
        let (status_now, count) = (now.clone(), own.clone());
        let upstream = Scripted::new(move |_, stream| {
            let body = format!("number {}", count.fetch_add(1, SeqCst) + 1);
            send(stream, &format!("{} X", status_now.load(SeqCst)), "Retry-After: 7\r\n", &body)
        });
        let front = front(upstream.address, "cache = { local = '100ms', stale_if_error = '10m' }");
        let mut client = front.server.client();
        let first = text(&mut client, "/shop/a");
        now.store(status, SeqCst);
        wait_for("the upstream is asked again", || {
            assert_eq!(text(&mut client, "/shop/a"), first, "{status}");
            (own.load(SeqCst) > 1).then_some(())
        });
        assert_eq!(text(&mut client, "/shop/a"), first, "{status}");
        let never = client.get("/shop/b");
        never.expect_problem(status, "could not answer");
        assert_eq!(never.header("retry-after"), Some("7"));
        now.store(200, SeqCst);
        wait_for("a new one", || (text(&mut client, "/shop/a") != first).then_some(()));
    }
}

#[test]
fn who_never_answers_holds_up_nobody_but_the_first() {
    const TIMEOUT: Duration = Duration::from_secs(3);
    let is_well = Arc::new(AtomicBool::new(true));
    let well = is_well.clone();
    // The upstream does not answer until it is released.
    let upstream = Scripted::new(move |_, stream| {
        let began = Instant::now();
        while !well.load(SeqCst) {
            if began.elapsed() > 20 * TIMEOUT {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        send(stream, "200 OK", "", "well")
    });
    let rules = "cache = { local = '100ms', stale_if_error = '10m' }\ntimeout = '3s'";
    let front = front(upstream.address, rules);
    let mut client = front.server.client();
    assert_eq!(text(&mut client, "/shop/a"), "well");
    is_well.store(false, SeqCst);
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    assert_eq!(text(&mut client, "/shop/a"), "well");
    assert!(began.elapsed() >= TIMEOUT, "what was kept is shown when nothing newer can be had, not before");
    // If each client had caused its own request, the upstream would have seen one request for each
    // client.
    let asked = upstream.seen().len();
    let mut answers = 0;
    wait_for("the upstream is asked three times more", || {
        assert_eq!(text(&mut client, "/shop/a"), "well");
        answers += 1;
        (upstream.seen().len() >= asked + 3).then_some(())
    });
    assert!(answers >= 30, "{answers} answers while the upstream was asked three times");
    is_well.store(true, SeqCst);
}

#[test]
fn nginx_is_kept_and_outlived() {
    let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
    let nginx = Nginx::start(&[("shop", b"a page"), ("large.bin", &bytes)]);
    let config = format!(
        "[[endpoint]]\nroute = 'GET /{{path...}}'\nproxy = 'http://{}'\ncache = {{ local = '100ms', stale_if_error = '10m' }}",
        nginx.address
    );
    let front = Front::start(&config);
    let (mut client, mut direct) = (front.server.client(), Client::connect(nginx.address).expect("nginx"));
    for target in ["/shop", "/large.bin", "/missing"] {
        for _ in 0..3 {
            let (through, own) = (client.get(target), direct.get(target));
            assert_eq!((through.status, &through.body), (own.status, &own.body), "{target}");
            for name in ["content-type", "etag", "last-modified"] {
                assert!(
                    own.header(name).is_none_or(|value| through.header(name) == Some(value)),
                    "{name} of {target}"
                );
            }
        }
    }
    let etag = client.get("/shop").header("etag").expect("a tag").to_owned();
    drop((direct, nginx));
    wait_for("nginx is missed", || {
        assert_eq!(text(&mut client, "/shop"), "a page");
        let answer = client.call("GET", "/shop", &[("If-None-Match", &etag)], None).expect("an answer");
        assert_eq!(answer.status, 304);
        (client.get("/never-asked").status >= 502).then_some(())
    });
    assert_eq!(client.get("/large.bin").body, bytes);
    let other = client.get("/other");
    assert!(matches!(other.status, 502 | 503), "{other:?}");
    other.expect_problem(other.status, "the upstream of this route");
}

#[test]
fn writes_that_pass_drop_what_is_kept() {
    let upstream = Scripted::new({
        let count = AtomicUsize::new(0);
        move |seen, stream| {
            let status = if seen.header("x-refuse").is_some() { "409 Conflict" } else { "200 OK" };
            send(stream, status, "", &format!("number {}", count.fetch_add(1, SeqCst) + 1))
        }
    });
    let front = Front::start(&format!(
        "[[endpoint]]\nroute = '* /shop/items/{{id}}'\nproxy = 'http://{0}'\ncache = {{ local = '10m', tags = ['item:{{$id}}'] }}\n\
         invalidates = ['item:{{$id}}', 'items']\n\
         [[endpoint]]\nroute = 'GET /shop/items'\nproxy = 'http://{0}'\ncache = {{ local = '10m', tags = ['items'] }}\n\
         [[endpoint]]\nroute = 'GET /shop/pictures/{{id}}'\nproxy = 'http://{0}'\ncache = {{ local = '10m', tags = ['item:{{$id}}'] }}\n\
         [[endpoint]]\nroute = 'POST /shop/reviews/{{id}}'\nproxy = 'http://{0}'\ninvalidates = ['item:{{$id}}']\n\
         [[endpoint]]\nroute = '* /shop/carts/{{id}}'\nproxy = 'http://{0}'\ncache = {{ local = '10m' }}",
        upstream.address
    ));
    let mut client = front.server.client();
    let read = |client: &mut Client| {
        [
            "/shop/items/7",
            "/shop/items/%37?x=1",
            "/shop/items/8",
            "/shop/items",
            "/shop/pictures/7",
            "/shop/carts/7",
        ]
        .map(|target| text(client, target))
    };
    let changed = |client: &mut Client, before: &[String; 6]| {
        let now = read(client);
        assert_eq!(now, read(client), "it is kept again");
        std::array::from_fn::<bool, 6, _>(|index| now[index] != before[index])
    };
    for (method, target, headers, expected) in [
        ("PUT", "/shop/items/7", &[][..], [true, true, false, true, true, false]),
        ("DELETE", "/shop/items/%37", &[], [true, true, false, true, true, false]),
        ("PUT", "/shop/items/7", &[("X-Refuse", "1")], [false; 6]),
        ("OPTIONS", "/shop/items/7", &[], [false; 6]),
        ("POST", "/shop/reviews/7", &[], [true, true, false, false, true, false]),
        // A write to a path drops that path's entries without any setting in the config.
        ("PATCH", "/shop/carts/7", &[], [false, false, false, false, false, true]),
    ] {
        let before = read(&mut client);
        let body = (method != "OPTIONS").then_some("not JSON");
        client.call(method, target, headers, body).expect("an answer");
        assert_eq!(changed(&mut client, &before), expected, "{method} {target} {headers:?}");
    }
}

#[test]
fn a_read_that_began_before_a_write_is_not_shown_after_it() {
    let count = AtomicUsize::new(0);
    let (gate, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let upstream = Scripted::new(move |seen, stream| {
        let number = count.fetch_add(1, SeqCst) + 1;
        if number == 1 {
            waits.lock().expect("no script panics").recv().expect("it is let go");
        }
        send(stream, "200 OK", "", &format!("{} {number}", seen.head.split(' ').next().expect("a method")))
    });
    let front = front(upstream.address, "cache = { local = '10m' }");
    let early = ask_all(&front, 1, "/shop/a");
    wait_for("the first read has begun", || (upstream.seen().len() == 1).then_some(()));
    let mut client = front.server.client();
    assert_eq!(client.ask("PUT", "/shop/a", Some("{}")).text(), "PUT 2");
    assert_eq!(text(&mut client, "/shop/a"), "GET 3");
    gate.send(()).expect("it waits");
    for mut client in early {
        assert_eq!(client.receive(false).expect("an answer").text(), "GET 1", "who asked before may see it");
    }
    assert_eq!(text(&mut client, "/shop/a"), "GET 3");
}
