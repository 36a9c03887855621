//! The drain's transaction: exactly once, in order, all or nothing.

use super::Scratch;
use crate::{codes, text};
use forebay_database::{Batch, Change, Holding, Kind, OnError, Op, Patience, Priority};
use forebay_value::{Row, Timestamp, Value};

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
    let scratch = Scratch::new();
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
}

#[tokio::test]
async fn a_lost_store_is_no_dead_letter() {
    let scratch = scratch().await;
    let locker = scratch.plain();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let letters = Batch { on_error: OnError::DeadLetter, ..batch(None, 10, vec![Op::Insert(row(1, "a"))]) };
    let error = scratch.store.apply(letters.clone()).await.unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (&Kind::Busy, true));
    locker.execute_batch("COMMIT").unwrap();
    assert_eq!(scratch.store.apply(letters).await.unwrap().dead, 0);
    // A missing table is not the rows' fault either: they must wait, not become dead letters.
    scratch.execute("DROP TABLE codes");
    let gone = Batch { on_error: OnError::DeadLetter, ..batch(Some(10), 20, vec![Op::Insert(row(2, "b"))]) };
    let error = scratch.store.apply(gone).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Table { table, .. } if table == "codes"), "{error:?}");
    assert_eq!(scratch.store.position(LOG).await.unwrap(), Some(10));
}

/// Regression: the statement was compiled while foreign keys were deferred; SQLite then returned the error
/// and kept the row.
#[tokio::test]
async fn a_row_that_a_foreign_key_refuses_is_a_letter_and_is_not_there() {
    let scratch = Scratch::new();
    scratch.execute(
        "CREATE TABLE kinds (name TEXT PRIMARY KEY); INSERT INTO kinds VALUES ('a'), ('b');
         CREATE TABLE codes (id INTEGER PRIMARY KEY AUTOINCREMENT, code TEXT UNIQUE NOT NULL REFERENCES kinds,
           created_at TIMESTAMP TEXT)",
    );
    scratch.store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    let ops = vec![Op::Insert(row(2, "b")), Op::Insert(row(3, "none"))];
    let whole = batch(Some(10), 20, ops);
    assert!(scratch.store.apply(whole.clone()).await.unwrap_err().is_data());
    let letters = Batch { on_error: OnError::DeadLetter, ..whole };
    assert_eq!(scratch.store.apply(letters).await.unwrap().dead, 1);
    assert_eq!(scratch.number("SELECT sum(id) FROM codes"), 3);
}

/// A batch defers foreign keys only where there are some.
#[tokio::test]
async fn a_foreign_key_that_another_client_adds_is_deferred() {
    let scratch = scratch().await;
    scratch.store.apply(batch(None, 10, vec![Op::Insert(row(1, "a"))])).await.unwrap();
    scratch.execute(
        "DROP TABLE codes;
         CREATE TABLE codes (id INTEGER PRIMARY KEY AUTOINCREMENT, code TEXT UNIQUE NOT NULL,
           created_at TIMESTAMP TEXT, next INTEGER AS (nullif(id + 1, 4)) STORED REFERENCES codes)",
    );
    // The first row refers to the second.
    let chain = vec![Op::Insert(row(2, "b")), Op::Insert(row(3, "c"))];
    scratch.store.apply(batch(Some(10), 20, chain)).await.unwrap();
    assert_eq!(scratch.number("SELECT sum(id) FROM codes"), 5);
    let broken = batch(Some(20), 30, vec![Op::Insert(row(7, "d"))]);
    assert!(scratch.store.apply(broken.clone()).await.unwrap_err().is_data());
    let letters = Batch { on_error: OnError::DeadLetter, ..broken };
    assert_eq!(scratch.store.apply(letters).await.unwrap().dead, 1);
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
    // A copy of the files as after a crash: the write-ahead log is not yet copied into the database.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("records.db");
    std::fs::copy(&scratch.path, &copy).unwrap();
    std::fs::copy(scratch.path.with_extension("db-wal"), copy.with_extension("db-wal")).unwrap();
    let store =
        forebay_database::Store::open(&format!("sqlite:{}", copy.display()), Default::default()).unwrap();
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
    // The batch was not one transaction for which all writers waited.
    assert!(writes > 2, "{writes}");
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 200_000);
    let error = scratch.store.insert_many(&codes(), vec![row(0, "new"), row(1, "old")]).await.unwrap_err();
    assert!(matches!(error.kind(), Kind::Row { index: 1, .. }), "{error:?}");
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 200_000);
}
