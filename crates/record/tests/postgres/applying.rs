//! The drain's transaction: once, in order, all or nothing; dead letters and their replay.

use crate::{Scratch, codes, column, key, text};
use forebay_record::{Batch, Change, Kind, OnError, Op, Priority};
use forebay_value::{KeyKind, Row, Schema, Timestamp, Type, Value};
use std::sync::Arc;

const LOG: u128 = 0xfeed;

fn row(id: i64, code: &str) -> Row {
    Row::from_values(&codes(), &[Value::Bigint(id), text(code), Value::Timestamp(Timestamp(0))])
}

fn batch(from: Option<u64>, to: u64, ops: Vec<Op>) -> Batch {
    let changes = ops.into_iter().map(|op| Change { table: 0, position: to, op }).collect();
    let schemas = vec![codes()];
    Batch { log: LOG, from, to, schemas, changes, on_error: OnError::Fail, priority: Priority::Yields }
}

async fn scratch() -> Scratch {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
}

async fn content(scratch: &Scratch) -> String {
    scratch.text("SELECT coalesce(string_agg(id || '=' || code, ' ' ORDER BY id), '') FROM codes").await
}

#[tokio::test]
async fn a_batch_is_applied_once() {
    let scratch = scratch().await;
    assert_eq!(scratch.store.positions().await.unwrap(), []);
    let first = batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "b"))]);
    scratch.store.apply(first.clone()).await.unwrap();
    assert_eq!(scratch.store.apply(first).await.unwrap_err().kind(), &Kind::Fenced);
    let second =
        batch(Some(10), 20, vec![Op::Put(row(1, "c")), Op::Delete(Value::Bigint(2)), Op::Put(row(3, "b"))]);
    scratch.store.apply(second.clone()).await.unwrap();
    assert_eq!(scratch.store.apply(second).await.unwrap_err().kind(), &Kind::Fenced);
    let skipping = batch(Some(19), 30, vec![Op::Delete(Value::Bigint(1))]);
    assert_eq!(scratch.store.apply(skipping).await.unwrap_err().kind(), &Kind::Fenced);
    assert_eq!(content(&scratch).await, "1=c 3=b");
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(20));
    let scan = scratch.store.scan_at(&codes(), None, LOG).await.unwrap();
    assert_eq!(scan.position, Some(20));
}

#[tokio::test]
async fn two_drains_with_one_position_apply_it_once() {
    let scratch = scratch().await;
    scratch.store.apply(batch(None, 1, vec![])).await.unwrap();
    let (first, second) = tokio::join!(
        scratch.store.apply(batch(
            Some(1),
            2,
            (0..5_000).map(|id| Op::Insert(row(id, &format!("a{id}")))).collect()
        )),
        scratch.store.apply(batch(
            Some(1),
            2,
            (0..5_000).map(|id| Op::Insert(row(id, &format!("b{id}")))).collect()
        )),
    );
    let failed = [first, second].into_iter().filter_map(Result::err).map(|error| error.kind().clone());
    let failed: Vec<Kind> = failed.collect();
    assert!(matches!(failed[..], [Kind::Fenced | Kind::Busy]), "{failed:?}");
    assert_eq!(scratch.store.count(&codes()).await.unwrap(), 5_000);
}

#[tokio::test]
async fn large_batches_of_every_kind_leave_what_small_ones_do() {
    let scratch = Scratch::new().await;
    let columns = vec![
        key("k", Type::TEXT),
        column("n", Type::Bigint),
        column("price", Type::Numeric),
        column("data", Type::Json),
    ];
    let schema = Arc::new(Schema::new("big", columns, 0, KeyKind::Text).unwrap());
    scratch.store.create_table(&schema).await.unwrap();
    let make = |id: i64, n: i64| {
        Row::from_values(
            &schema,
            &[
                text(&format!("k\"{id}")),
                Value::Bigint(n),
                Value::Numeric("1.50".into()),
                Value::Json("{\"a\": 1}".into()),
            ],
        )
    };
    let with = |from, to, ops| Batch { schemas: vec![schema.clone()], ..batch(from, to, ops) };
    scratch
        .store
        .apply(with(None, 1, (0..2_000).map(|id| Op::Insert(make(id, id))).collect()))
        .await
        .unwrap();
    let key = |id: i64| text(&format!("k\"{id}"));
    let mut ops: Vec<Op> = (0..500).map(|id| Op::Delete(key(id))).collect();
    ops.extend((1_000..2_500).map(|id| Op::Put(make(id, -1))));
    ops.extend((500..1_000).map(|id| Op::Increment { key: key(id), column: 1, delta: 1_000_000 }));
    // The same key again: a statement may not touch a row twice.
    ops.extend((500..600).map(|id| Op::Increment { key: key(id), column: 1, delta: 1 }));
    scratch.store.apply(with(Some(1), 2, ops)).await.unwrap();
    let sums = "SELECT count(*) || ' ' || sum(n) || ' ' || count(*) FILTER (WHERE n = -1) || ' ' || min(price) || min(data::text) FROM big";
    let expected = 500 * 1_000_000 + (500..1_000i64).sum::<i64>() + 100 - 1_500;
    assert_eq!(scratch.text(sums).await, format!("2000 {expected} 1500 1.50{{\"a\": 1}}"));
    let missing: Vec<Op> = (0..100).map(|id| Op::Increment { key: key(id), column: 1, delta: 1 }).collect();
    assert_eq!(scratch.store.apply(with(Some(2), 3, missing)).await.unwrap_err().kind(), &Kind::Check);
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(2));
}

#[tokio::test]
async fn a_failed_batch_leaves_nothing_and_names_its_row() {
    let scratch = scratch().await;
    let reason = || Box::new(Kind::Conflict { column: Some("code".into()) });
    let bad = batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a"))]);
    assert_eq!(scratch.store.apply(bad).await.unwrap_err().kind(), &Kind::Row { index: 1, reason: reason() });
    let many =
        (0..1_000).map(|id| Op::Insert(row(id, &if id == 700 { "c3".into() } else { format!("c{id}") })));
    let error = scratch.store.apply(batch(None, 10, many.collect())).await.unwrap_err();
    assert_eq!(error.kind(), &Kind::Row { index: 700, reason: reason() }, "{error}");
    assert_eq!((content(&scratch).await, scratch.store.position(LOG).await.unwrap()), (String::new(), None));
    assert_eq!(scratch.store.dead_letter_count().await.unwrap(), 0);
    let error = scratch.store.insert_many(&codes(), vec![row(0, "new"), row(0, "old")]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Row { index: 1, .. }), "{error:?}");
    scratch.store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    assert_eq!(content(&scratch).await, "1=a");
}

#[tokio::test]
async fn refused_changes_become_dead_letters_and_can_be_replayed() {
    let scratch = scratch().await;
    let ops = vec![
        Op::Insert(row(1, "a")),
        Op::Insert(row(2, "a")),
        Op::Put(row(3, "a")),
        Op::Increment { key: Value::Bigint(8), column: 0, delta: 5 },
        Op::Delete(Value::Bigint(77)),
        Op::Insert(row(4, "d")),
    ];
    let letters = Batch { on_error: OnError::DeadLetter, ..batch(None, 10, ops) };
    assert_eq!(scratch.store.apply(letters.clone()).await.unwrap().dead, 3);
    assert_eq!(scratch.store.apply(letters).await.unwrap_err().kind(), &Kind::Fenced);
    assert_eq!(content(&scratch).await, "1=a 4=d");
    let letters = scratch.store.dead_letters_after(0, 10).await.unwrap();
    assert_eq!(letters.len(), 3);
    assert_eq!(letters[0].row, "{\"id\":2,\"code\":\"a\",\"created_at\":\"1970-01-01T00:00:00.000000Z\"}");
    assert!(letters[0].reason.contains("codes_code_key"), "{}", letters[0].reason);
    assert_eq!((letters[0].log, letters[0].position), (LOG, 10));
    let schema = codes();
    let again = scratch.store.replay(&schema, &letters[0]).await.unwrap_err();
    assert!(again.is_data(), "{again}");
    assert_eq!(scratch.store.dead_letter_count_of(LOG, "codes").await.unwrap(), 3);
    scratch.execute("DELETE FROM codes WHERE id = 1").await;
    assert!(scratch.store.replay(&schema, &letters[0]).await.unwrap());
    assert!(!scratch.store.replay(&schema, &letters[0]).await.unwrap(), "it is gone");
    assert_eq!(content(&scratch).await, "2=a 4=d");
    assert_eq!(scratch.store.dead_letter_count().await.unwrap(), 2);
}

#[tokio::test]
async fn a_deferred_constraint_refuses_the_only_change_at_the_commit() {
    let scratch = scratch().await;
    scratch.execute("ALTER TABLE codes ADD CONSTRAINT r FOREIGN KEY (id) REFERENCES codes (id) DEFERRABLE INITIALLY DEFERRED").await;
    scratch.execute("CREATE TABLE other (id bigint PRIMARY KEY); ALTER TABLE codes DROP CONSTRAINT r").await;
    scratch
        .execute("ALTER TABLE codes ADD FOREIGN KEY (id) REFERENCES other (id) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let orphan = Batch { on_error: OnError::DeadLetter, ..batch(None, 10, vec![Op::Insert(row(1, "a"))]) };
    assert_eq!(scratch.store.apply(orphan).await.unwrap().dead, 1);
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(10));
    assert_eq!(scratch.store.count(&codes()).await.unwrap(), 0);
}

#[tokio::test]
async fn a_table_that_is_gone_is_no_dead_letter() {
    let scratch = scratch().await;
    scratch.execute("DROP TABLE codes").await;
    let gone = Batch { on_error: OnError::DeadLetter, ..batch(None, 20, vec![Op::Insert(row(2, "b"))]) };
    assert_eq!(scratch.store.apply(gone).await.unwrap_err().kind(), &Kind::Syntax);
    assert_eq!(scratch.store.position(LOG).await.unwrap(), None);
}
