//! A table of which the database would refuse every row is stopped, without the others, and reported; an
//! error of one row stops nothing.

use crate::{PEOPLE, World, copy_folder, hits, person, text};
use forebay_drain::{Drain, Kind, Settings, Status, Stop, verify};
use forebay_value::{Row, Value, ValueRef};
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

pub(crate) fn hit(code: &str, n: i64) -> Row {
    Row::from_values(&hits(), &[text(code), Value::Bigint(n)])
}

const HITS: &str =
    "SELECT coalesce(group_concat(code || n, ' '), '') FROM (SELECT * FROM hits ORDER BY code)";

/// Writes rows `from..to` of both tables, and increments each hit once more.
pub(crate) fn write(world: &World, rows: std::ops::Range<i64>) {
    for id in rows {
        world.people().insert(person(id, "p", None, 0).as_ref()).unwrap();
        world.hits().insert(hit(&format!("c{id}:"), 1).as_ref()).unwrap();
        world.hits().increment(ValueRef::Text(&format!("c{id}:")), 1, 1, |_| ()).unwrap();
    }
}

async fn assert_clean(world: &World, drain: &Drain) {
    drain.drain_to(world.end()).await.unwrap();
    for table in world.tables.all() {
        let found = verify(table, &world.store, world.log.id(), &Arc::default()).await.unwrap();
        assert!(found.is_clean() && found.undrained == 0, "{found:?}");
    }
    assert_eq!((drain.state().dead_total, drain.state().stopped_tables.len()), (0, 0));
}

#[tokio::test]
async fn a_schema_mistake_stops_its_table_and_no_other() {
    for (mistake, mended, says) in [
        (
            "ALTER TABLE people RENAME COLUMN name TO title",
            "ALTER TABLE people RENAME COLUMN title TO name",
            "has no column name any more",
        ),
        (
            "ALTER TABLE people RENAME TO aside",
            "ALTER TABLE aside RENAME TO people",
            "is not in the database any more",
        ),
        (
            "ALTER TABLE people RENAME TO aside; CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT, email TEXT UNIQUE, n INTEGER NOT NULL, size INTEGER NOT NULL)",
            "DROP TABLE people; ALTER TABLE aside RENAME TO people",
            "has a new column size that must not be null and has no default",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let world = World::open(folder.path()).await;
        let drain = world.drain(Settings::default());
        write(&world, 0..3);
        drain.drain_to(world.end()).await.unwrap();
        world.plain().execute_batch(mistake).unwrap();
        write(&world, 3..6);
        let error = drain.drain_to(world.end()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TableStopped, "{error}");
        assert!(error.to_string().contains(&format!("table people {says}")), "{error}");
        write(&world, 6..9);
        drain.drain_to(world.end()).await.unwrap_err();
        let all = "c0:2 c1:2 c2:2 c3:2 c4:2 c5:2 c6:2 c7:2 c8:2";
        assert_eq!(world.text(HITS), all);
        let state = drain.state();
        assert_eq!((state.status, state.dead_total), (Status::Running, 0));
        assert_eq!(state.stopped_tables[0].table, "people");
        let (released, end) = (world.log.released(), world.end());
        assert!(state.position < end && released <= state.position, "{released} {} {end}", state.position);

        world.plain().execute_batch(mended).unwrap();
        eventually("the table has caught up", || drain.state().stopped_tables.is_empty()).await;
        assert_clean(&world, &drain).await;
        assert_eq!(
            (world.text(HITS).as_str(), world.text("SELECT count(*) || '' FROM people").as_str()),
            (all, "9")
        );
    }
}

#[tokio::test]
async fn a_restart_beside_a_stopped_table_repeats_nothing_and_skips_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("records.db");
    let mut world = World::open_parts(&folder.path().join("data-0"), &database, false).await;
    let mut drain = world.drain(Settings::default());
    write(&world, 0..3);
    drain.drain_to(world.end()).await.unwrap();
    world.plain().execute_batch("ALTER TABLE people RENAME COLUMN name TO title").unwrap();
    for round in 1..4 {
        write(&world, round * 3..round * 3 + 3);
        let error = drain.drain_to(world.end()).await.unwrap_err();
        assert_eq!(error.kind(), Kind::TableStopped, "{error}");
        drain.stop(Stop::Leave).await;
        drop(drain);
        // The log as after a crash: it does not remember what it released.
        let data = folder.path().join(format!("data-{round}"));
        copy_folder(&world.data, &data);
        drop(world);
        // The table exists again while memory is loaded, and stays after the last round.
        let plain = rusqlite::Connection::open(&database).unwrap();
        plain.execute_batch("ALTER TABLE people RENAME COLUMN title TO name").unwrap();
        world = World::open_parts(&data, &database, false).await;
        if round < 3 {
            plain.execute_batch("ALTER TABLE people RENAME COLUMN name TO title").unwrap();
        }
        assert_eq!(
            (world.people().count().0, world.hits().count().0),
            (round as u64 * 3 + 3, round as u64 * 3 + 3)
        );
        let shown = world.hits().get(ValueRef::Text("c0:"), forebay_table::Counters::Shown, |row| {
            row.to_values(&hits())[1].clone()
        });
        assert!(matches!(shown, forebay_table::Read::Found(Value::Bigint(2), _)), "counted once");
        drain = world.drain(Settings::default());
    }
    eventually("the table has caught up", || {
        drain.state().stopped_tables.is_empty() && drain.state().status == Status::Running
    })
    .await;
    assert_clean(&world, &drain).await;
    assert_eq!(world.text("SELECT count(*) || ':' || sum(n) FROM hits"), "12:24");
    assert_eq!(world.text("SELECT count(*) || '' FROM people"), "12");
}

#[tokio::test]
async fn a_trigger_that_refuses_one_row_with_whatever_error_stops_nothing() {
    for refuse in [
        "SELECT RAISE(ABORT, 'no such luck')",
        "SELECT json_extract('{', '$')",
        "INSERT INTO nowhere SELECT 1",
        "SELECT abs(-9223372036854775808)",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let world = World::open(folder.path()).await;
        let trigger = format!(
            "CREATE TABLE nowhere (x CHECK (x = 2));
             CREATE TRIGGER refuse BEFORE INSERT ON people WHEN NEW.n = 7 BEGIN {refuse}; END"
        );
        world.plain().execute_batch(&trigger).unwrap();
        let drain = world.drain(Settings { paused: true, ..Settings::default() });
        for id in 0..10 {
            world.people().insert(person(id, "p", None, id).as_ref()).unwrap();
        }
        drain.resume();
        drain.drain_to(world.end()).await.unwrap();
        let letters = world.store.dead_letters(10).await.unwrap();
        assert_eq!((letters.len(), drain.state().dead_total), (1, 1), "{refuse}: {letters:?}");
        assert!(letters[0].row.contains("\"id\":7"), "{letters:?}");
        assert_eq!(world.text("SELECT group_concat(id, ' ') FROM people"), "0 1 2 3 4 5 6 8 9");
    }
}

#[tokio::test]
async fn a_dead_letter_is_written_once_however_often_the_log_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("records.db");
    let mut world = World::open_parts(&folder.path().join("data-0"), &database, false).await;
    world.plain().execute_batch("CREATE TRIGGER refuse BEFORE INSERT ON people WHEN NEW.n = 7 BEGIN SELECT RAISE(ABORT, 'no'); END").unwrap();
    for id in 5..9 {
        world.people().insert(person(id, "p", None, id).as_ref()).unwrap();
    }
    world.end();
    let before = folder.path().join("data-before");
    copy_folder(&world.data, &before);
    let drain = world.drain(Settings::default());
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(world.store.dead_letter_count().await.unwrap(), 1);
    drop(drain);
    drop(world);
    // Killed between the commit and the release: the log still contains all records, and the database would
    // now accept what it had refused.
    let plain = rusqlite::Connection::open(&database).unwrap();
    plain.execute_batch("DROP TRIGGER refuse").unwrap();
    world = World::open_parts(&before, &database, false).await;
    let drain = world.drain(Settings::default());
    world.people().insert(person(1, "p", None, 1).as_ref()).unwrap();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!((drain.state().rows_total, world.store.dead_letter_count().await.unwrap()), (1, 1));
    assert_eq!(world.text(PEOPLE), "1:p:-:1 5:p:-:5 6:p:-:6 8:p:-:8");
}
