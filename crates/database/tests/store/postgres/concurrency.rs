//! Shared transactions, timeouts, queues, lost connections.

use super::Scratch;
use crate::{codes, text};
use forebay_database::{Kind, Options};
use forebay_value::Value;

#[tokio::test]
async fn an_insert_that_waits_for_a_lock_or_a_deferred_constraint_costs_only_itself() {
    let scratch = Scratch::with(Options { statement_timeout_ms: 1_000, ..Options::default() }, "").await;
    scratch.store.create_table(&codes()).await.unwrap();
    scratch
        .execute("CREATE TABLE child (id bigint REFERENCES codes (id) DEFERRABLE INITIALLY DEFERRED)")
        .await;
    let insert = scratch.store.prepare("INSERT INTO codes (code) VALUES ($code)").await.unwrap();
    let orphan = scratch.store.prepare("INSERT INTO child VALUES ($id)").await.unwrap();
    // Another session holds the value that one of them needs.
    scratch.execute("BEGIN; INSERT INTO codes (code) VALUES ('held')").await;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for i in 0..100 {
        good.push(scratch.store.run(&insert, vec![text(&format!("good {i}"))]));
        match i {
            20 => bad.push((scratch.store.run(&insert, vec![text("held")]), Kind::Timeout)),
            60 => bad.push((scratch.store.run(&orphan, vec![Value::Bigint(99_999)]), Kind::Check)),
            _ => {}
        }
    }
    for result in good {
        assert_eq!(result.await.unwrap().changed, 1);
    }
    for (result, kind) in bad {
        let error = result.await.map(|rows| panic!("{kind:?}: {rows:?}")).unwrap_err();
        assert_eq!(error.kind(), &kind, "{error}");
    }
    scratch.execute("ROLLBACK").await;
    assert_eq!(scratch.text("SELECT count(*) FROM codes").await, "100");
    assert_eq!(scratch.text("SELECT count(*) FROM child").await, "0");
}

#[tokio::test]
async fn a_slow_read_is_interrupted_and_holds_up_nobody() {
    let scratch = Scratch::with(Options { statement_timeout_ms: 6_000, ..Options::default() }, "").await;
    let slow = scratch.store.prepare("SELECT pg_sleep(60)").await.unwrap();
    let quick = scratch.store.prepare("SELECT $n::int8").await.unwrap();
    let running = tokio::spawn(scratch.store.run(&slow, vec![]));
    let others: Vec<_> = (0..200).map(|n| scratch.store.run(&quick, vec![Value::Bigint(n)])).collect();
    for (n, other) in others.into_iter().enumerate() {
        assert_eq!(other.await.unwrap().values, [Value::Bigint(n as i64)]);
    }
    assert!(!running.is_finished(), "the quick ones did not wait for the slow one");
    let error = running.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_retry()), (&Kind::Timeout, true));
}

#[tokio::test]
async fn reads_that_are_all_slow_are_not_run_for_nobody() {
    const READS: u32 = 64;
    let scratch = Scratch::new().await;
    let slow = scratch.store.prepare("SELECT $n::int8 FROM pg_sleep(0.05)").await.unwrap();
    let began = std::time::Instant::now();
    let running: Vec<_> =
        (0..READS).map(|n| scratch.store.run(&slow, vec![Value::Bigint(i64::from(n))])).collect();
    for (n, result) in running.into_iter().enumerate() {
        assert_eq!(result.await.unwrap().values, [Value::Bigint(n as i64)]);
    }
    // One after the other they take 3.2 s, longer on a busy machine. When they were sent together again and
    // again, each time for only one of them, they took 30.
    assert!(began.elapsed().as_secs_f64() < 0.05 * f64::from(READS) * 6.0, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_thread_that_runs_statements_may_end_in_the_middle_of_one() {
    let scratch = Scratch::with(Options { statement_timeout_ms: 5_000, ..Options::default() }, "").await;
    let slow = scratch.store.prepare("SELECT pg_sleep(60)").await.unwrap();
    let quick = scratch.store.prepare("SELECT $n::int8").await.unwrap();
    let pid = scratch.store.prepare("SELECT pg_backend_pid()::int8").await.unwrap();
    let before = "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE datname = current_database()";
    let before = scratch.text(before).await;
    let (store, slow_there, quick_there) = (scratch.store.clone(), slow.clone(), quick.clone());
    let unanswered = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            store.serve_here(0, 1);
            for n in 0..100 {
                let rows = store.run(&quick_there, vec![Value::Bigint(n)]).await.unwrap();
                assert_eq!(rows.values, [Value::Bigint(n)]);
            }
            // Until a connection of this thread is open, the connection that stays with the engine runs
            // everything.
            loop {
                let rows = store.run(&pid, vec![]).await.unwrap();
                let Value::Bigint(pid) = rows.values[0] else { panic!("{rows:?}") };
                if !before.split(' ').any(|before| before == pid.to_string()) {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            let unanswered = [store.run(&slow_there, vec![])];
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            unanswered
        })
    });
    let [unanswered] = tokio::task::spawn_blocking(|| unanswered.join().unwrap()).await.unwrap();
    assert_eq!(unanswered.await.unwrap_err().kind(), &Kind::UnknownOutcome);
    // The remaining connections run the next statements.
    for n in 0..100 {
        let rows = scratch.store.run(&quick, vec![Value::Bigint(n)]).await.unwrap();
        assert_eq!(rows.values, [Value::Bigint(n)]);
    }
}

#[tokio::test]
async fn queues_are_bounded() {
    let options = Options { queue: 4, statement_timeout_ms: 500, ..Options::default() };
    let scratch = Scratch::with(options, "pool_size=3").await;
    let slow = scratch.store.prepare("SELECT pg_sleep(60)").await.unwrap();
    let running: Vec<_> = (0..50).map(|_| scratch.store.run(&slow, vec![])).collect();
    let mut kinds = Vec::new();
    for result in running {
        kinds.push(result.await.unwrap_err().kind().clone());
    }
    let busy = kinds.iter().filter(|&kind| *kind == Kind::Busy).count();
    assert!(busy >= 40, "{kinds:?}");
    assert!(kinds.iter().all(|kind| matches!(kind, Kind::Busy | Kind::Timeout)), "{kinds:?}");
}

#[tokio::test]
async fn a_backend_that_is_ended_costs_reads_nothing_and_a_write_in_hand_its_outcome() {
    let scratch = Scratch::new().await;
    scratch.execute("CREATE TABLE t (x int)").await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE application_name = 'forebay' AND datname = current_database()";
    let select = scratch.store.prepare("SELECT 1").await.unwrap();
    let insert = scratch.store.prepare("INSERT INTO t SELECT 1 FROM pg_sleep(30)").await.unwrap();
    for _ in 0..5 {
        assert_eq!(scratch.store.run(&select, vec![]).await.unwrap().len(), 1);
        scratch.text(kill).await;
    }
    let running = tokio::spawn(scratch.store.run(&insert, vec![]));
    while scratch.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()").await == "0" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    scratch.text(kill).await;
    let error = running.await.unwrap().unwrap_err();
    // The server reported that it ended the statement: the statement had no effect.
    assert!(matches!(error.kind(), Kind::Unavailable | Kind::UnknownOutcome), "{error:?}");
    assert_eq!(scratch.text("SELECT count(*) FROM t").await, "0");
    assert_eq!(scratch.run("INSERT INTO t VALUES (2)", vec![]).await.unwrap().changed, 1);
}
