//! One of the two stores is deleted and the other stays.

use crate::{assert_readable, start, write_some};
use forebay_tests::{Database, Folder, Start};
use std::collections::HashSet;
use std::fs;

#[track_caller]
fn assert_stored(folder: &Folder, expected: i64) {
    let database = Database::open(&folder.database());
    for table in ["serials", "uuids", "things"] {
        assert_eq!(database.number(&format!("SELECT count(*) FROM {table}"), []), expected, "{table}");
    }
}

#[track_caller]
fn assert_checked(start: &Start) {
    let check = start.run("verify", &[]);
    assert!(check.status.success(), "check finds differences: {check:?}");
}

/// New rows get new keys.
#[track_caller]
fn assert_distinct(written: &[super::Written]) {
    let targets: HashSet<&String> = written.iter().map(|written| &written.target).collect();
    assert_eq!(targets.len(), written.len(), "a key was given twice");
}

#[test]
fn data_deleted_database_kept() {
    let folder = Folder::new();
    let server = start(&folder).start();
    let mut written = write_some(&mut server.client(), "first", 20);
    server.drain();
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    for round in 0..2 {
        fs::remove_dir_all(folder.data()).expect("the data folder can be deleted");
        let server = start(&folder).start();
        assert_readable(&mut server.client(), &written);
        written.extend(write_some(&mut server.client(), &format!("round{round}"), 20));
        assert_distinct(&written);
        assert_readable(&mut server.client(), &written);
        server.drain();
        assert_stored(&folder, 20 * (round + 2));
        assert_checked(&start(&folder));
        server.kill();
    }
}

/// The first option that a message names.
fn named_option(message: &str) -> Option<&str> {
    let from = message.find("--")?;
    let rest = &message[from..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(rest.len());
    (end > 2).then_some(&rest[..end])
}

/// A server with small segments, so that drained segments are deleted.
fn small(folder: &Folder) -> Start {
    start(folder).set("memory.segment=1MiB")
}

/// Drains several segments, so that their rows are no longer in the log.
fn drain_segments(server: &forebay_tests::Server) {
    let long = "y".repeat(10_000);
    let mut client = server.client();
    for i in 0..400 {
        super::insert(&mut client, "uuids", &format!("{i}-{long}"));
    }
    server.drain();
}

#[test]
fn database_deleted_while_the_log_has_everything() {
    let folder = Folder::new();
    let server = start(&folder).start();
    let mut written = write_some(&mut server.client(), "drained", 20);
    server.drain();
    server.pause_drain(true);
    written.extend(write_some(&mut server.client(), "kept", 10));
    server.kill();
    folder.delete_database();
    let server = match start(&folder).try_start() {
        Ok(server) => server,
        // The server need not detect that the log contains every row.
        Err(ended) => {
            let option = named_option(&ended.output)
                .unwrap_or_else(|| panic!("no option is named: {ended:?}"))
                .to_owned();
            start(&folder).argument(&option).start()
        }
    };
    // If the server reports nothing missing, no row may be missing.
    assert_readable(&mut server.client(), &written);
    server.drain();
    assert_stored(&folder, 30);
    assert_checked(&start(&folder));
}

#[test]
fn database_deleted_data_kept() {
    let folder = Folder::new();
    let server = small(&folder).start();
    drain_segments(&server);
    server.pause_drain(true);
    let kept = write_some(&mut server.client(), "kept", 10);
    server.kill();
    folder.delete_database();

    // The server refuses to start, says what to do, and changes nothing.
    for _ in 0..2 {
        let Err(ended) = small(&folder).try_start() else {
            panic!("rows were drained into a database that is gone, and it starts");
        };
        assert!(!ended.status.success() && !ended.output.contains("panicked"), "{ended:?}");
        let option = named_option(&ended.output);
        assert!(option.is_some(), "no option is named that would go on: {ended:?}");
        if folder.database().exists() {
            let database = Database::open(&folder.database());
            let positions =
                database.number("SELECT count(*) FROM sqlite_master WHERE name = 'forebay_position'", []);
            if positions == 1 {
                assert_eq!(database.number("SELECT count(*) FROM forebay_position", []), 0);
            }
        }
    }
    let Err(ended) = small(&folder).try_start() else { unreachable!("it was refused just now") };
    let option = named_option(&ended.output).expect("just found").to_owned();

    // Rows that were acknowledged but not drained are in the log, and are written into the new
    // database.
    let server = small(&folder).argument(&option).start();
    assert_readable(&mut server.client(), &kept);
    let mut all = kept;
    all.extend(write_some(&mut server.client(), "new", 5));
    assert_distinct(&all);
    server.drain();
    assert_readable(&mut server.client(), &all);
    let stored = Database::open(&folder.database())
        .number("SELECT count(*) FROM uuids WHERE token LIKE 'kept%' OR token LIKE 'new%'", []);
    assert_eq!(stored, 15);
    server.kill();
    // The option is not needed again.
    let server = small(&folder).start();
    assert_readable(&mut server.client(), &all);
}

#[test]
fn database_deleted_before_anything_was_drained() {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    let mut written = write_some(&mut server.client(), "kept", 10);
    server.kill();
    folder.delete_database();
    // The log contains every row: none is missing, and no option is needed.
    let server = start(&folder).start();
    assert_readable(&mut server.client(), &written);
    written.extend(write_some(&mut server.client(), "new", 10));
    assert_distinct(&written);
    server.drain();
    assert_readable(&mut server.client(), &written);
    assert_stored(&folder, 20);
    assert_checked(&start(&folder));
}

#[test]
fn an_old_copy_of_the_database_is_noticed() {
    let folder = Folder::new();
    let server = small(&folder).start();
    write_some(&mut server.client(), "first", 10);
    server.drain();
    let ended = server.stop();
    assert!(ended.status.success(), "{ended:?}");
    let old = folder.path().join("old.db");
    fs::copy(folder.database(), &old).expect("a file can be copied");
    let server = small(&folder).start();
    // Enough for segments to be deleted, so that the log alone cannot fill the gap.
    drain_segments(&server);
    server.kill();
    folder.delete_database();
    fs::rename(&old, folder.database()).expect("a file can be renamed");
    match small(&folder).try_start() {
        Err(ended) => {
            assert!(!ended.status.success() && !ended.output.contains("panicked"), "{ended:?}");
        }
        // It may start only with every row: rows that are no longer in the log would be missing
        // silently.
        Ok(server) => {
            server.drain();
            let rows = Database::open(&folder.database()).number("SELECT count(*) FROM uuids", []);
            assert_eq!(rows, 410, "an older database was taken, and rows are missing");
        }
    }
}
