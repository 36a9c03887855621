//! The drain's transaction: exactly once, in order, all or nothing; dead letters and their replay.

use super::Scratch;
use crate::{codes, column, key, text};
use forebay_database::{Batch, Change, Holding, Kind, OnError, Op, Patience, Priority};
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
        basis: None,
        on_error: OnError::Fail,
        priority: Priority::Yields,
        patience: Patience::default(),
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
async fn batches_of_any_size_leave_what_their_changes_say() {
    let scratch = scratch().await;
    let (mut at, mut last) = (None, 0);
    // Around the numbers of rows of one INSERT, and of changes of one flight.
    for size in [1, 2, 31, 33, 64, 127, 128, 129] {
        let ops = (last + 1..=last + size).map(|id| Op::Insert(row(id, &format!("code {id}")))).collect();
        let to = at.unwrap_or(0) + 1;
        scratch.store.apply(batch(at, to, ops)).await.unwrap();
        (at, last) = (Some(to), last + size);
        assert_eq!(scratch.store.position(LOG).await.unwrap(), at);
        assert_eq!(
            scratch.text("SELECT count(*) FROM codes WHERE code = 'code ' || id").await,
            last.to_string()
        );
    }
    let (to, code) = (at.unwrap() + 1, |code: &str| vec![(1, text(code))]);
    let ops = vec![
        Op::Insert(row(1_001, "a")),
        Op::Update { key: Value::Bigint(1_001), columns: code("b") },
        Op::Insert(row(1_002, "a")),
        Op::Insert(row(1_003, "c")),
        Op::Update { key: Value::Bigint(2_000), columns: code("nobody") },
        Op::Delete(Value::Bigint(1_003)),
        Op::Put(row(1_002, "d")),
    ];
    let applied = scratch.store.apply(batch(at, to, ops)).await.unwrap();
    assert_eq!((applied.missing, applied.differing), (1, vec![(0, Value::Bigint(2_000))]));
    let codes = "SELECT string_agg(code, ' ' ORDER BY id) FROM codes WHERE id > 1000";
    assert_eq!(scratch.text(codes).await, "b d");
    let ops = (1_010..1_020).map(|id| Op::Insert(row(id, if id == 1_015 { "d" } else { "" }))).collect();
    assert!(scratch.store.apply(batch(Some(to), to + 1, ops)).await.unwrap_err().is_data());
    assert_eq!(scratch.text(codes).await, "b d");
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(to));
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

/// A table that refuses codes by their last digit: 5 by a CHECK, 6 by a cast, 7 and 8 by a trigger's own
/// error. 9 is NULL in a column that the schema does not contain.
async fn judged() -> Scratch {
    let scratch = scratch().await;
    scratch
        .execute(
            "ALTER TABLE codes ADD CONSTRAINT no_five CHECK (code NOT LIKE '%5');
             ALTER TABLE codes ADD COLUMN length int NOT NULL DEFAULT 0;
             CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NEW.code LIKE '%6' THEN NEW.length := 'six'; END IF;
               IF NEW.code LIKE '%7' THEN RAISE 'no sevens'; END IF;
               IF NEW.code LIKE '%8' THEN RAISE 'no eights' USING ERRCODE = 'SH001'; END IF;
               IF NEW.code LIKE '%9' THEN NEW.length := NULL; END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER judge BEFORE INSERT ON codes FOR EACH ROW EXECUTE FUNCTION judge()",
        )
        .await;
    scratch
}

/// A hundred codes that end with these digits in rotation.
fn ending(ends: &str) -> Vec<Change> {
    let ends: Vec<char> = ends.chars().collect();
    let code = |n: usize| format!("{}{}", n % 90, ends[n % ends.len()]);
    let intent = |n: usize| Change {
        table: 0,
        position: n as u64 + 1,
        is_intent: true,
        op: Op::Insert(row(n as i64, &code(n))),
    };
    (0..100).map(intent).collect()
}

/// The refused changes, in batches of `at_a_time`, with the message and the names of each error; and the
/// stored rows.
async fn refused_of(changes: &[Change], at_a_time: usize) -> (Vec<String>, String) {
    let scratch = judged().await;
    let (mut from, mut told) = (None, Vec::new());
    for some in changes.chunks(at_a_time) {
        let to = some[some.len() - 1].position;
        let intents =
            Batch { changes: some.to_vec(), on_error: OnError::DeadLetter, ..batch(from, to, vec![]) };
        let applied = scratch.store.apply(intents).await.unwrap();
        assert_eq!(applied.dead, 0, "an intent is no dead letter");
        told.extend(applied.refused.into_iter().map(|refused| {
            let reason = refused.reason.unwrap();
            let named = (reason.column(), reason.constraint());
            format!("{} {:?} {named:?} {}", refused.position, reason.kind(), reason.message())
        }));
        from = Some(to);
    }
    let stored = scratch.text("SELECT string_agg(id || code, ',' ORDER BY id) FROM codes").await;
    (told, stored)
}

#[tokio::test]
async fn inserts_that_the_server_tries_are_refused_as_statements_are() {
    // A repeated unique value, CHECKs, casts, a trigger's error; then refusals that only statements can
    // report.
    for (ends, refusals) in [("123", 10), ("15267", 64), ("18", 55)] {
        let changes = ending(ends);
        let by_server = refused_of(&changes, 100).await;
        assert_eq!(by_server, refused_of(&changes, 10).await, "ends {ends}");
        assert_eq!(by_server.0.len(), refusals, "ends {ends}: {:?}", by_server.0);
    }
}

#[tokio::test]
async fn inserts_that_the_server_tries_name_a_table_that_does_not_fit() {
    let scratch = judged().await;
    let intents = Batch { changes: ending("19"), on_error: OnError::DeadLetter, ..batch(None, 100, vec![]) };
    let error = scratch.store.apply(intents).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Table { .. }), "{error}");
    assert_eq!(scratch.store.position(LOG).await.unwrap(), None);
}
