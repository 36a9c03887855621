//! One handle for both tiers: the same calls return the same results, in this process and on Redis.

use crate::common::*;
use crate::support::*;
use forebay_table::{
    Called, Counters, Cursor, HotError, HotKind, HotTable, HotTables, RemoteOptions, completed,
};
use forebay_value::{KeyKind, Row, RowRef, Value, ValueRef};
use std::collections::BTreeSet;
use std::sync::Arc;

fn copy(row: RowRef<'_>) -> Row {
    Row(row.0.into())
}

fn kind<T: std::fmt::Debug>(result: Result<T, HotError>) -> HotKind {
    result.unwrap_err().kind()
}

/// The rows of a table, as key and clicks.
async fn contents(table: &HotTable) -> Vec<(Value, Value)> {
    let (rows, _) = completed(|| table.list(None, 100)).await.unwrap();
    let schema = table.schema();
    rows.iter()
        .map(|row| {
            let row = row.as_ref();
            (row.key(schema).to_owned(), row.get(schema, CLICKS).to_owned())
        })
        .collect()
}

async fn keys(table: &HotTable) -> BTreeSet<String> {
    let (mut found, mut at) = (BTreeSet::new(), Some(Cursor::default()));
    while let Some(from) = at {
        let (page, _) = completed(|| table.keys(from)).await.unwrap();
        found.extend(page.keys.iter().map(|key| key_text(key.as_ref())));
        at = page.next;
    }
    found
}

async fn same_on_both(table: &HotTable) {
    let schema = table.schema().clone();
    let one = ValueRef::Bigint(1);
    assert_eq!(kind(completed(|| table.get(one, Counters::Shown, copy)).await), HotKind::Missing);
    assert_eq!(kind(completed(|| table.random(copy)).await), HotKind::Missing);
    for id in 1..=5 {
        let row = row(&schema, id, Some(&format!("code {id}")), "");
        completed(|| table.insert(row.as_ref())).await.unwrap();
    }
    let again = row(&schema, 1, None, "");
    let taken = row(&schema, 6, Some("code 1"), "");
    let by_key = completed(|| table.insert(again.as_ref())).await.unwrap_err();
    assert_eq!((by_key.kind(), by_key.may_retry()), (HotKind::Conflict { rule: ID }, false));
    assert_eq!(kind(completed(|| table.insert(taken.as_ref())).await), HotKind::Conflict { rule: CODE });
    let (found, _) = completed(|| table.get(one, Counters::Shown, copy)).await.unwrap();
    assert_eq!(found, row(&schema, 1, Some("code 1"), ""));
    assert_eq!(completed(|| table.count()).await.unwrap().0, 5);
    assert_eq!(completed(|| table.count_by(NAME, ValueRef::Text("n"))).await.unwrap().0, 5);

    let (counted, _) = completed(|| table.increment(one, CLICKS, 3, copy)).await.unwrap();
    assert_eq!(counted.as_ref().get(&schema, CLICKS), ValueRef::Bigint(3));
    let most = completed(|| table.increment(one, CLICKS, i64::MAX, copy)).await;
    assert!(matches!(kind(most), HotKind::Overflow { .. }));
    match table.increment_later(one, CLICKS, 4) {
        Ok(Called::Now((), _)) => {}
        Ok(Called::Later(counted)) => drop(counted.await.unwrap()),
        Ok(Called::First(_)) | Err(_) => panic!("the row is there"),
    }
    let changes = [(BODY, ValueRef::Text("changed"))];
    let (changed, _) = completed(|| table.update(one, &changes, copy)).await.unwrap();
    assert_eq!(changed.as_ref().get(&schema, BODY), ValueRef::Text("changed"));
    assert_eq!(changed.as_ref().get(&schema, CLICKS), ValueRef::Bigint(7));

    let replaced = row(&schema, 2, Some("code 1 no more"), "");
    completed(|| table.upsert(replaced.as_ref())).await.unwrap();
    let (deleted, _) = completed(|| table.delete(ValueRef::Bigint(5), copy)).await.unwrap();
    assert_eq!(deleted, row(&schema, 5, Some("code 5"), ""));
    assert_eq!(kind(completed(|| table.delete(ValueRef::Bigint(5), copy)).await), HotKind::Missing);
    let expected = [(1, 7), (2, 0), (3, 0), (4, 0)];
    let expected = expected.map(|(id, clicks)| (Value::Bigint(id), Value::Bigint(clicks)));
    assert_eq!(contents(table).await, expected);
    let expected: BTreeSet<_> = expected.iter().map(|(key, _)| key_text(key.as_ref())).collect();
    assert_eq!(keys(table).await, expected);
    let (any, _) = completed(|| table.random(copy)).await.unwrap();
    assert!(expected.contains(&key_text(any.as_ref().key(&schema))));
}

#[test]
fn both_tiers_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &Arc::default());
    block_on(same_on_both(&HotTables::from(&opened.tables).get("things").unwrap()));
    for topology in [SINGLE, CLUSTER] {
        let local = up(topology);
        block_on(async {
            let server =
                serve(&local, spec(KeyKind::Bigint), RemoteOptions::default(), &Record::default()).await;
            server.load().await;
            same_on_both(&HotTables::from(&server.tables).get("things").unwrap()).await;
        });
    }
}

#[test]
fn a_call_says_what_it_needs_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let log = open_log(&dir.path().join("log"), forebay_log::Durability::Async);
    let specs = vec![spec(KeyKind::Bigint)];
    // Memory for stubs only: a loaded row is evicted at once.
    let tables = forebay_table::Tables::open(log, dir.path(), 1, specs, store.clone()).unwrap();
    let (table, hot) = (tables.get("things").unwrap(), HotTables::from(&tables).get("things").unwrap());
    let one = ValueRef::Bigint(1);
    let get = || hot.get(one, Counters::Shown, copy);
    assert!(!hot.is_loaded());
    assert!(matches!(get(), Ok(Called::First(_))), "nothing is known before the table is loaded");
    let stored = row(hot.schema(), 1, None, &"b".repeat(500));
    store.rows.lock().unwrap().insert(key_text(one), stored.clone());
    table.load(stored.as_ref());
    table.set_loaded();
    let Ok(Called::First(fetched)) = get() else { panic!("its body is not in memory") };
    let full = block_on(fetched).unwrap_err();
    assert!(full.kind() == HotKind::Source && full.may_retry(), "{full}");
}
