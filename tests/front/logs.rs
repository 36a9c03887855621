//! `[log]`: lines of requests, ids, levels, and what a line must never contain.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::{Answer, Client, binary, wait_for};
use serde_json::Value;
use std::io::Write;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const KEY: &str = "ann's key";
/// SHA-256 of it.
const HASH: &str = "4a8c1eb8b2bbb2493bdc9ee3f7a3357b048de54a2dbc52301e88c39403cd6ce8";

fn ok() -> Scripted {
    Scripted::new(|_, stream| {
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nX-Request-Id: the-app's\r\nContent-Length: 7\r\n\r\nanswer!")
            .is_ok()
    })
}

/// The lines of requests that have been written, as JSON.
fn lines(front: &Front) -> Vec<Value> {
    let output = front.server.output();
    let read = |line: &str| serde_json::from_str::<Value>(line).ok();
    output.lines().filter_map(read).filter(|line| line["message"] == "request").collect()
}

#[track_caller]
fn wait_for_lines(front: &Front, count: usize) -> Vec<Value> {
    wait_for("requests are logged", || Some(lines(front)).filter(|lines| lines.len() >= count))
}

/// Method, route, path, status, bytes and identity of a line.
fn shown(line: &Value) -> (String, String, String, u64, u64, String) {
    let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
    let number = |name: &str| line[name].as_u64().unwrap_or(u64::MAX);
    (text("method"), text("route"), text("path"), number("status"), number("bytes"), text("identity"))
}

fn check_line(lines: &[Value], id: &str, kept: &Answer) {
    let of = |index: usize, name: &str| lines[index][name].clone();
    let shown: Vec<_> = lines.iter().map(shown).collect();
    let row = |method: &str, route: &str, path: &str, status, bytes, identity: &str| {
        (method.to_owned(), route.to_owned(), path.to_owned(), status, bytes, identity.to_owned())
    };
    let bytes_of = |index: usize| shown[index].4;
    assert_eq!(
        shown,
        [
            row("POST", "POST /keys", "/keys", 201, bytes_of(0), "-"),
            row("GET", "GET /mine/{id}", "/mine/7", 200, kept.body.len() as u64, "ann"),
            row("HEAD", "GET /mine/{id}", "/mine/7", 200, 0, "ann"),
            row("GET", "GET /mine/{id}", "/mine/8", 401, bytes_of(3), "-"),
            row("GET", "-", "/nowhere", 404, bytes_of(4), "-"),
            row("GET", "GET /sql", "/sql", 200, bytes_of(5), "-"),
            row("POST", "* /shop/{path...}", "/shop/a", 200, 7, "ann"),
        ]
    );
    assert!([0, 3, 4, 5].into_iter().all(|index| bytes_of(index) > 0), "{shown:?}");
    assert_eq!((of(1, "request_id"), of(1, "level")), (id.into(), "info".into()));
    assert_eq!((of(1, "trace_id"), of(0, "trace_id")), (TRACE[3..35].into(), Value::Null));
    assert_eq!(of(1, "client"), "127.0.0.1");
    assert!(lines.iter().all(|line| line["duration_ms"].as_f64().is_some_and(|time| time >= 0.0)));
}

#[test]
fn a_line_says_what_happened_and_no_secret() {
    let upstream = ok();
    let front = Front::start(&format!(
        "[log]\nformat = 'json'\naccess = 1\nrequest_id = 'X-Request-Id'\n\
         [auth.apps]\nkind = 'key'\ntable = 'api_keys'\nsubject = 'owner'\n\
         [table.api_keys]\ncolumns = {{ hash = 'text key', owner = 'text' }}\n\
         [[endpoint]]\nroute = 'POST /keys'\ninsert = 'api_keys'\nvalues = {{ hash = '$hash', owner = '$owner' }}\n\
         [[endpoint]]\nroute = 'GET /mine/{{id}}'\nguard = 'apps'\nconstant = {{ a = 1 }}\n\
         [[endpoint]]\nroute = 'GET /sql'\nsql = 'SELECT 1 AS one'\n\
         [[endpoint]]\nroute = '* /shop/{{path...}}'\nguard = 'apps'\nproxy = 'http://{}'\n",
        upstream.address
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    let body = format!("{{\"hash\":\"{HASH}\",\"owner\":\"ann\"}}");
    assert_eq!(client.ask("POST", "/keys?pass=query-secret", Some(&body)).status, 201);
    let headers = [
        ("X-Api-Key", KEY),
        ("Cookie", "session=cookie-secret"),
        ("Authorization", "Basic YXV0aC1zZWNyZXQ="),
        ("traceparent", TRACE),
    ];
    let kept = client.call("GET", "/mine/7?token=query-secret", &headers, None).expect("an answer");
    let id = kept.header("x-request-id").expect("an id").to_owned();
    assert_eq!(kept.status, 200);
    client.call("HEAD", "/mine/7", &headers, None).expect("an answer");
    assert_eq!(client.get("/mine/8").status, 401);
    assert_eq!(client.get("/nowhere").status, 404);
    assert_eq!(client.get("/sql").status, 200);
    let passed = client.call("POST", "/shop/a?b=query-secret", &headers, Some("body-secret")).expect("one");
    let lines = wait_for_lines(&front, 7);
    check_line(&lines, &id, &kept);
    let output = front.server.output();
    for secret in ["query-secret", "cookie-secret", "YXV0aC1z", "body-secret", KEY, HASH] {
        assert!(!output.contains(secret), "{secret}: {output}");
    }
    // The app receives the same id, and the unchanged trace.
    let seen = upstream.seen().pop().expect("a request");
    assert_eq!(seen.header("x-request-id"), lines[6]["request_id"].as_str());
    assert_eq!(seen.header("traceparent"), Some(TRACE));
    let ids: Vec<_> =
        passed.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id")).collect();
    assert_eq!(ids.len(), 1, "the app's own is replaced: {passed:?}");
    assert_eq!(Some(ids[0].1.as_str()), lines[6]["request_id"].as_str());
}

/// The log shows which requests have the same target without showing their queries, so that `forebay advise`
/// can judge proxied requests.
#[test]
fn what_passes_a_proxy_can_be_judged() {
    let upstream = ok();
    let front = Front::start(&format!(
        "[log]\nformat = 'json'\naccess = 1\n[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'\n",
        upstream.address
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    for path in ["/search?q=a", "/search?q=b", "/search?q=a", "/search"] {
        assert_eq!(client.get(path).status, 200);
    }
    let lines = wait_for_lines(&front, 4);
    let query = |index: usize| lines[index]["query"].as_str();
    assert!(query(0).is_some_and(|query| query.len() == 16) && query(0) == query(2), "{lines:?}");
    assert!(query(1).is_some() && query(1) != query(0) && query(3).is_none(), "{lines:?}");
    let log = front.folder.write("access.log", &front.server.output());
    let advised = std::process::Command::new(binary()).arg("advise").arg(log).output().expect("it runs");
    let text = String::from_utf8_lossy(&advised.stdout);
    assert!(advised.status.success() && text.contains("# 4 requests in "), "{advised:?}");
    let kept =
        "# Kept for 60 s, 1 of 4 (25.0 %) are answered from memory.\n[[endpoint]]\nroute = \"GET /search\"";
    assert!(text.contains(kept), "{text}");
}

#[test]
fn a_slow_request_has_a_line_when_none_is_chosen() {
    let upstream = Scripted::new(|seen, stream| {
        if seen.head.starts_with("GET /slow") {
            std::thread::sleep(std::time::Duration::from_millis(2_100));
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
    });
    let front = Front::start(&format!(
        "[log]\nformat = 'json'\nslow = '2s'\n\
         [[endpoint]]\nroute = 'GET /quick'\nconstant = 1\n\
         [[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'\n",
        upstream.address
    ));
    front.server.wait_healthy();
    let mut client = front.server.client();
    for path in ["/quick", "/slow/1", "/quick", "/slow/2"] {
        assert_eq!(client.get(path).status, 200);
    }
    let lines = wait_for_lines(&front, 2);
    let paths: Vec<_> = lines.iter().map(|line| line["path"].as_str()).collect();
    assert_eq!(paths, [Some("/slow/1"), Some("/slow/2")], "{lines:?}");
    assert!(lines.iter().all(|line| line["duration_ms"].as_f64() >= Some(2_000.0)), "{lines:?}");
}

#[test]
fn a_request_that_the_engine_refuses_has_an_id_and_a_line() {
    let front = Front::start(
        "[server.limits]\nbody = '100B'\nhead_timeout = '1s'\n\
         [log]\nformat = 'json'\naccess = 1\nrequest_id = 'X-Request-Id'\n\
         [[endpoint]]\nroute = 'POST /a'\nconstant = { a = '$a' }\n",
    );
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000));
    let fields = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let mut expected = Vec::new();
    for (sent, status) in [
        ("GET /secret?token=secret HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (&long, 414),
        (&fields, 431),
        ("GET / HTTP/7.0\r\n\r\n", 505),
        ("GET /half-of-it", 408),
    ] {
        let mut client = front.server.client();
        client.send(sent.as_bytes()).expect("it is sent");
        let answer = client.receive(false).expect("an answer");
        assert_eq!(answer.status, status, "{answer:?}");
        let id = answer.header("x-request-id").unwrap_or_else(|| panic!("no id: {answer:?}"));
        expected.push((u64::from(status), id.to_owned(), answer.json()["detail"].clone()));
    }
    let told = wait_for_lines(&front, expected.len());
    let of = |line: &Value| {
        assert_eq!((&line["client"], &line["level"]), (&"127.0.0.1".into(), &"info".into()), "{line}");
        let id = line["request_id"].as_str().expect("an id").to_owned();
        (line["status"].as_u64().expect("a status"), id, line["refused"].clone())
    };
    assert_eq!(told.iter().map(of).collect::<Vec<_>>(), expected);
    assert!(!front.server.output().contains("secret"));
}

#[test]
fn everything_that_is_said_is_json_when_that_is_asked_for() {
    let front =
        Front::start("[log]\nformat = 'json'\n[[endpoint]]\nroute = 'GET /a'\nconstant = { a = 1 }\n");
    front
        .folder
        .write("front.toml", "[log]\nformat = 'json'\nlevel = 'warn'\n[[endpoint]]\nroute = 'GET /b'\n");
    assert_eq!(front.server.admin("POST", "/reload").status, 422);
    front.server.wait_for_output("not reloaded");
    let output = front.server.output();
    let lines: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let refused = lines.last().expect("a line");
    assert_eq!(refused["level"], "warn");
    let message = refused["message"].as_str().expect("a text");
    assert!(message.contains("front.toml:4:1: an endpoint needs an action"), "{message}");
    assert!(lines[0]["level"] == "info" && lines[0]["time"].is_string(), "{}", lines[0]);
    // A new level applies from the next line on.
    let file = "[log]\nlevel = 'warn'\n[[endpoint]]\nroute = 'GET /b'\nconstant = { b = 1 }\n";
    front.folder.write("front.toml", file);
    front.server.admin("POST", "/reload").expect(200);
    front.folder.write("front.toml", "endpoint = 1");
    assert_eq!(front.server.admin("POST", "/reload").status, 422);
    front.server.wait_for_output("\nnot reloaded, the");
    assert!(!front.server.output().contains("endpoints are served by the new config"));
}

#[test]
fn an_id_is_taken_from_a_trusted_proxy_alone() {
    let endpoint = "[[endpoint]]\nroute = 'GET /a'\nconstant = { a = 1 }\n";
    let log = "[log]\nformat = 'json'\nrequest_id = 'X-Request-Id'\n";
    let open = Front::start(&format!("{log}{endpoint}"));
    let behind = Front::start(&format!("{log}[server]\ntrusted_proxies = '127.0.0.1'\n{endpoint}"));
    let id = |client: &mut Client, given: &str| {
        let answer = client.call("GET", "/a", &[("X-Request-Id", given)], None).expect("an answer");
        let ids: Vec<_> =
            answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id")).collect();
        assert_eq!((answer.status, ids.len()), (200, 1), "{answer:?}");
        ids[0].1.clone()
    };
    let (mut stranger, mut proxy) = (open.server.client(), behind.server.client());
    assert_eq!(id(&mut proxy, "from-the-proxy"), "from-the-proxy");
    let made = id(&mut stranger, "from-a-stranger");
    assert_eq!((made.len(), made == id(&mut stranger, "from-a-stranger")), (36, false), "{made}");
    for bad in ["", "two words", "é", &"x".repeat(129)] {
        assert_eq!(id(&mut proxy, bad).len(), 36, "{bad:?}");
    }
    assert_eq!(id(&mut proxy, &"x".repeat(128)).len(), 128);
    let Front { server, folder: _folder, stores: _stores } = behind;
    assert!(!server.stop().output.contains("\"message\":\"request\""), "ids alone write no line");
}

#[test]
fn a_share_of_the_requests_is_logged() {
    let front = Front::start(
        "[log]\nformat = 'json'\naccess = 0.1\n[[endpoint]]\nroute = 'GET /a'\nconstant = { a = 1 }\n",
    );
    let mut client = front.server.client();
    for _ in 0..4000 {
        assert_eq!(client.get("/a").status, 200);
    }
    let Front { server, folder: _folder, stores: _stores } = front;
    let ended = server.stop();
    let count = ended.output.matches("\"message\":\"request\"").count();
    // 400 ± 19: eight deviations.
    assert!((248..=552).contains(&count), "{count}");
}

#[test]
fn a_client_that_goes_before_its_answer_has_a_line_without_a_status() {
    let upstream = Scripted::holding();
    let front = Front::start(&format!(
        "[log]\nformat = 'json'\naccess = 1\n[[endpoint]]\nroute = 'GET /own'\nconstant = {{ a = 1 }}\n\
         [[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'\n",
        upstream.address
    ));
    let client = front.server.client();
    let both = b"GET /own HTTP/1.1\r\nHost: a\r\n\r\nGET /slow HTTP/1.1\r\nHost: a\r\n\r\n";
    client.stream().write_all(both).expect("it is sent");
    wait_for("it is asked", || (!upstream.seen().is_empty()).then_some(()));
    let mut first = [0];
    wait_for("the first answer is there", || (client.stream().peek(&mut first).ok()? == 1).then_some(()));
    // An unread answer makes the kernel reset the connection.
    drop(client);
    let lines = wait_for_lines(&front, 2);
    let slow = lines.iter().find(|line| line["path"] == "/slow").expect("a line");
    assert_eq!(slow.get("status"), None, "{slow}");
    upstream.release();
}
