//! Kill, restart, compare.

use crate::journal::{Journal, Rows};
use crate::writers::{read, things_of, write};
use crate::{from_environment, start};
use forebay_tests::{Client, Database, Folder, Server, request_bytes};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::HashSet;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const WRITERS: usize = 6;
const READERS: usize = 2;
const ROUNDS: u64 = 3;
/// Requests that are sent together when rows are compared.
const COMPARED_TOGETHER: usize = 100;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_stands_twice() {
    let rounds = from_environment("FOREBAY_CRASH_ROUNDS").unwrap_or(ROUNDS);
    let seed = from_environment("FOREBAY_CRASH_SEED").unwrap_or_else(|| rand::rng().random());
    println!("{rounds} rounds; FOREBAY_CRASH_SEED={seed} repeats them");
    let mut random = StdRng::seed_from_u64(seed);
    let folder = Folder::new();
    let mut journal = Journal::new((0..WRITERS).flat_map(things_of));
    for round in 0..rounds {
        let server = start(&folder).start();
        compare(&server, &mut journal);
        // At the crash some rows are only in the log, some are in SQLite, and some are being written.
        server.pause_drain(random.random_bool(0.3));
        let shown = |rows: &Mutex<Rows>| rows.lock().expect("no thread panicked").shown.len();
        drive(server, &journal, &mut random);
        println!(
            "round {round}: {} serial rows, {} UUID rows",
            shown(&journal.serials),
            shown(&journal.uuids)
        );
        if random.random_bool(0.3) {
            // A crash during recovery, perhaps before the ports are open.
            start(&folder).start_and_kill(Duration::from_millis(random.random_range(1..300)));
        }
    }
    let server = start(&folder).start();
    compare(&server, &mut journal);
    server.drain();
    compare_database(&server, &folder, &mut journal);
    let state = server.drain_state();
    assert_eq!(state["dead_total"], 0, "{state}");
    let check = start(&folder).run("verify", &[]);
    assert!(check.status.success(), "check finds differences: {check:?}");
    server.kill();
    // One more start after the drain: the log holds no row that SQLite lacks.
    let server = start(&folder).start();
    for rows in [&journal.serials, &journal.uuids] {
        let mut rows = rows.lock().expect("no thread panicked");
        rows.fresh = rows.shown.keys().cloned().collect();
    }
    compare(&server, &mut journal);
    compare_database(&server, &folder, &mut journal);
}

/// Writers and readers at full speed; the server is killed meanwhile.
fn drive(server: Server, journal: &Journal, random: &mut StdRng) {
    let address = server.address;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let seed = random.random();
            scope.spawn(move || write(address, journal, writer, seed));
        }
        for _ in 0..READERS {
            let seed = random.random();
            scope.spawn(move || read(address, journal, seed));
        }
        thread::sleep(Duration::from_millis(random.random_range(20..1200)));
        // Often a checkpoint was taken a moment ago, or is being taken now.
        if random.random_bool(0.6) {
            server.begin_checkpoint();
            thread::sleep(Duration::from_millis(random.random_range(0..60)));
        }
        server.kill();
    });
}

/// Every row that was shown exists, and every thing is in a possible state.
fn compare(server: &Server, journal: &mut Journal) {
    let mut client = server.client();
    for (name, history) in &mut journal.things {
        let answer = client.get(&format!("/things/{name}"));
        let found =
            (answer.status != 404).then(|| answer.expect(200)["version"].as_i64().expect("a version"));
        let history = history.get_mut().expect("no thread panicked");
        let before = history.clone();
        assert!(history.found(found).is_some(), "{name}: found {found:?}, which cannot be: {before:?}");
    }
    compare_rows(&mut client, "/serials", journal.serials.get_mut().expect("no thread panicked"));
    compare_rows(&mut client, "/uuids", journal.uuids.get_mut().expect("no thread panicked"));
    let counted = client.get("/serials-count").expect(200)["count"].as_u64();
    let least = journal.serials.get_mut().expect("no thread panicked").counted;
    assert!(counted.is_some_and(|counted| counted >= least), "{counted:?} rows, {least} were counted before");
}

fn compare_rows(client: &mut Client, target: &str, rows: &mut Rows) {
    let fresh = std::mem::take(&mut rows.fresh);
    for ids in fresh.chunks(COMPARED_TOGETHER) {
        let requests = ids.iter().map(|id| request_bytes("GET", &format!("{target}/{id}"), &[], None));
        client.send(&requests.collect::<Vec<_>>().concat()).expect("the server lives");
        for id in ids {
            let answer = client.receive(false).expect("the server lives");
            let token = answer.expect(200)["token"].as_str().map(str::to_owned);
            assert_eq!(token.as_ref(), rows.shown.get(id), "{target}/{id}");
        }
    }
}

/// After the drain: SQLite holds what the server shows, each exactly once.
fn compare_database(server: &Server, folder: &Folder, journal: &mut Journal) {
    let database = Database::open(&folder.database());
    for (table, rows) in [("serials", &mut journal.serials), ("uuids", &mut journal.uuids)] {
        let rows = rows.get_mut().expect("no thread panicked");
        let stored = database.rows(&format!("SELECT CAST(id AS TEXT), token FROM {table}"), []);
        let mut tokens = HashSet::new();
        let mut found = 0;
        for row in &stored {
            let [rusqlite::types::Value::Text(id), rusqlite::types::Value::Text(token)] = row.as_slice()
            else {
                panic!("{table}: {row:?}");
            };
            assert!(tokens.insert(token), "{table}: {token} stands twice");
            assert!(rows.sent.contains(token), "{table}: nobody sent {token}");
            if let Some(shown) = rows.shown.get(id) {
                assert_eq!(shown, token, "{table} {id}");
                found += 1;
            }
        }
        assert_eq!(found, rows.shown.len(), "rows of {table} that were acknowledged or shown, in SQLite");
    }
    let mut client = server.client();
    let count = client.get("/serials-count").expect(200)["count"].as_i64();
    assert_eq!(Some(database.number("SELECT count(*) FROM serials", [])), count);
    for name in journal.things.keys() {
        let answer = client.get(&format!("/things/{name}"));
        let shown: Vec<Vec<rusqlite::types::Value>> = if answer.status == 404 {
            Vec::new()
        } else {
            let version = answer.expect(200)["version"].as_i64().expect("a version");
            vec![vec![rusqlite::types::Value::Integer(version)]]
        };
        let stored = database.rows("SELECT version FROM things WHERE name = ?", [name]);
        assert_eq!(stored, shown, "{name} in SQLite");
    }
}
