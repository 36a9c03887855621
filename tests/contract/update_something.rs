//! `PATCH /update-something/{id}/{name}`: every object of the 32 KB.

use super::{App, assert_now};
use forebay_tests::Client;
use serde_json::{Value, json};

fn patch(client: &mut Client, target: &str, body: &str) -> forebay_tests::Answer {
    client.ask("PATCH", target, Some(body))
}

/// Checks the parts that depend on the request, and the parts that must always be the same.
#[track_caller]
fn check_history(answer: &Value, id: i64, name: &str) {
    let history = answer["history"].as_array().expect("history is an array");
    assert_eq!(history.len(), 100);
    let time = &history[0]["timestamp"];
    assert_now(time);
    assert_eq!(time.as_str().map(str::len), Some("2026-11-21T10:03:00.000Z".len()), "milliseconds: {time}");
    for (event, i) in history.iter().zip(0i64..) {
        let metadata = event["metadata"].as_str().expect("metadata is a text");
        let expected = json!({
            "event_id": id + i,
            "timestamp": event["timestamp"],
            "action": format!("Action performed by {name}"),
            "metadata": metadata,
            "status": if i % 2 == 0 { "success" } else { "pending" },
        });
        assert_eq!(event, &expected, "event {i}");
        assert_now(&event["timestamp"]);
        let middle = metadata.len() / 2;
        assert!((180..=220).contains(&metadata.len()), "about 100 characters twice: {metadata}");
        let (first, second) = (metadata[..middle].trim(), metadata[middle..].trim());
        assert_eq!(first, second, "one sentence, twice");
    }
}

#[test]
fn the_whole_answer() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let foos = (1..=10).map(|i| format!("\"foo{i}\":\"foo text {i}\"")).collect::<Vec<_>>().join(",");
    let answer = patch(&mut client, "/update-something/7/Fred?value1=one&value2=two", &format!("{{{foos}}}"));
    let value = answer.expect(200);
    answer.expect_fields("", &["id", "name", "value1", "value2", "total_foo", "history"]);
    answer.expect_fields("/history/0", &["event_id", "timestamp", "action", "metadata", "status"]);
    assert!(
        answer
            .text()
            .starts_with(r#"{"id":7,"name":"Fred","value1":"one","value2":"two","total_foo":"FOO TEXT 1. "#)
    );
    let total: String = (1..=10).map(|i| format!("FOO TEXT {i}. ")).collect();
    assert_eq!(value["total_foo"], total);
    check_history(&value, 7, "Fred");
    assert!((29_000..=36_000).contains(&answer.body.len()), "about 32 KB: {}", answer.body.len());
}

#[test]
fn nothing_is_pre_rendered() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    // Pipelined requests each get their own answer.
    let mut bytes = Vec::new();
    for i in 0..30 {
        let (target, body) =
            (format!("/update-something/{i}/name{i}?value1=v{i}"), format!("{{\"foo1\":\"f{i}\"}}"));
        bytes.extend_from_slice(&forebay_tests::request_bytes("PATCH", &target, &[], Some(&body)));
    }
    client.send(&bytes).expect("the requests can be sent");
    for i in 0..30 {
        let value = client.receive(false).expect("an answer").expect(200);
        assert_eq!(value["value1"], format!("v{i}"));
        assert_eq!(value["total_foo"], format!("F{i}. "));
        assert_eq!(value["name"], format!("name{i}"));
        check_history(&value, i, &format!("name{i}"));
    }
}

#[test]
fn names_ids_and_query() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for (target, id, name, value1, value2) in [
        ("/update-something/1/abc", 1, "abc", None, None),
        ("/update-something/-5/abc", -5, "abc", None, None),
        ("/update-something/0/abc?value2=only", 0, "abc", None, Some("only")),
        ("/update-something/123456789012/abc?value1=", 123_456_789_012, "abc", Some(""), None),
        (
            "/update-something/1/J%C3%BCrgen%20%22J%22?value1=a%26b%3Dc&value2=x%2By",
            1,
            "Jürgen \"J\"",
            Some("a&b=c"),
            Some("x+y"),
        ),
        (
            "/update-something/1/%E6%97%A5%E6%9C%AC%E8%AA%9E?value1=%F0%9F%98%80",
            1,
            "日本語",
            Some("😀"),
            None,
        ),
        ("/update-something/1/a%2Fb?value1=one+two", 1, "a/b", Some("one two"), None),
        ("/update-something/1/a%5Cb%0Ac?other=1&other=2&value1=one", 1, "a\\b\nc", Some("one"), None),
    ] {
        let answer = patch(&mut client, target, "{}");
        let value = answer.expect(200);
        assert_eq!((&value["id"], &value["name"]), (&json!(id), &json!(name)), "{target}");
        assert_eq!(value.get("value1").and_then(Value::as_str), value1, "{target}");
        assert_eq!(value.get("value2").and_then(Value::as_str), value2, "{target}");
        assert_eq!(value["total_foo"], "", "{target}");
        check_history(&value, id, name);
    }
}

#[test]
fn what_foos_add_up_to() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for (body, total) in [
        (r#"{"foo10":"last","foo1":"first","foo2":"second","other":"no"}"#, "FIRST. SECOND. LAST. "),
        (r#"{"foo3":1.50,"foo4":-7,"foo5":12345678901234567890}"#, "1.50. -7. 12345678901234567890. "),
        (r#"{"foo1":true,"foo2":false}"#, "TRUE. FALSE. "),
        (r#"{ "foo1" : "spaced" , "foo2" : "straße é" }"#, "SPACED. STRASSE É. "),
        (r#"{"foo1":"tab\tquote\"\u00e9"}"#, "TAB\tQUOTE\"É. "),
        (r#"{"foo1":""}"#, ". "),
        ("{}", ""),
    ] {
        let value = patch(&mut client, "/update-something/1/abc", body).expect(200);
        assert_eq!(value["total_foo"], total, "{body}");
    }
}

#[test]
fn wrong_ones_are_400() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    for (target, body, names) in [
        ("/update-something/abc/Fred", "{}", "id"),
        ("/update-something/1.5/Fred", "{}", "id"),
        ("/update-something/%20/Fred", "{}", "id"),
        ("/update-something/99999999999999999999/Fred", "{}", "id"),
        ("/update-something/1/ab", "{}", "name"),
        // Two characters, however many bytes.
        ("/update-something/1/%C3%BC%C3%BC", "{}", "name"),
        ("/update-something/1/%F0%9F%98%80", "{}", "name"),
        ("/update-something/1/Fred", "[]", "body"),
        ("/update-something/1/Fred", "\"text\"", "body"),
        ("/update-something/1/Fred", "null", "body"),
        ("/update-something/1/Fred", "", "body"),
        ("/update-something/1/Fred", "nonsense", ""),
        ("/update-something/1/Fred", "{\"foo1\":\"a\"", ""),
        ("/update-something/1/Fred", "{} {}", ""),
        ("/update-something/1/%FFred", "{}", "path"),
        ("/update-something/1/Fred?value1=first&value1=second", "{}", "value1"),
    ] {
        patch(&mut client, target, body).expect_problem(400, names);
    }
}
