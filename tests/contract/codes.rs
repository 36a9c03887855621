//! Application 1, codes: SQL on the database, and the hot tables.

use super::{App, assert_now};
use forebay_tests::{Answer, wait_for};
use serde_json::Value;
use std::collections::HashSet;

/// 375 random bytes as base64.
#[track_caller]
fn assert_code(value: &Value) {
    let code = value.as_str().unwrap_or_default();
    assert_eq!(code.len(), 500, "{value}");
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    assert!(code.bytes().all(is_base64), "375 bytes need no padding: {value}");
}

/// The new row, which has an id, a code and the present time.
#[track_caller]
fn created(answer: &Answer) -> Value {
    let value = answer.expect(201);
    answer.expect_fields("", &["created_code"]);
    answer.expect_fields("/created_code", &["id", "code", "created_at"]);
    assert_code(&value["created_code"]["code"]);
    assert_now(&value["created_code"]["created_at"]);
    value["created_code"].clone()
}

#[track_caller]
fn data(answer: &Answer) -> Value {
    let value = answer.expect(200);
    answer.expect_fields("", &["data"]);
    answer.expect_fields("/data", &["id", "code", "created_at"]);
    value["data"].clone()
}

#[test]
fn simple() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let answer = client.get("/simple");
    answer.expect(200);
    assert_eq!(answer.text(), r#"{"message":"hi"}"#);
    assert_eq!(answer.header("content-length"), Some("16"));
    assert!(answer.header("date").is_some(), "{answer:?}");
    assert_eq!(client.get("/simple?x=1").text(), r#"{"message":"hi"}"#);
}

#[test]
fn code_is_one_committed_insert() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let mut ids = HashSet::new();
    for _ in 0..20 {
        let row = created(&client.post("/code"));
        assert!(ids.insert(row["id"].as_i64().expect("a serial id")));
        // In the database before the answer.
        let archive = app.archive();
        let code = archive.text(&format!("SELECT code FROM codes WHERE id = {}", row["id"]));
        assert_eq!(row["code"], code);
    }
    // A kill loses no row.
    let App { server, folder, stores } = app;
    server.kill();
    assert_eq!(stores.archive(&folder).number("SELECT count(*) FROM codes"), 20);
}

#[test]
fn four_ways_to_a_random_row() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let targets = ["/code-v1", "/code-v2", "/code-v3", "/code-v4", "/code-v4?max=1"];
    for target in targets {
        client.get(target).expect_problem(404, "");
    }
    let rows: Vec<Value> = (0..5).map(|_| created(&client.post("/code"))).collect();
    let last = rows.iter().filter_map(|row| row["id"].as_i64()).max().expect("rows");
    let at_last = format!("/code-v4?max={last}");
    for target in ["/code-v1", "/code-v2", "/code-v3", "/code-v4?max=1", &at_last] {
        let mut seen = HashSet::new();
        for _ in 0..60 {
            let row = data(&client.get(target));
            assert!(rows.contains(&row), "{target}: {row} was never created");
            seen.insert(row["id"].as_i64());
        }
        // Five rows, sixty draws: a route that always returns the same row is not random (1 in
        // 10^40).
        assert_eq!(seen.len() > 1, target != "/code-v4?max=1", "{target}: {seen:?}");
    }
    for target in ["/code-v4?max=abc", "/code-v4?max=1.5", "/code-v4?max=99999999999999999999"] {
        client.get(target).expect_problem(400, "max");
    }
}

#[test]
fn a_code_that_exists_is_409() {
    // The example with a constant code; the rest of the file is unchanged.
    let code = "A".repeat(500);
    let app = App::start_changed("codes.toml", "random_base64(500)", &format!("one_of({code})"));
    let mut client = app.server.client();
    created(&client.post("/code"));
    let again = client.post("/code");
    again.expect_problem(409, "code");
    assert_eq!(app.archive().number("SELECT count(*) FROM codes"), 1);
    // Only one test, and one server in it, uses the stores at a time.
    drop((client, app));

    let app = App::start_changed("codes.toml", "random_base64(500)", &format!("one_of({code})"));
    let mut client = app.server.client();
    created(&client.post("/code-fast"));
    client.post("/code-fast").expect_problem(409, "code");
    // The column is not unique: any number of rows may have the same code.
    created(&client.post("/code-ultra-fast"));
    created(&client.post("/code-ultra-fast"));
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.number("SELECT count(*) FROM codes"), 1);
    assert_eq!(archive.number("SELECT count(*) FROM ucodes"), 2);
    assert_eq!(app.server.drain_state()["dead_total"], 0);
}

#[test]
fn code_fast_is_read_and_drained() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    client.get("/code-fast").expect_problem(404, "");
    let rows: Vec<Value> = (0..50).map(|_| created(&client.post("/code-fast"))).collect();
    let ids: HashSet<i64> = rows.iter().map(|row| row["id"].as_i64().expect("a serial id")).collect();
    assert_eq!(ids.len(), 50, "ids repeat");
    let ascending = rows.windows(2).all(|pair| pair[0]["id"].as_i64() < pair[1]["id"].as_i64());
    assert!(ascending, "ids of one connection are sequential");
    let mut seen = HashSet::new();
    for _ in 0..200 {
        let row = data(&client.get("/code-fast"));
        assert!(rows.contains(&row), "{row} was never created");
        seen.insert(row["id"].as_i64());
    }
    assert!(seen.len() > 5, "200 draws of 50 rows gave {} different ones", seen.len());
    app.server.drain();
    check_stored(&app, "codes", &rows);
}

/// A time without the trailing zeros of its fraction.
fn without_zeros(time: &str) -> &str {
    time.trim_end_matches('Z').trim_end_matches('0').trim_end_matches('.')
}

/// Each row is in the database exactly once, as it was answered.
#[track_caller]
fn check_stored(app: &App, table: &str, rows: &[Value]) {
    let archive = app.archive();
    assert_eq!(archive.number(&format!("SELECT count(*) FROM {table}")), rows.len() as i64);
    let time = archive.time("created_at");
    for row in rows {
        let id = row["id"].as_str().map_or_else(|| row["id"].to_string(), str::to_owned);
        let found = archive.rows(&format!("SELECT code, {time} FROM {table} WHERE id = '{id}'"));
        let found: Vec<Option<&str>> = found.iter().flatten().map(Option::as_deref).collect();
        let [Some(code), Some(created_at)] = found[..] else { panic!("{table} {id}: {found:?}") };
        assert_eq!(row["code"], code, "{table} {id}");
        let answered = row["created_at"].as_str().unwrap_or_default();
        assert_eq!(without_zeros(created_at), without_zeros(answered), "{table} {id}");
    }
}

#[test]
fn code_ultra_fast_is_read_by_id_and_drained() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let rows: Vec<Value> = (0..50).map(|_| created(&client.post("/code-ultra-fast"))).collect();
    for row in &rows {
        let id = row["id"].as_str().expect("a UUID");
        let parsed = uuid::Uuid::parse_str(id).expect("a UUID");
        assert_eq!(parsed.get_version_num(), 4, "{id}");
        assert_eq!(parsed.to_string(), id, "lower case, with hyphens");
        assert_eq!(&data(&client.get(&format!("/code-ultra-fast/{id}"))), row);
        assert_eq!(&data(&client.get(&format!("/code-ultra-fast/{}", id.to_uppercase()))), row);
    }
    let unknown = uuid::Uuid::new_v4();
    client.get(&format!("/code-ultra-fast/{unknown}")).expect_problem(404, "");
    for wrong in
        ["1", "no-uuid", "06f40771-6460-479a-a47c-177473e240b", "06f40771-6460-479a-a47c-177473e240bg", "%20"]
    {
        client.get(&format!("/code-ultra-fast/{wrong}")).expect_problem(400, "id");
    }
    app.server.drain();
    check_stored(&app, "ucodes", &rows);
}

#[test]
fn sql_and_hot_inserts_share_one_table() {
    let app = App::start("codes.toml");
    let mut client = app.server.client();
    let mut ids = HashSet::new();
    for _ in 0..30 {
        for target in ["/code", "/code-fast"] {
            let row = created(&client.post(target));
            assert!(
                ids.insert(row["id"].as_i64().expect("a serial id")),
                "{target}: id {} came twice",
                row["id"]
            );
        }
    }
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.number("SELECT count(*) FROM codes"), 60);
    assert_eq!(app.server.drain_state()["dead_total"], 0);
    // The table is shared: rows written by other clients are visible to SQL and, after a restart, in
    // the hot table.
    let seen: HashSet<i64> = (0..300).filter_map(|_| data(&client.get("/code-v1"))["id"].as_i64()).collect();
    assert!(seen.len() > 15 && seen.is_subset(&ids));
}

#[test]
fn answers_hold_under_load() {
    // Four connections at once, all writing and reading: every connection can read the rows that
    // another has created.
    let app = App::start("codes.toml");
    let address = app.server.address;
    let workers: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = forebay_tests::Client::connect(address).expect("a connection");
                let mut other = forebay_tests::Client::connect(address).expect("a connection");
                let mut rows = Vec::new();
                for _ in 0..100 {
                    created(&client.post("/code-fast"));
                    let row = created(&client.post("/code-ultra-fast"));
                    let id = row["id"].as_str().expect("a UUID");
                    assert_eq!(data(&other.get(&format!("/code-ultra-fast/{id}"))), row);
                    data(&other.get("/code-fast"));
                    rows.push(row);
                }
                rows
            })
        })
        .collect();
    let rows: Vec<Value> = workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect();
    app.server.drain();
    check_stored(&app, "ucodes", &rows);
    assert_eq!(app.archive().number("SELECT count(*) FROM codes"), 400);
}

#[test]
fn rows_are_drained_by_themselves() {
    let app = App::start("codes.toml");
    created(&app.server.client().post("/code-ultra-fast"));
    let archive = app.archive();
    wait_for("the row is in SQLite without anyone asking", || {
        (archive.number("SELECT count(*) FROM ucodes") == 1).then_some(())
    });
}
