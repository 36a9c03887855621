//! Behaviour of every route: HEAD, 404, 405 with Allow, problem details, Date, Content-Length.

use super::App;
use forebay_tests::{Answer, Client};

fn allowed(answer: &Answer) -> Vec<String> {
    let allow = answer.header("allow").unwrap_or_else(|| panic!("no Allow: {answer:?}"));
    let mut methods: Vec<String> = allow.split(',').map(|method| method.trim().to_owned()).collect();
    methods.sort();
    methods
}

#[test]
fn unknown_routes_are_404() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for target in
        ["/", "/nothing", "/simple/", "/simple/x", "/code-ultra-fast/", "/Simple", "/code-ultra-fast"]
    {
        // The last one is a route, but not for GET.
        let status = if target == "/code-ultra-fast" { 405 } else { 404 };
        client.get(target).expect_problem(status, "");
    }
}

#[test]
fn wrong_methods_are_405_with_allow() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for (method, target, methods) in [
        ("DELETE", "/simple", &["GET", "HEAD"][..]),
        ("POST", "/simple", &["GET", "HEAD"]),
        ("GET", "/code", &["POST"]),
        ("HEAD", "/code", &["POST"]),
        ("PUT", "/code-fast", &["GET", "HEAD", "POST"]),
        ("GET", "/update-something/1/name", &["PATCH"]),
        ("PATCH", "/code-ultra-fast/06f40771-6460-479a-a47c-177473e240b5", &["GET", "HEAD"]),
    ] {
        let answer = client.ask(method, target, None);
        if method == "HEAD" {
            assert_eq!(answer.status, 405, "{method} {target}");
        } else {
            answer.expect_problem(405, "");
        }
        let found: Vec<String> = allowed(&answer).into_iter().filter(|method| method != "OPTIONS").collect();
        assert_eq!(found, methods, "{method} {target}");
    }
}

/// HEAD returns the status and the fields of GET, Content-Length among them, and no body.
fn check_head(client: &mut Client, target: &str) {
    let get = client.get(target);
    let head = client.ask("HEAD", target, None);
    assert_eq!(head.status, get.status, "{target}");
    assert!(head.body.is_empty() && !client.has_rest(), "{target}");
    for name in ["content-type", "content-length"] {
        assert_eq!(head.header(name), get.header(name), "{name} of {target}");
    }
    assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()), "{target}");
    assert!(head.header("date").is_some(), "{target}");
}

#[test]
fn head_is_get_without_the_body() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for target in ["/simple", "/code-v1", "/code-fast", "/code-ultra-fast/no-uuid", "/nothing"] {
        check_head(&mut client, target);
    }
    let created = client.post("/code-ultra-fast").expect(201);
    let id = created["created_code"]["id"].as_str().expect("an id");
    check_head(&mut client, &format!("/code-ultra-fast/{id}"));
    client.post("/code").expect(201);
    for target in ["/code-v1", "/code-v2", "/code-v3", "/code-v4?max=1"] {
        check_head(&mut client, target);
    }
}

#[test]
fn answers_to_pipelined_requests_come_in_order() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    // Answers that are ready at once behind ones that wait for the disk or the database.
    let mut bytes = Vec::new();
    for _ in 0..20 {
        for (method, target) in
            [("POST", "/code-fast"), ("GET", "/simple"), ("POST", "/code"), ("GET", "/nothing")]
        {
            bytes.extend_from_slice(&forebay_tests::request_bytes(method, target, &[], None));
        }
    }
    client.send(&bytes).expect("the requests can be sent");
    for round in 0..20 {
        for status in [201, 200, 201, 404] {
            let answer = client.receive(false).expect("an answer");
            assert_eq!(answer.status, status, "round {round}: {answer:?}");
        }
    }
    assert!(!client.has_rest());
}
