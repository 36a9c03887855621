//! The state at the end of a round: rows by SQL and by GET, dead letters, the server's own comparison, and
//! which acknowledged steps a plain database refuses.

use crate::judge::{DeadLetter, Evidence};
use crate::model::{Change, Fields, History, Outcome, RowKey, Step};
use crate::schema::{Shape, VIEWS, literal};
use forebay_tests::{Archive, Server};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

/// All rows of both tables.
pub fn rows(archive: &Archive, shape: &Shape) -> BTreeMap<RowKey, Fields> {
    let mut rows = BTreeMap::new();
    let own = shape.columns.iter().map(|column| column.name);
    let things: Vec<&str> = ["id", "note", "views", "stock"].into_iter().chain(own).collect();
    for (table, columns) in [("things", things), ("parents", vec!["id", "note"])] {
        let row = if shape.is_postgres {
            "to_jsonb(t)::text".to_owned()
        } else {
            let pairs: Vec<String> = columns.iter().map(|name| format!("'{name}', {name}")).collect();
            format!("json_object({})", pairs.join(", "))
        };
        for found in archive.rows(&format!("SELECT {row} FROM {table} AS t")) {
            let text = found[0].as_deref().expect("a row is no NULL");
            let mut fields: Fields = serde_json::from_str(text).expect("the database writes JSON");
            let key = key_of(fields.remove("id"));
            rows.insert((table, key), fields);
        }
    }
    rows
}

fn key_of(id: Option<Value>) -> String {
    match id {
        Some(Value::String(text)) => text,
        Some(number) => number.to_string(),
        None => panic!("a row without a key"),
    }
}

/// Reads the dead letters of the archive's database.
pub fn dead_letters(archive: &Archive, shape: &Shape) -> Vec<DeadLetter> {
    let there = if shape.is_postgres {
        "SELECT 1 FROM pg_class WHERE relname = 'forebay_dead_letter'"
    } else {
        "SELECT 1 FROM sqlite_master WHERE name = 'forebay_dead_letter'"
    };
    if archive.rows(there).is_empty() {
        return Vec::new();
    }
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let rows = archive.rows("SELECT table_name, op, row, reason FROM forebay_dead_letter ORDER BY id");
    rows.iter()
        .map(|row| DeadLetter {
            table: text(&row[0]),
            op: text(&row[1]),
            row: text(&row[2]),
            reason: text(&row[3]),
        })
        .collect()
}

/// GET of every row that exists or ever existed.
pub fn by_http(
    server: &Server,
    history: &History,
    database: &BTreeMap<RowKey, Fields>,
) -> BTreeMap<RowKey, Option<Fields>> {
    let mut places: BTreeSet<RowKey> = database.keys().cloned().collect();
    places.extend(history.rows.lock().expect("no thread panics").keys().cloned());
    let mut client = server.client();
    let mut shown = BTreeMap::new();
    for (table, key) in places {
        let answer = client.get(&format!("/{table}/{key}"));
        let row = match answer.status {
            404 => None,
            200 => Some(serde_json::from_value::<Fields>(answer.json()).expect("a row is an object")),
            _ => panic!("GET /{table}/{key}: {answer:?}"),
        };
        let row = row.map(|mut row| {
            row.remove("id");
            row
        });
        shown.insert((table, key), row);
    }
    shown
}

/// Counts that are shown although rows have changed since. A change is reported within a moment.
pub fn outdated(server: &Server, archive: &Archive) -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(5);
    let mut client = server.client();
    let mut differs = |views: i64| {
        let stored = archive.number(&format!("SELECT count(*) FROM things WHERE views = {views}"));
        loop {
            let answer = client.get(&format!("/with/{views}"));
            if answer.status == 200 && answer.json()["count"] == stored {
                return None;
            }
            if Instant::now() > until {
                let shown = answer.text();
                return Some(format!("{stored} rows have {views} views, and shown is {shown}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    (0..VIEWS).filter_map(&mut differs).collect()
}

/// The differences that the server finds between memory and database. Dead letters are judged
/// separately.
pub fn differences(server: &Server) -> Vec<String> {
    let said = server.admin("POST", "/verify").expect(200);
    let checks = said["checks"].as_array().expect("a list of tables");
    let is_zero = |check: &&Value| {
        ["missing_in_database", "missing_in_memory", "different"].iter().all(|count| check[*count] == 0)
    };
    checks.iter().filter(|check| !is_zero(check)).map(Value::to_string).collect()
}

/// Applies all acknowledged steps to a plain database, in the order of their answers. Returns the tokens
/// of the refused steps.
pub fn refused_again(archive: &Archive, shape: &Shape, history: &History) -> BTreeSet<String> {
    match archive {
        Archive::Postgres(client) => try_again(shape, history, |sql| {
            client.borrow_mut().batch_execute(sql).map_err(|error| error.to_string())
        }),
        Archive::Sqlite(_) => {
            let scratch = rusqlite::Connection::open_in_memory().expect("memory can be had");
            try_again(shape, history, |sql| scratch.execute_batch(sql).map_err(|error| error.to_string()))
        }
    }
}

fn try_again(shape: &Shape, history: &History, run: impl Fn(&str) -> Result<(), String>) -> BTreeSet<String> {
    let must = |sql: &str| run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    must(&shape.scratch_sql());
    let rows = history.rows.lock().expect("no thread panics");
    let mut steps: Vec<(&RowKey, &Step)> = Vec::new();
    // Parents are first, because their table's name sorts before `things`.
    for (place, row) in &*rows {
        if let Some(first) = &row.first {
            must(&statement(place, &Change::Whole(first.clone())));
        }
        let done = row.steps.iter().filter(|step| step.outcome == Outcome::Acknowledged || step.is_seen);
        steps.extend(done.map(|step| (place, step)));
    }
    steps.sort_by_key(|(_, step)| step.ended);
    let refused = steps.into_iter().filter(|(place, step)| run(&statement(place, &step.deed)).is_err());
    refused.filter_map(|(_, step)| step.token.clone()).collect()
}

fn statement((table, key): &RowKey, deed: &Change) -> String {
    let key = literal(&json!(key));
    match deed {
        Change::Whole(fields) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            let texts: Vec<String> = fields.values().map(literal).collect();
            let new: Vec<String> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
            let (names, texts, new) = (names.join(", "), texts.join(", "), new.join(", "));
            format!(
                "INSERT INTO {table} (id, {names}) VALUES ({key}, {texts}) ON CONFLICT (id) DO UPDATE SET {new}"
            )
        }
        Change::Some(fields) => {
            let new: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name} = {}", literal(value))).collect();
            format!("UPDATE {table} SET {} WHERE id = {key}", new.join(", "))
        }
        Change::Views(by) => format!("UPDATE {table} SET views = views + {by} WHERE id = {key}"),
        Change::Delete => format!("DELETE FROM {table} WHERE id = {key}"),
    }
}

/// Collects the evidence, from a server that has drained everything and from its successor.
pub fn gather(archive: &Archive, shape: &Shape, history: &History, successor: &Server) -> Evidence {
    let database = rows(archive, shape);
    let dead_letters = dead_letters(archive, shape);
    let is_replayed = shape.is_relational() && !dead_letters.is_empty();
    Evidence {
        by_http: by_http(successor, history, &database),
        differences: differences(successor),
        refused_again: if is_replayed { refused_again(archive, shape, history) } else { BTreeSet::new() },
        label_is_upper: shape.changes,
        database,
        dead_letters,
    }
}
