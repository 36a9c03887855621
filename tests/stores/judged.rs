//! What is acknowledged is what the database takes: defaults, arrays, keys, result columns and times, in
//! PostgreSQL and in SQLite.

use super::beside::Beside;
use forebay_tests::{Server, Start, Stores, wait_for};
use serde_json::{Value, json};

const CONFIG: &str = r#"
[table.things]

[[endpoint]]
route = "GET /things/{id}"
get = "things"

[[endpoint]]
route = "POST /things"
insert = "things"
"#;

/// As [`CONFIG`], with these columns given by the client.
fn config(values: &str) -> String {
    format!("{CONFIG}values = {{ {values} }}\n")
}

#[track_caller]
fn assert_clean(server: &Server, rows: i64, beside: &Beside) {
    server.drain();
    let verified = server.admin("POST", "/verify").expect(200);
    assert_eq!(verified["checks"][0]["clean"], true, "{verified}");
    assert_eq!(beside.text("SELECT count(*) FROM things"), rows.to_string());
    assert_eq!(server.drain_state()["dead_total"], 0);
}

const DEFAULTS: &str = r#"
    CREATE TYPE state AS ENUM ('new', 'it''s "odd"');
    CREATE DOMAIN positive AS integer DEFAULT 5 CHECK (VALUE > 0);
    CREATE SEQUENCE numbers START 100;
    CREATE FUNCTION seven() RETURNS integer LANGUAGE sql AS 'SELECT 7';
    CREATE TABLE things (
      id serial PRIMARY KEY, tags text[] NOT NULL DEFAULT '{}', more text[] NOT NULL DEFAULT ARRAY[]::text[],
      numbers integer[] DEFAULT ARRAY[1, 2], doc jsonb NOT NULL DEFAULT '{}', state state NOT NULL DEFAULT 'new',
      odd state DEFAULT 'it''s "odd"', size positive, own positive DEFAULT 9, negative integer DEFAULT -5,
      price numeric(5,2) DEFAULT 1.5, joined varchar(5) DEFAULT 'ab' || 'c', code char(4) DEFAULT 'x',
      bytes bytea DEFAULT '\x0102', upper text DEFAULT upper('abc'), at timestamptz DEFAULT '2020-01-01 00:00:00+00',
      flag boolean DEFAULT true, nothing text DEFAULT NULL, made timestamptz NOT NULL DEFAULT now(), who uuid DEFAULT gen_random_uuid(),
      day date NOT NULL DEFAULT CURRENT_DATE, later timestamptz NOT NULL DEFAULT now() + interval '7 days', seven integer NOT NULL DEFAULT seven(),
      second serial, other bigint NOT NULL DEFAULT nextval('numbers'), third integer GENERATED ALWAYS AS IDENTITY,
      doubled integer GENERATED ALWAYS AS (negative * 2) STORED)"#;

/// Columns whose default is the same for each row.
const CONSTANT: [&str; 18] = [
    "tags", "more", "numbers", "doc", "state", "odd", "size", "own", "negative", "price", "joined", "code",
    "upper", "flag", "nothing", "seven", "day", "bytes",
];

#[test]
fn defaults_of_postgresql_are_what_it_would_give() {
    let beside = Beside::new(DEFAULTS, &config(""));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    let mut made: Vec<Value> = Vec::new();
    for _ in 0..3 {
        made.push(client.post_json("/things", "{}").expect(201));
    }
    beside.sql("INSERT INTO things DEFAULT VALUES");
    for row in &made {
        for name in CONSTANT {
            let sql =
                format!("SELECT to_json({name})::text FROM things WHERE id = (SELECT max(id) FROM things)");
            let expected: Value = match name {
                "bytes" => json!("AQI="),
                _ => serde_json::from_str(&beside.sql(&sql)[0][0].clone().unwrap_or("null".into()))
                    .expect(name),
            };
            assert_eq!(row[name], expected, "{name}");
        }
        assert_eq!(row["at"], "2020-01-01T00:00:00.000000Z");
        assert!(row["later"].as_str() > row["made"].as_str(), "{row}");
        assert!(row.get("doubled").is_none(), "{row}");
    }
    for (name, first) in [("second", 1), ("other", 100), ("third", 1)] {
        let given: Vec<i64> = made.iter().map(|row| row[name].as_i64().expect(name)).collect();
        assert_eq!(given, [first, first + 1, first + 2], "{name}");
    }
    assert_clean(&server, 4, &beside);
}

#[test]
fn a_default_that_changes_while_running_counts() {
    let table = "CREATE TABLE things (id bigint PRIMARY KEY, a text DEFAULT 'old', b text, c text NOT NULL DEFAULT 'c', d integer DEFAULT 1)";
    let beside = Beside::new(table, &config("id = \"$id\""));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    let old = client.post_json("/things", r#"{"id":1}"#).expect(201);
    assert_eq!(old, json!({ "id": 1, "a": "old", "b": null, "c": "c", "d": 1 }));
    beside.sql("CREATE SEQUENCE s START 7; ALTER TABLE things ALTER a SET DEFAULT 'new', ALTER b SET DEFAULT 'b', ALTER c DROP DEFAULT, ALTER d SET DEFAULT nextval('s')");
    server.wait_for_output("the database enforces other rules now");
    client.post_json("/things", r#"{"id":2}"#).expect_problem(422, "`c` must not be null");
    beside.sql("ALTER TABLE things ALTER c SET DEFAULT 'again'");
    let new = wait_for("the default of c is there again", || {
        let answer = client.post_json("/things", r#"{"id":3}"#);
        (answer.status == 201).then(|| answer.json())
    });
    assert_eq!((&new["a"], &new["b"], &new["c"]), (&json!("new"), &json!("b"), &json!("again")));
    assert!(new["d"].as_i64() >= Some(7), "{new}");
    assert_clean(&server, 2, &beside);
}

#[test]
fn arrays_are_judged_before_the_answer() {
    let table = "CREATE TYPE colour AS ENUM ('red', 'green');
        CREATE TABLE things (id bigint PRIMARY KEY, texts text[], numbers smallint[], prices numeric(5,2)[], colours colour[], short varchar(3)[], docs jsonb[], days date[])";
    let given = "id = \"$id\", texts = \"$texts\", numbers = \"$numbers\", prices = \"$prices\", colours = \"$colours\", short = \"$short\", docs = \"$docs\", days = \"$days\"";
    let beside = Beside::new(table, &config(given));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    let taken = [
        ("texts", json!([])),
        ("texts", json!(["a,b", "\"", null, "NULL", ""])),
        ("texts", json!([["a", "b"], ["c", "d"]])),
        ("texts", json!("{a,\"b c\",NULL,\\\"}")),
        ("texts", json!("{}")),
        ("numbers", json!("{{1,2},{3,4}}")),
        ("numbers", json!(["1", -2, null])),
        ("prices", json!([1, "2.345"])),
        ("colours", json!(["red", null])),
        ("short", json!(["abc", "a  ", "abc   "])),
        ("docs", json!([{ "b": 1.50, "a": [] }, null, "x"])),
        ("days", json!(["2016-11-01"])),
    ];
    for (id, (name, value)) in taken.iter().enumerate() {
        let shown = client.post_json("/things", &json!({ "id": id, *name: value }).to_string()).expect(201);
        server.drain();
        let sql = format!("SELECT to_json({name})::text FROM things WHERE id = {id}");
        let stored: Value = serde_json::from_str(&beside.text(&sql)).expect("JSON");
        assert_eq!(shown[*name], stored, "{name} {value}");
    }
    for (name, value) in [
        ("texts", json!({})),
        ("texts", json!("a")),
        ("texts", json!("[0:1]={a,b}")),
        ("texts", json!([1])),
        ("texts", json!([["a"], ["b", "c"]])),
        ("texts", json!(["a\u{0}"])),
        ("numbers", json!([40_000])),
        ("numbers", json!("{x}")),
        ("prices", json!([1000])),
        ("colours", json!(["blue"])),
        ("short", json!(["abcd"])),
        ("docs", json!([{ "a": "\u{0}" }])),
        ("days", json!(["2016-02-30"])),
    ] {
        let answer = client.post_json("/things", &json!({ "id": 99, name: value }).to_string());
        assert!(matches!(answer.status, 400 | 422), "{name} {value}: {answer:?}");
        assert!(answer.text().contains(name), "{answer:?}");
    }
    assert_clean(&server, taken.len() as i64, &beside);
}

#[test]
fn decimals_are_rounded_as_postgresql_rounds_them() {
    let table =
        "CREATE TABLE things (id bigint PRIMARY KEY, hundreds numeric(5,-2), small numeric(3,5), name name)";
    let given = "id = \"$id\", hundreds = \"$hundreds\", small = \"$small\", name = \"$name\"";
    let beside = Beside::new(table, &config(given));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    let row = |id: i64, hundreds: &str, small: &str| {
        json!({ "id": id, "hundreds": hundreds, "small": small, "name": "n" }).to_string()
    };
    let mut rows = 0;
    for (hundreds, small) in
        [("12345", "0.00123"), ("12350", "-0.004567"), ("-49.9", "0"), ("9999949", "0.009994")]
    {
        let shown = client.post_json("/things", &row(rows, hundreds, small));
        shown.expect(201);
        server.drain();
        let stored = format!(
            "SELECT '\"hundreds\":' || hundreds || ',\"small\":' || small FROM things WHERE id = {rows}"
        );
        let stored = beside.text(&stored);
        assert!(shown.text().contains(&stored), "{stored}: {}", shown.text());
        rows += 1;
    }
    client.post_json("/things", &row(99, "9999950", "0")).expect_problem(422, "hundreds");
    client.post_json("/things", &row(99, "1", "0.01")).expect_problem(422, "small");
    let long = json!({ "id": 99, "name": "x".repeat(64) }).to_string();
    client.post_json("/things", &long).expect_problem(422, "name");
    assert_clean(&server, rows, &beside);
}

/// The output of a start that must fail, and of a check that says the same.
#[track_caller]
fn refused(start: &Start) -> String {
    let ended = start.try_start().err().expect("the start is refused");
    let checked = start.run("check", &[]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(!checked.status.success() && said.contains("a start would be refused"), "{said}");
    format!("{}\n{said}", ended.output)
}

#[test]
fn a_key_with_equal_texts_of_different_bytes_is_refused() {
    let icu = "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
    for (make, ty, told) in [
        ("CREATE EXTENSION citext", "citext", "of type citext"),
        ("SELECT 1", "char(4)", "spaces at the end do not count"),
        ("CREATE DOMAIN code AS char(4)", "code", "spaces at the end do not count"),
        (icu, "text COLLATE folded", "the collation folded, which is not deterministic"),
    ] {
        let beside = Beside::new(&format!("{make}; CREATE TABLE things (id {ty} PRIMARY KEY)"), CONFIG);
        let said = refused(&beside.start());
        assert!(said.matches(told).count() >= 2 && said.contains("has a key, id,"), "{said}");
    }
    for ty in ["TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM"] {
        let beside = Beside::on(
            Stores::sqlite(),
            &format!("CREATE TABLE things (id {ty} PRIMARY KEY, n INTEGER)"),
            CONFIG,
        );
        let said = refused(&beside.start());
        assert!(said.contains("has a key, id, with the collation"), "{said}");
    }
}

#[test]
fn two_result_columns_of_one_name_are_refused() {
    let config = "[[endpoint]]\nroute = \"GET /most\"\nsql = \"SELECT max(id), max(name) FROM things\"\n";
    let aliased = config.replace("max(id), max(name)", "max(id) AS max, max(name) AS max");
    for (stores, config) in [(Stores::postgres(), config), (Stores::sqlite(), &aliased)] {
        let beside = Beside::on(stores, "CREATE TABLE things (id bigint PRIMARY KEY, name text)", config);
        let said = refused(&beside.start());
        assert!(said.matches("several columns named `max`").count() >= 2, "{said}");
    }
}

#[test]
fn defaults_of_sqlite_are_what_it_would_give() {
    let table = "CREATE TABLE things (id INTEGER PRIMARY KEY AUTOINCREMENT, word TEXT NOT NULL DEFAULT 'it''s', clock TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
        day TEXT DEFAULT CURRENT_DATE, number INTEGER DEFAULT -5, text_number INTEGER DEFAULT '7', sum INTEGER DEFAULT (1 + 2), at DATETIME DEFAULT CURRENT_TIMESTAMP,
        unix INTEGER NOT NULL DEFAULT (unixepoch()), flag BOOLEAN DEFAULT TRUE, ratio REAL DEFAULT 1, price DECIMAL(8,2) DEFAULT '1.50', blob BLOB DEFAULT x'0102',
        empty TEXT DEFAULT NULL, who TEXT DEFAULT (lower(hex(randomblob(4)))), soon DATETIME DEFAULT (datetime('now', '+7 days')), quoted TEXT DEFAULT \"word\")";
    let beside = Beside::on(Stores::sqlite(), table, &config(""));
    let server = beside.start().start();
    server.wait_healthy();
    let mut client = server.client();
    let shown = client.post_json("/things", "{}").expect(201);
    beside.sql("INSERT INTO things DEFAULT VALUES");
    server.drain();
    for name in ["word", "day", "number", "text_number", "sum", "empty", "ratio", "price", "quoted"] {
        let stored = |row: &str| {
            beside.sql(&format!("SELECT {name}, typeof({name}) FROM things ORDER BY id {row} LIMIT 1"))
        };
        assert_eq!(stored("ASC"), stored("DESC"), "{name}: {shown}");
    }
    assert_eq!(
        (&shown["word"], &shown["flag"], &shown["blob"]),
        (&json!("it's"), &json!(true), &json!("AQI="))
    );
    assert_eq!(shown["clock"].as_str().map(str::len), Some("2026-11-26 13:39:21".len()), "{shown}");
    assert!(shown["soon"].as_str() > shown["at"].as_str(), "{shown}");
    assert_clean(&server, 2, &beside);
}

/// Rows that have expired, and rows that have not, in both forms of times.
#[test]
fn times_in_sqlite_compare_with_its_own_functions() {
    let own = "[table.things]\ncolumns = { id = \"bigint key\", expires_at = \"timestamp null\" }\n";
    let job = "DELETE FROM things WHERE expires_at < CURRENT_TIMESTAMP";
    let earlier = "CREATE TABLE things (id INTEGER PRIMARY KEY, expires_at TIMESTAMP TEXT); \
        INSERT INTO things VALUES (1, '2020-01-01T00:00:00.000000Z'), (2, '2120-01-01T00:00:00.000000Z')";
    let by_others = "CREATE TABLE things (id INTEGER PRIMARY KEY, expires_at DATETIME); \
        INSERT INTO things VALUES (1, '2020-01-01 00:00:00'), (2, '2120-01-01 00:00:00')";
    let empty = "CREATE TABLE things (id INTEGER PRIMARY KEY, expires_at DATETIME)";
    for (table, job, kept) in [
        ("SELECT 1", job, 1),
        (empty, job, 1),
        (by_others, job, 2),
        (earlier, "DELETE FROM things WHERE datetime(expires_at) < CURRENT_TIMESTAMP", 2),
    ] {
        let section = if table == "SELECT 1" { own } else { "[table.things]\n" };
        let config = config("id = \"$id\", expires_at = \"now($in)\"").replace("[table.things]\n", section);
        let beside = Beside::on(Stores::sqlite(), table, &config);
        let server = beside.start().start();
        server.wait_healthy();
        let mut client = server.client();
        client.post_json("/things", r#"{"id":10,"in":-2}"#).expect(201);
        let shown = client.post_json("/things", r#"{"id":11,"in":60}"#).expect(201);
        server.drain();
        beside.sql(job);
        let ids = beside.sql("SELECT id FROM things ORDER BY id");
        let ids: Vec<&str> = ids.iter().filter_map(|row| row[0].as_deref()).collect();
        assert_eq!(ids.len(), kept, "{table}: {ids:?}");
        assert!(ids.contains(&"11"), "{table}: {ids:?}");
        wait_for("the expired row is gone from memory", || {
            (section == own || client.get("/things/10").status == 404).then_some(())
        });
        assert_eq!(client.get("/things/11").expect(200), shown, "{table}");
        let forms = "SELECT count(DISTINCT substr(expires_at, 11, 1)) FROM things";
        assert_eq!(beside.text(forms), "1", "{table}");
    }
}
