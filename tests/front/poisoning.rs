//! Requests that try to have an answer cached for other clients, or to see another user's answer;
//! upstreams with misleading answers. None of these answers may be cached, and no two users may be
//! mixed up.

use super::Front;
use super::upstream::{Scripted, Seen};
use forebay_tests::{Client, request_bytes};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn front(upstream: SocketAddr, more: &str) -> Front {
    Front::start(&format!(
        "[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{upstream}'\nretries = 0\n{more}"
    ))
}

fn kept(upstream: &Scripted) -> Front {
    front(upstream.address, "encoded_slash = 'pass'\ncache = { local = '10m', missing = '10m' }")
}

/// An upstream that answers with the request as it saw it, and with fields chosen by the path.
fn echo(fields: impl Fn(&Seen) -> String + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |seen, stream| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{}\r\n", seen.head.len(), fields(seen));
        stream.write_all(head.as_bytes()).is_ok() && stream.write_all(seen.head.as_bytes()).is_ok()
    })
}

#[track_caller]
fn ask(client: &mut Client, target: &str, headers: &[(&str, &str)]) -> String {
    let answer = client.call("GET", target, headers, None).expect("an answer");
    assert_eq!(answer.status, 200, "{target} {headers:?}: {answer:?}");
    answer.text().to_owned()
}

#[test]
fn nothing_that_is_not_asked_reaches_the_upstream() {
    let upstream = echo(|_| String::new());
    let front = kept(&upstream);
    let mut client = front.server.client();
    for (index, (name, value)) in [
        ("X-Forwarded-Host", "evil"),
        ("X-Forwarded-For", "evil"),
        ("X-Forwarded-Proto", "evil"),
        ("X-Forwarded-Scheme", "evil"),
        ("X-Forwarded-Port", "evil"),
        ("X-Forwarded-Prefix", "/evil"),
        ("Forwarded", "for=evil;host=evil"),
        ("X-Real-IP", "evil"),
        ("X-Host", "evil"),
        ("X-Original-URL", "/evil"),
        ("X-Rewrite-URL", "/evil"),
        ("X-Original-Host", "evil"),
        ("X-HTTP-Method-Override", "EVIL"),
        ("X-HTTP-Method", "EVIL"),
        ("X-Method-Override", "EVIL"),
        ("X-User", "evil"),
        ("X-Api-Key", "evil"),
        ("User-Agent", "evil"),
        ("Accept", "evil/evil"),
        ("Accept-Language", "evil"),
        ("Accept-Encoding", "evil"),
        ("Accept-Charset", "evil"),
        ("Referer", "http://evil/"),
        ("Origin", "http://evil"),
        ("Via", "1.1 evil"),
        ("If-None-Match", "\"evil\""),
        ("If-Modified-Since", "evil"),
        ("If-Match", "\"evil\""),
        ("Connection", "X-Evil, Host"),
        ("Upgrade", "evil"),
        ("TE", "trailers, evil"),
        ("Proxy-Authorization", "evil"),
        ("Proxy-Connection", "evil"),
        ("Content-Type", "evil/evil"),
        ("Transfer-Encodings", "evil"),
        ("Content_Length", "evil"),
        ("Cache-Control", "no-cache, evil"),
        ("Cache-Control", "only-if-cached, evil"),
        ("Pragma", "no-cache, evil"),
        ("Max-Forwards", "0evil"),
        ("Expect-CT", "evil"),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("/page/{index}");
        // The attacker's request comes first.
        let attack = ask(&mut client, &target, &[(name, value)]);
        let victim = ask(&mut client, &target, &[]);
        assert_eq!(attack, victim, "{name}");
        assert!(!attack.to_lowercase().contains("evil"), "{name}: {attack}");
        let seen: Vec<_> = upstream
            .seen()
            .into_iter()
            .filter(|seen| seen.head.contains(&format!("GET {target} ")))
            .collect();
        // No client can force another request to the upstream.
        assert_eq!(seen.len(), 1, "{name}: {seen:?}");
    }
}

#[test]
fn the_host_is_part_of_the_question_where_the_upstream_sees_it() {
    let upstream = echo(|_| String::new());
    for (more, is_seen) in [("", true), ("host = 'upstream'", false)] {
        let front = front(upstream.address, &format!("cache = {{ local = '10m' }}\n{more}"));
        let mut client = front.server.client();
        let mut of_host = |host: &str| {
            client
                .send(format!("GET /a HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
                .expect("a live socket");
            client.receive(false).expect("an answer").text().to_owned()
        };
        for host in ["good", "evil", "good", "other", "evil"] {
            let answer = of_host(host);
            assert_eq!(answer.contains(&format!("host: {host}\r\n")), is_seen, "{more}: {answer}");
            assert!(
                !["good", "evil", "other"].iter().any(|one| *one != host && answer.contains(one)),
                "{answer}"
            );
        }
    }
}

#[test]
fn a_path_has_one_form_and_that_is_asked() {
    let upstream = echo(|_| String::new());
    let front = kept(&upstream);
    let mut client = front.server.client();
    // Requests, and the requests that the upstream must have seen, whatever was requested before.
    let table = [
        ("/a/b", "/a/b"),
        ("/%61/b", "/a/b"),
        ("/a/%62", "/a/b"),
        ("/a%2Fb", "/a%2Fb"),
        ("/a%2fb", "/a%2Fb"),
        ("/a%252Fb", "/a%252Fb"),
        ("/a//b", "/a/b"),
        ("//a/b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("/x/%2e%2E/a/b", "/a/b"),
        ("/a/b/", "/a/b/"),
        ("/A/b", "/A/b"),
        ("/a/b;c=d", "/a/b;c=d"),
        ("/a/b%3Bc=d", "/a/b%3Bc=d"),
        ("/a/b%3Fc=d", "/a/b%3Fc=d"),
        ("/a/b?c=d", "/a/b?c=d"),
        ("/a/b?c=%64", "/a/b?c=%64"),
        ("/a/b?", "/a/b?"),
        ("/a/b?c=d&e", "/a/b?c=d&e"),
        ("/a/b?e&c=d", "/a/b?e&c=d"),
        ("/a/b?c=d?", "/a/b?c=d?"),
        ("/a/b%20", "/a/b%20"),
        ("/a/b+", "/a/b+"),
        ("/a/b%2B", "/a/b%2B"),
        ("/a%5Cb", "/a%5Cb"),
        ("/a/b%2Ejs", "/a/b.js"),
        ("/a/b.js", "/a/b.js"),
        ("/%7Ea", "/~a"),
    ];
    for round in 0..2 {
        for (asked, expected) in table.iter().chain(table.iter().rev()) {
            let answer = ask(&mut client, asked, &[]);
            assert!(
                answer.starts_with(&format!("GET {expected} HTTP/1.1\r\n")),
                "round {round}: {asked}: {answer}"
            );
        }
    }
    let forms: std::collections::BTreeSet<_> = table.iter().map(|(_, form)| form).collect();
    assert_eq!(upstream.seen().len(), forms.len(), "each form was asked once");
    for path in
        ["/a/..%2Fb", "/a/..%5Cb", "/a/..;/b", "/a\\b", "/a/b%00", "/a/b%0d%0aX-Evil:1", "/a/%zz", "/a/%ff"]
    {
        client.get(path).expect_problem(400, "the path");
    }
    assert_eq!(upstream.seen().len(), forms.len());
    // The absolute form requests the same resource.
    client.send(b"GET http://localhost/a/b HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("a live socket");
    assert!(client.receive(false).expect("an answer").text().starts_with("GET /a/b HTTP/1.1\r\n"));
    assert_eq!(upstream.seen().len(), forms.len());
}

#[test]
fn who_says_who_he_is_is_answered_alone() {
    let upstream = echo(|_| "Cache-Control: public, max-age=600\r\n".into());
    let front = kept(&upstream);
    let mut client = front.server.client();
    for (index, name) in ["Authorization", "Cookie", "Range"].into_iter().enumerate() {
        let target = format!("/page/{index}");
        for _ in 0..2 {
            for user in ["anna", "bert"] {
                let answer = ask(&mut client, &target, &[(name, user)]);
                assert!(
                    answer.to_lowercase().contains(&format!("{}: {user}\r\n", name.to_lowercase())),
                    "{answer}"
                );
            }
            let answer = ask(&mut client, &target, &[]);
            assert!(!answer.contains("anna") && !answer.contains("bert"), "{name}: {answer}");
        }
        let asked = upstream.seen().iter().filter(|seen| seen.head.contains(&target)).count();
        assert_eq!(asked, 5, "{name}: four in a name, one for all");
    }
    // A request with a body is not shared either.
    for body in ["one", "two"] {
        let answer = client.call("GET", "/body", &[], Some(body)).expect("an answer");
        assert!(answer.text().contains("content-length: 3"), "{answer:?}");
    }
    assert!(!ask(&mut client, "/body", &[]).contains("content-length"));
}

#[test]
fn who_says_who_he_is_may_be_told_apart_or_not_looked_at() {
    let upstream = echo(|_| "Cache-Control: public, max-age=600\r\nVary: Cookie, Authorization\r\n".into());
    let front =
        front(upstream.address, "cache = { local = '10m', vary = ['Authorization'], ignore = ['cookie'] }");
    let mut client = front.server.client();
    for _ in 0..2 {
        for user in ["anna", "bert"] {
            let answer = ask(&mut client, "/page", &[("Authorization", user), ("Cookie", "evil")]);
            assert!(
                answer.contains(&format!("authorization: {user}\r\n")) && !answer.contains("evil"),
                "{answer}"
            );
        }
        // Two field lines are not the same as one line with both values.
        let answer = ask(&mut client, "/page", &[("Authorization", "an"), ("Authorization", "na")]);
        assert!(!answer.contains("anna") && answer.contains("an\r\n"), "{answer}");
        assert!(!ask(&mut client, "/page", &[]).contains("authorization"));
    }
    assert_eq!(upstream.seen().len(), 4);
}

#[test]
fn answers_for_one_client_are_never_kept() {
    const FIELDS: &[&str] = &[
        "Set-Cookie: session=1",
        "Cache-Control: private, max-age=600",
        "Cache-Control: max-age=600, private=\"X-A\"",
        "Cache-Control: no-store",
        "Cache-Control: max-age=600\r\nCache-Control: no-store",
        "Cache-Control: max-age=600\r\nSet-Cookie: a=b",
        "Vary: X-User",
        "Vary: Accept-Encoding, x-user\r\nCache-Control: max-age=600",
        "Vary: *",
    ];
    let upstream = echo(|seen| {
        let index: usize =
            seen.head.split(['/', ' ']).nth(2).and_then(|part| part.parse().ok()).expect("a number");
        format!("{}\r\n", FIELDS[index])
    });
    let front = kept(&upstream);
    for (index, fields) in FIELDS.iter().enumerate() {
        let target = format!("/{index}");
        for round in 0..2 {
            let mut clients = Vec::new();
            for user in ["anna", "bert", "anna"] {
                let mut client = front.server.client();
                client
                    .send(&request_bytes("GET", &target, &[("X-User", user)], None))
                    .expect("a live socket");
                clients.push((client, user));
            }
            for (client, user) in &mut clients {
                let answer = client.receive(false).expect("an answer");
                assert!(
                    answer.text().contains(&format!("x-user: {user}\r\n")),
                    "{fields}, round {round}: {answer:?}"
                );
            }
        }
        let asked = upstream
            .seen()
            .iter()
            .filter(|seen| seen.head.contains("x-user") && seen.head.contains(&format!("GET {target} ")))
            .count();
        assert_eq!(asked, 6, "{fields}: each was asked for in its client's name");
    }
}

/// All bytes until the connection ends or an answer is complete by its framing.
fn everything(front: &Front, target: &str) -> (String, bool) {
    let mut client = front.server.client();
    client
        .send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes())
        .expect("a live socket");
    let mut bytes = Vec::new();
    let ended = client.stream().read_to_end(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), ended.is_ok())
}

#[test]
fn broken_answers_are_never_kept_nor_shown_as_good_ones() {
    const STOLEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";
    for (name, broken) in [
        ("short of its length", "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nbroken".to_owned()),
        (
            "without its last chunk",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nbroken\r\n".into(),
        ),
        ("in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nbroken".into()),
        ("a bad chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nbroken\r\nxyz\r\n".into()),
        (
            "both",
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nbroken\r\n0\r\n\r\n{STOLEN}"
            ),
        ),
        (
            "two lengths",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Length: 7\r\n\r\nbroken{STOLEN}"),
        ),
        ("a list of lengths", format!("HTTP/1.1 200 OK\r\nContent-Length: 6, 7\r\n\r\nbroken{STOLEN}")),
        ("a signed length", format!("HTTP/1.1 200 OK\r\nContent-Length: +6\r\n\r\nbroken{STOLEN}")),
        (
            "another coding",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n6\r\nbroken\r\n0\r\n\r\n".into(),
        ),
        ("half a head", "HTTP/1.1 200 OK\r\nContent-Le".into()),
        ("another protocol", "SSH-2.0-OpenSSH_9.2\r\n\r\n".into()),
    ] {
        let count = AtomicUsize::new(0);
        // Twice broken, then good.
        let upstream = Scripted::new(move |_, stream| {
            let is_broken = count.fetch_add(1, SeqCst) < 2;
            let good = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
            let _sent = stream.write_all(if is_broken { broken.as_bytes() } else { good.as_bytes() });
            !is_broken
        });
        let front = kept(&upstream);
        for _ in 0..2 {
            let (text, _) = everything(&front, "/a");
            assert!(text.starts_with("HTTP/1.1 502 ") && !text.contains("broken"), "{name}: {text}");
        }
        let mut client = front.server.client();
        for _ in 0..3 {
            assert_eq!(ask(&mut client, "/a", &[]), "good", "{name}");
        }
        assert_eq!(upstream.seen().len(), 3, "{name}: two broken ones, and one that is kept");
    }
}

#[test]
fn all_who_wait_for_a_broken_answer_are_told() {
    let count = AtomicUsize::new(0);
    let (gate, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let upstream = Scripted::new(move |_, stream| {
        if count.fetch_add(1, SeqCst) == 0 {
            waits.lock().expect("no script panics").recv().expect("it is let go");
            let _sent = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nbroken");
            return false;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood").is_ok()
    });
    let front = kept(&upstream);
    let mut clients: Vec<Client> = (0..20).map(|_| front.server.client()).collect();
    for client in &mut clients {
        client.send(&request_bytes("GET", "/a", &[], None)).expect("a live socket");
    }
    forebay_tests::wait_for("it is asked for", || (!upstream.seen().is_empty()).then_some(()));
    gate.send(()).expect("it waits");
    for client in &mut clients {
        let answer = client.receive(false).expect("an answer");
        // Clients that came after the broken answer get a good one.
        assert!(answer.status == 502 || answer.text() == "good", "{answer:?}");
    }
}

#[test]
fn what_is_too_long_is_passed_on_whole_and_not_kept() {
    let long = "0123456789abcdef".repeat(20_000);
    let body = long.clone();
    let upstream = Scripted::new(move |seen, stream| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n";
        let sent = match seen.head.split(' ').nth(1) {
            Some("/length") => {
                stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
            }
            Some("/chunks") => stream
                .write_all(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
                .and_then(|()| {
                    body.as_bytes().chunks(10_000).try_for_each(|piece| {
                        stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes())?;
                        stream.write_all(piece)?;
                        stream.write_all(b"\r\n")
                    })
                })
                .and_then(|()| stream.write_all(b"0\r\n\r\n")),
            // The answer ends with the connection, so it may be incomplete.
            _ => {
                let _sent = stream.write_all(format!("{head}\r\nto the end").as_bytes());
                return false;
            }
        };
        sent.is_ok()
    });
    let front = front(upstream.address, "cache = { local = '10m', largest = '100KiB' }");
    for target in ["/length", "/chunks", "/end"] {
        let mut clients: Vec<Client> = (0..5).map(|_| front.server.client()).collect();
        for client in &mut clients {
            let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            client.send(request.as_bytes()).expect("a live socket");
        }
        for client in clients {
            let mut bytes = Vec::new();
            client.stream().read_to_end(&mut bytes).expect("a whole answer");
            let text = String::from_utf8(bytes).expect("ASCII");
            let (head, rest) = text.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("HTTP/1.1 200 "), "{target}: {head}");
            let body = if head.contains("chunked") { unchunked(rest) } else { rest.to_owned() };
            assert!(
                body == if target == "/end" { "to the end" } else { &long },
                "{target}: {} bytes",
                body.len()
            );
        }
        let asked = || upstream.seen().iter().filter(|seen| seen.head.contains(target)).count();
        let before = asked();
        front.server.client().send(&request_bytes("GET", target, &[], None)).expect("a live socket");
        forebay_tests::wait_for("it is asked for again", || (asked() > before).then_some(()));
    }
    assert_eq!(front.server.admin("GET", "/cache").expect(200)["entries"], 0);
}

fn unchunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    body
}
