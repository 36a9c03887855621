//! Foreign keys that cascade, on a tier of several shards: rows deleted or updated by a cascade are
//! drained after earlier writes to them.

use super::ordered::{CLUSTER, Ordered, SENTINEL, Writer, id, on, on_all_shapes};
use forebay_tests::{Stores, wait_for};
use forebay_topology::Topology;
use serde_json::{Value, json};

const PAIRS: usize = 100;

on_all_shapes!(a_delete_that_cascades_comes_behind_what_was_written_before_it);
on!(rows_that_follow_an_update_are_refused:);

/// Whether the owner is inserted again after its delete, with a new thing: every third is.
fn is_made_again(at: usize) -> bool {
    at.is_multiple_of(3)
}

/// A thing that is moved to another owner before its own is deleted stays; one that is not moved is deleted
/// with its owner and its part; a note loses its owner. Memory shows the same. Things of an owner that is
/// inserted again stay too.
fn a_delete_that_cascades_comes_behind_what_was_written_before_it(ordered: &Ordered) {
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    let (mut moved, mut gone, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        // The first half is drained while it is written, the second half all at once.
        if pair == PAIRS / 2 {
            server.admin("POST", "/drain/pause").expect(200);
        }
        let (old, new) = (id(), id());
        let (mover, stayer, part, note) = (id(), id(), id(), id());
        writer.post("/owners", &json!({ "id": old }));
        writer.post("/owners", &json!({ "id": new }));
        for thing in [&mover, &stayer] {
            writer.post("/things", &json!({ "id": thing, "owner": old }));
        }
        writer.post("/parts", &json!({ "id": part, "thing": stayer }));
        writer.post("/notes", &json!({ "id": note, "owner": old }));
        writer.patch("/things", &mover, &json!({ "owner": new }));
        writer.delete("/owners", &old);
        moved.push(mover);
        if is_made_again(pair) {
            let thing = id();
            writer.post("/owners", &json!({ "id": old }));
            writer.post("/things", &json!({ "id": thing, "owner": old }));
            moved.push(thing);
        } else {
            gone.push((stayer, part));
            notes.push(note);
        }
    }
    server.admin("POST", "/drain/resume").expect(200);
    ordered.assert_settled(&server);
    for thing in &moved {
        assert_eq!(writer.0.ask("GET", &format!("/things/{thing}"), None).status, 200);
    }
    for (thing, part) in &gone {
        assert_eq!(writer.0.ask("GET", &format!("/things/{thing}"), None).status, 404);
        assert_eq!(writer.0.ask("GET", &format!("/parts/{part}"), None).status, 404);
    }
    for note in &notes {
        let answer = writer.0.ask("GET", &format!("/notes/{note}"), None);
        assert_eq!(answer.json()["owner"], Value::Null, "{answer:?}");
    }
    let archive = ordered.archive();
    let all: Vec<String> =
        archive.rows("SELECT id FROM things").into_iter().filter_map(|row| row[0].clone()).collect();
    let lost: Vec<_> = moved.iter().filter(|thing| !all.contains(thing)).collect();
    assert!(lost.is_empty(), "{} things are lost", lost.len());
    let left: Vec<_> = gone.iter().filter(|(thing, _)| all.contains(thing)).collect();
    assert!(left.is_empty(), "{} things outlived their owners", left.len());
    assert_eq!(archive.number("SELECT count(*) FROM notes"), PAIRS as i64);
}

/// A thing moves to an owner whose insert is held, because another row has its first code by then; its old
/// owner is deleted. The delete waits for the thing, and the thing for the new owner, which gets a unique
/// code in the end: the thing stays.
#[test]
fn a_move_that_is_held_comes_before_the_delete_of_the_old_owner() {
    let ordered = Ordered::new(Stores::postgres, Topology::Single, 8);
    let server = ordered.start("a").start();
    server.wait_healthy();
    let mut writer = Writer(server.client());
    let families: Vec<[String; 3]> = (0..8).map(|_| [id(), id(), id()]).collect();
    for [old, _, thing] in &families {
        writer.post("/owners", &json!({ "id": old }));
        writer.post("/things", &json!({ "id": thing, "owner": old }));
    }
    let first = id();
    writer.post("/owners", &json!({ "id": first }));
    ordered.assert_settled(&server);
    let other = ordered.start("b").start();
    other.wait_healthy();
    let archive = ordered.archive();
    for at in 0..families.len() {
        archive.rows(&format!("INSERT INTO owners (id, code) VALUES ('{}', 'code {at}')", id()));
    }
    // No cut is passed while the drain of one shard is stuck.
    archive.rows("ALTER TABLE notes RENAME TO notes_of_before");
    writer.post("/notes", &json!({ "id": id(), "owner": first }));
    wait_for("a table is stopped", || {
        (server.drain_state()["stopped_tables"][0]["table"] == "notes").then_some(())
    });
    let wait_held = |count: usize| {
        wait_for("they are held", || {
            (archive.number("SELECT count(*) FROM forebay_held") == count as i64).then_some(())
        });
    };
    for (at, [_, new, _]) in families.iter().enumerate() {
        writer.post(&format!("/owners/{new}/named"), &json!({ "code": format!("code {at}") }));
    }
    wait_held(families.len());
    for (at, [old, new, thing]) in families.iter().enumerate() {
        writer.patch("/things", thing, &json!({ "owner": new }));
        writer.patch("/owners", new, &json!({ "code": format!("own {at}") }));
        writer.delete("/owners", old);
    }
    wait_held(4 * families.len());
    // The other drain reads a cut that covers all shards.
    server.pause_drain(true);
    wait_for("it has the leases", || (other.drain_state()["shards_held"] == 8).then_some(()));
    archive.rows("ALTER TABLE notes_of_before RENAME TO notes");
    ordered.assert_settled(&other);
    for [_, new, thing] in &families {
        let answer = writer.0.ask("GET", &format!("/things/{thing}"), None);
        assert_eq!(answer.expect(200)["owner"], **new);
        let stored =
            archive.number(&format!("SELECT count(*) FROM things WHERE id = '{thing}' AND owner = '{new}'"));
        assert_eq!(stored, 1, "{thing}");
    }
}

/// A hot table with ON UPDATE CASCADE on a column of another one that is not its key. (A key never
/// changes.)
fn rows_that_follow_an_update_are_refused(ordered: &Ordered) {
    ordered.start("a").start().wait_healthy();
    let sql = "ALTER TABLE notes ADD COLUMN owner_code text REFERENCES owners (code) ON UPDATE CASCADE";
    if ordered.fixture.stores.is_postgres() {
        ordered.archive().rows(sql);
    } else {
        let file = rusqlite::Connection::open(ordered.fixture.folder.database()).expect("a file");
        file.execute_batch(sql).expect("a column is added");
    }
    let ended = ordered.start("a").try_start().err().expect("the start is refused");
    assert!(ended.output.contains("table notes: its rows follow"), "{}", ended.output);
    assert!(ended.output.contains("code of owners by ON UPDATE"), "{}", ended.output);
}
