//! An unreachable database, dead letters, two drains, pause and pace.

use crate::stopping::eventually;
use crate::{PEOPLE, World, person};
use forebay_drain::{Kind, Settings, Status, Stop};
use forebay_value::ValueRef;
use std::time::Duration;

#[tokio::test]
async fn a_store_that_is_away_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    let locker = world.plain();
    locker.execute_batch("BEGIN EXCLUSIVE").unwrap();
    for id in 0..100 {
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
    }
    eventually("backing off", || drain.state().status == Status::BackingOff).await;
    let state = drain.state();
    assert!(state.last_error.unwrap().contains("locked by another process"));
    assert!(state.backlog_bytes > 0);
    locker.execute_batch("ROLLBACK").unwrap();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(world.text("SELECT count(*) || '' FROM people"), "100");
    let state = drain.state();
    assert_eq!((state.status, state.last_error, state.dead_total), (Status::Running, None, 0));
    assert_eq!((state.backlog_rows, state.rows_total), (Some(0), 100));
}

#[tokio::test]
async fn a_database_that_is_moved_away_and_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    let aside = folder.path().join("aside.db");
    std::fs::rename(&world.url, &aside).unwrap();
    world.people().insert(person(1, "p", None, 0).as_ref()).unwrap();
    eventually("backing off", || drain.state().status == Status::BackingOff).await;
    assert!(drain.state().last_error.unwrap().contains("not there any more"));
    std::fs::rename(&aside, &world.url).unwrap();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(world.text(PEOPLE), "1:p:-:0");
}

#[tokio::test]
async fn what_the_database_refuses_is_a_dead_letter_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open_parts(&folder.path().join("data"), &folder.path().join("r.db"), true).await;
    // Rows of another program, which memory does not know.
    world
        .plain()
        .execute_batch("INSERT INTO people VALUES (3, 'theirs', 'x', 0), (9, 'theirs', 'y', 0)")
        .unwrap();
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    for (id, email) in [(1, None), (2, Some("x")), (3, None), (4, Some("z"))] {
        // A shared table asks the database first; these rows were written before the database could show a
        // conflict.
        let row = person(id, "ours", email, 0);
        loop {
            match world.people().insert(row.as_ref()) {
                Err(forebay_table::WriteError::Fetch(_)) if id == 3 => break,
                Err(forebay_table::WriteError::Fetch(key)) => {
                    assert!(matches!(world.people().fetch(key).await, Ok(forebay_table::Fetched::Gone(_))))
                }
                done => {
                    done.unwrap();
                    break;
                }
            }
        }
    }
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(world.text(PEOPLE), "1:ours:-:0 3:theirs:x:0 4:ours:z:0 9:theirs:y:0");
    let letters = world.store.dead_letters(10).await.unwrap();
    assert_eq!(letters.len() as u64, drain.state().dead_total);
    let last = letters.last().unwrap();
    assert_eq!((last.op.as_str(), last.table.as_str()), ("insert", "people"));
    assert!(last.row.contains("\"id\":2") && last.reason.contains("people.email"), "{last:?}");
}

#[tokio::test]
async fn a_second_drain_fences_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let first = world.drain(Settings::default());
    world.people().insert(person(1, "p", None, 0).as_ref()).unwrap();
    first.drain_to(world.end()).await.unwrap();
    // Another opening of the same log has claimed the position.
    world.plain().execute_batch("UPDATE forebay_position SET history = 'another'").unwrap();
    world.people().insert(person(2, "p", None, 0).as_ref()).unwrap();
    let error = first.drain_to(world.end()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Fenced);
    assert!(error.to_string().contains("another copy of this data folder"), "{error}");
    assert_eq!(first.state().status, Status::Fenced);
    assert_eq!(world.text(PEOPLE), "1:p:-:0");
    assert_eq!(first.stop(Stop::Finish).await.status, Status::Fenced);
}

#[tokio::test]
async fn what_is_written_after_a_pause_is_in_no_batch() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    for id in 0..20 {
        // An idle drain waits for records: the pause interrupts that wait.
        drain.pause().await;
        assert!(!drain.state().batch_in_hand);
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
        let end = world.end();
        tokio::time::sleep(Duration::from_millis(70)).await;
        assert_eq!(drain.state().rows_total, id as u64);
        drain.resume();
        drain.drain_to(end).await.unwrap();
    }
}

#[tokio::test]
async fn paused_it_keeps_everything_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    for id in 0..10 {
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
    }
    let end = world.end();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(drain.state().status, Status::Paused);
    assert_eq!(
        (world.text("SELECT count(*) || '' FROM people").as_str(), drain.state().rows_total),
        ("0", 0)
    );
    drain.resume();
    drain.drain_to(end).await.unwrap();
    assert_eq!(drain.state().status, Status::Running);
    drain.pause().await;
    world.people().insert(person(10, "p", None, 0).as_ref()).unwrap();
    // Finishing is an explicit request: a pause does not prevent it.
    assert_eq!(drain.stop(Stop::Finish).await.status, Status::Stopped);
    assert_eq!(world.text("SELECT count(*) || '' FROM people"), "11");
}

#[tokio::test]
async fn a_pace_bounds_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    // Twenty seconds of work, of which the test observes the first two tenths.
    for id in 0..1_000 {
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
    }
    let drain = world.drain(Settings { pace_rows_per_s: Some(50.0), ..Settings::default() });
    let end = world.end();
    // Batches of a tenth of a second: more of them than the time allows at full speed, none too large.
    eventually("a first batch", || drain.state().batches_total >= 2).await;
    let state = drain.state();
    assert_eq!(state.changes_total, 5 * state.batches_total);
    assert!(state.position < end);
    drain.set_pace(None);
    drain.drain_to(end).await.unwrap();
    assert_eq!(drain.state().changes_total, 1_000);
}

#[tokio::test]
async fn increments_of_one_row_are_one_change_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    world.people().insert(person(1, "p", None, 0).as_ref()).unwrap();
    for _ in 0..9_000 {
        world.people().increment(ValueRef::Bigint(1), 3, 1, |_| ()).unwrap();
    }
    let end = world.end();
    drain.resume();
    drain.drain_to(end).await.unwrap();
    assert_eq!(world.text(PEOPLE), "1:p:-:9000");
    assert_eq!((drain.state().rows_total, drain.state().changes_total), (9_001, 1));
}

#[tokio::test]
async fn what_is_drained_is_released() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    let filler = "x".repeat(10_000);
    for id in 0..400 {
        world.people().insert(person(id, &filler, None, 0).as_ref()).unwrap();
        // The log's buffer is small.
        world.end();
    }
    let end = world.end();
    drain.drain_to(end).await.unwrap();
    assert!(world.log.first().0 > 0, "segments of 1 MiB went");
    assert!(world.log.released() <= end);
    let stored = world.store.position(world.log.id().0).await.unwrap().unwrap();
    assert!(stored == world.log.released().0 && world.log.released() <= drain.state().position, "{stored}");
}

#[tokio::test]
async fn a_log_never_begins_behind_what_the_database_has() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings { paused: true, batch_rows_max: 1, ..Settings::default() });
    for id in 0..400 {
        world.people().insert(person(id, &"x".repeat(10_000), None, 0).as_ref()).unwrap();
        // Groups of one record, so that batches end at segment boundaries.
        world.end();
    }
    let end = world.end();
    drain.resume();
    while drain.state().position < end {
        let first = world.log.first();
        let stored = world.store.position(world.log.id().0).await.unwrap().unwrap_or_default();
        assert!(
            stored >= first.0,
            "a start would refuse: the database is at {stored}, the log begins at {first}"
        );
    }
    assert!(world.log.first().0 > 0, "segments went");
}

#[tokio::test]
async fn beside_direct_writes_batches_are_small_and_both_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    world.plain().execute_batch("CREATE TABLE direct (x)").unwrap();
    let drain = world.drain(Settings { paused: true, ..Settings::default() });
    for id in 0..60_000 {
        world.insert(person(id, "some name that is not short", None, 0).as_ref());
    }
    let end = world.end();
    let insert = world.store.prepare("INSERT INTO direct VALUES (1)").await.unwrap();
    drain.resume();
    let mut writes = 0u64;
    while drain.state().position < end {
        world.store.run(&insert, vec![]).await.unwrap();
        writes += 1;
    }
    assert_eq!(world.text("SELECT count(*) || '' FROM people"), "60000");
    assert_eq!(world.text("SELECT count(*) || '' FROM direct"), writes.to_string());
    let state = drain.state();
    assert!(state.batches_total > 2, "{state:?}");
    assert_eq!((state.rows_total, state.dead_total), (60_000, 0));
}

#[tokio::test]
async fn a_record_that_is_nobodys_stops_it_behind_all_that_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    world.people().insert(person(1, "p", None, 0).as_ref()).unwrap();
    let good = world.log.append(&[9, 9, 9]).unwrap();
    world.people().insert(person(2, "p", None, 0).as_ref()).unwrap();
    let end = world.end();
    let drain = world.drain(Settings::default());
    let error = drain.drain_to(end).await.unwrap_err();
    assert!(error.to_string().contains(&format!("ends at position {good}")), "{error}");
    assert_eq!((world.text(PEOPLE).as_str(), drain.state().status), ("1:p:-:0", Status::Failed));
}

#[tokio::test]
async fn a_row_whose_parent_never_comes_is_alone_in_its_dead_letter() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    world.plain().execute_batch(
        "DROP TABLE people; CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE, n INTEGER NOT NULL,
           FOREIGN KEY (n) REFERENCES people (id) DEFERRABLE INITIALLY DEFERRED)",
    ).unwrap();
    for (id, parent) in [(1, 1), (2, 5), (3, 99), (4, 1), (5, 1)] {
        world.people().insert(person(id, "p", None, parent).as_ref()).unwrap();
    }
    let end = world.end();
    let drain = world.drain(Settings::default());
    drain.drain_to(end).await.unwrap();
    let letters = world.store.dead_letters(10).await.unwrap();
    assert!(letters.iter().any(|letter| letter.row.contains("\"id\":3")), "{letters:?}");
    // The batch was split until the refused change was alone: a change whose parent came later in the batch
    // may be refused too.
    assert_eq!(5 - letters.len(), world.text("SELECT count(*) || '' FROM people").parse::<usize>().unwrap());
    assert!(world.text(PEOPLE).contains("1:p:-:1") && world.text(PEOPLE).contains("5:p:-:1"));
}
