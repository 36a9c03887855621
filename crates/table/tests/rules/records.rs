//! What a change writes to the log, and the effect of that at a restart.

use crate::common::*;
use crate::opened;
use forebay_log::{Log, Position};
use forebay_table::{Counters, LogRecord, Read, Tables, WriteError};
use forebay_value::{KeyKind, Row, Value, ValueRef};
use std::sync::Arc;

/// The log's records, each with its columns' values.
fn logged(log: &Log, tables: &Tables) -> Vec<String> {
    log.flush().unwrap();
    let catalogue = tables.catalogue();
    let mut reader = log.reader(Position(0)).unwrap();
    let mut found = Vec::new();
    loop {
        let batch = reader.next_batch(1 << 20).unwrap();
        if batch.is_empty() {
            return found;
        }
        found.extend(batch.iter().map(|(_, bytes)| match LogRecord::decode(bytes).unwrap() {
            LogRecord::Update { table, columns, row } => {
                let set: Vec<_> = columns.of(row, catalogue.schema(table).unwrap()).collect();
                format!("update {set:?}")
            }
            LogRecord::Increment { column, delta, .. } => format!("increment {column} by {delta}"),
            LogRecord::Insert { .. } => "insert".into(),
            other => format!("{other:?}"),
        }));
    }
}

#[test]
fn an_update_logs_the_columns_that_it_sets_and_no_others() {
    let (_dir, _store, Opened { table, log, tables }) = opened();
    let key = ValueRef::Bigint(1);
    let inserted = table.insert(row(table.schema(), 1, Some("c"), "").as_ref()).unwrap();
    assert_eq!(table.update(key, &[], |_| ()), Ok(((), inserted)), "nothing is set: nothing is logged");
    table.update(key, &[(BODY, ValueRef::Text("b"))], |_| ()).unwrap();
    table.update(key, &[(NAME, ValueRef::Null), (CODE, ValueRef::Text("d"))], |_| ()).unwrap();
    let expected = ["insert", "update [(4, Text(\"b\"))]", "update [(1, Text(\"d\")), (2, Null)]"];
    assert_eq!(logged(&log, &tables), expected);
}

#[test]
fn an_increment_of_an_indexed_column_logs_a_sum() {
    let dir = tempfile::tempdir().unwrap();
    let mut spec = spec(KeyKind::Bigint);
    spec.schema.columns[CLICKS].indexed = true;
    let Opened { table, log, tables } = open(dir.path(), spec, 1 << 30, &Arc::default());
    table.insert(row(table.schema(), 1, None, "").as_ref()).unwrap();
    table.increment(ValueRef::Bigint(1), CLICKS, 7, |_| ()).unwrap();
    assert_eq!(logged(&log, &tables), ["insert", "increment 3 by 7"]);
    assert_eq!(table.count_by(CLICKS, ValueRef::Bigint(7)).0, 1);
}

/// Others change a row in the database while an update of another column waits in the log.
#[test]
fn a_restart_keeps_what_others_wrote_to_other_columns() {
    for limit_bytes in [1 << 30, 1] {
        let (dir, store, Opened { table, log, tables }) = opened();
        let key = ValueRef::Bigint(1);
        let (first, theirs) = ("first ".repeat(100), "theirs".repeat(100));
        let first = row(table.schema(), 1, Some("first"), &first);
        table.insert(first.as_ref()).unwrap();
        store.drain(&log, &tables);
        table.update(key, &[(CODE, ValueRef::Text("mine"))], |_| ()).unwrap();
        let mut values = first.as_ref().to_values(table.schema());
        values[BODY] = text(&theirs);
        let row_theirs = Row::from_values(table.schema(), &values);
        store.rows.lock().unwrap().insert(key_text(key), row_theirs);
        let schema = table.schema().clone();
        drop((table, tables));
        log.close().unwrap();
        let Opened { table, log, tables } = open(dir.path(), spec(KeyKind::Bigint), limit_bytes, &store);
        let taken = table.insert(row(&schema, 2, Some("mine"), "").as_ref());
        assert!(
            matches!(taken, Err(WriteError::Conflict { rule: CODE, .. } | WriteError::MemoryFull)),
            "{taken:?}"
        );
        if limit_bytes == 1 {
            // The row's body is not in memory, and the database does not have all of its changes yet.
            assert!(block_on(table.fetch(Value::Bigint(1))).unwrap_err().retry);
            store.drain(&log, &tables);
            return;
        }
        let shown = table.get(key, Counters::Shown, |row| row.to_values(&schema));
        let Read::Found(shown, _) = shown else { panic!("{shown:?}") };
        assert_eq!((&shown[CODE], &shown[BODY]), (&text("mine"), &text(&theirs)));
        store.drain(&log, &tables);
        let stored = store.rows.lock().unwrap()[&key_text(key)].as_ref().to_values(&schema);
        assert_eq!(stored, shown);
    }
}
