//! A change that the database refused is removed from memory, and later changes of the same row stay.

use crate::common::*;
use crate::{opened, read};
use forebay_table::{Others, TableSpec, WriteError};
use forebay_value::{KeyKind, Value, ValueRef};
use std::sync::Arc;

#[test]
fn a_refused_insert_is_undone() {
    for shared in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::<Store>::default();
        let spec = TableSpec { others: Others::unseen_if(shared), ..spec(KeyKind::Bigint) };
        let Opened { table, log, tables } = open(dir.path(), spec, 1 << 30, &store);
        let refused = row(table.schema(), 1, Some("c"), "");
        table.insert(refused.as_ref()).unwrap();
        store.drain(&log, &tables);
        store.rows.lock().unwrap().clear();
        assert!(table.undo(ValueRef::Bigint(1)) <= *store.position.lock().unwrap());
        assert_eq!(read(&table, 1), None);
        assert_eq!(table.count().0, 0);
        assert_eq!(table.count_by(NAME, ValueRef::Text("n")).0, 0);
        table.insert(row(table.schema(), 2, Some("c"), "").as_ref()).expect("its unique value is free");
        table.insert(refused.as_ref()).expect_err("the other row has it");
    }
}

#[test]
fn a_refused_update_is_undone_and_a_later_one_is_kept() {
    let (_dir, store, Opened { table, log, tables }) = opened();
    let key = ValueRef::Bigint(1);
    table.insert(row(table.schema(), 1, Some("c"), "good").as_ref()).unwrap();
    store.drain(&log, &tables);
    let good = store.rows.lock().unwrap().clone();
    table.update(key, &[(BODY, ValueRef::Text("bad")), (CODE, ValueRef::Text("bad"))], |_| ()).unwrap();
    store.drain(&log, &tables);
    *store.rows.lock().unwrap() = good;
    // Acknowledged between the refusal and the undo.
    let ((), later) = table.update(key, &[(NAME, ValueRef::Text("later"))], |_| ()).unwrap();
    assert_eq!(table.undo(key), later);
    assert!(
        block_on(table.fetch(Value::Bigint(1))).unwrap_err().retry,
        "the database does not have all of it"
    );
    store.drain(&log, &tables);
    let shown = read(&table, 1).unwrap();
    assert_eq!((&shown[BODY], &shown[CODE], &shown[NAME]), (&text("good"), &text("c"), &text("later")));
    table.insert(row(table.schema(), 2, Some("bad"), "").as_ref()).expect("the refused value is free");
}

#[test]
fn a_refused_delete_is_undone() {
    for shared in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::<Store>::default();
        let spec = TableSpec { others: Others::unseen_if(shared), ..spec(KeyKind::Bigint) };
        let Opened { table, log, tables } = open(dir.path(), spec, 1 << 30, &store);
        let key = ValueRef::Bigint(1);
        let first = row(table.schema(), 1, Some("c"), "");
        table.insert(first.as_ref()).unwrap();
        store.drain(&log, &tables);
        let used_bytes = tables.used_bytes();
        let before = store.rows.lock().unwrap().clone();
        table.delete(key, |_| ()).unwrap();
        store.drain(&log, &tables);
        *store.rows.lock().unwrap() = before;
        table.undo(key);
        tables.drained(*store.position.lock().unwrap());
        assert_eq!(
            table.insert(first.as_ref()),
            Err(WriteError::Busy),
            "whether it is there must be asked first"
        );
        assert_eq!(read(&table, 1), Some(first.as_ref().to_values(table.schema())));
        assert_eq!(table.count().0, 1);
        assert_eq!(tables.used_bytes(), used_bytes);
        let taken = table.insert(row(table.schema(), 2, Some("c"), "").as_ref());
        assert!(matches!(taken, Err(WriteError::Conflict { rule: CODE, .. })), "{taken:?}");
        // This time the row stays deleted.
        table.delete(key, |_| ()).unwrap();
        store.drain(&log, &tables);
        assert_eq!(read(&table, 1), None);
    }
}
