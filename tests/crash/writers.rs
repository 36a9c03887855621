//! Connections that write and read until the server is gone, and record the answers.

use crate::journal::{History, Journal, Rows};
use forebay_tests::{Answer, Client};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;

/// Things that one writer owns.
pub const THINGS_EACH: usize = 5;
/// Inserts that are sent together before the first of them is answered.
const PIPELINED: usize = 4;

/// The names of the things that writer `writer` owns.
pub fn things_of(writer: usize) -> impl Iterator<Item = String> {
    (0..THINGS_EACH).map(move |thing| format!("writer{writer}-thing{thing}"))
}

/// Whether the error means that the server is gone; any other error fails the test.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionRefused | ConnectionReset | UnexpectedEof
    )
}

/// Calls `turn` until the server is gone.
pub fn until_gone(address: SocketAddr, mut turn: impl FnMut(&mut Client) -> io::Result<()>) {
    let mut run = || -> io::Result<()> {
        let mut client = Client::connect(address)?;
        loop {
            turn(&mut client)?;
        }
    };
    let error = run().expect_err("the loop ends with an error alone");
    assert!(is_gone(&error), "{error}");
}

/// The version that an answer shows; `None` for a 404.
fn version_of(answer: &Answer) -> Option<i64> {
    if answer.status == 404 {
        return None;
    }
    let version = answer.expect(200)["version"].as_i64();
    Some(version.unwrap_or_else(|| panic!("no version: {answer:?}")))
}

/// One writer: changes its things by every kind of write, and inserts rows.
pub fn write(address: SocketAddr, journal: &Journal, writer: usize, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let things: Vec<String> = things_of(writer).collect();
    let mut tokens = (0u64..).map(|number| format!("token-{seed:x}-{number}"));
    until_gone(address, |client| match random.random_range(0..10) {
        0..=5 => {
            let name = &things[random.random_range(0..things.len())];
            change(client, name, &journal.things[name], random.random_range(0..10))
        }
        6..=7 => insert(client, "/serials", &journal.serials, &mut tokens),
        _ => insert(client, "/uuids", &journal.uuids, &mut tokens),
    });
}

/// One write to one thing; only its owner calls this.
fn change(client: &mut Client, name: &str, history: &Mutex<History>, dice: u32) -> io::Result<()> {
    let (next, exists) = {
        let mut history = history.lock().expect("no thread panics with it");
        let (next, exists) = (history.next(), history.exists());
        history.sending(exists && dice == 0);
        (next, exists)
    };
    let target = format!("/things/{name}");
    let body = format!("{{\"version\":{next}}}");
    let answer = match (exists, dice) {
        (true, 0) => client.call("DELETE", &target, &[], None)?,
        // The previous version is the number of the previous write: every write that leaves a row leaves
        // its own number.
        (true, 1..=4) => client.call("POST", &format!("{target}/increment"), &[], None)?,
        (true, 5..=6) => client.call("PATCH", &target, &[], Some(&body))?,
        _ => client.call("PUT", &target, &[], Some(&body))?,
    };
    assert!((200..300).contains(&answer.status), "{name}, write {next}: {answer:?}");
    let mut history = history.lock().expect("no thread panics with it");
    if history.exists() {
        assert_eq!(answer.json()["version"], next, "{name}: {answer:?}");
    }
    history.was_answered();
    Ok(())
}

fn insert(
    client: &mut Client,
    target: &str,
    rows: &Mutex<Rows>,
    tokens: &mut impl Iterator<Item = String>,
) -> io::Result<()> {
    let batch: Vec<String> = tokens.take(PIPELINED).collect();
    rows.lock().expect("no thread panics with it").sent.extend(batch.iter().cloned());
    let mut bytes = Vec::new();
    for token in &batch {
        let body = format!("{{\"token\":\"{token}\"}}");
        bytes.extend_from_slice(&forebay_tests::request_bytes("POST", target, &[], Some(&body)));
    }
    client.send(&bytes)?;
    for token in &batch {
        let answer = client.receive(false)?;
        let row = answer.expect(201);
        assert_eq!(row["token"], *token, "{answer:?}");
        rows.lock().expect("no thread panics with it").show(&id_of(&row), token);
    }
    Ok(())
}

/// The id in the form of a path segment.
pub fn id_of(row: &serde_json::Value) -> String {
    match &row["id"] {
        serde_json::Value::String(id) => id.clone(),
        serde_json::Value::Number(id) => id.to_string(),
        _ => panic!("no id: {row}"),
    }
}

/// One reader: things of every writer, random rows, and rows that are perhaps not acknowledged yet.
pub fn read(address: SocketAddr, journal: &Journal, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let names: Vec<&String> = journal.things.keys().collect();
    let mut last = 0;
    until_gone(address, |client| match random.random_range(0..6) {
        0..=2 => read_thing(client, names[random.random_range(0..names.len())], journal),
        3 => read_row(client, "/serials", &journal.serials).map(|id| last = id.unwrap_or(last)),
        4 => {
            read_row(client, "/uuids", &journal.uuids)?;
            // The next serial keys: their rows may be in memory and not yet on the disk.
            let ahead = last + random.random_range(1..50);
            read_row(client, &format!("/serials/{ahead}"), &journal.serials)
                .map(|id| last = id.unwrap_or(last))
        }
        _ => read_count(client, &journal.serials),
    });
}

fn read_thing(client: &mut Client, name: &str, journal: &Journal) -> io::Result<()> {
    let history = &journal.things[name];
    let answered = history.lock().expect("no thread panics with it").answered();
    let answer = client.call("GET", &format!("/things/{name}"), &[], None)?;
    let shown = version_of(&answer);
    let mut history = history.lock().expect("no thread panics with it");
    let possible = history.was_shown(shown, answered);
    assert!(possible.is_some(), "{name}: {shown:?} is read after write {answered} was answered: {history:?}");
    Ok(())
}

fn read_row(client: &mut Client, target: &str, rows: &Mutex<Rows>) -> io::Result<Option<i64>> {
    let answer = client.call("GET", target, &[], None)?;
    if answer.status == 404 {
        return Ok(None);
    }
    let row = answer.expect(200);
    let token = row["token"].as_str().unwrap_or_else(|| panic!("no token: {answer:?}"));
    rows.lock().expect("no thread panics with it").show(&id_of(&row), token);
    Ok(row["id"].as_i64())
}

fn read_count(client: &mut Client, rows: &Mutex<Rows>) -> io::Result<()> {
    let answer = client.call("GET", "/serials-count", &[], None)?;
    let count = answer.expect(200)["count"].as_u64().unwrap_or_else(|| panic!("no count: {answer:?}"));
    let mut rows = rows.lock().expect("no thread panics with it");
    rows.counted = rows.counted.max(count);
    Ok(())
}
