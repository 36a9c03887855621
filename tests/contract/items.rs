//! Application 4, items: a page that thousands poll.

use super::App;
use forebay_tests::{Answer, Client, wait_for};
use serde_json::{Value, json};

/// A server whose job does not run during a test.
fn quiet() -> App {
    App::start_with("items.toml", |start| start.set("job.0.every=10000h"))
}

fn start() -> App {
    let app = quiet();
    let made = app.server.client().post("/items/generate?size=1000").expect(200);
    assert_eq!(made, json!({ "changed": 1000 }));
    app
}

#[track_caller]
fn with(client: &mut Client, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
    client.call(method, target, headers, None).unwrap_or_else(|error| panic!("{method} {target}: {error}"))
}

/// Every GET of the application, with the headers that it needs.
const GETS: [(&str, &[(&str, &str)]); 9] = [
    ("/items/1", &[]),
    ("/items", &[]),
    ("/items?after=3&limit=2", &[]),
    ("/items/hot", &[]),
    ("/home", &[("X-User-Id", "anna")]),
    ("/bench/empty", &[]),
    ("/bench/db/items/1", &[]),
    ("/bench/shared/items/1", &[]),
    ("/bench/burst/items/1", &[]),
];

#[test]
fn an_item_has_its_fields() {
    let app = start();
    let mut client = app.server.client();
    for _ in 0..2 {
        let answer = client.get("/items/7");
        answer.expect(200);
        answer.expect_fields(
            "/data",
            &["id", "name", "attribute", "description", "price", "viewers", "hot", "updated_at"],
        );
        let item = &answer.json()["data"];
        assert_eq!((&item["id"], &item["name"], &item["hot"]), (&json!(7), &json!("item 7"), &json!(true)));
        assert!((900..1500).contains(&answer.body.len()), "about a kilobyte: {answer:?}");
    }
    for _ in 0..2 {
        client.get("/items/1001").expect_problem(404, "no such item");
    }
    client.get("/items/x").expect_problem(400, "id");
}

#[test]
fn every_get_has_a_validator() {
    let app = start();
    let mut client = app.server.client();
    for (target, headers) in GETS {
        let whole = with(&mut client, "GET", target, headers);
        whole.expect(200);
        let etag =
            whole.header("etag").unwrap_or_else(|| panic!("{target} has no ETag: {whole:?}")).to_owned();
        assert!(etag.starts_with("W/\"") && etag.ends_with('"') && etag.len() > 4, "{target}: {etag}");
        assert!(whole.header("cache-control").is_some(), "{target}: {whole:?}");
        let head = with(&mut client, "HEAD", target, headers);
        assert_eq!((head.status, head.header("etag")), (200, Some(&*etag)), "{target}");
        assert_eq!(head.header("content-length"), whole.header("content-length"), "{target}");
        for (given, status) in [
            (etag.clone(), 304),
            (etag.trim_start_matches("W/").to_owned(), 304),
            (format!("\"other\", {etag}"), 304),
            ("*".to_owned(), 304),
            ("\"other\"".to_owned(), 200),
            ("W/\"\"".to_owned(), 200),
        ] {
            let all: Vec<_> = headers.iter().copied().chain([("If-None-Match", &*given)]).collect();
            for method in ["GET", "HEAD"] {
                let answer = with(&mut client, method, target, &all);
                assert_eq!(answer.status, status, "{method} {target}, If-None-Match: {given}: {answer:?}");
                assert_eq!(answer.header("etag"), Some(&*etag), "{method} {target}: {answer:?}");
                let body = if status == 200 && method == "GET" { &whole.body[..] } else { &[] };
                assert_eq!(answer.body, body, "{method} {target}, If-None-Match: {given}");
            }
        }
    }
}

#[test]
fn lists_have_pages_and_hot_ones_what_changes() {
    let app = start();
    let mut client = app.server.client();
    let ids = |value: &Value| -> Vec<i64> {
        value["data"].as_array().into_iter().flatten().filter_map(|item| item["id"].as_i64()).collect()
    };
    assert_eq!(ids(&client.get("/items").expect(200)), (1..=100).collect::<Vec<_>>());
    let page = client.get("/items?after=997&limit=50");
    assert_eq!(ids(&page.expect(200)), [998, 999, 1000]);
    page.expect_fields("/data/0", &["id", "name", "attribute"]);
    client.get("/items?limit=0").expect_problem(400, "limit");
    client.get("/items?after=x").expect_problem(400, "after");
    let hot = client.get("/items/hot");
    assert_eq!(ids(&hot.expect(200)), (1..=200).collect::<Vec<_>>());
    hot.expect_fields("/data/0", &["id", "viewers", "price"]);
}

#[test]
fn a_home_is_its_users_own() {
    let app = start();
    let mut client = app.server.client();
    let picks = |client: &mut Client, user: &str| -> Vec<i64> {
        let home = with(client, "GET", "/home", &[("X-User-Id", user)]);
        assert!(home.header("vary").is_some_and(|vary| vary.contains("X-User-Id")), "{home:?}");
        assert!(home.header("cache-control").is_some_and(|value| value.contains("private")), "{home:?}");
        let home = home.expect(200);
        let items = home["data"].as_array().expect("a list");
        assert_eq!(items.iter().filter(|item| item["list"] == "hot").count() + count(items), items.len());
        items.iter().filter(|item| item["list"] == "pick").filter_map(|item| item["id"].as_i64()).collect()
    };
    fn count(items: &[Value]) -> usize {
        items.iter().filter(|item| item["list"] == "pick").count()
    }
    client.get("/home").expect_problem(400, "user");
    assert!(picks(&mut client, "anna").is_empty() && picks(&mut client, "bert").is_empty());
    let body = json!({ "item": 777 }).to_string();
    let made = client.call("POST", "/home/picks", &[("X-User-Id", "anna")], Some(&body)).expect("an answer");
    assert_eq!(made.expect(201), json!({ "data": { "user": "anna", "item": 777 } }));
    for _ in 0..2 {
        assert_eq!(picks(&mut client, "anna"), [777]);
        assert!(picks(&mut client, "bert").is_empty());
    }
}

#[test]
fn a_write_is_seen_at_once_wherever_the_item_is_shown() {
    let app = start();
    let mut client = app.server.client();
    for round in 1..=5 {
        // All cached answers are from before.
        for (target, headers) in GETS {
            with(&mut client, "GET", target, headers).expect(200);
        }
        let body = json!({ "name": format!("name {round}"), "viewers": 1000 + round }).to_string();
        let put = client.ask("PUT", "/items/1", Some(&body)).expect(200);
        assert_eq!(put["data"]["name"], format!("name {round}"));
        assert_eq!(put["data"]["attribute"], "attribute 1", "what is not given stays");
        for target in ["/items/1", "/bench/db/items/1", "/bench/shared/items/1", "/bench/burst/items/1"] {
            assert_eq!(client.get(target).expect(200), put, "{target}");
        }
        assert_eq!(client.get("/items").expect(200)["data"][0]["name"], format!("name {round}"));
        assert_eq!(client.get("/items/hot").expect(200)["data"][0]["viewers"], 1000 + round);
    }
    client.ask("PUT", "/items/1001", Some("{}")).expect_problem(404, "no such item");
}

#[test]
fn an_empty_list_is_forgotten_when_items_come_to_be() {
    let app = quiet();
    let mut client = app.server.client();
    client.get("/items/hot").expect(200);
    assert_eq!(client.get("/items").expect(200), json!({ "data": [] }));
    client.post("/items/generate?size=3").expect(200);
    assert_eq!(client.get("/items").expect(200)["data"].as_array().map(Vec::len), Some(3));
}

#[test]
fn the_same_bytes_four_ways() {
    let app = start();
    let mut client = app.server.client();
    let bodies: Vec<String> =
        ["/bench/empty", "/bench/db/items/1", "/bench/shared/items/1", "/bench/burst/items/1"]
            .iter()
            .flat_map(|target| [client.get(target), client.get(target)])
            .map(|answer| answer.text().to_owned())
            .collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");
}

#[test]
fn answers_are_compressed_for_who_takes_that() {
    let app = start();
    let mut client = app.server.client();
    let plain = client.get("/items/1");
    assert_eq!(plain.header("content-encoding"), None);
    for (accepted, coding) in
        [("gzip", Some("gzip")), ("br, gzip", Some("br")), ("zstd", Some("zstd")), ("identity", None)]
    {
        for _ in 0..2 {
            let answer = with(&mut client, "GET", "/items/1", &[("Accept-Encoding", accepted)]);
            assert_eq!((answer.status, answer.header("content-encoding")), (200, coding), "{accepted}");
            assert_eq!(answer.header("etag"), plain.header("etag"));
            assert!(answer.header("vary").is_some_and(|vary| vary.contains("Accept-Encoding")), "{answer:?}");
            assert_eq!(answer.body.len() < plain.body.len(), coding.is_some(), "{accepted}");
        }
    }
}

#[test]
fn the_job_changes_what_is_hot_and_all_pages_show_it() {
    let app = App::start_with("items.toml", |start| start.set("job.0.every=1s"));
    let mut client = app.server.client();
    client.post("/items/generate?size=300").expect(200);
    let viewers =
        |client: &mut Client, target: &str| client.get(target).expect(200)["data"]["viewers"].clone();
    for target in ["/items/7", "/bench/shared/items/7"] {
        for _ in 0..2 {
            let before = viewers(&mut client, target);
            // This must happen long before the 30 s of `shared` end.
            wait_for("the item shows what the job did", || {
                (viewers(&mut client, target) != before).then_some(())
            });
        }
    }
    assert_eq!(viewers(&mut client, "/items/250"), 250, "what is not hot stays");
}
