//! Random schemas and random values: what is acknowledged is in the database as it was answered, and a dead
//! letter names a rule that `check` had announced. `FOREBAY_JUDGED_ROUNDS` is the number of rounds for each
//! database, `FOREBAY_JUDGED_SEED` the first seed.

use super::beside::Beside;
use forebay_tests::{Client, Server, Stores};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::fmt::Write;

const TABLES: usize = 5;
const INSERTS: i64 = 40;

/// A type, its defaults, and values for it as JSON.
struct Kind {
    ty: &'static str,
    defaults: &'static [&'static str],
    values: &'static [&'static str],
    is_comparable: bool,
}

const fn kind(ty: &'static str, defaults: &'static [&'static str], values: &'static [&'static str]) -> Kind {
    Kind { ty, defaults, values, is_comparable: true }
}

const fn uncomparable(
    ty: &'static str,
    defaults: &'static [&'static str],
    values: &'static [&'static str],
) -> Kind {
    Kind { ty, defaults, values, is_comparable: false }
}

const WHOLE: &[&str] =
    &["0", "7", "-1", "32767", "32768", "2147483648", "9223372036854775807", "1.0", "\"12\"", "1.5"];
const DECIMAL: &[&str] = &[
    "0",
    "1.5",
    "\"1.50\"",
    "-0.001",
    "12345.678",
    "\"1e3\"",
    "9999.995",
    "0.009995",
    "0.00123",
    "\"-0\"",
    "1e30",
];
const DOUBLES: &[&str] = &["0", "-0.0", "0.1", "1e300", "-2.5e-7", "123456789.123"];
const TEXTS: &[&str] = &[
    "\"\"",
    "\"a\"",
    "\"A\"",
    "\"ab \"",
    "\"äöü\"",
    "\"abcde\"",
    "\"abc   \"",
    "\"a\\u0000\"",
    "\"x,\\\"{}\"",
    "\"12\"",
];
const JSONS: &[&str] = &[
    "{}",
    "[]",
    "{\"b\":1.0,\"a\":[null]}",
    "{\"b\":1.00,\"a\":[null]}",
    "\"x\"",
    "1e2",
    "{\"a\":1,\"a\":2}",
];
const ARRAYS: &[&str] = &[
    "[]",
    "{}",
    "[1,2]",
    "[\"a\",null]",
    "[[1,2],[3,4]]",
    "[[1],[2,3]]",
    "\"{1,2}\"",
    "\"{a,b}\"",
    "\"{\"",
    "[\"abcd\"]",
    "[1.005]",
    "[40000]",
];
const DAYS: &[&str] = &["\"2016-11-01\"", "\"2016-02-30\"", "\"2016-11-01T23:00:00-05:00\"", "\"x\""];
const HOURS: &[&str] = &["\"14:11\"", "\"23:59:59.96\"", "\"24:00:00\"", "\"25:00\"", "\"10:00:00.123456\""];
const INSTANTS: &[&str] = &[
    "\"2016-11-01T14:11:51.5Z\"",
    "\"1999-12-31T23:59:58.5Z\"",
    "\"2016-11-01 09:11:51.123456-05:00\"",
    "\"2016-11-01\"",
    "7",
];
const UUIDS: &[&str] = &["\"06F40771-6460-479A-A47C-177473E240B5\"", "\"06f40771\""];
const BOOLS: &[&str] = &["true", "false", "\"true\"", "1"];
const BYTES: &[&str] = &["\"\"", "\"YWI=\"", "\"YWJ=\"", "\"AP8=\""];
const LABELS: &[&str] = &["\"red\"", "\"green\"", "\"blue\"", "\"Red\""];

const POSTGRES: &[Kind] = &[
    kind("smallint", &["7", "'-5'"], WHOLE),
    kind("integer", &["1 + 1", "length('abc')", "nextval('numbers')"], WHOLE),
    kind("bigint", &["nextval('numbers')", "-5"], WHOLE),
    kind("positive", &["3"], WHOLE),
    kind("numeric", &["1.50"], DECIMAL),
    kind("numeric(6,2)", &["1.005"], DECIMAL),
    kind("numeric(5,-2)", &["149"], DECIMAL),
    kind("numeric(3,5)", &["0.001"], DECIMAL),
    kind("real", &["0.1"], DOUBLES),
    kind("double precision", &["random()", "0.1"], DOUBLES),
    kind("text", &["'it''s'", "upper('abc')", "md5(random()::text)", "current_user"], TEXTS),
    kind("varchar(4)", &["'ab' || 'c'"], TEXTS),
    kind("char(3)", &["'x'"], TEXTS),
    kind("name", &["'n'"], TEXTS),
    kind("citext", &["'Aa'"], TEXTS),
    kind("text COLLATE folded", &["'Aa'"], TEXTS),
    kind("boolean", &["true"], BOOLS),
    kind("uuid", &["gen_random_uuid()"], UUIDS),
    kind("date", &["CURRENT_DATE", "'2020-01-01'"], DAYS),
    kind("time", &["'10:00'"], HOURS),
    kind("time(1)", &["'10:00:00.25'"], HOURS),
    kind("timestamptz", &["now()", "now() + interval '1 day'", "'2020-01-01 00:00:00+00'"], INSTANTS),
    kind("timestamptz(0)", &["now()"], INSTANTS),
    uncomparable("json", &["'{\"a\":  1}'"], JSONS),
    kind("jsonb", &["'{}'", "'[1]'"], JSONS),
    kind("bytea", &["'\\x0102'"], BYTES),
    kind("colour", &["'green'"], LABELS),
    kind("text[]", &["'{}'", "ARRAY['a', NULL]"], ARRAYS),
    kind("smallint[]", &["'{1,2}'"], ARRAYS),
    kind("numeric(5,2)[]", &["'{1.005}'"], ARRAYS),
    kind("varchar(3)[]", &["ARRAY[]::text[]"], ARRAYS),
    kind("colour[]", &["'{red}'"], ARRAYS),
    kind("jsonb[]", &["'{}'"], ARRAYS),
];

const SQLITE: &[Kind] = &[
    kind("INTEGER", &["7", "(1 + 2)", "'5'", "(unixepoch())"], WHOLE),
    kind("BIGINT", &["-5"], WHOLE),
    kind("REAL", &["1", "0.1"], DOUBLES),
    kind("NUMERIC", &["'1.50'"], DECIMAL),
    kind("DECIMAL(6,2)", &["1.5"], DECIMAL),
    kind("TEXT", &["'it''s'", "CURRENT_TIMESTAMP", "CURRENT_DATE", "(hex(randomblob(4)))"], TEXTS),
    kind("VARCHAR(4)", &["'abcdef'"], TEXTS),
    kind("TEXT COLLATE NOCASE", &["'Aa'"], TEXTS),
    kind("TEXT COLLATE RTRIM", &["'a '"], TEXTS),
    kind("BOOLEAN", &["TRUE", "0"], BOOLS),
    kind("DATETIME", &["CURRENT_TIMESTAMP", "'2020-01-01 00:00:00'", "(datetime('now'))"], INSTANTS),
    kind("UUID", &["'06f40771-6460-479a-a47c-177473e240b5'"], UUIDS),
    kind("JSON", &["'{}'", "'[]'"], JSONS),
    kind("BLOB", &["x'0102'"], BYTES),
];

struct Column {
    name: String,
    values: &'static [&'static str],
}

/// The definition of a table, and its columns.
fn table(rng: &mut StdRng, index: usize, kinds: &'static [Kind]) -> (String, Vec<Column>) {
    let mut sql = format!("CREATE TABLE t{index} (id bigint PRIMARY KEY");
    let mut columns = Vec::new();
    for place in 0..rng.random_range(3..9) {
        let kind = kinds.choose(rng).expect("kinds");
        let name = format!("c{place}");
        write!(sql, ", {name} {}", kind.ty).expect("a text");
        if rng.random_bool(0.5) {
            write!(sql, " DEFAULT {}", kind.defaults.choose(rng).expect("defaults")).expect("a text");
        }
        if rng.random_bool(0.3) {
            sql.push_str(" NOT NULL");
        }
        if kind.is_comparable && rng.random_bool(0.2) {
            sql.push_str(" UNIQUE");
        }
        columns.push(Column { name, values: kind.values });
    }
    (sql + ");\n", columns)
}

fn config(tables: &[Vec<Column>]) -> String {
    let mut config = String::new();
    for (index, columns) in tables.iter().enumerate() {
        let value = |column: &Column| format!("{0} = \"${0}\"", column.name);
        let values: Vec<String> = columns.iter().map(value).collect();
        let values = values.join(", ");
        write!(
            config,
            "[table.t{index}]\n[[endpoint]]\nroute = \"GET /t{index}/{{id}}\"\nget = \"t{index}\"\n\
             [[endpoint]]\nroute = \"POST /t{index}\"\ninsert = \"t{index}\"\nvalues = {{ id = \"$id\", {values} }}\n\
             [[endpoint]]\nroute = \"PATCH /t{index}/{{id}}\"\nupdate = \"t{index}\"\nvalues = {{ {values} }}\n"
        )
        .expect("a text");
    }
    config
}

/// A body with some of the columns; a value is sometimes one of another type, or null.
fn body(rng: &mut StdRng, columns: &[Column], all: &[&str], id: Option<i64>, given: f64) -> String {
    let mut members: Vec<String> = id.iter().map(|id| format!("\"id\":{id}")).collect();
    for column in columns {
        if !rng.random_bool(given) {
            continue;
        }
        let value = match rng.random_range(0..20) {
            0 => "null",
            1 => all.choose(rng).expect("values"),
            _ => column.values.choose(rng).expect("values"),
        };
        members.push(format!("\"{}\":{value}", column.name));
    }
    format!("{{{}}}", members.join(","))
}

/// Writes to all tables; returns the last answer for each row.
fn write_rows(
    rng: &mut StdRng,
    client: &mut Client,
    tables: &[Vec<Column>],
    all: &[&str],
) -> HashMap<String, Value> {
    let mut shown = HashMap::new();
    for id in 0..INSERTS {
        for (index, columns) in tables.iter().enumerate() {
            let sent = body(rng, columns, all, Some(id), 0.7);
            let answer = client.post_json(&format!("/t{index}"), &sent);
            assert!(matches!(answer.status, 201 | 400 | 409 | 422), "{sent}: {answer:?}");
            if answer.status == 201 {
                shown.insert(format!("/t{index}/{id}"), answer.json());
            }
            let path = format!("/t{index}/{}", rng.random_range(0..=id));
            let sent = body(rng, columns, all, None, 0.3);
            let answer = client.ask("PATCH", &path, Some(&sent));
            assert!(matches!(answer.status, 200 | 400 | 404 | 409 | 422), "{sent}: {answer:?}");
            if answer.status == 200 {
                shown.insert(path, answer.json());
            }
        }
    }
    shown
}

/// The rules that dead letters name are among those that `check` listed.
fn assert_announced(beside: &Beside, checked: &str) -> usize {
    let count = beside.sql("SELECT count(*) FROM forebay_dead_letter")[0][0].clone();
    if count.as_deref() == Some("0") {
        return 0;
    }
    let letters = beside.sql("SELECT table_name, reason FROM forebay_dead_letter");
    for letter in &letters {
        let [Some(table), Some(reason)] = letter.as_slice() else { panic!("{letter:?}") };
        // `…constraint "t0_c1_key"` in PostgreSQL, `… t0.c1` in SQLite.
        let named = reason.split(['"', ' ', ':', ',']).find_map(|word| {
            let word = word.strip_prefix(&format!("{table}_")).or(word.strip_prefix(&format!("{table}.")))?;
            Some(word.split(['_', ')']).next()?.to_owned())
        });
        let column = named.unwrap_or_else(|| panic!("{table}: {reason}"));
        let line = |line: &&str| {
            line.starts_with(&format!("{table}: "))
                && line.contains("UNIQUE")
                && line.contains(&format!("({column})"))
        };
        assert!(checked.lines().any(|text| line(&text)), "{table} {column}: {reason}\n{checked}");
    }
    letters.len()
}

fn round(seed: u64, stores: Stores, kinds: &'static [Kind]) {
    let mut rng = StdRng::seed_from_u64(seed);
    let made: Vec<_> = (0..TABLES).map(|index| table(&mut rng, index, kinds)).collect();
    let mut sql = String::new();
    if stores.is_postgres() {
        sql.push_str(
            "CREATE EXTENSION citext; CREATE TYPE colour AS ENUM ('red', 'green'); CREATE SEQUENCE numbers;
             CREATE DOMAIN positive AS integer DEFAULT 5 CHECK (VALUE > 0);
             CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);\n",
        );
    }
    made.iter().for_each(|(table, _)| sql.push_str(table));
    eprintln!("seed {seed}:\n{sql}");
    let tables: Vec<Vec<Column>> = made.into_iter().map(|(_, columns)| columns).collect();
    let all: Vec<&str> = kinds.iter().flat_map(|kind| kind.values).copied().collect();
    let beside = Beside::on(stores, &sql, &config(&tables));
    let server: Server = beside.start().start();
    server.wait_healthy();
    let checked = beside.start().run("check", &[]);
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    let shown = write_rows(&mut rng, &mut server.client(), &tables, &all);
    server.drain();
    let verified = server.admin("POST", "/verify").expect(200);
    for check in verified["checks"].as_array().expect("checks") {
        assert_eq!(check["different"], json!(0), "{verified}");
    }
    let letters =
        if server.drain_state()["dead_total"] == json!(0) { 0 } else { assert_announced(&beside, &checked) };
    let mut client = server.client();
    let now: Map<String, Value> = shown.keys().map(|path| (path.clone(), client.get(path).json())).collect();
    let differing: Vec<_> = shown.iter().filter(|(path, row)| now[*path] != **row).collect();
    assert!(differing.len() <= letters, "{letters} dead letters: {differing:?}");
}

fn rounds(stores: fn() -> Stores, kinds: &'static [Kind]) {
    let number =
        |name: &str, or: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
    let first = number("FOREBAY_JUDGED_SEED", 1);
    for seed in first..first + number("FOREBAY_JUDGED_ROUNDS", 2) {
        round(seed, stores(), kinds);
    }
}

#[test]
fn random_writes_to_postgresql_are_kept_as_answered() {
    rounds(Stores::postgres, POSTGRES);
}

#[test]
fn random_writes_to_sqlite_are_kept_as_answered() {
    rounds(Stores::sqlite, SQLITE);
}
