//! Requests that try to have an answer cached for other clients, or to read answers cached for
//! others.

use super::{Fixture, counted};
use forebay_tests::Client;

const CONFIG: &str = r#"
[table.things]
hot = false
columns = { id = "serial key", name = "text" }

[[endpoint]]
route = "GET /things/{id}"
params = { id = "bigint", note = "text?" }
sql = "SELECT $id::bigint AS id, $note::text AS note"
cache = { local = "10m" }

[[endpoint]]
route = "GET /named/{name}"
encoded_slash = "pass"
params = { name = "text" }
sql = "SELECT $name::text AS name"
cache = { local = "10m", missing = "10m" }

[[endpoint]]
route = "GET /mine"
headers = { "X-User" = "user" }
params = { user = "text" }
sql = "SELECT $user::text AS user"
cache = { local = "10m" }

[[endpoint]]
route = "GET /language"
sql = "SELECT nextval('things_id_seq') AS run"
cache = { local = "10m", vary = ["Accept-Language"] }

[[endpoint]]
route = "GET /where/{id}"
params = { id = "bigint" }
sql = "SELECT $id::bigint AS id"
reply = { fields = { url = "{base_url()}/{$id}" } }
cache = { local = "10m" }

[[endpoint]]
route = "GET /guarded"
guard = { header = "X-Secret", secret = "open", status = 403 }
sql = "SELECT 1 AS one"
cache = { local = "10m" }
"#;

/// A target, header fields, and the expected answer.
type Asked<'a> = (&'a str, &'a [(&'a str, &'a str)], String);

#[track_caller]
fn body(client: &mut Client, target: &str, headers: &[(&str, &str)]) -> String {
    let answer = client.call("GET", target, headers, None).expect("an answer");
    assert_eq!(answer.status, 200, "{target} {headers:?}: {answer:?}");
    answer.text().to_owned()
}

#[test]
fn nobody_gets_anothers_answer() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let mut client = server.client();
    // Requests and their expected answers, whatever was requested before.
    let long = "x".repeat(2000);
    let table: &[Asked<'_>] = &[
        ("/things/1", &[], r#"{"id":1,"note":null}"#.into()),
        ("/things/1?note=a", &[], r#"{"id":1,"note":"a"}"#.into()),
        ("/things/1?note=", &[], r#"{"id":1,"note":""}"#.into()),
        ("/things/1?note=%61", &[], r#"{"id":1,"note":"a"}"#.into()),
        ("/things/%31", &[], r#"{"id":1,"note":null}"#.into()),
        ("/things/1?other=b", &[], r#"{"id":1,"note":null}"#.into()),
        (
            "/things/1",
            &[("X-Forwarded-Host", "evil"), ("X-User", "eve"), ("X-Original-URL", "/mine")],
            r#"{"id":1,"note":null}"#.into(),
        ),
        ("/named/a", &[], r#"{"name":"a"}"#.into()),
        ("/named/%61", &[], r#"{"name":"a"}"#.into()),
        ("/named/A", &[], r#"{"name":"A"}"#.into()),
        ("/named/a%2Fb", &[], r#"{"name":"a/b"}"#.into()),
        ("/named/a%252Fb", &[], r#"{"name":"a%2Fb"}"#.into()),
        ("/named/a%3Fb", &[], r#"{"name":"a?b"}"#.into()),
        ("/named/a%20", &[], r#"{"name":"a "}"#.into()),
        (&*format!("/named/{long}").leak(), &[], format!(r#"{{"name":"{long}"}}"#)),
        (&*format!("/named/{long}y").leak(), &[], format!(r#"{{"name":"{long}y"}}"#)),
        ("/mine", &[("X-User", "anna")], r#"{"user":"anna"}"#.into()),
        ("/mine", &[("X-User", "bert")], r#"{"user":"bert"}"#.into()),
        ("/mine", &[("x-user", "anna"), ("X-User", "bert")], r#"{"user":"anna"}"#.into()),
        ("/mine?user=anna", &[("X-User", "bert")], r#"{"user":"bert"}"#.into()),
    ];
    for round in 0..3 {
        for (target, headers, expected) in table {
            assert_eq!(body(&mut client, target, headers), *expected, "round {round}: {target} {headers:?}");
        }
        // The same in reverse order.
        for (target, headers, expected) in table.iter().rev() {
            assert_eq!(body(&mut client, target, headers), *expected, "round {round}: {target} {headers:?}");
        }
    }
    assert!(counted(&server, "hits") > 50, "most of it was kept");
    client.call("GET", "/mine", &[], None).expect("an answer").expect_problem(400, "user");
}

#[test]
fn named_headers_and_the_host_are_part_of_the_question() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let mut client = server.client();
    let german = body(&mut client, "/language", &[("Accept-Language", "de")]);
    let english = body(&mut client, "/language", &[("Accept-Language", "en")]);
    let none = body(&mut client, "/language", &[]);
    assert!(german != english && english != none && none != german);
    for _ in 0..3 {
        assert_eq!(body(&mut client, "/language", &[("accept-language", "de"), ("Cookie", "a=b")]), german);
        assert_eq!(body(&mut client, "/language", &[("Accept-Language", "en")]), english);
        assert_eq!(body(&mut client, "/language", &[]), none);
    }
    let answer = client.get("/language");
    assert_eq!(answer.header("vary"), Some("Accept-Language"), "{answer:?}");
    for host in ["localhost", "evil.example", "localhost"] {
        let request = format!("GET /where/1 HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.send(request.as_bytes()).expect("sent");
        assert_eq!(
            client.receive(false).expect("an answer").text(),
            format!(r#"{{"url":"http://{host}/1"}}"#)
        );
    }
}

#[test]
fn a_guard_stands_before_the_cache() {
    let fixture = Fixture::new(CONFIG);
    let server = fixture.start("a").start();
    let mut client = server.client();
    let answer = client.call("GET", "/guarded", &[("X-Secret", "open")], None).expect("an answer");
    assert!(answer.header("cache-control").is_some_and(|value| value.contains("private")), "{answer:?}");
    answer.expect(200);
    client.get("/guarded").expect_problem(403, "");
}
