//! The status listener: which paths other machines may request, and with which token.

use super::Front;
use forebay_tests::{Answer, Client, request_bytes, wait_for};
use std::net::SocketAddr;

const CONFIG: &str = r#"
[admin]
status = "0.0.0.0:0"
status_token = "a token of the probes"

[table.notes]
columns = { id = "serial key", text = "text(20)" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"
"#;

/// Asserts that the drain, which begins a moment after the server is ready, is not paused.
#[track_caller]
fn assert_not_paused(front: &Front) {
    wait_for("the drain runs", || (front.server.drain_state()["status"] == "running").then_some(()));
}

#[test]
fn other_machines_ask_with_the_token_how_the_server_is_and_steer_nothing() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let address = front.server.address_behind("status on http://").expect("it is announced");
    let ask = |method: &str, path: &str, fields: &[(&str, &str)]| call(address, method, path, fields);
    let host = ("Host", "forebay.internal:9465");
    let token = ("Authorization", "Bearer a token of the probes");
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(ask("GET", path, &[host, token]).status, 200, "{path}");
        assert_eq!(ask("HEAD", path, &[host, token]).status, 200, "{path}");
        for wrong in [None, Some("Bearer a token of the prober"), Some("a token of the probes")] {
            let fields: Vec<_> =
                [host].into_iter().chain(wrong.map(|wrong| ("Authorization", wrong))).collect();
            let answer = ask("GET", path, &fields);
            answer.expect_problem(401, "token");
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        }
    }
    for (method, path) in
        [("GET", "/drain"), ("POST", "/drain/pause"), ("POST", "/ready"), ("POST", "/cache/clear")]
    {
        ask(method, path, &[host, token]).expect_problem(404, "status listener");
    }
    let page = [("Host", "localhost"), ("Origin", "http://a.example"), token];
    assert_eq!(ask("GET", "/drain", &page).status, 404);
    assert_not_paused(&front);
}

#[test]
fn a_web_page_does_not_reach_a_status_listener_without_a_token() {
    let config = CONFIG.replace("0.0.0.0:0", "127.0.0.1:0").replace("status_token", "# status_token");
    let front = Front::start(&config);
    front.server.wait_healthy();
    let address = front.server.address_behind("status on http://").expect("it is announced");
    assert_eq!(call(address, "GET", "/ready", &[("Host", "localhost")]).status, 200);
    for fields in [[("Host", "evil.example"), ("X-Nothing", "")], [("Host", "localhost"), ("Origin", "null")]]
    {
        assert_eq!(call(address, "GET", "/ready", &fields).status, 403);
    }
}

#[test]
fn the_admin_listener_is_steered_by_its_own_page_and_by_no_other() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let admin = front.server.admin;
    let host = admin.to_string();
    let own = format!("http://{host}");
    for origin in ["http://a.example", "null", "", "http://localhost", &format!("https://{host}"), &host] {
        let fields = [("Host", host.as_str()), ("Origin", origin)];
        assert_eq!(call(admin, "POST", "/drain/pause", &fields).status, 403, "{origin}");
    }
    // A name that resolves to loopback is not accepted as Host.
    let rebound = [("Host", "a.example:1"), ("Origin", "http://a.example:1")];
    assert_eq!(call(admin, "POST", "/drain/pause", &rebound).status, 403);
    assert_not_paused(&front);
    let page = [("Host", host.as_str()), ("Origin", &own)];
    assert_eq!(call(admin, "POST", "/drain/pause", &page).status, 200);
    let answer = call(admin, "GET", "/", &[("Host", &host)]);
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{policy}");
    let status = front.server.address_behind("status on http://").expect("it is announced");
    let token = ("Authorization", "Bearer a token of the probes");
    assert_eq!(call(status, "GET", "/", &[("Host", "localhost"), token]).status, 404);
}

/// The first field is the Host.
fn call(address: SocketAddr, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
    let ((_, host), fields) = fields.split_first().expect("a Host");
    let request = String::from_utf8(request_bytes(method, path, fields, None)).expect("text");
    let mut client = Client::connect(address).expect("it listens");
    client
        .send(request.replacen("Host: localhost", &format!("Host: {host}"), 1).as_bytes())
        .expect("it is sent");
    client.receive(method == "HEAD").expect("an answer")
}
