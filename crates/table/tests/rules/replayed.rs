//! Unique values that are taken after a restart by rows that memory cannot show and by writes whose outcome
//! is not known.

use crate::common::*;
use crate::pends;
use forebay_log::Position;
use forebay_table::{HotTable, TableSpec, WriteError};
use forebay_value::{KeyKind, Row, Value, ValueRef};
use std::path::Path;
use std::sync::Arc;

const STUBS_LIMIT_BYTES: u64 = 480 << 10;

/// The clicks are unique and counted; name and body are unique together.
fn spec_of_clicks() -> TableSpec {
    let mut spec = spec(KeyKind::Bigint);
    let clicks = &mut spec.schema.columns[CLICKS];
    (clicks.unique, clicks.indexed) = (true, true);
    spec.schema.unique_sets = vec![vec![NAME, BODY]];
    spec
}

fn row_of(id: i64, name: &str, clicks: i64, body: &str) -> Row {
    let values = [Value::Bigint(id), Value::Null, text(name), Value::Bigint(clicks), text(body)];
    Row::from_values(&spec_of_clicks().schema, &values)
}

fn reopened(opened: Opened, dir: &Path, limit_bytes: u64, store: &Arc<Store>) -> Opened {
    let Opened { log, tables, table } = opened;
    drop((tables, table));
    log.close().unwrap();
    open(dir, spec_of_clicks(), limit_bytes, store)
}

fn rule_of(result: Result<Position, WriteError>) -> usize {
    match result {
        Err(WriteError::Conflict { rule, .. }) => rule,
        other => panic!("no conflict: {other:?}"),
    }
}

#[test]
fn an_increment_of_an_evicted_row_moves_its_unique_value_in_a_restart() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let opened = open(dir.path(), spec_of_clicks(), 1 << 30, &store);
    for id in 0..1_000 {
        let body = format!("{id} {}", "x".repeat(900));
        opened.table.insert(row_of(id, "n", id, &body).as_ref()).unwrap();
        if id % 100 == 0 {
            opened.log.flush().unwrap();
        }
    }
    store.drain(&opened.log, &opened.tables);
    for id in 500..1_000 {
        opened.table.increment(ValueRef::Bigint(id), CLICKS, 10_000, |_| ()).unwrap();
    }
    let opened = reopened(opened, dir.path(), STUBS_LIMIT_BYTES, &store);
    assert!(contents(&opened.table).iter().filter(|(_, row)| row.is_none()).count() > 500);
    for id in [500, 700, 999] {
        assert_eq!(opened.table.count_by(CLICKS, ValueRef::Bigint(id)).0, 0);
        assert_eq!(opened.table.count_by(CLICKS, ValueRef::Bigint(id + 10_000)).0, 1);
        let taken = row_of(5_000, "taken", id + 10_000, "");
        assert_eq!(rule_of(opened.table.insert(taken.as_ref())), CLICKS);
        opened.table.insert(row_of(5_000 + id, "free", id, &format!("{id}")).as_ref()).unwrap();
    }
}

#[test]
fn a_write_without_an_outcome_keeps_its_unique_values_over_a_restart() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let mut opened = open(dir.path(), spec_of_clicks(), 1 << 30, &store);
    opened.table.insert(row_of(1, "one", 1, "first").as_ref()).unwrap();
    opened.table.insert(row_of(2, "two", 2, "second").as_ref()).unwrap();
    store.drain(&opened.log, &opened.tables);
    let strict = HotTable::Embedded(opened.table.clone()).strict();
    begin(strict.increment(ValueRef::Bigint(1), CLICKS, 10, |_| ()));
    begin(strict.update(ValueRef::Bigint(2), &[(NAME, ValueRef::Text("changed"))], |_| ()));
    drop(strict);
    for is_first in [true, false] {
        pends(&opened.table, row_of(3, "three", 11, "third"));
        pends(&opened.table, row_of(3, "changed", 3, "second"));
        opened.table.insert(row_of(4, "changed", 12, "of another body").as_ref()).unwrap();
        opened.table.delete(ValueRef::Bigint(4), |_| ()).unwrap();
        if is_first {
            opened = reopened(opened, dir.path(), 1 << 30, &store);
        }
    }
}
