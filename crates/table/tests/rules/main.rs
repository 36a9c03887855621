//! Rules that one table keeps: what an answer waits for, what the log refuses, what the catalogue refuses,
//! how random rows are drawn. `alone`: what a start without the database knows; `records`: what a change
//! logs; `replayed`: which values are taken after a restart; `undo`: what memory shows after a refusal by the
//! database; `unheard`: what stays reserved while the outcome of a write is unknown.

#[path = "../common/mod.rs"]
mod common;

mod alone;
mod records;
mod replayed;
mod undo;
mod unheard;
mod went_back;

use common::*;
use forebay_log::{Durability, Log, Options, Position};
use forebay_table::{Counters, Fetched, Kind, Read, Table, TableSpec, Tables, WriteError};
use forebay_value::{KeyKind, Row, RowRef, Schema, Value, ValueRef};
use std::sync::Arc;

fn opened() -> (tempfile::TempDir, Arc<Store>, Opened) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    (dir, store, opened)
}

/// Reads a row, fetching it if necessary, as an endpoint does.
fn read(table: &Table, key: i64) -> Option<Vec<Value>> {
    let show = || table.get(ValueRef::Bigint(key), Counters::Shown, |row| row.to_values(table.schema()));
    match show() {
        Read::Found(row, _) => Some(row),
        Read::Missing(_) => None,
        Read::Fetch(key) => (block_on(table.fetch(key)).unwrap() == Fetched::Present).then(|| match show() {
            Read::Found(row, _) => row,
            other => panic!("it was fetched, and now {other:?}"),
        }),
    }
}

/// Checks that an insert waits for the outcome of another write.
fn pends(table: &Table, row: Row) {
    let taken = table.insert(row.as_ref());
    assert!(matches!(taken, Err(WriteError::Pending(_))), "{taken:?}");
}

#[test]
fn answers_wait_for_what_they_depend_on() {
    let (_dir, _store, Opened { table, .. }) = opened();
    let schema = table.schema().clone();
    let key = ValueRef::Bigint(1);
    assert_eq!(table.get(key, Counters::Shown, |_| ()), Read::Missing(Position(0)));
    let inserted = table.insert(row(&schema, 1, Some("c"), "").as_ref()).unwrap();
    assert_eq!(table.get(key, Counters::Shown, |_| ()), Read::Found((), inserted));
    assert_eq!(table.random(|_| ()), Read::Found((), inserted));
    assert_eq!(table.count(), (1, inserted));
    assert_eq!(table.count_by(NAME, ValueRef::Text("n")), (1, inserted));
    let list = table.list(None, 10, |_| ());
    assert_eq!((list.mark, list.last), (inserted, Some(Value::Bigint(1))));
    let by_key = table.insert(row(&schema, 1, None, "").as_ref());
    assert_eq!(by_key, Err(WriteError::Conflict { rule: ID, mark: inserted }));
    let by_value = table.insert(row(&schema, 2, Some("c"), "").as_ref());
    assert_eq!(by_value, Err(WriteError::Conflict { rule: CODE, mark: inserted }));
    let ((), deleted) = table.delete(key, |_| ()).unwrap();
    assert!(deleted > inserted);
    assert_eq!(table.get(key, Counters::Shown, |_| ()), Read::Missing(deleted));
    assert_eq!(table.random(|_| ()), Read::Missing(deleted));
    assert_eq!(table.count(), (0, deleted));
    assert_eq!(table.count_by(NAME, ValueRef::Text("n")), (0, deleted));
    assert_eq!(table.list(None, 10, |_| ()).mark, deleted);
    assert_eq!(table.update(key, &[], |_| ()), Err(WriteError::Missing { mark: deleted }));
    assert_eq!(
        table.get(ValueRef::Bool(true), Counters::Shown, |_| ()),
        Read::Missing(Position(0)),
        "no such key can be"
    );
}

#[test]
fn a_hidden_counter_is_not_waited_for() {
    // Synchronous: a row becomes durable only with its group.
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let log = open_log(&dir.path().join("log"), Durability::Sync);
    let tables =
        Tables::open(log.clone(), dir.path(), 1 << 30, vec![spec(KeyKind::Bigint)], store.clone()).unwrap();
    let table = tables.all()[0].clone();
    store.start(&tables, &table);
    for id in 0..200 {
        let key = ValueRef::Bigint(id);
        let inserted = table.insert(row(table.schema(), id, None, "").as_ref()).unwrap();
        let counted = table.increment(key, CLICKS, 1, |_| ()).unwrap();
        let durable = log.durable();
        if counted.row_mark == Position(0) {
            assert!(durable >= inserted, "the row was durable when it was counted");
            assert_eq!(table.get(key, Counters::Hidden, |_| ()), Read::Found((), Position(0)));
        } else {
            assert_eq!(counted.row_mark, inserted);
            assert_eq!(table.get(key, Counters::Hidden, |_| ()), Read::Found((), counted.mark));
        }
        log.flush().unwrap();
        let counted = table.increment(key, CLICKS, 1, |_| ()).unwrap();
        assert_eq!(counted.row_mark, Position(0));
        assert_eq!(table.get(key, Counters::Hidden, |_| ()), Read::Found((), Position(0)));
        assert_eq!(table.get(key, Counters::Shown, |_| ()), Read::Found((), counted.mark));
        let again = table.increment(key, CLICKS, 1, |_| ()).unwrap();
        assert_eq!((again.row_mark, again.mark > counted.mark), (Position(0), true));
        let ((), updated) = table.update(key, &[(BODY, ValueRef::Text("b"))], |_| ()).unwrap();
        assert_eq!(
            table.get(key, Counters::Hidden, |_| ()),
            Read::Found((), updated),
            "an update is waited for"
        );
    }
}

#[test]
fn overflow_changes_nothing() {
    let (_dir, _store, Opened { log, table, .. }) = opened();
    let key = ValueRef::Bigint(1);
    table.insert(row(table.schema(), 1, None, "").as_ref()).unwrap();
    table.increment(key, CLICKS, i64::MAX, |_| ()).unwrap();
    let end = log.end();
    assert_eq!(table.increment(key, CLICKS, 1, |_| ()), Err(WriteError::Overflow { column: CLICKS }));
    assert_eq!(log.end(), end);
    let clicks = |row: RowRef<'_>| row.get(table.schema(), CLICKS).to_owned();
    assert!(matches!(table.get(key, Counters::Shown, clicks), Read::Found(Value::Bigint(i64::MAX), _)));
}

#[test]
fn null_is_never_a_conflict() {
    let (_dir, _store, Opened { table, .. }) = opened();
    for id in 0..100 {
        table.insert(row(table.schema(), id, None, "").as_ref()).unwrap();
    }
    assert_eq!(table.count().0, 100);
}

/// A record that the log refuses changes nothing: neither memory, nor unique values, nor counts.
#[test]
fn a_full_log_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let options = Options {
        durability: Durability::Async,
        segment_bytes: 1 << 20,
        buffer_bytes: 256 << 10,
        limit_bytes: 200_000,
        ..Options::new(dir.path().join("log"))
    };
    let (log, _) = Log::open(options).unwrap();
    let tables =
        Tables::open(log.clone(), dir.path(), 1 << 30, vec![spec(KeyKind::Bigint)], store.clone()).unwrap();
    let table = tables.all()[0].clone();
    let schema = table.schema().clone();
    store.start(&tables, &table);
    let body = "x".repeat(300);
    let refused =
        (0..).find(|id| match table.insert(row(&schema, *id, Some(&format!("code {id}")), &body).as_ref()) {
            Ok(_) => false,
            Err(WriteError::LogFull) => true,
            Err(error) => panic!("{error:?}"),
        });
    let rows = refused.unwrap();
    let (first, other) = (ValueRef::Bigint(0), row(&schema, 0, Some("other"), &body));
    // A small record may still fit where a large one did not: the smallest is a delete.
    let is_full = |id: i64| table.delete(ValueRef::Bigint(id), |_| ()) == Err(WriteError::LogFull);
    assert!((1..rows).any(is_full));
    let state = || {
        let counts = (table.count(), table.count_by(NAME, ValueRef::Text("n")));
        (contents(&table), counts, tables.used_bytes(), log.end())
    };
    let before = state();
    for _ in 0..2 {
        assert_eq!(table.insert(row(&schema, rows, Some("free"), &body).as_ref()), Err(WriteError::LogFull));
        assert_eq!(table.upsert(other.as_ref()), Err(WriteError::LogFull));
        assert_eq!(
            table.update(first, &[(CODE, ValueRef::Text("free")), (NAME, ValueRef::Null)], |_| ()),
            Err(WriteError::LogFull)
        );
        assert_eq!(table.increment(first, CLICKS, 1, |_| ()), Err(WriteError::LogFull));
        assert_eq!(table.delete(first, |_| ()), Err(WriteError::LogFull));
    }
    assert_eq!(state(), before);
    store.drain(&log, &tables);
    log.release(*store.position.lock().unwrap()).unwrap();
    table.insert(row(&schema, rows, Some("free"), &body).as_ref()).expect("nobody has the value");
}

fn with_another_column(schema: &Schema) -> Schema {
    let mut columns = schema.columns.clone();
    columns.push(column("more", "bool"));
    Schema::new(schema.name.clone(), columns, schema.key, schema.key_kind).unwrap()
}

#[test]
fn a_restart_with_a_new_column_shows_a_row_when_the_database_has_it() {
    let (dir, store, Opened { log, tables, table }) = opened();
    let old = table.id();
    for id in 1..=3 {
        table.insert(row(table.schema(), id, Some(&format!("c{id}")), &"b".repeat(100)).as_ref()).unwrap();
    }
    store.drain(&log, &tables);
    table.update(ValueRef::Bigint(1), &[(CODE, ValueRef::Text("new"))], |_| ()).unwrap();
    table.increment(ValueRef::Bigint(2), CLICKS, 5, |_| ()).unwrap();
    table.delete(ValueRef::Bigint(3), |_| ()).unwrap();
    table.insert(row(table.schema(), 4, Some("c4"), "").as_ref()).unwrap();
    drop((tables, table));
    log.close().unwrap();

    // ALTER TABLE … ADD COLUMN more bool DEFAULT true.
    let (before, after) = (schema(KeyKind::Bigint), with_another_column(&schema(KeyKind::Bigint)));
    let migrate = |row: &Row| {
        let mut values = row.as_ref().to_values(&before);
        values.push(Value::Bool(true));
        Row::from_values(&after, &values)
    };
    let log = open_log(&dir.path().join("log"), Durability::Async);
    let spec = TableSpec { schema: after.clone(), ..spec(KeyKind::Bigint) };
    let tables = Tables::open(log.clone(), dir.path(), 1 << 30, vec![spec], store.clone()).unwrap();
    let table = tables.all()[0].clone();
    assert_ne!(table.id(), old);
    store.rows.lock().unwrap().values().for_each(|row| table.load(migrate(row).as_ref()));
    assert_eq!(tables.replay(*store.position.lock().unwrap()).unwrap().records, 4);
    table.set_loaded();
    for id in [1, 2, 4] {
        assert!(
            block_on(table.fetch(Value::Bigint(id))).unwrap_err().retry,
            "row {id} has its change only in the log"
        );
    }
    assert_eq!((read(&table, 3), table.count().0), (None, 3));
    for (code, is_free) in [("new", false), ("c1", true), ("c3", true), ("c4", false)] {
        let mut values = row(&before, 9, Some(code), "").as_ref().to_values(&before);
        values.push(Value::Null);
        let inserted = table.insert(Row::from_values(&after, &values).as_ref());
        assert_eq!(inserted.is_ok(), is_free, "{code}: {inserted:?}");
        if is_free {
            table.delete(ValueRef::Bigint(9), |_| ()).unwrap();
        }
    }

    store.drain(&log, &tables);
    store.rows.lock().unwrap().values_mut().for_each(|row| *row = migrate(row));
    for (id, code, clicks) in [(1, "new", 0), (2, "c2", 5), (4, "c4", 0)] {
        let row = read(&table, id).unwrap();
        assert_eq!(
            (&row[CODE], &row[CLICKS], &row[5]),
            (&text(code), &Value::Bigint(clicks), &Value::Bool(true))
        );
    }
}

#[test]
fn another_key_is_refused_until_drained() {
    let (dir, store, Opened { log, tables, table }) = opened();
    table.insert(row(table.schema(), 1, None, "").as_ref()).unwrap();
    drop((tables, table));
    log.close().unwrap();
    let log = open_log(&dir.path().join("log"), Durability::Async);
    let changed = TableSpec { schema: schema(KeyKind::Text), ..spec(KeyKind::Text) };
    let tables =
        Tables::open(log.clone(), dir.path(), 1 << 30, vec![changed.clone()], store.clone()).unwrap();
    let error = tables.replay(Position(0)).err().expect("a change is not drained");
    assert_eq!(error.kind(), &Kind::OtherKey { table: "things".into() });
    assert!(error.to_string().contains("drain with the old key first"), "{error}");
    drop(tables);

    // With the old key the table opens, under the old id, and can be drained.
    let tables =
        Tables::open(log.clone(), dir.path(), 1 << 30, vec![spec(KeyKind::Bigint)], store.clone()).unwrap();
    assert_eq!(tables.replay(Position(0)).unwrap().records, 1);
    store.drain(&log, &tables);
    drop(tables);
    let tables = Tables::open(log.clone(), dir.path(), 1 << 30, vec![changed], store.clone()).unwrap();
    let drained = *store.position.lock().unwrap();
    assert_eq!(tables.replay(drained).unwrap().records, 0);
    drop(tables);
    // A table that is no longer configured is only skipped.
    let tables = Tables::open(log.clone(), dir.path(), 1 << 30, vec![], store.clone()).unwrap();
    let replayed = tables.replay(Position(0)).unwrap();
    assert_eq!((replayed.records, replayed.skipped), (1, 1));
    drop(tables);
    log.close().unwrap();
}

#[test]
fn a_damaged_catalogue_is_refused() {
    for text in [
        "",
        "{}",
        r#"{"version":2,"tables":[]}"#,
        r#"{"version":1,"tables":[{"id":1,"name":"a","key":"b","key_kind":"serial","columns":[]}]}"#,
    ] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("tables.json"), text).unwrap();
        let log = open_log(&dir.path().join("log"), Durability::Async);
        let error =
            Tables::open(log, dir.path(), 1 << 30, vec![], Arc::<Store>::default()).err().expect("refused");
        assert_eq!(error.kind(), &Kind::Catalogue);
        assert!(error.to_string().contains("tables.json"), "{error}");
    }
}

#[test]
fn a_bad_record_is_named() {
    let id = |bytes: &[u8]| [bytes, &[0; 40]].concat();
    // Unknown op; unknown table; a row cut short; a key of another type; a column that is no counter.
    for bad in
        [vec![], id(&[9, 1, 0]), id(&[1, 7, 0]), vec![1, 1, 0, 0, 5], vec![3, 1, 0, 3, 1, 0, 0, 0, b'x'], {
            [&[4, 1, 0, 1][..], &1i64.to_le_bytes(), &[1, 0], &1i64.to_le_bytes()].concat()
        }]
    {
        let (dir, store, Opened { log, tables, table }) = opened();
        table.insert(row(table.schema(), 1, None, "").as_ref()).unwrap();
        let position = log.append(&bad).unwrap();
        drop((tables, table));
        log.close().unwrap();
        let log = open_log(&dir.path().join("log"), Durability::Async);
        let tables = Tables::open(log, dir.path(), 1 << 30, vec![spec(KeyKind::Bigint)], store).unwrap();
        let error = tables.replay(Position(0)).err().expect("refused");
        assert_eq!(error.kind(), &Kind::BadRecord { position }, "{bad:?}");
    }
}

/// Every row must be equally likely: a chi-square statistic of `rows - 1` degrees of freedom within six
/// deviations of its mean.
fn check_uniform(table: &forebay_table::Table, ids: &[i64]) {
    let draws = 400 * ids.len();
    let mut counts = vec![0u32; ids.len()];
    for _ in 0..draws {
        let Read::Found(id, _) = table.random(|row| row.key(table.schema()).to_owned()) else {
            panic!("a row")
        };
        let at = ids.iter().position(|other| id == Value::Bigint(*other)).expect("a row that is there");
        counts[at] += 1;
    }
    let expected = draws as f64 / ids.len() as f64;
    let chi_square: f64 = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
    let freedom = (ids.len() - 1) as f64;
    assert!(
        chi_square <= freedom + 6.0 * (2.0 * freedom).sqrt() + 1e-9,
        "{chi_square} for {} rows",
        ids.len()
    );
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn random_is_uniform() {
    for rows in [1, 2, 70, 1_000] {
        let (_dir, _store, Opened { table, .. }) = opened();
        let mut ids: Vec<i64> = (0..rows).collect();
        for id in &ids {
            table.insert(row(table.schema(), *id, None, "").as_ref()).unwrap();
        }
        check_uniform(&table, &ids);
        // Most rows are deleted; the rest are drawn by walking the lengths.
        let (gone, left): (Vec<i64>, Vec<i64>) = ids.iter().partition(|id| rows > 1 && **id % 20 != 1);
        for id in gone {
            table.delete(ValueRef::Bigint(id), |_| ()).unwrap();
        }
        ids = left;
        check_uniform(&table, &ids);
    }
}

#[test]
fn a_table_is_cleared_only_when_drained() {
    let (_dir, store, Opened { log, tables, table }) = opened();
    table.insert(row(table.schema(), 1, Some("c"), "").as_ref()).unwrap();
    assert_eq!(table.clear().unwrap_err().kind(), &Kind::Undrained);
    assert_eq!(table.count().0, 1);
    store.drain(&log, &tables);
    table.clear().unwrap();
    assert_eq!((table.count().0, tables.used_bytes()), (0, 0));
    assert_eq!(table.count_by(NAME, ValueRef::Text("n")).0, 0);
    table.insert(row(table.schema(), 2, Some("c"), "").as_ref()).expect("the value is free");
}

#[test]
fn serial_keys_lie_above_those_that_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Serial), 1 << 30, &store);
    assert_eq!(opened.table.next_key(), None, "there is no block yet");
    // As when the database was replaced: its sequence begins at 1, the rows have keys far above.
    opened.table.load(row(opened.table.schema(), 123_456, None, "").as_ref());
    let other = open(tempfile::tempdir().unwrap().path(), spec(KeyKind::Bigint), 1 << 30, &store);
    assert!(block_on(other.table.wait_keys()).is_err_and(|error| !error.retry));
    store.rows.lock().unwrap().insert("a".into(), row(opened.table.schema(), 123_456, None, ""));
    drop(opened);
    let dir = tempfile::tempdir().unwrap();
    let opened = open(dir.path(), spec(KeyKind::Serial), 1 << 30, &store);
    block_on(opened.table.wait_keys()).unwrap();
    assert_eq!(opened.table.next_key(), Some(123_457));
    assert_eq!(opened.tables.replay(Position(0)).unwrap().highest_keys[0].1, 123_456);
}
