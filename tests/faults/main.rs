//! What happens when something under or beside the server breaks: the message is clear, what was promised is
//! kept.
//!
//! `damage` cuts and flips the log, `disk` fills it up and forbids to write, `replaced` deletes one of the
//! two stores, `second` starts twice on one folder, `stop` ends under load, `limits` reaches the bounds,
//! `clicks` holds the disk, `database` breaks and blocks the database, `timeouts` lets requests wait longer
//! than they may.

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

/// A row that was acknowledged: where it is read, and what its answer was.
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

/// Every one of them is read as it was answered.
#[track_caller]
fn assert_readable(client: &mut Client, written: &[Written]) {
    for Written { target, row } in written {
        let answer = client.get(target);
        assert_eq!(answer.status, 200, "{target} is gone: {answer:?}");
        assert_eq!(&answer.json(), row, "{target}");
    }
}
