//! Groups, timeouts, queues, other processes.

use super::Scratch;
use crate::{codes, text};
use forebay_database::{Kind, Options, Store};
use forebay_value::Value;
use std::time::Duration;

/// Counts to a thousand million: minutes, unless it is interrupted.
const SLOW: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000)";

async fn insert_all(store: &Store, codes: impl Iterator<Item = String>) -> Vec<Result<u64, Kind>> {
    let statement = store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    let running: Vec<_> = codes.map(|code| tokio::spawn(store.run(&statement, vec![text(&code)]))).collect();
    let mut results = Vec::new();
    for task in running {
        results.push(task.await.unwrap().map(|rows| rows.changed).map_err(|error| error.kind().clone()));
    }
    results
}

#[tokio::test]
async fn a_statement_that_takes_the_transaction_with_it_costs_only_itself() {
    let scratch = Scratch::with(Options { statement_timeout_ms: 400, ..Options::default() });
    scratch.store.create_table(&codes()).await.unwrap();
    scratch.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON codes WHEN new.code = 'bad' BEGIN SELECT raise(ROLLBACK, 'refused'); END;
         CREATE TABLE child (id REFERENCES codes (id) DEFERRABLE INITIALLY DEFERRED);",
    );
    let insert = scratch.store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    let slow = scratch
        .store
        .prepare(&format!("INSERT INTO codes (code) {SLOW} SELECT count(*) || $code FROM n"))
        .await;
    let slow = slow.unwrap();
    let orphan = scratch.store.prepare("INSERT INTO child VALUES ($id)").await.unwrap();
    let mut good = Vec::new();
    let mut bad = Vec::new();
    // Queued at once, so that they share groups.
    for i in 0..100 {
        good.push(scratch.store.run(&insert, vec![text(&format!("good {i}"))]));
        match i {
            20 => bad.push((scratch.store.run(&insert, vec![text("bad")]), Kind::Check)),
            40 => bad.push((scratch.store.run(&slow, vec![text("slow")]), Kind::Timeout)),
            60 => bad.push((scratch.store.run(&orphan, vec![Value::Bigint(99_999)]), Kind::Check)),
            _ => {}
        }
    }
    for result in good {
        assert_eq!(result.await.unwrap().changed, 1);
    }
    for (result, kind) in bad {
        let error = result.await.map(|rows| panic!("{kind:?}: {rows:?}")).unwrap_err();
        assert_eq!(error.kind(), &kind);
    }
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 100);
    assert_eq!(scratch.number("SELECT count(*) FROM child"), 0);
}

#[tokio::test]
async fn a_slow_read_is_interrupted_and_holds_up_nobody() {
    let scratch = Scratch::with(Options { readers: 2, statement_timeout_ms: 300, ..Options::default() });
    let slow = scratch.store.prepare(&format!("{SLOW} SELECT count(*) FROM n")).await.unwrap();
    let quick = scratch.store.prepare("SELECT 1").await.unwrap();
    let running = tokio::spawn(scratch.store.run(&slow, vec![]));
    for _ in 0..100 {
        assert_eq!(scratch.store.run(&quick, vec![]).await.unwrap().values, [Value::Bigint(1)]);
    }
    assert!(!running.is_finished(), "the quick ones did not wait for the slow one");
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (&Kind::Timeout, true));
}

#[tokio::test]
async fn queues_are_bounded() {
    let options = Options { readers: 1, queue: 4, statement_timeout_ms: 300, known: None };
    let scratch = Scratch::with(options);
    scratch.execute("CREATE TABLE t (x)");
    for sql in
        [format!("{SLOW} SELECT count(*) FROM n"), format!("INSERT INTO t {SLOW} SELECT count(*) FROM n")]
    {
        let slow = scratch.store.prepare(&sql).await.unwrap();
        let running: Vec<_> = (0..50).map(|_| scratch.store.run(&slow, vec![])).collect();
        let mut kinds = Vec::new();
        for result in running {
            kinds.push(result.await.unwrap_err().kind().clone());
        }
        let busy = kinds.iter().filter(|&kind| *kind == Kind::Busy).count();
        // 4 wait, and what was taken out of the queue meanwhile (one read, or a group of writes) made room
        // for as many. On a busy machine some more get their turn while the others are still being sent.
        assert!((30..=46).contains(&busy), "{kinds:?}");
        assert!(kinds.iter().all(|kind| matches!(kind, Kind::Busy | Kind::Timeout)), "{kinds:?}");
    }
    assert_eq!(scratch.number("SELECT count(*) FROM t"), 0);
}

#[tokio::test]
async fn a_statement_that_nobody_waits_for_is_not_begun() {
    let scratch = Scratch::new();
    scratch.execute("CREATE TABLE t (x)");
    let locker = scratch.plain();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let insert = scratch.store.prepare("INSERT INTO t VALUES ($x)").await.unwrap();
    let first = tokio::spawn(scratch.store.run(&insert, vec![Value::Bigint(1)]));
    // The writer waits for the lock with the first job; the others are behind it in the queue.
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..10 {
        drop(scratch.store.run(&insert, vec![Value::Bigint(2)]));
    }
    let last = scratch.store.run(&insert, vec![Value::Bigint(3)]);
    locker.execute_batch("COMMIT").unwrap();
    first.await.unwrap().unwrap();
    last.await.unwrap();
    assert_eq!(scratch.text("SELECT group_concat(x, ' ') FROM t"), "1 3");
}

#[tokio::test]
async fn a_lock_of_another_process_is_waited_for_and_then_reported() {
    let scratch = Scratch::with(Options { statement_timeout_ms: 300, ..Options::default() });
    scratch.execute("CREATE TABLE t (x)");
    let locker = scratch.plain();
    locker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = scratch.run("INSERT INTO t VALUES (1)", vec![]).await.unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (&Kind::Busy, true));
    assert_eq!(scratch.run("SELECT count(*) FROM t", vec![]).await.unwrap().values, [Value::Bigint(0)]);
    locker.execute_batch("COMMIT").unwrap();
    scratch.run("INSERT INTO t VALUES (1)", vec![]).await.unwrap();
}

#[tokio::test]
async fn two_writers_of_two_processes_both_get_through() {
    let scratch = Scratch::new();
    scratch.store.create_table(&codes()).await.unwrap();
    let other = scratch.plain();
    let theirs = std::thread::spawn(move || {
        for i in 0..200 {
            other.execute("INSERT INTO codes (code) VALUES (?1)", [format!("theirs {i}")]).unwrap();
        }
    });
    for i in 0..200 {
        let results = insert_all(&scratch.store, (0..4).map(|part| format!("ours {i} {part}"))).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
    theirs.join().unwrap();
    assert_eq!(scratch.number("SELECT count(*) FROM codes"), 1000);
}

#[tokio::test]
async fn a_statement_follows_a_table_that_was_altered() {
    let scratch = Scratch::new();
    scratch.execute("CREATE TABLE t (x TEXT); INSERT INTO t VALUES ('a')");
    let select = scratch.store.prepare("SELECT * FROM t").await.unwrap();
    assert_eq!(scratch.store.run(&select, vec![]).await.unwrap().values, [text("a")]);
    scratch.execute("ALTER TABLE t ADD COLUMN y UUID TEXT DEFAULT '06f40771-6460-479a-a47c-177473e240b5'");
    let rows = scratch.store.run(&select, vec![]).await.unwrap();
    let uuid = forebay_value::Uuid::from_u128(0x06f40771_6460_479a_a47c_177473e240b5);
    assert_eq!(rows.values, [text("a"), Value::Uuid(uuid)]);
}
