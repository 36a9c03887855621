//! Order: two connections on two workers change one key. Memory, the log after a restart, and SQLite
//! contain the write that was answered last.

use crate::start;
use forebay_tests::{Client, Database, Folder, Server};
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

fn put(client: &mut Client, name: &str, version: i64) {
    let answer = client.ask("PUT", &format!("/things/{name}"), Some(&format!("{{\"version\":{version}}}")));
    assert!((200..300).contains(&answer.status), "{answer:?}");
}

fn version(server: &Server, name: &str) -> Option<i64> {
    let answer = server.client().get(&format!("/things/{name}"));
    (answer.status != 404).then(|| answer.expect(200)["version"].as_i64().expect("a version"))
}

fn stored(folder: &Folder, name: &str) -> Option<i64> {
    let database = Database::open(&folder.database());
    let count = database.number("SELECT count(*) FROM things WHERE name = ?", [name]);
    (count == 1).then(|| database.number("SELECT version FROM things WHERE name = ?", [name]))
}

/// Memory, log and SQLite agree on each of these; the log alone is read first, because the drain is
/// paused.
fn check_everywhere(folder: &Folder, server: Server, expected: &[(String, Option<i64>)]) {
    for (name, last) in expected {
        assert_eq!(version(&server, name), *last, "{name} in memory");
    }
    server.kill();
    let server = start(folder).set("drain.paused=true").start();
    for (name, last) in expected {
        assert_eq!(version(&server, name), *last, "{name} after a restart, from the log");
    }
    server.drain();
    for (name, last) in expected {
        assert_eq!(stored(folder, name), *last, "{name} in SQLite");
        assert_eq!(version(&server, name), *last, "{name} after the drain");
    }
    server.kill();
    let server = start(folder).start();
    for (name, last) in expected {
        assert_eq!(version(&server, name), *last, "{name} after a restart, from SQLite");
    }
}

#[test]
fn two_connections_in_turns() {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    // Connections go to the worker with the fewest, so these two are on different workers.
    let mut clients = [server.client(), server.client()];
    let mut expected = Vec::new();
    for key in 0..20i64 {
        let name = format!("key{key}");
        let mut last = None;
        for turn in 1..=10 + key {
            let client = &mut clients[(turn % 2) as usize];
            if turn % 7 == 0 {
                let answer = client.ask("DELETE", &format!("/things/{name}"), None);
                assert!((200..300).contains(&answer.status), "{answer:?}");
                last = None;
            } else {
                put(client, &name, turn);
                last = Some(turn);
            }
            // The other connection sees the write at once.
            let shown = clients[((turn + 1) % 2) as usize].get(&format!("/things/{name}"));
            assert_eq!(
                shown.status,
                if last.is_some() { 200 } else { 404 },
                "{name}, turn {turn}: {shown:?}"
            );
        }
        expected.push((name, last));
    }
    check_everywhere(&folder, server, &expected);
}

#[test]
fn two_connections_at_once() {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    let address = server.address;
    let mut expected = Vec::new();
    for key in 0..10 {
        let name = format!("key{key}");
        thread::scope(|scope| {
            for side in 0..2 {
                let name = &name;
                scope.spawn(move || {
                    let mut client = Client::connect(address).expect("a connection");
                    (0..100).for_each(|turn| put(&mut client, name, turn * 2 + side));
                });
            }
        });
        // Which write was last is unknown; but all must agree, and it is the last write of one of
        // the two.
        let last = version(&server, &name);
        assert!(matches!(last, Some(198 | 199)), "{name}: {last:?} was not the last of anyone");
        expected.push((name, last));
    }
    check_everywhere(&folder, server, &expected);
}

#[test]
fn increments_from_both_sides_add_up() {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    let address = server.address;
    put(&mut server.client(), "counter", 0);
    let highest = AtomicI64::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address).expect("a connection");
                let mut before = 0;
                for _ in 0..250 {
                    let value = client.post("/things/counter/increment").expect(200);
                    let shown = value["version"].as_i64().expect("a version");
                    assert!(shown > before, "{shown} after {before} on one connection");
                    before = shown;
                    highest.fetch_max(shown, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(highest.into_inner(), 1000);
    check_everywhere(&folder, server, &[("counter".to_owned(), Some(1000))]);
}
