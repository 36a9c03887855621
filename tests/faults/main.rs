//! Faults below and beside the server: the message is clear, and acknowledged writes are kept.
//!
//! `damage` truncates the log and flips bytes, `disk` fills the disk and makes it read-only, `replaced`
//! deletes one of the two stores, `second` starts two servers on one folder, `stop` stops under load,
//! `limits` reaches the limits, `clicks` holds syncs, `database` breaks and blocks the database, `timeouts`
//! makes requests wait beyond their timeout.

mod clicks;
mod damage;
mod database;
mod disk;
mod limits;
mod replaced;
mod second;
mod stop;
mod timeouts;

use forebay_tests::{Client, Folder, Start, binary, root};
use serde_json::Value;

/// The tests' own config: every kind of key, every way to write.
fn start(folder: &Folder) -> Start {
    Start::new(binary(), folder, &root().join("tests/tables.toml"))
}

/// An acknowledged row: the path to read it, and its answer.
#[derive(Clone, Debug)]
struct Written {
    target: String,
    row: Value,
}

/// Inserts a row with this token and returns it.
#[track_caller]
fn insert(client: &mut Client, table: &str, token: &str) -> Written {
    let row = client.post_json(&format!("/{table}"), &format!("{{\"token\":\"{token}\"}}")).expect(201);
    let id = row["id"].as_str().map_or_else(|| row["id"].to_string(), str::to_owned);
    Written { target: format!("/{table}/{id}"), row }
}

/// Sets a thing to this version.
#[track_caller]
fn put(client: &mut Client, name: &str, version: i64) -> Written {
    let answer = client.ask("PUT", &format!("/things/{name}"), Some(&format!("{{\"version\":{version}}}")));
    assert!((200..300).contains(&answer.status), "{answer:?}");
    Written { target: format!("/things/{name}"), row: answer.json() }
}

/// Some rows of every kind.
#[track_caller]
fn write_some(client: &mut Client, prefix: &str, count: usize) -> Vec<Written> {
    let mut written = Vec::new();
    for i in 0..count {
        written.push(insert(client, "serials", &format!("{prefix}-{i}")));
        written.push(insert(client, "uuids", &format!("{prefix}-{i}")));
        written.push(put(client, &format!("{prefix}-{i}"), i as i64));
    }
    written
}

/// Asserts that every row reads as it was answered.
#[track_caller]
fn assert_readable(client: &mut Client, written: &[Written]) {
    for Written { target, row } in written {
        let answer = client.get(target);
        assert_eq!(answer.status, 200, "{target} is gone: {answer:?}");
        assert_eq!(&answer.json(), row, "{target}");
    }
}
