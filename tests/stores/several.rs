//! `get_many`: rows from memory, from the database, and from Redis, in the order of the keys.

use super::Fixture;
use super::beside::Beside;
use forebay_tests::{Client, Start, binary};
use forebay_topology::{Flavour, Topology};

const TABLE: &str = "CREATE TABLE docs (id bigint PRIMARY KEY, code text)";

const CONFIG: &str = r#"
[table.docs]
follow = false

[[endpoint]]
route = "PUT /docs/{id}"
upsert = "docs"
values = { code = "$code" }

[[endpoint]]
route = "GET /docs"
get_many = "docs"
keys = "$ids"

[[endpoint]]
route = "POST /docs"
get_many = "docs"
keys = "$ids"
params = { ids = "bigint[] 1..9" }

[[endpoint]]
route = "GET /sql"
sql = "SELECT id FROM docs WHERE id = ANY($ids) ORDER BY id"
returns = "many"
params = { ids = "bigint[]?" }

[[endpoint]]
route = "GET /codes"
get_many = "docs"
reply = { wrap = "codes", fields = { code = "$code" } }
"#;

/// Requests several rows; 3 is only in the database, and 4 does not exist.
#[track_caller]
fn answers_in_order(client: &mut Client) {
    for (id, code) in [(1, "one"), (2, "two")] {
        client.ask("PUT", &format!("/docs/{id}"), Some(&format!(r#"{{"code":"{code}"}}"#))).expect(200);
    }
    let answered = client.get("/docs?ids=3,2,4,1,2").expect(200);
    let ids: Vec<i64> =
        answered.as_array().expect("rows").iter().filter_map(|row| row["id"].as_i64()).collect();
    assert_eq!(ids, [3, 2, 1, 2]);
    assert_eq!(answered[0]["code"], "three");
    let shaped = client.get("/codes?keys=2,1").expect(200);
    assert_eq!(shaped.to_string(), r#"{"codes":[{"code":"two"},{"code":"one"}]}"#);
    assert_eq!(client.get("/docs?ids=").expect(200).to_string(), "[]");
    assert_eq!(client.get("/docs?ids=4").expect(200).to_string(), "[]");
    let posted = client.post_json("/docs", r#"{"ids":[2, 3]}"#).expect(200);
    assert_eq!(
        (&posted[0]["id"], &posted[1]["id"], posted.as_array().map(Vec::len)),
        (&2.into(), &3.into(), Some(2))
    );
    for (body, wrong) in [
        (r#"{"ids":[1,10]}"#, "between 1 and 9"),
        (r#"{"ids":["x"]}"#, "a whole number"),
        (r#"{"ids":[1,null]}"#, "must not have null in it"),
        (r#"{"ids":1}"#, "must be an array"),
        (r#"{"ids":null}"#, "is required"),
        ("{}", "is required"),
    ] {
        client.post_json("/docs", body).expect_problem(400, wrong);
    }
    client.get("/docs").expect_problem(400, "ids");
    client.get("/docs?ids=1,x").expect_problem(400, "`ids` must be a whole number");
    let thousand = vec!["1"; 1_000].join(",");
    assert_eq!(
        client.get(&format!("/docs?ids={thousand}")).expect(200).as_array().map(Vec::len),
        Some(1_000)
    );
    client.get(&format!("/docs?ids={thousand},1")).expect_problem(400, "at most 1000 keys");
}

#[test]
fn several_rows_are_read_from_memory_and_from_the_database() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    beside.sql("INSERT INTO docs VALUES (3, 'three')");
    answers_in_order(&mut server.client());
    server.drain();
    let mut client = server.client();
    assert_eq!(
        client.get("/sql?ids=3&other=2&ids=1&ids=9").expect(200).to_string(),
        r#"[{"id":1},{"id":3}]"#
    );
    assert_eq!(client.get("/sql").expect(200).to_string(), "[]");
    client.get("/sql?ids=3&ids=x").expect_problem(400, "`ids` must be a whole number");
}

#[test]
fn several_rows_are_read_from_redis() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(TABLE);
    archive.rows("INSERT INTO docs VALUES (3, 'three')");
    let config = fixture.folder.write("several.toml", CONFIG);
    let start = Start::new(binary(), &fixture.folder, &config).stores(&fixture.stores, &fixture.folder);
    let server = start.memory(&fixture.memory.url()).set("memory.durability=async").start();
    server.wait_healthy();
    answers_in_order(&mut server.client());
}
