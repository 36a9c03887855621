//! Threads that compete: for a unique value, for a key, for the serial keys.

mod common;

use common::*;
use forebay_log::Position;
use forebay_table::{Counters, Read, WriteError};
use forebay_value::{KeyKind, Value, ValueRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

/// Four threads insert the same codes under different keys: each code goes to one of them, in memory, in the
/// counts and in the log.
#[test]
fn a_unique_value_goes_to_one() {
    const CODES: i64 = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let inserted: Vec<usize> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let opened = &opened;
                scope.spawn(move || {
                    let schema = opened.table.schema();
                    (0..CODES)
                        .filter(|code| {
                            let row =
                                row(schema, worker * CODES + code, Some(&format!("code {code}")), "body");
                            loop {
                                match opened.table.insert(row.as_ref()) {
                                    Ok(_) => return true,
                                    Err(WriteError::Conflict { rule: CODE, mark }) => {
                                        assert!(
                                            mark > Position(0),
                                            "a claim is known only with its position"
                                        );
                                        return false;
                                    }
                                    Err(WriteError::Busy) => thread::yield_now(),
                                    Err(error) => panic!("{error:?}"),
                                }
                            }
                        })
                        .count()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(inserted.iter().sum::<usize>(), CODES as usize);
    assert_eq!(opened.table.count().0, CODES as u64);
    assert_eq!(opened.table.count_by(NAME, ValueRef::Text("n")).0, CODES as u64);
    let codes: HashSet<_> =
        contents(&opened.table).values().map(|row| format!("{:?}", row.as_ref().unwrap()[CODE])).collect();
    assert_eq!(codes.len(), CODES as usize);
    // The store refuses a second insert of a key; the replayed table would count a row too many.
    store.drain(&opened.log, &opened.tables);
    assert_eq!(store.rows.lock().unwrap().len(), CODES as usize);
}

/// A value moves between two rows continually; a third thread never finds two rows with it.
#[test]
fn a_value_that_moves_is_never_there_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let table = &opened.table;
    for id in 0..8 {
        table.insert(row(table.schema(), id, None, "").as_ref()).unwrap();
    }
    thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for turn in 0..3_000 {
                    let key = ValueRef::Bigint((worker * 3 + turn) % 8);
                    let to = if turn % 3 == 0 { ValueRef::Null } else { ValueRef::Text("the one") };
                    match table.update(key, &[(CODE, to)], |_| ()) {
                        Ok(_) | Err(WriteError::Conflict { .. } | WriteError::Busy) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
    });
    let holders =
        contents(table).values().filter(|row| row.as_ref().unwrap()[CODE] == text("the one")).count();
    assert!(holders <= 1, "{holders}");
    for id in 0..8 {
        table.update(ValueRef::Bigint(id), &[(CODE, ValueRef::Null)], |_| ()).unwrap();
    }
    table
        .update(ValueRef::Bigint(5), &[(CODE, ValueRef::Text("the one"))], |_| ())
        .expect("nobody holds it any more");
}

/// Two threads update one key in turns: memory, the replayed log and the database have the value that was
/// acknowledged last.
#[test]
fn what_was_answered_last_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let schema = opened.table.schema().clone();
    opened.table.insert(row(&schema, 7, None, "first").as_ref()).unwrap();
    let key = ValueRef::Bigint(7);
    let last = thread::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|worker| {
                let table = &opened.table;
                scope.spawn(move || {
                    let mut last = (Position(0), String::new());
                    for turn in 0..5_000 {
                        let body = format!("{worker} {turn}");
                        match table.update(key, &[(BODY, ValueRef::Text(&body))], |row| {
                            row.to_values(table.schema())
                        }) {
                            Ok((shown, position)) => {
                                assert_eq!(shown[BODY], text(&body), "an answer shows its own update");
                                assert!(position > last.0);
                                last = (position, body);
                            }
                            Err(WriteError::Busy) => thread::yield_now(),
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    last
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).max().unwrap()
    });
    let body = |table: &forebay_table::Table| {
        table.get(key, Counters::Shown, |row| row.get(&schema, BODY).to_owned())
    };
    assert_eq!(body(&opened.table), Read::Found(text(&last.1), last.0));
    let Opened { log, tables, table } = opened;
    drop((tables, table));
    log.close().unwrap();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    assert_eq!(body(&opened.table), Read::Found(text(&last.1), last.0));
    store.drain(&opened.log, &opened.tables);
    let stored = store.rows.lock().unwrap().values().next().unwrap().clone();
    assert_eq!(stored.as_ref().get(&schema, BODY), ValueRef::Text(&last.1));
}

/// Increments of one row from four threads add up, in memory and in the database.
#[test]
fn increments_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let table = &opened.table;
    table.insert(row(table.schema(), 1, None, "").as_ref()).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    while table.increment(ValueRef::Bigint(1), CLICKS, 3, |_| ()).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
    });
    let clicks = |row: forebay_value::RowRef<'_>| row.get(table.schema(), CLICKS).to_owned();
    let read = table.get(ValueRef::Bigint(1), Counters::Shown, clicks);
    assert!(matches!(read, Read::Found(Value::Bigint(60_000), _)), "{read:?}");
    store.drain(&opened.log, &opened.tables);
    let stored = store.rows.lock().unwrap().values().next().unwrap().clone();
    assert_eq!(clicks(stored.as_ref()), Value::Bigint(60_000));
}

#[test]
fn serial_keys_are_never_given_twice() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Serial), 1 << 30, &store);
    let keys: Vec<i64> = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let table = &opened.table;
                scope.spawn(move || {
                    let take = async {
                        let mut keys = Vec::new();
                        while keys.len() < 30_000 {
                            match table.next_key() {
                                Some(key) => keys.push(key),
                                None => table.wait_keys().await.unwrap(),
                            }
                        }
                        keys
                    };
                    block_on(take)
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 120_000);
    let handed_out = *store.last_key.lock().unwrap();
    // Besides what was used, one block of the largest size may be taken ahead.
    assert!(
        (120_000..2_000_000).contains(&handed_out),
        "blocks grow with use, and not without bound: {handed_out}"
    );
}
