//! Limits: a full server answers 503 with Retry-After, keeps the accepted rows, and accepts more when
//! there is room.

use crate::{assert_readable, insert, start};
use forebay_tests::{Answer, Database, Folder, wait_for};

fn post(client: &mut forebay_tests::Client, i: usize) -> Answer {
    let token = format!("{i}-{}", "z".repeat(5_000));
    client.post_json("/uuids", &format!("{{\"token\":\"{token}\"}}"))
}

/// Inserts until the server refuses; returns the accepted rows.
#[track_caller]
fn fill(client: &mut forebay_tests::Client, at_most: usize) -> Vec<super::Written> {
    let mut written = Vec::new();
    for i in 0..at_most {
        let answer = post(client, i);
        if answer.status != 201 {
            answer.expect_problem(503, "");
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
            return written;
        }
        let row = answer.json();
        written
            .push(super::Written { target: format!("/uuids/{}", row["id"].as_str().expect("an id")), row });
    }
    panic!("{at_most} rows of 5 KB were taken without a word");
}

#[test]
fn a_full_log_takes_more_when_drained() {
    let folder = Folder::new();
    let start =
        start(&folder).set("memory.segment=1MiB").set("memory.log_limit=4MiB").set("drain.paused=true");
    let server = start.start();
    let mut client = server.client();
    let written = fill(&mut client, 2000);
    assert!(written.len() > 300, "only {} rows of 5 KB in a log of 4 MiB", written.len());
    // Reads continue, the refused row does not exist, and a restart changes nothing.
    assert_readable(&mut client, &written);
    server.kill();
    let server = start.start();
    let mut client = server.client();
    assert_readable(&mut client, &written);
    server.pause_drain(false);
    wait_for("there is room again", || (post(&mut client, 9999).status == 201).then_some(()));
    server.drain();
    let rows = Database::open(&folder.database()).number("SELECT count(*) FROM uuids", []);
    assert_eq!(rows, written.len() as i64 + 1);
}

#[test]
fn full_memory_evicts_what_is_drained() {
    let folder = Folder::new();
    let start = start(&folder).set("memory.limit=8MiB");
    let server = start.clone().set("drain.paused=true").start();
    let mut client = server.client();
    // Nothing is drained, so nothing can be evicted.
    let mut written = fill(&mut client, 5000);
    assert!(written.len() > 500, "only {} rows of 5 KB in 8 MiB", written.len());
    assert_readable(&mut client, &written);
    server.pause_drain(false);
    // Now several times the limit is written, and all rows can be read.
    let before = written.len();
    while written.len() < before * 3 {
        let token = format!("{}-{}", written.len(), "z".repeat(5_000));
        written.push(wait_for("there is room", || {
            let answer = client.post_json("/uuids", &format!("{{\"token\":\"{token}\"}}"));
            (answer.status == 201).then(|| {
                let row = answer.json();
                super::Written { target: format!("/uuids/{}", row["id"].as_str().expect("an id")), row }
            })
        }));
    }
    server.drain();
    assert_readable(&mut client, &written);
    server.kill();
    // More rows exist than a restart can load: the rest is read from the database.
    let server = start.start();
    assert_readable(&mut server.client(), &written);
}

#[test]
fn unique_values_of_evicted_rows_stay_taken() {
    let folder = Folder::new();
    let server = start(&folder).set("memory.limit=8MiB").start();
    let mut client = server.client();
    let first = insert(&mut client, "serials", "taken");
    for i in 0..4000 {
        let token = format!("{i}-{}", "u".repeat(5_000));
        wait_for("there is room", || {
            (client.post_json("/serials", &format!("{{\"token\":\"{token}\"}}")).status == 201).then_some(())
        });
    }
    client.post_json("/serials", "{\"token\":\"taken\"}").expect_problem(409, "token");
    assert_readable(&mut client, &[first]);
}
