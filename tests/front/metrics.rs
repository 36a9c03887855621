//! `GET /metrics`: Prometheus' client library can parse it, and its counts agree with what clients
//! saw.

use super::Front;
use forebay_tests::{binary, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

const CONFIG: &str = r#"
[table.notes]
columns = { id = "serial key", text = "text(20)" }

[[endpoint]]
route = "POST /notes"
insert = "notes"
values = { text = "$text" }

[[endpoint]]
route = "GET /notes/{id}"
get = "notes"

[[endpoint]]
route = "GET /sql"
sql = "SELECT count(*) AS count FROM notes"
returns = "one"
"#;

/// Reads the text strictly: names, types, labels, buckets that grow, the end. Prints one sample a line.
const READER: &str = "
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read
for family in read(sys.stdin.read()):
    assert family.documentation, family.name
    for sample in family.samples:
        labels = ','.join(f'{name}={value}' for name, value in sorted(sample.labels.items()))
        print(json.dumps([f'{sample.name}[{labels}]', sample.value]))
";

/// The metrics of the admin listener, as parsed by Prometheus' client library.
#[track_caller]
fn scraped(front: &Front) -> BTreeMap<String, f64> {
    let answer = front.server.admin("GET", "/metrics");
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("application/openmetrics-text; version=1.0.0"), "{kind}");
    let mut reader = Command::new("/usr/bin/python3");
    reader.args(["-c", READER]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut reader = reader.spawn().expect("python3 is installed");
    reader.stdin.take().expect("a pipe").write_all(answer.text().as_bytes()).expect("it is read");
    let output = reader.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", answer.text());
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("a sample")).collect()
}

const RECEIVED: &str = "forebay_http_requests_received_total[]";

/// The metrics, once they count `requests` requests: a worker counts them after it has written the
/// answers.
#[track_caller]
fn received(front: &Front, requests: f64) -> BTreeMap<String, f64> {
    wait_for("all requests are counted", || {
        Some(scraped(front)).filter(|samples| samples.get(RECEIVED) == Some(&requests))
    })
}

#[test]
fn numbers_are_those_that_clients_saw() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let mut client = front.server.client();
    for _ in 0..5 {
        client.post_json("/notes", r#"{"text":"a"}"#).expect(201);
    }
    client.post_json("/notes", r#"{"text":"longer than twenty characters"}"#).expect_problem(422, "text");
    client.get("/sql").expect(200);
    client.get("/notes/99").expect_problem(404, "");
    client.get("/nowhere").expect_problem(404, "nothing here");
    front.server.drain();
    let samples = received(&front, 9.0);
    for (name, expected) in [
        ("forebay_http_requests_total[method=POST,route=/notes,status=201]", 5.0),
        ("forebay_http_requests_total[method=POST,route=/notes,status=422]", 1.0),
        ("forebay_http_requests_total[method=GET,route=/notes/{id},status=404]", 1.0),
        ("forebay_http_requests_total[method=,route=,status=404]", 1.0),
        ("forebay_http_request_duration_seconds_count[method=GET,route=/sql]", 1.0),
        ("forebay_http_request_duration_seconds_count[method=POST,route=/notes]", 6.0),
        ("forebay_drain_backlog_rows[]", 0.0),
        ("forebay_drain_rows_total[]", 5.0),
        ("forebay_dead_letters_total[]", 0.0),
        ("forebay_table_rows[table=notes]", 5.0),
    ] {
        assert_eq!(samples.get(name), Some(&expected), "{name} of {samples:#?}");
    }
    assert!(samples["forebay_http_request_duration_seconds_sum[method=GET,route=/sql]"] > 0.0);
    assert!(samples["process_resident_memory_bytes[]"] > 1e6);
    assert!(!samples.keys().any(|name| name.starts_with("forebay_condition[")), "{samples:#?}");
}

#[test]
fn numbers_are_those_of_the_load_tester_to_the_request() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    let result = front.folder.path().join("load.json");
    let url = format!("http://{}/notes/1", front.server.address);
    front.server.client().post_json("/notes", r#"{"text":"a"}"#).expect(201);
    received(&front, 1.0);
    let arguments = ["load", "-c", "16", "-d", "1s", "--warmup", "0s", "--json"];
    let status = Command::new(binary()).args(arguments).arg(&result).arg(&url).stdout(Stdio::null()).status();
    assert!(status.expect("the load tester runs").success());
    let told: Value = serde_json::from_slice(&std::fs::read(&result).expect("a result")).expect("JSON");
    let sent = told["requests"]["sent"].as_f64().expect("a number");
    assert!(sent > 16.0, "no connection has sent a second request: {told}");
    let name = "forebay_http_requests_total[method=GET,route=/notes/{id},status=200]";
    // Requests in flight at the end of the run are answered too.
    let counted = wait_for("all requests are counted", || {
        let after = scraped(&front);
        (after.get("forebay_http_connections[]") == Some(&0.0)).then_some(after)
    });
    assert_eq!(counted.get(name), Some(&sent));
    assert_eq!(counted.get(RECEIVED), Some(&(1.0 + sent)), "{counted:#?}");
}

#[test]
fn a_paused_drain_and_a_dead_letter_are_seen() {
    let front = Front::start(CONFIG);
    front.server.wait_healthy();
    front.server.pause_drain(true);
    for _ in 0..3 {
        front.server.client().post_json("/notes", r#"{"text":"a"}"#).expect(201);
    }
    wait_for("the backlog is told", || {
        (scraped(&front)["forebay_drain_backlog_bytes[]"] > 0.0).then_some(())
    });
    let database = rusqlite::Connection::open(front.folder.database()).expect("a file");
    database
        .execute_batch(
            "CREATE TRIGGER no BEFORE INSERT ON notes WHEN NEW.id = 2 BEGIN SELECT raise(ABORT, 'no'); END",
        )
        .expect("a trigger can be made");
    front.server.pause_drain(false);
    front.server.drain();
    let samples = scraped(&front);
    assert_eq!(samples.get("forebay_dead_letters_total[]"), Some(&1.0), "{samples:#?}");
    assert_eq!(samples.get("forebay_condition[state=dead letters,table=]"), Some(&1.0), "{samples:#?}");
}
