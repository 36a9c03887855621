//! Random changes, random batch sizes, crashes: in the end the database equals a plain model, row by row.

use crate::{PEOPLE, World, copy_folder, person, text};
use forebay_drain::{Settings, Stop, verify};
use forebay_table::WriteError;
use forebay_value::{Value, ValueRef};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type People = BTreeMap<i64, (String, Option<String>, i64)>;

#[derive(Debug, Clone)]
enum Step {
    Insert(i64, String, Option<String>),
    Upsert(i64, String, Option<String>),
    Email(i64, Option<String>),
    Add(i64, i64),
    Hit(String),
    Delete(i64),
    /// Drain with batches of so many rows, to the end or only started; optionally crash before the log is
    /// released.
    Drain {
        rows: usize,
        to_end: bool,
        crash: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let email = || proptest::option::of("[xyz]");
    let step = prop_oneof![
        4 => (0i64..6, "[a-c]", email()).prop_map(|(id, name, email)| Step::Insert(id, name, email)),
        2 => (0i64..6, "[a-c]", email()).prop_map(|(id, name, email)| Step::Upsert(id, name, email)),
        4 => (0i64..6, email()).prop_map(|(id, email)| Step::Email(id, email)),
        2 => (0i64..6, -9i64..9).prop_map(|(id, n)| Step::Add(id, n)),
        2 => "[pq]".prop_map(Step::Hit),
        3 => (0i64..6).prop_map(Step::Delete),
        1 => (1usize..40, any::<bool>(), any::<bool>())
            .prop_map(|(rows, to_end, crash)| Step::Drain { rows, to_end, crash }),
    ];
    proptest::collection::vec(step, 1..150)
}

fn has_email(model: &People, id: i64, email: &Option<String>) -> bool {
    email.is_some() && model.iter().any(|(other, row)| *other != id && row.1 == *email)
}

fn write(world: &World, step: &Step, model: &mut People, hits: &mut BTreeMap<String, i64>) {
    let people = world.people();
    match step {
        Step::Insert(id, name, email) => {
            let free = !model.contains_key(id) && !has_email(model, *id, email);
            let done = people.insert(person(*id, name, email.as_deref(), 0).as_ref());
            assert_eq!(done.is_ok(), free, "{step:?}");
            if free {
                model.insert(*id, (name.clone(), email.clone(), 0));
            }
        }
        Step::Upsert(id, name, email) => {
            let free = !has_email(model, *id, email);
            let done = people.upsert(person(*id, name, email.as_deref(), 1).as_ref());
            assert_eq!(done.is_ok(), free, "{step:?}");
            if free {
                model.insert(*id, (name.clone(), email.clone(), 1));
            }
        }
        Step::Email(id, email) => {
            let free = !has_email(model, *id, email);
            let value = email.as_deref().map_or(ValueRef::Null, ValueRef::Text);
            let done = people.update(ValueRef::Bigint(*id), &[(2, value)], |_| ());
            assert_eq!(done.is_ok(), free && model.contains_key(id), "{step:?}");
            if let (true, Some(row)) = (free, model.get_mut(id)) {
                row.1 = email.clone();
            }
        }
        Step::Add(id, n) => {
            let done = people.increment(ValueRef::Bigint(*id), 3, *n, |_| ());
            assert_eq!(done.is_ok(), model.contains_key(id), "{step:?}");
            model.entry(*id).and_modify(|row| row.2 += n);
        }
        Step::Hit(code) => {
            let row = forebay_value::Row::from_values(&crate::hits(), &[text(code), Value::Bigint(1)]);
            match world.hits().insert(row.as_ref()) {
                Ok(_) => {}
                Err(WriteError::Conflict { .. }) => {
                    world.hits().increment(ValueRef::Text(code), 1, 1, |_| ()).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
            *hits.entry(code.clone()).or_default() += 1;
        }
        Step::Delete(id) => {
            assert_eq!(people.delete(ValueRef::Bigint(*id), |_| ()).is_ok(), model.remove(id).is_some());
        }
        Step::Drain { .. } => unreachable!("drained by the caller"),
    }
}

fn shown(model: &People) -> String {
    let row = |(id, (name, email, n)): (&i64, &(String, Option<String>, i64))| {
        format!("{id}:{name}:{}:{n}", email.as_deref().unwrap_or("-"))
    };
    model.iter().map(row).collect::<Vec<_>>().join(" ")
}

async fn play(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("records.db");
    let mut data = folder.path().join("data-0");
    let mut world = World::open_parts(&data, &database, false).await;
    let (mut model, mut hits) = (People::new(), BTreeMap::new());
    for (index, step) in steps.iter().enumerate() {
        let Step::Drain { rows, to_end, crash } = step else {
            write(&world, step, &mut model, &mut hits);
            continue;
        };
        let end = world.end();
        let drain = world.drain(Settings { batch_rows_max: *rows, ..Settings::default() });
        if *to_end {
            drain.drain_to(end).await.unwrap();
            assert_eq!(world.text(PEOPLE), shown(&model));
        }
        let state = drain.stop(Stop::Leave).await;
        assert_eq!((state.dead_total, state.last_error), (0, None));
        drop(drain);
        if *crash {
            // The log as after a crash: it does not remember what it released.
            data = folder.path().join(format!("data-{}", index + 1));
            copy_folder(&world.data, &data);
            drop(world);
            world = World::open_parts(&data, &database, false).await;
        }
    }
    let end = world.end();
    let drain = world.drain(Settings::default());
    drain.drain_to(end).await.unwrap();
    assert_eq!(world.text(PEOPLE), shown(&model));
    let expected = hits.iter().map(|(code, n)| format!("{code}{n}")).collect::<Vec<_>>().join(" ");
    assert_eq!(
        world.text(
            "SELECT coalesce(group_concat(code || n, ' '), '') FROM (SELECT * FROM hits ORDER BY code)"
        ),
        expected
    );
    for table in world.tables.all() {
        let found = verify(table, &world.store, world.log.id(), &Arc::default()).await.unwrap();
        assert!(found.is_clean() && found.undrained == 0, "{found:?}");
    }
    assert_eq!(drain.stop(Stop::Finish).await.dead_total, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_database_equals_the_model(steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play(steps));
    }
}

#[tokio::test]
async fn unique_values_move_between_keys_within_a_batch() {
    for (moves, expected) in [
        // A swap, through NULL.
        (vec![(1, None), (2, Some("a")), (1, Some("b"))], "1:p:b:0 2:p:a:0 3:p:c:0"),
        // A chain, each row taking the value that the one before it released.
        (vec![(3, Some("d")), (2, Some("c")), (1, Some("b"))], "1:p:b:0 2:p:c:0 3:p:d:0"),
        // A ring.
        (vec![(3, None), (2, Some("c")), (1, Some("b")), (3, Some("a"))], "1:p:b:0 2:p:c:0 3:p:a:0"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let world = World::open(folder.path()).await;
        for (id, email) in [(1, "a"), (2, "b"), (3, "c")] {
            world.people().insert(person(id, "p", Some(email), 0).as_ref()).unwrap();
        }
        let drain = world.drain(Settings { paused: true, ..Settings::default() });
        drain.resume();
        drain.drain_to(world.end()).await.unwrap();
        drain.pause().await;
        for (id, email) in moves {
            let value = email.map_or(ValueRef::Null, ValueRef::Text);
            world.people().update(ValueRef::Bigint(id), &[(2, value)], |_| ()).unwrap();
        }
        drain.resume();
        drain.drain_to(world.end()).await.unwrap();
        assert_eq!(world.text(PEOPLE), expected);
        assert_eq!(drain.state().dead_total, 0);
    }
}

#[tokio::test]
async fn a_value_that_a_deleted_row_had_goes_to_another_in_one_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::open(folder.path()).await;
    let drain = world.drain(Settings::default());
    world.people().insert(person(1, "p", Some("a"), 0).as_ref()).unwrap();
    drain.drain_to(world.end()).await.unwrap();
    drain.pause().await;
    world.people().delete(ValueRef::Bigint(1), |_| ()).unwrap();
    world.people().insert(person(2, "q", Some("a"), 0).as_ref()).unwrap();
    world.people().insert(person(1, "r", Some("b"), 0).as_ref()).unwrap();
    drain.resume();
    drain.drain_to(world.end()).await.unwrap();
    assert_eq!(world.text(PEOPLE), "1:r:b:0 2:q:a:0");
    // A delete and two inserts: the batch was not applied uncoalesced.
    assert_eq!(drain.state().changes_total, 4);
}
