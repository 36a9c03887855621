//! The effects of deletes on rows of other tables: which deletes have any, and on which rows.

use super::applying::{LOG, batch};
use super::{Scratch, on_both};
use crate::{column, key};
use forebay_database::{Batch, Change, HeldId, Holding, Kind, OnError, Op};
use forebay_value::{KeyKind, Schema, Type, Value};
use std::sync::Arc;

on_both!(
    rows_that_a_delete_acts_on_are_found,
    a_settled_delete_tells_which_rows_it_acted_on,
    references_are_of_one_moment
);

/// `owners` ◀ `between` (not a hot table, two columns) ◀ `Things` ◀ itself; `owners` ◀ `notes` (SET NULL);
/// `owners` ◀ `bills`, which can refuse a delete.
const TABLES: [&str; 5] = [
    "CREATE TABLE owners (id bigint PRIMARY KEY, name text)",
    "CREATE TABLE between_both (a bigint, b bigint, owner bigint REFERENCES owners ON DELETE CASCADE, PRIMARY KEY (a, b))",
    "CREATE TABLE \"Things\" (id bigint PRIMARY KEY, name text, a bigint, b bigint, parent bigint REFERENCES \"Things\" ON DELETE CASCADE,
       FOREIGN KEY (a, b) REFERENCES between_both (a, b) ON DELETE CASCADE)",
    "CREATE TABLE notes (id bigint PRIMARY KEY, name text, owner bigint REFERENCES owners (id) ON DELETE SET NULL)",
    "CREATE TABLE bills (id bigint PRIMARY KEY, name text, owner bigint REFERENCES owners (id))",
];

fn schemas() -> Vec<Arc<Schema>> {
    let schema = |name: &str| {
        let columns = vec![key("id", Type::Bigint), column("name", Type::TEXT)];
        Arc::new(Schema::new(name, columns, 0, KeyKind::Bigint).unwrap())
    };
    ["owners", "Things", "notes", "bills"].map(schema).into()
}

async fn fill(scratch: &Scratch) {
    for sql in TABLES {
        scratch.execute(sql).await;
    }
    for sql in [
        "INSERT INTO owners (id) VALUES (1), (2)",
        "INSERT INTO between_both VALUES (7, 8, 1), (7, 9, 2)",
        "INSERT INTO \"Things\" (id, a, b, parent) VALUES (10, 7, 8, NULL), (11, NULL, NULL, 10), (12, NULL, NULL, 11), (13, 7, 9, NULL), (14, 7, NULL, NULL)",
        "INSERT INTO notes (id, owner) VALUES (20, 1), (21, 2), (22, NULL)",
    ] {
        scratch.execute(sql).await;
    }
}

fn sorted(mut rows: Vec<(usize, Value)>) -> String {
    rows.sort_by_key(|row| format!("{row:?}"));
    let shown = rows.iter().map(|(table, key)| match key {
        Value::Bigint(key) => format!("{table}:{key}"),
        other => panic!("{other:?}"),
    });
    shown.collect::<Vec<_>>().join(" ")
}

async fn rows_that_a_delete_acts_on_are_found(scratch: &Scratch) {
    let (store, schemas) = (scratch.store(), schemas());
    // Without any of the tables.
    assert!(!store.cascades(&schemas).await.unwrap().has("owners"));
    fill(scratch).await;
    let cascades = Arc::new(store.cascades(&schemas).await.unwrap());
    let acting: Vec<&str> =
        schemas.iter().map(|schema| schema.name.as_str()).filter(|name| cascades.has(name)).collect();
    assert_eq!(acting, ["owners", "Things"]);
    for (table, key, expected) in
        [(0, 1, "1:10 1:11 1:12 2:20"), (0, 2, "1:13 2:21"), (0, 3, ""), (1, 11, "1:12"), (2, 20, "")]
    {
        let rows = vec![(table, Value::Bigint(key))];
        let reached = store.reached(&cascades, &schemas, rows).await.unwrap().remove(0);
        assert_eq!(sorted(reached), expected, "{table}:{key}");
    }
    // Deletes that act on none of the requested tables do not count.
    let few = vec![schemas[0].clone(), schemas[3].clone()];
    assert!(!store.cascades(&few).await.unwrap().has("owners"));
}

async fn a_settled_delete_tells_which_rows_it_acted_on(scratch: &Scratch) {
    let (store, schemas) = (scratch.store(), schemas());
    fill(scratch).await;
    let cascades = Arc::new(store.cascades(&schemas).await.unwrap());
    let delete = Change { table: 0, position: 1, is_intent: false, op: Op::Delete(Value::Bigint(1)) };
    let empty = Batch { schemas, ..batch(None, 1, Vec::new()) };
    let more = Holding { more: vec![delete.clone()], cascades: Some(cascades.clone()), ..Holding::default() };
    store.apply(Batch { held: more, on_error: OnError::Hold, ..empty.clone() }).await.unwrap();
    assert_eq!(scratch.number("SELECT count(*) FROM owners").await, 2);
    let held = store.held().await.unwrap();
    assert!(held[0].letter.reason.contains("acts on other rows"), "{held:?}");
    let settles = Holding {
        settles: vec![HeldId { log: LOG, position: 1 }],
        cascades: Some(cascades),
        ..Holding::default()
    };
    let settling = Batch { held: settles, changes: vec![delete], on_error: OnError::Hold, ..empty };
    // One row more than was searched.
    let note = Change { table: 2, position: 0, is_intent: false, op: Op::Delete(Value::Bigint(20)) };
    let known = Arc::new(std::collections::HashSet::from([note.key_hash(&settling.schemas)]));
    let held = Holding { reached: Some(known), ..settling.held.clone() };
    let refused = store.apply(Batch { held, ..settling.clone() }).await.unwrap_err();
    assert_eq!(*refused.kind(), Kind::Fenced, "{refused}");
    assert_eq!(scratch.number("SELECT count(*) FROM owners").await, 2);
    let applied = store.apply(settling).await.unwrap();
    assert_eq!(sorted(applied.differing), "1:10 1:11 1:12 2:20");
    assert_eq!(scratch.number("SELECT count(*) FROM \"Things\"").await, 2);
    assert_eq!(scratch.number("SELECT count(*) FROM notes WHERE owner IS NULL").await, 2);
}

/// A table that others rename is in the keys under the name that it has among the tables.
async fn references_are_of_one_moment(scratch: &Scratch) {
    fill(scratch).await;
    let store = scratch.store();
    let rename = async {
        for _ in 0..150 {
            scratch.execute("ALTER TABLE owners RENAME TO aside").await;
            scratch.execute("ALTER TABLE aside RENAME TO owners").await;
        }
    };
    let read = async {
        loop {
            let found = store.references().await.unwrap();
            let names = found.keys.iter().flat_map(|key| [&key.child, &key.parent]);
            let missing: Vec<_> = names.filter(|name| !found.tables.contains_key(*name)).collect();
            assert!(missing.is_empty(), "{missing:?} of {:?}", found.tables);
        }
    };
    tokio::select! {
        () = rename => {}
        () = read => {}
    }
}
