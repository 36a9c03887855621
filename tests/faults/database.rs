//! The database fails: the drain waits, reports it and continues later; a row that the database refuses
//! becomes a dead letter.

use crate::{assert_readable, start, write_some};
use forebay_tests::{Database, Folder, Start, binary, example, wait_for};

#[test]
fn a_locked_database_holds_up_the_drain_alone() {
    let folder = Folder::new();
    let server = start(&folder).start();
    let mut client = server.client();
    let mut written = write_some(&mut client, "before", 5);
    server.drain();
    let database = Database::open(&folder.database());
    database.change("BEGIN IMMEDIATE");
    written.extend(write_some(&mut client, "during", 20));
    assert_readable(&mut client, &written);
    assert_eq!(database.number("SELECT count(*) FROM uuids", []), 5);
    database.change("COMMIT");
    server.drain();
    assert_eq!(database.number("SELECT count(*) FROM uuids", []), 25);
    assert_eq!(server.drain_state()["dead_total"], 0);
    assert_readable(&mut client, &written);
}

#[test]
fn pause_and_resume() {
    let folder = Folder::new();
    let server = start(&folder).start();
    let mut client = server.client();
    server.wait_healthy();
    server.pause_drain(true);
    assert_eq!(server.drain_state()["paused"], true);
    write_some(&mut client, "paused", 5);
    let database = Database::open(&folder.database());
    // The state shows the waiting rows, and none of them is in the database.
    let waiting = server.drain_state();
    assert!(waiting["backlog_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{waiting}");
    assert_eq!(database.number("SELECT count(*) FROM uuids", []), 0);
    server.drain();
    let state = server.drain_state();
    assert_eq!(state["paused"], false, "{state}");
    assert!(state["rows_total"].as_u64().is_some_and(|rows| rows >= 15), "{state}");
    assert_eq!(database.number("SELECT count(*) FROM uuids", []), 5);
}

#[test]
fn a_row_that_the_database_refuses_is_a_dead_letter() {
    let folder = Folder::new();
    let start = Start::new(binary(), &folder, &example("codes.toml")).set("drain.paused=true");
    let server = start.start();
    let mut client = server.client();
    let codes: Vec<String> = (0..20)
        .map(|_| {
            let row = client.post("/code-fast").expect(201);
            row["created_code"]["code"].as_str().expect("a code").to_owned()
        })
        .collect();
    // Another client takes the code of one of the rows: the table is shared.
    let database = Database::open(&folder.database());
    database.change(&format!("INSERT INTO codes (id, code) VALUES (1000000000, '{}')", codes[7]));
    server.drain();
    let state = server.drain_state();
    assert_eq!(state["dead_total"], 1, "{state}");
    assert_eq!(database.number("SELECT count(*) FROM codes", []), 20);
    assert_eq!(database.number("SELECT count(*) FROM forebay_dead_letter", []), 1);
    let reason = database.text("SELECT reason FROM forebay_dead_letter", []);
    assert!(reason.to_lowercase().contains("code"), "the reason names the column: {reason}");
    let letter = database.text("SELECT row FROM forebay_dead_letter", []);
    assert!(letter.contains(&codes[7]), "the row is kept: {letter}");
    for (i, code) in codes.iter().enumerate() {
        let owner = database.number("SELECT id FROM codes WHERE code = ?", [code]);
        assert_eq!(owner == 1_000_000_000, i == 7, "{i}");
    }
    // The difference is reported, also after a restart.
    let check = start.run("verify", &[]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    server.kill();
    let server = start.start();
    server.drain();
    assert_eq!(database.number("SELECT count(*) FROM forebay_dead_letter", []), 1);
}

#[test]
fn commands_on_a_folder_that_nobody_serves() {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    let written = write_some(&mut server.client(), "left", 10);
    let assert_undrained = || {
        let check = start(&folder).run("verify", &[]);
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.code() == Some(1) && said.contains("the database lacks changes"), "{check:?}");
    };
    assert_undrained();
    server.kill();
    assert_undrained();
    let drained = start(&folder).run("drain", &[]);
    assert!(drained.status.success(), "{drained:?}");
    let database = Database::open(&folder.database());
    for table in ["serials", "uuids", "things"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM {table}"), []), 10, "{table}");
    }
    let check = start(&folder).run("verify", &[]);
    assert!(check.status.success(), "{check:?}");
    // `verify` beside a running server finds each row that another client has changed in the
    // database.
    let server = start(&folder).start();
    assert_readable(&mut server.client(), &written);
    database.change("UPDATE things SET version = version + 1 WHERE name = 'left-4'");
    database.change("DELETE FROM uuids WHERE token = 'left-5'");
    let check = start(&folder).run("verify", &[]);
    assert_eq!(check.status.code(), Some(1), "{check:?}");
    let output =
        String::from_utf8_lossy(&check.stdout).into_owned() + &String::from_utf8_lossy(&check.stderr);
    assert!(output.contains("left-4"), "the row is not named: {output}");
    // Memory has not changed.
    assert_readable(&mut server.client(), &written);
}

#[test]
fn drain_as_a_command_asks_the_running_server() {
    let folder = Folder::new();
    let server = start(&folder).start();
    write_some(&mut server.client(), "running", 10);
    let drained = start(&folder).run("drain", &[]);
    assert!(drained.status.success(), "{drained:?}");
    let database = Database::open(&folder.database());
    wait_for("the rows are in SQLite", || {
        (database.number("SELECT count(*) FROM uuids", []) == 10).then_some(())
    });
}
