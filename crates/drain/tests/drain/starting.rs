//! Which logs belong to which database, and the errors when they do not.

use crate::{PEOPLE, World, copy_folder, people, person};
use forebay_database::Store;
use forebay_drain::{
    Kind, LastPosition, NewDatabase, Progress, Reached, Settings, Start, Status, Stop, reconcile, seed, warm,
};
use forebay_log::{Log, Position};
use forebay_value::Value;
use std::path::Path;
use std::sync::Arc;

fn log(data: &Path) -> Log {
    Log::open(forebay_log::Options::new(data.join("log"))).unwrap().0
}

fn store(path: &Path) -> Store {
    Store::open(&format!("sqlite:{}", path.display()), Default::default()).unwrap()
}

/// A data folder and a database with 3 of its rows, both closed.
async fn drained(folder: &Path) {
    let world = World::open(folder).await;
    for id in 0..3 {
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
    }
    let drain = world.drain(Settings::default());
    assert_eq!(drain.stop(Stop::Finish).await.rows_total, 3);
}

#[tokio::test]
async fn fresh_then_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (data, database) = (folder.path().join("data"), folder.path().join("records.db"));
    let (first, db) = (log(&data), store(&database));
    let start = reconcile(&first, &db, &[], NewDatabase::Refuse, &LastPosition::Unknown).await.unwrap();
    assert_eq!(start, Start::Fresh { from: Reached::even(Position(0)), others: vec![], again: None });
    assert_eq!(start.notice(&db), None);
    drop((first, db));
    drained(folder.path()).await;
    let (again, db) = (log(&data), store(&database));
    let start = reconcile(&again, &db, &[], NewDatabase::Refuse, &LastPosition::Unknown).await.unwrap();
    assert!(matches!(start, Start::Continue(position) if position > Position(0)), "{start:?}");
    assert_eq!(start.notice(&db), None);
}

#[tokio::test]
async fn the_data_folder_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    drained(folder.path()).await;
    std::fs::remove_dir_all(folder.path().join("data")).unwrap();
    let (new, db) = (log(&folder.path().join("data")), store(&folder.path().join("records.db")));
    let start = reconcile(&new, &db, &[], NewDatabase::Refuse, &LastPosition::Unknown).await.unwrap();
    assert_eq!(start.position(), Position(0));
    let notice = start.notice(&db).unwrap();
    for part in ["another data folder", "is kept", "not yet drained", "--data"] {
        assert!(notice.contains(part), "{notice}");
    }
    drop((new, db));
    // And the drain continues with it: the rows exist, new ones are added.
    let world = World::open(folder.path()).await;
    world.people().insert(person(7, "new", None, 0).as_ref()).unwrap();
    world.drain(Settings::default()).stop(Stop::Finish).await;
    assert_eq!(world.text(PEOPLE), "0:p:-:0 1:p:-:0 2:p:-:0 7:new:-:0");
}

#[tokio::test]
async fn the_database_was_deleted() {
    let folder = tempfile::tempdir().unwrap();
    drained(folder.path()).await;
    for name in ["records.db", "records.db-wal", "records.db-shm"] {
        let gone = std::fs::remove_file(folder.path().join(name));
        assert!(gone.is_ok() || name != "records.db");
    }
    let (log, db) = (log(&folder.path().join("data")), store(&folder.path().join("records.db")));
    let error = reconcile(&log, &db, &[], NewDatabase::Refuse, &LastPosition::Unknown).await.unwrap_err();
    assert_eq!(error.kind(), Kind::DatabaseReplaced);
    for part in ["records.db", "was deleted", "Put it back", "--new-database", "only in that database"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let accepted = reconcile(&log, &db, &[], NewDatabase::Accept, &LastPosition::Unknown).await.unwrap();
    assert_eq!(accepted.position(), log.first());
}

#[tokio::test]
async fn the_database_is_older_than_the_log() {
    let folder = tempfile::tempdir().unwrap();
    drained(folder.path()).await;
    let backup = folder.path().join("backup");
    std::fs::create_dir(&backup).unwrap();
    std::fs::copy(folder.path().join("records.db"), backup.join("records.db")).unwrap();
    {
        let world = World::open(folder.path()).await;
        let filler = "x".repeat(10_000);
        for id in 10..400 {
            world.people().insert(person(id, &filler, None, 0).as_ref()).unwrap();
            world.end();
        }
        world.drain(Settings::default()).stop(Stop::Finish).await;
        assert!(world.log.first().0 > 0);
    }
    let (log, db) = (log(&folder.path().join("data")), store(&backup.join("records.db")));
    let error = reconcile(&log, &db, &[], NewDatabase::Accept, &LastPosition::Unknown).await.unwrap_err();
    assert_eq!(error.kind(), Kind::PositionBehind);
    for part in ["backup", "not in the log any more", "move the data folder away"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn the_log_is_older_than_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old");
    {
        let world = World::open(folder.path()).await;
        world.people().insert(person(1, "p", None, 0).as_ref()).unwrap();
        world.end();
        copy_folder(&folder.path().join("data"), &old);
        world.people().insert(person(2, "p", None, 0).as_ref()).unwrap();
        world.drain(Settings::default()).stop(Stop::Finish).await;
    }
    let (log, db) = (log(&old), store(&folder.path().join("records.db")));
    let error = reconcile(&log, &db, &[], NewDatabase::Accept, &LastPosition::Unknown).await.unwrap_err();
    assert_eq!(error.kind(), Kind::PositionAhead);
    for part in ["lost its end", "Nothing that was drained is lost", "Move the data folder away"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_drain_that_may_not_start_says_why_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drained(folder.path()).await;
    let world = World::open(folder.path()).await;
    world
        .plain()
        .execute_batch("DELETE FROM people; DELETE FROM forebay_position; DELETE FROM forebay_log")
        .unwrap();
    // Before the drain finds out: then the log takes nothing more.
    world.people().insert(person(5, "p", None, 0).as_ref()).unwrap();
    let drain = world.drain(Settings::default());
    let error = drain.drain_to(world.end()).await.unwrap_err();
    assert!(error.to_string().contains("--new-database"), "{error}");
    assert_eq!(drain.state().status, Status::Failed);
    assert_eq!(world.text("SELECT count(*) || '' FROM people"), "0");
}

#[tokio::test]
async fn seeded_rows_are_warmed() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let progress = Arc::new(Progress::default());
    let schema = Arc::new(people());
    let row = |index: u64| {
        vec![Value::Bigint(index as i64 + 1), Value::Null, Value::Null, Value::Bigint(index as i64)]
    };
    for rows in [120_000, 3, 0, 1000] {
        let progress = Progress::default();
        seed(&schema, &world.store, rows, row, &progress).await.unwrap();
        assert_eq!(progress.done(), rows);
        assert_eq!(world.store.count(&schema).await.unwrap(), rows);
    }
    drop(world);
    let world = World::open(folder.path()).await;
    assert_eq!(world.people().count().0, 1000);
    let loaded = warm(&world.people(), &world.store, Some("n % 2 = 0"), &progress).await.unwrap();
    assert_eq!((loaded.rows, progress.done()), (500, 500));
    assert_eq!(world.people().count().0, 1000);
    let error = warm(&world.people(), &world.store, Some("missing = 1"), &progress).await.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}
