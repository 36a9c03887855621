//! The drain's transaction: once, in order, all or nothing.

use crate::{Scratch, codes, text};
use forebay_record::{Batch, Change, Kind, OnError, Op, Priority};
use forebay_value::{Row, Timestamp, Value};

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
    let scratch = Scratch::new();
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
}

fn content(scratch: &Scratch) -> String {
    scratch.text(
        "SELECT coalesce(group_concat(id || '=' || code, ' '), '') FROM (SELECT * FROM codes ORDER BY id)",
    )
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
    assert_eq!(content(&scratch), "1=c 3=b");
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(20));
    // Another log starts from nothing.
    let other = Batch { log: 7, ..batch(None, 5, vec![Op::Insert(row(9, "other"))]) };
    scratch.store.apply(other).await.unwrap();
    assert_eq!(scratch.store.position(7).await.unwrap(), Some(5));
    assert_eq!(scratch.store.positions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_failed_batch_leaves_nothing() {
    let scratch = scratch().await;
    let bad = batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a"))]);
    let error = scratch.store.apply(bad).await.unwrap_err();
    let reason = Box::new(Kind::Conflict { column: Some("code".into()) });
    assert_eq!(error.kind(), &Kind::Row { index: 1, reason });
    assert_eq!((content(&scratch), scratch.store.position(LOG).await.unwrap()), (String::new(), None));
    assert_eq!(scratch.store.dead_letter_count().await.unwrap(), 0);
    scratch.store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    assert_eq!(content(&scratch), "1=a");
}

#[tokio::test]
async fn refused_changes_become_dead_letters_in_the_same_transaction() {
    let scratch = scratch().await;
    let increment = |delta| Op::Increment { key: Value::Bigint(8), column: 0, delta };
    let ops = vec![
        Op::Insert(row(1, "a")),
        Op::Insert(row(2, "a")),
        Op::Put(row(3, "a")),
        increment(5),
        Op::Delete(Value::Bigint(77)),
        Op::Insert(row(4, "d")),
    ];
    let letters = Batch { on_error: OnError::DeadLetter, ..batch(None, 10, ops) };
    assert_eq!(scratch.store.apply(letters.clone()).await.unwrap().dead, 3);
    assert_eq!(scratch.store.apply(letters).await.unwrap_err().kind(), &Kind::Fenced);
    assert_eq!(content(&scratch), "1=a 4=d");
    let letters = scratch.store.dead_letters(10).await.unwrap();
    let seen: Vec<_> =
        letters.iter().rev().map(|l| (l.op.as_str(), l.row.as_str(), l.table.as_str())).collect();
    let json = |id| format!("{{\"id\":{id},\"code\":\"a\",\"created_at\":\"1970-01-01T00:00:00.000000Z\"}}");
    let expected = [
        ("insert", json(2), "codes"),
        ("put", json(3), "codes"),
        ("increment", "{\"id\":8,\"id\":5}".into(), "codes"),
    ];
    assert_eq!(seen, expected.each_ref().map(|(op, row, table)| (*op, row.as_str(), *table)));
    assert!(letters[2].reason.contains("UNIQUE constraint failed: codes.code"), "{}", letters[2].reason);
    assert!(letters[0].reason.contains("no row has this key"), "{}", letters[0].reason);
    assert_eq!((letters[0].log, letters[0].position), (LOG, 10));
    assert_eq!(scratch.store.dead_letters(1).await.unwrap().len(), 1);
    assert_eq!(scratch.store.dead_letter_count().await.unwrap(), 3);
}

#[tokio::test]
async fn increments_add_and_never_lose_digits() {
    let scratch = Scratch::new();
    let columns =
        vec![crate::key("k", forebay_value::Type::TEXT), crate::column("n", forebay_value::Type::Bigint)];
    let schema = std::sync::Arc::new(
        forebay_value::Schema::new("hits", columns, 0, forebay_value::KeyKind::Text).unwrap(),
    );
    scratch.store.create_table(&schema).await.unwrap();
    scratch.execute(
        "INSERT INTO hits VALUES ('a', 9007199254740993), ('max', 9223372036854775807), ('null', NULL)",
    );
    let add = |key: &str, delta| Op::Increment { key: text(key), column: 1, delta };
    let ops = vec![add("a", 2), add("max", 1), add("null", 1), add("a", -1)];
    let batch = Batch { schemas: vec![schema], on_error: OnError::DeadLetter, ..batch(None, 1, ops) };
    assert_eq!(scratch.store.apply(batch).await.unwrap().dead, 2);
    assert_eq!(scratch.number("SELECT n FROM hits WHERE k = 'a'"), 9_007_199_254_740_994);
    assert_eq!(scratch.number("SELECT n FROM hits WHERE k = 'max'"), i64::MAX);
}

#[tokio::test]
async fn a_lost_store_is_no_dead_letter() {
    let scratch = scratch().await;
    let locker = scratch.plain();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let letters = Batch { on_error: OnError::DeadLetter, ..batch(None, 10, vec![Op::Insert(row(1, "a"))]) };
    let error = scratch.store.apply(letters.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (&Kind::Busy, true));
    locker.execute_batch("COMMIT").unwrap();
    assert_eq!(scratch.store.apply(letters).await.unwrap().dead, 0);
    // A table that is gone is the store's fault too: the rows must wait, not die.
    scratch.execute("DROP TABLE codes");
    let gone = Batch { on_error: OnError::DeadLetter, ..batch(Some(10), 20, vec![Op::Insert(row(2, "b"))]) };
    assert_eq!(scratch.store.apply(gone).await.unwrap_err().kind(), &Kind::Syntax);
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(10));
}

#[tokio::test]
async fn a_long_batch_gives_way_to_direct_writes_and_a_small_one_does_not() {
    let scratch = scratch().await;
    scratch.execute("CREATE TABLE t (x)");
    let insert = scratch.store.prepare("INSERT INTO t VALUES ($x)").await.unwrap();
    let ops: Vec<Op> = (0..200_000).map(|id| Op::Insert(row(id, &format!("{id}")))).collect();
    let long = batch(None, 10, ops);
    let applying = tokio::spawn({
        let (store, long) = (scratch.store.clone(), long.clone());
        async move { store.apply(long).await }
    });
    // Direct writes keep coming until the batch has met one of them.
    let mut writes = 0;
    while !applying.is_finished() {
        scratch.store.run(&insert, vec![Value::Bigint(writes)]).await.unwrap();
        writes += 1;
    }
    let error = applying.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), Kind::Yielded { done } if *done > 0 && *done < 200_000), "{error:?}");
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 0);
    let holding = Batch { priority: Priority::Holds, ..long };
    let direct = scratch.store.run(&insert, vec![Value::Bigint(-1)]);
    scratch.store.apply(holding).await.unwrap();
    direct.await.unwrap();
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 200_000);
    assert_eq!(scratch.number("SELECT count(*) FROM t"), writes + 1);
}

#[tokio::test]
async fn what_was_applied_is_there_when_the_process_is_gone() {
    let scratch = scratch().await;
    scratch.store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    // A copy of the files as a crash would leave them: the write-ahead log not yet copied into the database.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("records.db");
    std::fs::copy(&scratch.path, &copy).unwrap();
    std::fs::copy(scratch.path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    let store =
        forebay_record::Store::open(&format!("sqlite:{}", copy.display()), Default::default()).unwrap();
    assert_eq!(store.position(LOG).await.unwrap(), Some(10));
    assert_eq!(store.fetch(&codes(), Value::Bigint(1)).await.unwrap(), Some(row(1, "a")));
}

#[tokio::test]
async fn bulk_inserts_share_the_writer() {
    let scratch = scratch().await;
    scratch.execute("CREATE TABLE t (x)");
    let insert = scratch.store.prepare("INSERT INTO t VALUES ($x)").await.unwrap();
    let rows: Vec<Row> = (1..=200_000).map(|id| row(id, &id.to_string())).collect();
    let filling = tokio::spawn({
        let store = scratch.store.clone();
        async move { store.insert_many(&codes(), rows).await }
    });
    let mut writes = 0;
    while !filling.is_finished() {
        scratch.store.run(&insert, vec![Value::Bigint(writes)]).await.unwrap();
        writes += 1;
    }
    filling.await.unwrap().unwrap();
    // It was not one transaction that everybody waited for.
    assert!(writes > 2, "{writes}");
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 200_000);
    let error = scratch.store.insert_many(&codes(), vec![row(0, "new"), row(1, "old")]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Row { index: 1, .. }), "{error:?}");
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 200_000);
}

#[tokio::test]
async fn dead_letters_are_replayed_once_the_reason_is_gone() {
    let scratch = scratch().await;
    let letters = Batch {
        on_error: OnError::DeadLetter,
        ..batch(None, 10, vec![Op::Insert(row(1, "a")), Op::Insert(row(2, "a")), Op::Put(row(3, "a"))])
    };
    assert_eq!(scratch.store.apply(letters).await.unwrap().dead, 2);
    let letters = scratch.store.dead_letters_after(0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.op.as_str()).collect::<Vec<_>>(), ["insert", "put"]);
    assert_eq!(scratch.store.dead_letters_after(letters[0].id, 10).await.unwrap(), letters[1..]);
    let schema = codes();
    assert!(scratch.store.replay(&schema, &letters[0]).await.unwrap_err().is_data());
    scratch.execute("DELETE FROM codes WHERE id = 1");
    assert!(scratch.store.replay(&schema, &letters[0]).await.unwrap());
    assert!(!scratch.store.replay(&schema, &letters[0]).await.unwrap(), "it is gone");
    assert_eq!((content(&scratch).as_str(), scratch.store.dead_letter_count().await.unwrap()), ("2=a", 1));
}
