//! The differences that `verify` finds, and those that it ignores.

use crate::{World, person};
use forebay_drain::{Difference, Settings, verify};
use forebay_value::{Value, ValueRef};
use std::sync::Arc;

#[tokio::test]
async fn planted_differences_are_found_and_undrained_rows_are_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    for id in 0..1000 {
        world.people().insert(person(id, "p", None, id).as_ref()).unwrap();
    }
    let drain = world.drain(Settings::default());
    drain.drain_to(world.end()).await.unwrap();
    let progress = Arc::default();
    let found = verify(&world.people(), &world.store, world.log.id(), &progress).await.unwrap();
    assert!(found.is_clean(), "{found:?}");
    assert_eq!((found.compared, progress.done()), (1000, 1000));

    let sql = "DELETE FROM people WHERE id = 5; UPDATE people SET name = 'q' WHERE id = 6; INSERT INTO people VALUES (5000, 'r', NULL, 0)";
    world.plain().execute_batch(sql).unwrap();
    drain.pause().await;
    world.people().insert(person(2000, "new", None, 0).as_ref()).unwrap();
    world.people().increment(ValueRef::Bigint(7), 3, 1, |_| ()).unwrap();
    world.people().increment(ValueRef::Bigint(8), 3, 1, |_| ()).unwrap();
    world.end();
    let found = verify(&world.people(), &world.store, world.log.id(), &Arc::default()).await.unwrap();
    assert!(!found.is_clean());
    assert_eq!((found.missing_in_database, found.missing_in_memory, found.different), (1, 1, 1), "{found:?}");
    assert_eq!((found.undrained, found.compared), (3, 997), "{found:?}");
    let different = Difference::Different { key: Value::Bigint(6), column: "name".into() };
    for example in [
        different,
        Difference::MissingInDatabase(Value::Bigint(5)),
        Difference::MissingInMemory(Value::Bigint(5000)),
    ] {
        assert!(found.examples.contains(&example), "{example:?} in {found:?}");
    }
    // Once drained, the new rows are compared like the others.
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    let found = verify(&world.people(), &world.store, world.log.id(), &Arc::default()).await.unwrap();
    assert_eq!(
        (found.undrained, found.missing_in_database, found.missing_in_memory, found.different),
        (0, 1, 1, 1)
    );
}

#[tokio::test]
async fn beside_a_server_that_writes_nothing_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    let people = world.people();
    let writing = std::thread::spawn(move || {
        for round in 0..30_000i64 {
            let id = round % 3_000;
            match round / 3_000 % 3 {
                0 => drop(people.upsert(person(id, "p", None, round).as_ref()).unwrap()),
                1 => drop(people.increment(ValueRef::Bigint(id), 3, 1, |_| ()).unwrap()),
                _ => drop(people.delete(ValueRef::Bigint(id), |_| ()).unwrap()),
            }
        }
    });
    let mut checks = 0;
    while !writing.is_finished() || checks < 3 {
        let found = verify(&world.people(), &world.store, world.log.id(), &Arc::default()).await.unwrap();
        assert!(found.is_clean(), "{found:?}");
        checks += 1;
    }
    writing.join().unwrap();
    drain.drain_to(world.end()).await.unwrap();
    let found = verify(&world.people(), &world.store, world.log.id(), &Arc::default()).await.unwrap();
    assert!(found.is_clean() && found.undrained == 0, "{found:?}");
}

#[tokio::test]
async fn rows_that_others_wrote_to_a_shared_table_are_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open_parts(&folder.path().join("data"), &folder.path().join("r.db"), true).await;
    world.plain().execute_batch("INSERT INTO people VALUES (1, 'theirs', NULL, 0)").unwrap();
    let found = verify(&world.people(), &world.store, world.log.id(), &Arc::default()).await.unwrap();
    assert!(found.is_clean(), "{found:?}");
    assert_eq!((found.only_in_database, found.compared), (1, 0));
}
