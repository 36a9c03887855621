//! The drain's transaction: once, in order, all or nothing; dead letters and their replay.

use super::Scratch;
use crate::{codes, column, key, text};
use forebay_database::{Batch, Change, Holding, OnError, Op, Priority};
use forebay_value::{KeyKind, Row, Schema, Timestamp, Type, Value};
use std::sync::Arc;

const LOG: u128 = 0xfeed;

fn row(id: i64, code: &str) -> Row {
    Row::from_values(&codes(), &[Value::Bigint(id), text(code), Value::Timestamp(Timestamp(0))])
}

fn batch(from: Option<u64>, to: u64, ops: Vec<Op>) -> Batch {
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
        on_error: OnError::Fail,
        priority: Priority::Yields,
        held: Holding::default(),
    }
}

async fn scratch() -> Scratch {
    let scratch = Scratch::new().await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
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
    assert_eq!(scratch.store.apply(with(Some(2), 3, missing)).await.unwrap().missing, 100);
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(3));
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
