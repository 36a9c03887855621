//! The drain's transaction: exactly once, in order, all or nothing; dead letters and their replay.

use super::{Scratch, on_both};
use crate::{codes, column, key, text};
use forebay_database::{Batch, Change, Holding, Kind, OnError, Op, Patience, Priority};
use forebay_value::{KeyKind, Row, Schema, Timestamp, Type, Value};
use std::sync::Arc;

on_both!(
    a_batch_is_applied_once,
    two_drains_with_one_position_apply_it_once,
    a_failed_batch_leaves_nothing_and_names_its_row,
    refused_changes_become_dead_letters_in_the_same_transaction,
    increments_add_and_never_lose_digits,
    updates_set_their_columns_and_nothing_else,
    an_update_of_a_row_that_others_deleted_is_counted_and_no_letter,
    a_table_that_is_gone_is_no_dead_letter,
    a_first_change_that_is_refused_at_the_commit_is_a_letter,
);

pub(crate) const LOG: u128 = 0xfeed;

pub(crate) fn row(id: i64, code: &str) -> Row {
    Row::from_values(&codes(), &[Value::Bigint(id), text(code), Value::Timestamp(Timestamp(0))])
}

pub(crate) fn batch(from: Option<u64>, to: u64, ops: Vec<Op>) -> Batch {
    let changes = ops.into_iter().map(|op| Change { table: 0, position: to, is_intent: false, op }).collect();
    let schemas = vec![codes()];
    Batch {
        log: LOG,
        from,
        to,
        note: Default::default(),
        opening: String::new(),
        schemas,
        changes,
        basis: None,
        on_error: OnError::Fail,
        priority: Priority::Holds,
        patience: Patience::default(),
        held: Holding::default(),
    }
}

pub(super) fn with_letters(to: u64, ops: Vec<Op>) -> Batch {
    Batch { on_error: OnError::DeadLetter, ..batch(None, to, ops) }
}

pub(super) async fn content(scratch: &Scratch) -> String {
    let mut messages = scratch.store().scan(&codes(), None);
    let mut rows = Vec::new();
    while let Some(message) = messages.recv().await {
        rows.extend(message.unwrap().rows.iter().map(|row| row.as_ref().to_values(&codes())));
    }
    let mut shown: Vec<String> = rows
        .iter()
        .map(|values| match &values[..2] {
            [Value::Bigint(id), Value::Text(code)] => format!("{id}={code}"),
            other => panic!("{other:?}"),
        })
        .collect();
    shown.sort();
    shown.join(" ")
}

async fn a_batch_is_applied_once(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    assert_eq!(store.positions().await.unwrap(), []);
    let first = batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "b"))]);
    store.apply(first.clone()).await.unwrap();
    assert_eq!(store.apply(first).await.unwrap_err().kind(), &Kind::Fenced);
    let second =
        batch(Some(10), 20, vec![Op::Put(row(1, "c")), Op::Delete(Value::Bigint(2)), Op::Put(row(3, "b"))]);
    store.apply(second.clone()).await.unwrap();
    assert_eq!(store.apply(second).await.unwrap_err().kind(), &Kind::Fenced);
    let skipping = batch(Some(19), 30, vec![Op::Delete(Value::Bigint(1))]);
    assert_eq!(store.apply(skipping).await.unwrap_err().kind(), &Kind::Fenced);
    assert_eq!(content(scratch).await, "1=c 3=b");
    assert_eq!(store.position(LOG).await.unwrap(), Some(20));
    assert_eq!(store.scan_at(&codes(), None, LOG).await.unwrap().position, Some(20));
    // Another log starts from nothing.
    let other = Batch { log: 7, ..batch(None, 5, vec![Op::Insert(row(9, "other"))]) };
    store.apply(other).await.unwrap();
    assert_eq!(store.position(7).await.unwrap(), Some(5));
    assert_eq!(store.positions().await.unwrap().len(), 2);
}

async fn two_drains_with_one_position_apply_it_once(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    store.apply(batch(None, 1, vec![])).await.unwrap();
    let rows = |of: &str| (0..5_000).map(|id| Op::Insert(row(id, &format!("{of}{id}")))).collect();
    let (first, second) =
        tokio::join!(store.apply(batch(Some(1), 2, rows("a"))), store.apply(batch(Some(1), 2, rows("b"))));
    let failed = [first, second].into_iter().filter_map(Result::err).map(|error| error.kind().clone());
    let failed: Vec<Kind> = failed.collect();
    assert!(matches!(failed[..], [Kind::Fenced | Kind::Busy]), "{failed:?}");
    assert_eq!(store.count(&codes()).await.unwrap(), 5_000);
}

async fn a_failed_batch_leaves_nothing_and_names_its_row(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let at = |index| Kind::Row { index, reason: Box::new(Kind::Conflict { column: Some("code".into()) }) };
    let bad = batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a"))]);
    assert_eq!(store.apply(bad).await.unwrap_err().kind(), &at(1));
    let many =
        (0..1_000).map(|id| Op::Insert(row(id, &if id == 700 { "c3".into() } else { format!("c{id}") })));
    let error = store.apply(batch(None, 10, many.collect())).await.unwrap_err();
    assert_eq!(error.kind(), &at(700), "{error}");
    assert_eq!((content(scratch).await, store.position(LOG).await.unwrap()), (String::new(), None));
    assert_eq!(store.dead_letter_count().await.unwrap(), 0);
    store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    let error = store.insert_many(&codes(), vec![row(0, "new"), row(1, "old")]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Row { index: 1, .. }), "{error:?}");
    assert_eq!(content(scratch).await, "1=a");
}

async fn refused_changes_become_dead_letters_in_the_same_transaction(scratch: &Scratch) {
    let store = scratch.store();
    store.create_table(&codes()).await.unwrap();
    let letters = with_letters(
        10,
        vec![
            Op::Insert(row(1, "a")),
            Op::Insert(row(2, "a")),
            Op::Put(row(3, "a")),
            Op::Update { key: Value::Bigint(1), columns: vec![(1, Value::Null)] },
            Op::Delete(Value::Bigint(77)),
            Op::Insert(row(4, "d")),
        ],
    );
    assert_eq!(store.apply(letters.clone()).await.unwrap().dead, 3);
    assert_eq!(store.apply(letters).await.unwrap_err().kind(), &Kind::Fenced);
    assert_eq!(content(scratch).await, "1=a 4=d");
    let letters = store.dead_letters(10).await.unwrap();
    let seen: Vec<_> =
        letters.iter().rev().map(|l| (l.op.as_str(), l.row.as_str(), l.table.as_str())).collect();
    let json = |id| format!("{{\"id\":{id},\"code\":\"a\",\"created_at\":\"1970-01-01T00:00:00.000000Z\"}}");
    let expected = [
        ("insert", json(2), "codes"),
        ("put", json(3), "codes"),
        ("update", "{\"id\":1,\"code\":null}".into(), "codes"),
    ];
    assert_eq!(seen, expected.each_ref().map(|(op, row, table)| (*op, row.as_str(), *table)));
    // The engine's own message, which names the column.
    assert!(letters[2].reason.contains("code"), "{}", letters[2].reason);
    assert!(letters[0].reason.contains("code"), "{}", letters[0].reason);
    assert_eq!((letters[0].log, letters[0].position), (LOG, 10));
    assert_eq!(store.dead_letters(1).await.unwrap().len(), 1);
    assert_eq!(store.dead_letter_count().await.unwrap(), 3);
    assert_eq!(store.dead_letter_count_of(LOG, "codes").await.unwrap(), 3);
    assert_eq!(store.dead_letter_count_of(7, "codes").await.unwrap(), 0);
}

async fn increments_add_and_never_lose_digits(scratch: &Scratch) {
    let columns = vec![key("k", Type::TEXT), column("n", Type::Bigint)];
    let schema = Arc::new(Schema::new("hits", columns, 0, KeyKind::Text).unwrap());
    scratch.store().create_table(&schema).await.unwrap();
    scratch
        .execute(
            "INSERT INTO hits VALUES ('a', 9007199254740993), ('max', 9223372036854775807), ('null', NULL)",
        )
        .await;
    let add = |key: &str, delta| Op::Increment { key: text(key), column: 1, delta };
    let ops = vec![add("a", 2), add("max", 1), add("null", 1), add("a", -1)];
    let batch = Batch { schemas: vec![schema], ..with_letters(1, ops) };
    assert_eq!(scratch.store().apply(batch).await.unwrap().dead, 2);
    assert_eq!(scratch.number("SELECT n FROM hits WHERE k = 'a'").await, 9_007_199_254_740_994);
    assert_eq!(scratch.number("SELECT n FROM hits WHERE k = 'max'").await, i64::MAX);
}

/// A table of 200 rows, `k0` to `k199`, with `n` = 1 and `name` = a.
async fn numbered(scratch: &Scratch) -> Arc<Schema> {
    let columns = vec![key("k", Type::TEXT), column("n", Type::Bigint), column("name", Type::TEXT)];
    let schema = Arc::new(Schema::new("hits", columns, 0, KeyKind::Text).unwrap());
    scratch.store().create_table(&schema).await.unwrap();
    let row = |id| Row::from_values(&schema, &[text(&format!("k{id}")), Value::Bigint(1), text("a")]);
    scratch.store().insert_many(&schema, (0..200).map(row).collect()).await.unwrap();
    schema
}

fn update(id: i64, columns: &[(usize, Value)]) -> Op {
    Op::Update { key: text(&format!("k{id}")), columns: columns.to_vec() }
}

async fn updates_set_their_columns_and_nothing_else(scratch: &Scratch) {
    let schema = numbered(scratch).await;
    // Values that others write to the other columns meanwhile stay.
    scratch.execute("UPDATE hits SET name = 'theirs'").await;
    let mut ops: Vec<Op> = (0..100).map(|id| update(id, &[(1, Value::Bigint(id))])).collect();
    ops.push(update(0, &[(1, Value::Null)]));
    ops.extend((150..152).map(|id| update(id, &[(1, Value::Bigint(7)), (2, text("ours"))])));
    for (from, on_error) in [(None, OnError::Fail), (Some(1), OnError::DeadLetter)] {
        scratch.execute("UPDATE hits SET n = 1").await;
        let to = from.unwrap_or(0) + 1;
        let batch = Batch { schemas: vec![schema.clone()], on_error, ..batch(from, to, ops.clone()) };
        let applied = scratch.store().apply(batch).await.unwrap();
        assert_eq!((applied.dead, applied.missing), (0, 0));
        let sum = (1..100).sum::<i64>() + 98 + 14;
        assert_eq!(scratch.number("SELECT sum(n) FROM hits").await, sum);
        assert_eq!(scratch.number("SELECT count(*) FROM hits WHERE n IS NULL").await, 1);
        assert_eq!(scratch.number("SELECT count(*) FROM hits WHERE name = 'theirs'").await, 198);
    }
}

async fn an_update_of_a_row_that_others_deleted_is_counted_and_no_letter(scratch: &Scratch) {
    let schema = numbered(scratch).await;
    scratch.execute("DELETE FROM hits WHERE k IN ('k1', 'k2')").await;
    let increment = |id| Op::Increment { key: text(&format!("k{id}")), column: 1, delta: 1 };
    // A few changes are sent as statements, many in bulk.
    for (round, count) in [(0, 5), (1, 100)] {
        for (half, on_error) in [(0, OnError::Fail), (1, OnError::DeadLetter)] {
            let mut ops: Vec<Op> = (0..count).map(|id| update(id, &[(2, text("b"))])).collect();
            ops.extend((0..count).map(increment));
            let at = round * 2 + half;
            let from = (at > 0).then_some(at);
            let batch = Batch { schemas: vec![schema.clone()], on_error, ..batch(from, at + 1, ops) };
            let applied = scratch.store().apply(batch).await.unwrap();
            assert_eq!((applied.dead, applied.missing), (0, 4), "{count} {on_error:?}");
        }
    }
    assert_eq!(scratch.number("SELECT n FROM hits WHERE k = 'k0'").await, 5);
    assert_eq!(scratch.number("SELECT count(*) FROM hits WHERE name = 'b'").await, 98);
    assert_eq!(scratch.store().dead_letter_count().await.unwrap(), 0);
    // An existing row that contains NULL is a different case.
    scratch.execute("UPDATE hits SET n = NULL WHERE k = 'k3'").await;
    let ops: Vec<Op> = (0..100).map(increment).collect();
    let bulk = Batch { schemas: vec![schema.clone()], ..batch(Some(4), 5, ops.clone()) };
    assert!(scratch.store().apply(bulk.clone()).await.unwrap_err().is_data());
    let applied = scratch.store().apply(Batch { on_error: OnError::DeadLetter, ..bulk }).await.unwrap();
    assert_eq!((applied.dead, applied.missing), (1, 2));
}

/// The rows must wait; they must not become dead letters.
async fn a_table_that_is_gone_is_no_dead_letter(scratch: &Scratch) {
    let gone = with_letters(20, vec![Op::Insert(row(2, "b"))]);
    let error = scratch.store().apply(gone).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Table { table, .. } if table == "codes"), "{error:?}");
    assert_eq!(scratch.store().position(LOG).await.unwrap(), None);
}

/// The transaction that created the drain's tables is rolled back with it.
async fn a_first_change_that_is_refused_at_the_commit_is_a_letter(scratch: &Scratch) {
    scratch.execute("CREATE TABLE words (code text PRIMARY KEY)").await;
    scratch
        .execute(
            "CREATE TABLE codes (id bigint PRIMARY KEY, created_at timestamp,
               code text NOT NULL REFERENCES words DEFERRABLE INITIALLY DEFERRED)",
        )
        .await;
    let applied = scratch.store().apply(with_letters(1, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    assert_eq!(applied.dead, 1);
    assert_eq!(scratch.number("SELECT count(*) FROM codes").await, 0);
    assert_eq!(scratch.store().position(LOG).await.unwrap(), Some(1));
}
