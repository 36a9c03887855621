//! Rows that the database would refuse are refused before the acknowledgement, and memory shows the values
//! that the database will contain: existing tables, in PostgreSQL and in SQLite.

use super::Fixture;
use super::beside::Beside;
use forebay_tests::{Folder, Server, Start, binary, wait_for};
use forebay_topology::{Flavour, Topology};
use serde_json::{Value, json};

const TABLE: &str = "CREATE TYPE colour AS ENUM ('red', 'green');
    CREATE DOMAIN small AS numeric(4,1) NOT NULL CONSTRAINT visible CHECK (VALUE > 0.04);
    CREATE TABLE things (
      id bigint PRIMARY KEY, tiny smallint NOT NULL, count integer NOT NULL DEFAULT 0 CHECK (count >= 0), price numeric(8,2), amount numeric,
      label varchar(3), code char(4), colour colour DEFAULT 'red', size small DEFAULT 1, ratio real, doc jsonb, day date,
      hour time, at timestamptz(0), share numeric UNIQUE, pair integer, CHECK (pair > 0),
      CHECK (label IN ('abc', 'ab ', 'x', 'äöü', 'abcde')), UNIQUE (pair, label))";

const CONFIG: &str = r#"
[table.things]

[[endpoint]]
route = "POST /things"
insert = "things"
[endpoint.values]
id = "$id"
tiny = "$tiny"
price = "$price"
amount = "$amount"
label = "$label"
code = "$code"
colour = "$colour"
size = "$size"
ratio = "$ratio"
doc = "$doc"
day = "$day"
hour = "$hour"
at = "$at"
share = "$share"
pair = "$pair"

[[endpoint]]
route = "PATCH /things/{id}"
update = "things"
values = { tiny = "$tiny", label = "$label", colour = "$colour" }

[[endpoint]]
route = "POST /things/{id}/count"
increment = "things"
column = "count"
by = "$by"

[[endpoint]]
route = "GET /things/{id}"
get = "things"
"#;

/// A row with some changed values.
fn thing(id: i64, change: &[(&str, Value)]) -> String {
    let mut thing = json!({ "id": id, "tiny": 1 });
    for (name, value) in change {
        thing[*name] = value.clone();
    }
    thing.to_string()
}

/// A column, a value that violates its rule, and the expected text of the problem.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("tiny", json!(32_768), "from -32768 to 32767"),
        ("tiny", json!(null), "must not be null"),
        ("price", json!("1234567.8"), "at most 6 digits before the point"),
        ("price", json!("999999.995"), "at most 6 digits before the point"),
        ("amount", json!("1e200000"), "no more digits"),
        ("label", json!("äöüß"), "at most 3 characters"),
        ("code", json!("abcde"), "at most 4 characters"),
        ("colour", json!("blue"), "one of red, green"),
        ("size", json!("1000"), "at most 3 digits before the point"),
        ("ratio", json!(1e300), "32 bits"),
        ("doc", json!({ "a": "\u{0}" }), "NUL"),
        ("label", json!("\u{0}"), "NUL"),
        ("day", json!("2016-02-30"), "a date"),
        ("hour", json!("25:00"), "a time of day"),
        ("pair", json!(0), "`pair` must satisfy CHECK things_pair_check (pair > 0)"),
        ("label", json!("y"), "must satisfy CHECK things_label_check"),
        ("size", json!("0.04"), "must satisfy CHECK visible of domain small"),
    ]
}

#[track_caller]
fn refuses(server: &Server) {
    let mut client = server.client();
    for (name, value, told) in refused() {
        let answer = client.post_json("/things", &thing(1, &[(name, value)]));
        answer.expect_problem(422, name);
        answer.expect_problem(422, told);
    }
    client.get("/things/1").expect_problem(404, "");
    let deep = format!("{{\"id\":1,\"tiny\":1,\"doc\":{}{}}}", "[".repeat(129), "]".repeat(129));
    client.post_json("/things", &deep).expect_problem(422, "nested at most 128 deep");
    client.post_json("/things", &thing(1, &[("tiny", json!("x"))])).expect_problem(400, "tiny");
    client.post_json("/things", &thing(1, &[("share", json!("1.0"))])).expect(201);
    client.post_json("/things", &thing(2, &[("share", json!("1.00"))])).expect_problem(409, "share");
    client.ask("PATCH", "/things/1", Some(r#"{"colour":"blue"}"#)).expect_problem(422, "colour");
    client.ask("PATCH", "/things/1", Some(r#"{"tiny":null}"#)).expect_problem(422, "tiny");
    client.ask("PATCH", "/things/1", Some(r#"{"label":"y"}"#)).expect_problem(422, "label");
    client.post_json("/things/1/count", r#"{"by":-1}"#).expect_problem(422, "`count` must be a sum");
    client.post_json("/things/1/count", r#"{"by":2147483647}"#).expect(200);
    client
        .post_json("/things/1/count", r#"{"by":1}"#)
        .expect_problem(422, "`count` must be a sum within the column's range");
    assert_eq!(client.get("/things/1").expect(200)["count"], i32::MAX);
    server.drain();
}

#[test]
fn what_postgresql_would_refuse_is_refused_before_the_answer() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    refuses(&server);
    assert_eq!(beside.dead_letters(), 0);
    assert_eq!(beside.text("SELECT count FROM things"), i32::MAX.to_string());
}

#[test]
fn the_same_is_refused_when_memory_is_on_redis() {
    let fixture = Fixture::new(Topology::Single, Flavour::Redis);
    let archive = fixture.stores.archive(&fixture.folder);
    archive.rows(TABLE);
    let config = CONFIG.replace("[table.things]", "[table.things]\nfollow = false");
    let config = fixture.folder.write("enforced.toml", &config);
    let start = Start::new(binary(), &fixture.folder, &config).stores(&fixture.stores, &fixture.folder);
    let server = start.memory(&fixture.memory.url()).set("memory.durability=async").start();
    server.wait_healthy();
    refuses(&server);
    assert_eq!(archive.text("SELECT count FROM things"), i32::MAX.to_string());
    assert_eq!(archive.number("SELECT count(*) FROM forebay_dead_letter"), 0);
}

#[test]
fn memory_shows_what_postgresql_will_hold() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().set("drain.paused=true").start();
    server.wait_healthy();
    let mut client = server.client();
    for (id, change) in [
        ("price", json!("19.805")),
        ("price", json!(7)),
        ("price", json!("-0.001")),
        ("amount", json!("1.50e3")),
        ("label", json!("ab    ")),
        ("code", json!("é")),
        ("size", json!(2)),
        ("ratio", json!(0.123456789)),
        ("doc", json!({ "bb": [1.50, null, "\u{8}\u{1}é"], "a": { "c": 1, "b": "x , y" } })),
        ("day", json!("2016-11-01T23:00:00-05:00")),
        ("hour", json!("14:11")),
        ("at", json!("2016-11-01T09:11:51.5Z")),
    ]
    .into_iter()
    .enumerate()
    {
        client.post_json("/things", &thing(id as i64, &[change])).expect(201);
    }
    client
        .post_json("/things", r#"{"id":99,"tiny":1,"doc":{"b":1e2, "a":1, "b":-0,"é":"\u0041\/"}}"#)
        .expect(201);
    let ids = || (0..12).chain([99]);
    let shown = |client: &mut forebay_tests::Client| -> Vec<String> {
        ids().map(|id| client.get(&format!("/things/{id}")).text().to_owned()).collect()
    };
    let before = shown(&mut client);
    assert!(before[0].contains("\"price\":19.81,"), "{}", before[0]);
    server.drain();
    let verified = server.admin("POST", "/verify").expect(200);
    assert_eq!(verified["checks"][0]["clean"], true, "{verified}");
    drop(server);
    // Memory and log are deleted: the rows shown now were read from PostgreSQL.
    std::fs::remove_dir_all(beside.folder.data()).expect("the data folder can go");
    let server = beside.start().start();
    server.wait_healthy();
    assert_eq!(shown(&mut server.client()), before);
}

#[test]
fn rules_that_change_are_noticed_without_a_restart() {
    let beside = Beside::new(TABLE, CONFIG);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/things", &thing(1, &[("colour", json!("blue"))])).expect_problem(422, "colour");
    // One transaction: the server reports each schema change that it sees.
    beside.sql("ALTER TYPE colour ADD VALUE 'blue'; ALTER TABLE things ALTER label TYPE varchar(5), ALTER tiny TYPE integer, ADD CONSTRAINT even CHECK (tiny % 2 = 0)");
    let widened = thing(2, &[("colour", json!("blue")), ("label", json!("abcde")), ("tiny", json!(40_000))]);
    wait_for("the new rules are judged by", || {
        (client.post_json("/things", &widened).status == 201).then_some(())
    });
    server.drain();
    beside.sql("UPDATE things SET pair = 1; ALTER TABLE things ALTER pair SET NOT NULL");
    let told = "the database enforces other rules now";
    server.wait_for_lines(2, told);
    client.post_json("/things", &thing(4, &[])).expect_problem(422, "pair");
    server.wait_for_output("things: CHECK even ((tiny % 2) = 0) is judged by the database");
}

#[test]
fn what_only_the_database_judges_is_listed() {
    let beside = Beside::new(TABLE, CONFIG);
    beside.sql(
        "CREATE TABLE parts (thing bigint REFERENCES things, share int4range);
         CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END';
         CREATE TRIGGER stamps BEFORE UPDATE ON things FOR EACH ROW EXECUTE FUNCTION stamp();
         CREATE UNIQUE INDEX lowered ON things (lower(label)) WHERE tiny > 0;
         ALTER TABLE things ADD seen text DEFAULT md5(random()::text), ADD EXCLUDE USING btree (label WITH =)",
    );
    let checked = beside.start().run("check", &[]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{checked:?}");
    for line in [
        "things: CHECK things_pair_check (pair > 0) is judged by the database alone, after the answer",
        "things: FOREIGN KEY parts_thing_fkey of parts may refuse a delete after the answer",
        "things: TRIGGER stamps BEFORE UPDATE runs in the database alone",
        "things: UNIQUE lowered (lower((label)::text)) WHERE (tiny > 0) is judged by the database alone",
        "things: DEFAULT md5((random())::text) of seen is computed by the database for each insert",
        "things: EXCLUDE things_label_excl USING btree (label WITH =) is judged by the database alone",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!said.contains("things_pair_label_key"), "memory judges it: {said}");
    let server = beside.start().start();
    server.wait_for_output("things: CHECK things_pair_check");
    server.wait_for_output("more rules that the database alone judges");
}

#[test]
fn a_unique_column_that_the_config_does_not_name_is_a_409() {
    let declared = CONFIG
        .replace("[table.things]", "[table.things]\ncolumns = { id = \"bigint key\", tiny = \"bigint\" }");
    let declared = declared.split("[endpoint.values]").next().expect("a text").to_owned()
        + "values = { id = \"$id\", tiny = \"$tiny\" }\n";
    let beside =
        Beside::new("CREATE TABLE things (id bigint PRIMARY KEY, tiny integer NOT NULL UNIQUE)", &declared);
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/things", &thing(1, &[])).expect(201);
    client.post_json("/things", &thing(2, &[])).expect_problem(409, "tiny");
    client.post_json("/things", &thing(2, &[("tiny", json!(3_000_000_000i64))])).expect_problem(422, "tiny");
}

/// Seats with a composite UNIQUE; a null equals no value.
const SEATS: &str =
    "CREATE TABLE seats (id bigint PRIMARY KEY, hall bigint, place bigint, UNIQUE (place, hall))";

const SEATS_CONFIG: &str = r#"
[table.seats]

[[endpoint]]
route = "POST /seats"
insert = "seats"
values = { id = "$id", hall = "$hall", place = "$place" }

[[endpoint]]
route = "PATCH /seats/{id}"
update = "seats"
values = { place = "$place" }

[[endpoint]]
route = "POST /seats/{id}/move"
increment = "seats"
column = "place"

[[endpoint]]
route = "DELETE /seats/{id}"
delete = "seats"
"#;

/// A composite UNIQUE is checked before the answer, and acknowledged rows are written.
fn assert_seats_are_judged(start: &Start) {
    let seat =
        |id: i64, hall: Value, place: i64| json!({ "id": id, "hall": hall, "place": place }).to_string();
    let taken = "another row has these `hall`, `place` together";
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    for (id, hall, place) in
        [(1, json!(1), 1), (2, json!(1), 2), (3, json!(2), 1), (4, Value::Null, 1), (5, Value::Null, 1)]
    {
        client.post_json("/seats", &seat(id, hall, place)).expect(201);
    }
    client.post_json("/seats", &seat(6, json!(1), 2)).expect_problem(409, taken);
    client.ask("PATCH", "/seats/2", Some(r#"{"place":1}"#)).expect_problem(409, taken);
    client.post("/seats/1/move").expect_problem(409, taken);
    // The value is free again, whatever the order in which the changes are drained.
    client.ask("DELETE", "/seats/2", None).expect(200);
    client.post("/seats/1/move").expect(200);
    client.post_json("/seats", &seat(6, json!(1), 1)).expect(201);
    server.drain();
    drop(server);
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/seats", &seat(7, json!(1), 2)).expect_problem(409, taken);
    client.post_json("/seats", &seat(7, json!(1), 3)).expect(201);
    super::follow::assert_verified(&server);
}

#[test]
fn columns_that_are_unique_together_are_a_409() {
    assert_seats_are_judged(&Beside::new(SEATS, SEATS_CONFIG).start());
    let folder = Folder::new();
    let database = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    database.execute_batch(SEATS).expect("the table can be made");
    let config = folder.write("seats.toml", SEATS_CONFIG);
    let url = format!("sqlite:{}", folder.database().display());
    assert_seats_are_judged(&Start::new(binary(), &folder, &config).database(&url));
}

#[test]
fn an_identity_that_nobody_may_set_is_a_mistake_of_the_config() {
    let beside = Beside::new(
        "CREATE TABLE things (id bigint PRIMARY KEY, tiny integer, label text, number integer GENERATED ALWAYS AS IDENTITY)",
        "[table.things]\n[[endpoint]]\nroute = \"PATCH /things/{id}\"\nupdate = \"things\"\nvalues = { number = \"$number\" }\n",
    );
    super::refused::assert_refused(&beside.start(), "column `number` is GENERATED ALWAYS");
}

#[test]
fn a_row_that_no_record_takes_is_a_413() {
    let beside = Beside::new("CREATE TABLE things (id bigint PRIMARY KEY, label text)", &{
        "[table.things]\n[[endpoint]]\nroute = \"POST /things\"\ninsert = \"things\"\nvalues = { id = \"$id\", label = \"$label\" }\n".to_owned()
    });
    let server = beside.start().set("server.limits.body=40MiB").start();
    server.wait_healthy();
    let large = json!({ "id": 1, "label": "x".repeat(17 << 20) }).to_string();
    server.client().post_json("/things", &large).expect_problem(413, "16 MiB");
    server.client().post_json("/things", &thing(2, &[("label", json!("x"))])).expect(201);
}

#[test]
fn what_sqlite_enforces_is_judged_or_listed() {
    let folder = Folder::new();
    let database = rusqlite::Connection::open(folder.database()).expect("a file can be made");
    let sql = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
        CREATE TABLE things (id INTEGER PRIMARY KEY, tiny integer NOT NULL, price decimal(8,2) UNIQUE, label varchar(3),
          parent integer REFERENCES parents, CONSTRAINT positive CHECK (tiny > 0), CHECK (label IN ('longer', 'x')),
          CHECK (tiny <> id + 100), UNIQUE (tiny, label));
        CREATE TRIGGER stamps AFTER INSERT ON things BEGIN SELECT 1; END";
    database.execute_batch(sql).expect("the tables can be made");
    let config = "[table.things]\n[[endpoint]]\nroute = \"POST /things\"\ninsert = \"things\"\n\
        values = { id = \"$id\", tiny = \"$tiny\", price = \"$price\", label = \"$label\" }\n\
        [[endpoint]]\nroute = \"GET /things/{id}\"\nget = \"things\"\n";
    let config = folder.write("enforced.toml", config);
    let start =
        Start::new(binary(), &folder, &config).database(&format!("sqlite:{}", folder.database().display()));
    let said = String::from_utf8_lossy(&start.run("check", &[]).stdout).into_owned();
    for line in [
        "things: CHECK (tiny <> id + 100) is judged by the database alone",
        "things: FOREIGN KEY (parent) REFERENCES parents is judged by the database alone",
        "things: TRIGGER stamps AFTER INSERT runs in the database alone",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!said.contains("tiny > 0"), "memory judges it: {said}");
    let server = start.start();
    server.wait_healthy();
    let mut client = server.client();
    client.post_json("/things", &thing(1, &[("tiny", json!(null))])).expect_problem(422, "tiny");
    let unsatisfied = "`tiny` must satisfy CHECK (tiny > 0)";
    client.post_json("/things", &thing(1, &[("tiny", json!(0))])).expect_problem(422, unsatisfied);
    client.post_json("/things", &thing(1, &[("label", json!("X"))])).expect_problem(422, "label");
    client
        .post_json("/things", &thing(1, &[("price", json!("1.50")), ("label", json!("longer"))]))
        .expect(201);
    client.post_json("/things", &thing(2, &[("price", json!("1.5"))])).expect_problem(409, "price");
    client.post_json("/things", &thing(2, &[("price", json!("3.00"))])).expect(201);
    let shown = |server: &Server| {
        let mut client = server.client();
        [1, 2].map(|id| client.get(&format!("/things/{id}")).text().to_owned())
    };
    let before = shown(&server);
    server.drain();
    drop(server);
    std::fs::remove_dir_all(folder.data()).expect("the data folder can go");
    let server = start.start();
    server.wait_healthy();
    assert_eq!(shown(&server), before);
    assert!(before[0].contains("\"price\":1.5,") && before[1].contains("\"price\":3,"), "{before:?}");
}
