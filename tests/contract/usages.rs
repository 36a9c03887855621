//! Application 3, usages: both spellings of everything, 400 with the field named.

use super::App;
use forebay_tests::Client;
use serde_json::{Value, json};
use std::collections::HashSet;

const TARGET: &str = "/api/usages";

#[track_caller]
fn post(client: &mut Client, body: &Value) -> i64 {
    let answer = client.post_json(TARGET, &body.to_string());
    let value = answer.expect(201);
    answer.expect_fields("", &["id"]);
    value["id"].as_i64().unwrap_or_else(|| panic!("the id is no number: {answer:?}"))
}

fn usage(patient: Value, timestamp: &str, medication: &str) -> Value {
    json!({ "patientId": patient, "timestamp": timestamp, "medication": medication })
}

#[test]
fn both_forms_of_time_and_patient() {
    let app = App::start("usages.toml");
    let mut client = app.server.client();
    let cases = [
        (json!(100), "2016-11-01T14:11:51Z", "Albuterol", 100, "2016-11-01T14:11:51"),
        (json!("100"), "2016-11-01T14:11:51Z", "Albuterol", 100, "2016-11-01T14:11:51"),
        (json!(7), "Tue Nov 01 2016 09:11:51 GMT-0500 (CDT)", "a", 7, "2016-11-01T14:11:51"),
        (json!(7), "Tue Nov 01 2016 23:41:51 GMT+0930 (ACST)", "a", 7, "2016-11-01T14:11:51"),
        (json!(0), "2016-11-01T09:11:51-05:00", "Ibuprofén \"forte\" 日本", 0, "2016-11-01T14:11:51"),
        (json!("-3"), "2016-11-01T14:11:51.250Z", "x", -3, "2016-11-01T14:11:51.25"),
        (
            json!(9_007_199_254_740_993_i64),
            "2024-02-29T23:59:59Z",
            "x",
            9_007_199_254_740_993,
            "2024-02-29T23:59:59",
        ),
    ];
    let ids: Vec<i64> =
        cases.iter().map(|case| post(&mut client, &usage(case.0.clone(), case.1, case.2))).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), cases.len());
    for (id, (_, _, medication, patient, time)) in ids.iter().zip(&cases) {
        let answer = client.get(&format!("{TARGET}/{id}"));
        let value = answer.expect(200);
        assert_eq!(value["id"], *id);
        assert_eq!(value["patientId"], *patient, "{answer:?}");
        assert_eq!(value["medication"], *medication);
        let found = value["timestamp"].as_str().unwrap_or_default();
        let digits = found.strip_suffix('Z').map(|digits| digits.trim_end_matches('0').trim_end_matches('.'));
        assert_eq!(digits, Some(time.trim_end_matches('0')), "{answer:?}");
        // The text contains numbers beyond 2^53 with all digits.
        assert!(answer.text().contains(&format!(":{patient},")), "{answer:?}");
    }
    app.server.drain();
    let archive = app.archive();
    for (id, (_, _, medication, patient, _)) in ids.iter().zip(&cases) {
        let of_row = |what: &str| format!("SELECT {what} FROM usages WHERE id = {id}");
        assert_eq!(archive.number(&of_row("patient_id")), *patient);
        assert_eq!(archive.text(&of_row("medication")), *medication);
        let seconds = archive.number(&of_row(&archive.seconds("timestamp")));
        let expected = if *id == ids[6] { 1_709_251_199 } else { 1_478_009_511 };
        assert_eq!(seconds, expected, "the database's own functions read the column");
        assert_eq!(archive.number(&of_row("count(created_at)")), 1);
    }
    assert_eq!(archive.number("SELECT count(*) FROM usages"), cases.len() as i64);
}

#[test]
fn wrong_ones_name_the_field() {
    let app = App::start("usages.toml");
    let mut client = app.server.client();
    let good = usage(json!(1), "2016-11-01T14:11:51Z", "x");
    let with = |field: &str, value: Value| {
        let mut body = good.clone();
        body[field] = value;
        body.to_string()
    };
    let without = |field: &str| {
        let mut body = good.clone();
        body.as_object_mut().expect("an object").remove(field);
        body.to_string()
    };
    for (body, field) in [
        (without("patientId"), "patientId"),
        (without("timestamp"), "timestamp"),
        (without("medication"), "medication"),
        (with("patientId", json!("abc")), "patientId"),
        (with("patientId", json!("")), "patientId"),
        (with("patientId", json!("1x")), "patientId"),
        (with("patientId", json!(1.5)), "patientId"),
        (with("patientId", json!(true)), "patientId"),
        (with("patientId", json!([1])), "patientId"),
        (with("patientId", json!(null)), "patientId"),
        (with("patientId", json!("99999999999999999999")), "patientId"),
        (with("timestamp", json!("yesterday")), "timestamp"),
        (with("timestamp", json!("")), "timestamp"),
        (with("timestamp", json!("2016-13-01T14:11:51Z")), "timestamp"),
        (with("timestamp", json!("2016-02-30T14:11:51Z")), "timestamp"),
        (with("timestamp", json!("2016-11-01T25:11:51Z")), "timestamp"),
        (with("timestamp", json!("Tue Nov 31 2016 09:11:51 GMT-0500 (CDT)")), "timestamp"),
        (with("timestamp", json!("Tue Foo 01 2016 09:11:51 GMT-0500 (CDT)")), "timestamp"),
        (with("timestamp", json!(null)), "timestamp"),
        (with("medication", json!(null)), "medication"),
        (with("medication", json!({})), "medication"),
        ("{}".to_owned(), "patientId"),
        ("[]".to_owned(), "body"),
        ("7".to_owned(), "body"),
        ("{\"patientId\":1".to_owned(), ""),
        (String::new(), ""),
    ] {
        client.post_json(TARGET, &body).expect_problem(400, field);
    }
    app.server.drain();
    assert_eq!(app.archive().number("SELECT count(*) FROM usages"), 0);
}

#[test]
fn unknown_and_malformed_ids() {
    let app = App::start("usages.toml");
    let mut client = app.server.client();
    client.get("/api/usages/1").expect_problem(404, "");
    client.get("/api/usages/999999999").expect_problem(404, "");
    client.get("/api/usages/abc").expect_problem(400, "id");
    client.get("/api/usages/1.5").expect_problem(400, "id");
}

#[test]
fn each_acknowledged_one_is_stored_once() {
    let app = App::start("usages.toml");
    let address = app.server.address;
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address).expect("a connection");
                (0..500)
                    .map(|i| post(&mut client, &usage(json!(writer * 1000 + i), "2016-11-01T14:11:51Z", "x")))
                    .collect::<Vec<i64>>()
            })
        })
        .collect();
    let ids: HashSet<i64> = writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
    assert_eq!(ids.len(), 2000);
    app.server.drain();
    let archive = app.archive();
    assert_eq!(archive.number("SELECT count(*) FROM usages"), 2000);
    assert_eq!(archive.number("SELECT count(DISTINCT patient_id) FROM usages"), 2000);
}
