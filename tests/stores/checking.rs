//! `forebay verify` with columns that return a value in another form than it was written.

use super::Fixture;
use forebay_tests::{Folder, Server, Start, Stores, binary};
use forebay_topology::{Flavour, Topology};

const TABLE: &str = "CREATE TABLE odd (
    id bigint PRIMARY KEY, price numeric(10,2), amount numeric, code char(6), label varchar(8), at timestamptz(0), local timestamp,
    day date, hour time, doc jsonb, raw json, ratio real, exact float8, tags text[], sums numeric[], who uuid)";

const CONFIG: &str = r#"
[table.odd]
follow = false

[[endpoint]]
route = "PUT /odd/{id}"
upsert = "odd"
values = { price = "$price", amount = "$amount", code = "$code", label = "$label", at = "$at", local = "$local", day = "$day", hour = "$hour", doc = "$doc", raw = "$raw", ratio = "$ratio", exact = "$exact", tags = "$tags", sums = "$sums", who = "$who" }

[[endpoint]]
route = "GET /odd/{id}"
get = "odd"
"#;

/// PostgreSQL returns all of these in another form, except `raw` and `exact`.
const ROW: &str = r#"{"price": 7.5, "amount": "007.50", "code": "ab", "label": "x ", "at": "2016-11-01T09:11:51.6-05:00",
    "local": "2016-11-01T14:11:51+01:00", "day": "2016-11-01T10:00:00Z", "hour": "14:11", "doc": {"b": 1,   "a": [1.50, "é"]},
    "raw": {"b":  1, "a": 2}, "ratio": 0.123456789, "exact": 0.1, "tags": ["b",  "a"], "sums": [1.50,   2e1],
    "who": "06F40771-6460-479A-A47C-177473E240B5"}"#;

#[track_caller]
fn assert_different(server: &Server, expected: u64) -> serde_json::Value {
    let said = server.admin("POST", "/verify").expect(200);
    assert_eq!(said["checks"][0]["different"], expected, "{said}");
    assert_eq!(said["checks"][0]["clean"], expected == 0, "{said}");
    said
}

#[track_caller]
fn check(start: &Start, folder: &Folder, stores: &Stores) {
    let archive = stores.archive(folder);
    archive.rows(TABLE);
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    for id in 1..=300 {
        let answer = client.ask("PUT", &format!("/odd/{id}"), Some(ROW));
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    server.drain();
    assert_eq!(archive.number("SELECT count(*) FROM odd"), 300);
    assert_different(&server, 0);
    // The value in PostgreSQL is compared, not memory's form of it.
    for (set, column) in [
        ("price = 7.51", "price"),
        ("code = 'abc'", "code"),
        ("label = 'x'", "label"),
        ("at = at + interval '1 second'", "at"),
        ("doc = '{\"b\": 1, \"a\": [1.5, \"e\"]}'", "doc"),
        ("sums = '{1.50,21}'", "sums"),
    ] {
        archive.rows(&format!("UPDATE odd SET {set} WHERE id = 7"));
        let said = assert_different(&server, 1);
        let example = said["checks"][0]["examples"][0].as_str().unwrap_or_default();
        assert!(example.starts_with(&format!("7: {column} has other values")), "{said}");
        let columns = "price, code, label, at, doc, sums";
        archive.rows(&format!(
            "UPDATE odd SET ({columns}) = (SELECT {columns} FROM odd WHERE id = 8) WHERE id = 7"
        ));
    }
    assert_different(&server, 0);
}

#[test]
fn forms_of_values_are_no_difference_to_memory_in_process() {
    let (folder, stores) = (Folder::new(), Stores::postgres());
    let config = folder.write("odd.toml", CONFIG);
    check(&Start::new(binary(), &folder, &config).stores(&stores, &folder), &folder, &stores);
}

#[test]
fn forms_of_values_are_no_difference_to_redis() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let config = fixture.folder.write("odd.toml", CONFIG);
    let start = Start::new(binary(), &fixture.folder, &config)
        .stores(&fixture.stores, &fixture.folder)
        .memory(&fixture.memory.url());
    check(&start, &fixture.folder, &fixture.stores);
}
