//! The memory limit, eviction, and reading back through the source.

mod common;

use common::*;
use forebay_log::Position;
use forebay_table::{BoxFuture, Counters, Fetched, Others, Read, Source, SourceError, Tables, WriteError};
use forebay_value::{KeyKind, Row, Schema, Value, ValueRef};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

const LIMIT: u64 = 256 << 10;

fn big(opened: &Opened, id: i64) -> Row {
    row(opened.table.schema(), id, Some(&format!("code {id}")), &"x".repeat(900))
}

/// Inserts until the memory is full; returns the number of rows.
fn fill(opened: &Opened) -> i64 {
    (0..)
        .find(|&id| match opened.table.insert(big(opened, id).as_ref()) {
            Ok(_) => false,
            Err(WriteError::MemoryFull) => true,
            Err(error) => panic!("{error:?}"),
        })
        .unwrap()
}

fn body(opened: &Opened, id: i64) -> Read<Value> {
    let schema = opened.table.schema();
    opened.table.get(ValueRef::Bigint(id), Counters::Shown, |row| row.get(schema, BODY).to_owned())
}

#[test]
fn only_drained_rows_are_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), LIMIT, &store);
    let rows = fill(&opened);
    assert!((100..250).contains(&rows), "{rows}");
    // Structures besides the rows may exceed the limit by one growth step.
    assert!(opened.tables.used_bytes() <= LIMIT + 8192, "{}", opened.tables.used_bytes());
    assert!(contents(&opened.table).values().all(Option::is_some), "nothing was drained, nothing may go");
    let before = opened.log.end();
    assert_eq!(opened.table.insert(big(&opened, 1_000_000).as_ref()), Err(WriteError::MemoryFull));
    assert_eq!(opened.log.end(), before, "what is refused is not in the log");

    store.drain(&opened.log, &opened.tables);
    let more = 3 * rows;
    for id in rows..more {
        // Whenever all rows left in memory are undrained, the drain continues.
        while let Err(error) = opened.table.insert(big(&opened, id).as_ref()) {
            assert_eq!(error, WriteError::MemoryFull);
            store.drain(&opened.log, &opened.tables);
        }
    }
    assert_eq!(opened.table.count().0, more as u64);
    let evicted = contents(&opened.table).values().filter(|row| row.is_none()).count();
    assert!(evicted as i64 > rows, "{evicted}");
    for id in 0..more {
        let taken = opened.table.insert(row(opened.table.schema(), id, None, "").as_ref());
        assert!(matches!(taken, Err(WriteError::Conflict { rule: ID, .. })), "an evicted key is taken");
        let taken = opened
            .table
            .insert(row(opened.table.schema(), id + more, Some(&format!("code {id}")), "").as_ref());
        assert!(matches!(taken, Err(WriteError::Conflict { rule: CODE, .. })), "an evicted value is taken");
        if let Read::Fetch(key) = body(&opened, id) {
            assert_eq!(block_on(opened.table.fetch(key)), Ok(Fetched::Present));
        }
        assert!(
            matches!(body(&opened, id), Read::Found(text, _) if text == Value::Text("x".repeat(900).into()))
        );
    }
    assert_eq!(opened.table.count_by(NAME, ValueRef::Text("n")).0, more as u64);
    assert!(opened.tables.used_bytes() <= LIMIT + LIMIT / 8, "{}", opened.tables.used_bytes());
    assert_eq!(opened.table.used_bytes(), opened.tables.used_bytes(), "there is one table");
}

#[test]
fn what_is_read_stays_longer() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), LIMIT, &store);
    let rows = fill(&opened);
    store.drain(&opened.log, &opened.tables);
    let hot = |id: &i64| id % 10 == 0;
    for id in rows..rows + rows / 2 {
        for hot in (0..rows).filter(hot) {
            let _ = body(&opened, hot);
        }
        opened.table.insert(big(&opened, id).as_ref()).unwrap();
    }
    let kept = |ids: &mut dyn Iterator<Item = i64>| {
        let (mut kept, mut all) = (0.0, 0.0);
        for id in ids {
            kept += f64::from(u8::from(matches!(body(&opened, id), Read::Found(..))));
            all += 1.0;
        }
        kept / all
    };
    let (hot, cold) = (kept(&mut (0..rows).filter(hot)), kept(&mut (0..rows).filter(|id| !hot(id))));
    assert!(hot > 0.9 && cold < 0.8, "{hot} of the rows that are read stay, {cold} of the others");
}

#[test]
fn loading_past_the_limit_keeps_what_must_stay_right() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::<Store>::default();
    for id in 0..1_000 {
        let row = row(&schema(KeyKind::Bigint), id, Some(&format!("code {id}")), &"x".repeat(900));
        store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), row);
    }
    let opened = open(dir.path(), spec(KeyKind::Bigint), LIMIT, &store);
    assert_eq!(opened.table.count().0, 1_000);
    assert_eq!(opened.table.count_by(NAME, ValueRef::Text("n")).0, 1_000);
    assert!(contents(&opened.table).values().filter(|row| row.is_some()).count() < 300);
    for id in [0, 500, 999] {
        let taken =
            opened.table.insert(row(opened.table.schema(), 5_000, Some(&format!("code {id}")), "").as_ref());
        assert_eq!(taken, Err(WriteError::Conflict { rule: CODE, mark: Position(0) }));
    }
    let evicted = (0..1_000).find(|id| matches!(body(&opened, *id), Read::Fetch(_))).unwrap();
    let key = Value::Bigint(evicted);
    assert_eq!(opened.table.delete(key.as_ref(), |_| ()), Err(WriteError::Fetch(key.clone())));
    // Replaced without reading it first: the value that it had is free afterwards.
    opened.table.upsert(row(opened.table.schema(), evicted, Some("other"), "").as_ref()).unwrap();
    opened
        .table
        .insert(row(opened.table.schema(), 5_000, Some(&format!("code {evicted}")), "").as_ref())
        .unwrap();
}

#[test]
fn a_row_whose_increments_only_the_log_has_is_not_shown_without_them() {
    for shared in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::<Store>::default();
        let spec = forebay_table::TableSpec { others: Others::unseen_if(shared), ..spec(KeyKind::Bigint) };
        let opened = open(dir.path(), spec.clone(), 1 << 30, &store);
        let key = ValueRef::Bigint(1);
        opened.table.insert(big(&opened, 1).as_ref()).unwrap();
        store.drain(&opened.log, &opened.tables);
        opened.table.increment(key, CLICKS, 5, |_| ()).unwrap();
        let Opened { log, tables, table } = opened;
        drop((tables, table));
        log.close().unwrap();

        // No memory for the body: a stub; and in a shared table that was not loaded, nothing at all.
        let log = open_log(&dir.path().join("log"), forebay_log::Durability::Async);
        let tables = Tables::open(
            log.clone(),
            dir.path(),
            if shared { LIMIT } else { 100 },
            vec![spec],
            store.clone(),
        )
        .unwrap();
        let table = tables.all()[0].clone();
        if !shared {
            table.load(store.rows.lock().unwrap().values().next().unwrap().as_ref());
        }
        tables.replay(*store.position.lock().unwrap()).unwrap();
        table.set_loaded();
        let opened = Opened { log, tables, table };
        assert_eq!(body(&opened, 1), Read::Fetch(Value::Bigint(1)));
        let error = block_on(opened.table.fetch(Value::Bigint(1))).unwrap_err();
        assert!(error.retry && error.message.contains("changes"), "{error}");
        store.drain(&opened.log, &opened.tables);
        if shared {
            assert_eq!(block_on(opened.table.fetch(Value::Bigint(1))), Ok(Fetched::Present));
            let clicks = |row: forebay_value::RowRef<'_>| row.get(opened.table.schema(), CLICKS).to_owned();
            assert!(matches!(
                opened.table.get(key, Counters::Shown, clicks),
                Read::Found(Value::Bigint(5), _)
            ));
        } else {
            let error = block_on(opened.table.fetch(Value::Bigint(1))).unwrap_err();
            assert!(error.message.contains("memory"), "the store has them now, memory has no room: {error}");
        }
    }
}

/// A database that answers with its state at the time of the question, once it is released.
struct Slow {
    store: Arc<Store>,
    gate: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
}

impl Source for Slow {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        self.store.next_keys(schema, count)
    }

    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let answer = self.store.fetch(schema, key);
        let gate = self.gate.clone();
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            let answer = answer.await;
            gate.acquire().await.unwrap().forget();
            answer
        })
    }
}

struct SlowWorld {
    _dir: tempfile::TempDir,
    store: Arc<Store>,
    gate: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
    opened: Opened,
}

fn slow(shared: bool) -> SlowWorld {
    let dir = tempfile::tempdir().unwrap();
    let (store, gate, asked) = (Arc::<Store>::default(), Arc::new(Semaphore::new(0)), Arc::default());
    let source = Slow { store: store.clone(), gate: gate.clone(), asked: Arc::clone(&asked) };
    let log = open_log(&dir.path().join("log"), forebay_log::Durability::Async);
    let spec = forebay_table::TableSpec { others: Others::unseen_if(shared), ..spec(KeyKind::Bigint) };
    let tables = Tables::open(log.clone(), dir.path(), LIMIT, vec![spec], Arc::new(source)).unwrap();
    let table = tables.all()[0].clone();
    store.start(&tables, &table);
    SlowWorld { _dir: dir, store, gate, asked, opened: Opened { log, tables, table } }
}

impl SlowWorld {
    fn put_into_store(&self, id: i64, body: &str) {
        let row = row(self.opened.table.schema(), id, None, body);
        self.store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(id)), row);
    }

    /// Begins to fetch `id`, calls `meanwhile` when the source has been asked, lets the source answer, and
    /// returns the result of the fetch.
    fn fetch_while(&self, id: i64, meanwhile: impl FnOnce()) -> Result<Fetched, SourceError> {
        block_on(async {
            let before = self.asked.load(Ordering::SeqCst);
            let fetch = tokio::spawn(self.opened.table.fetch(Value::Bigint(id)));
            while self.asked.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
            meanwhile();
            self.gate.add_permits(100);
            fetch.await.unwrap()
        })
    }
}

#[test]
fn a_slow_read_brings_back_nothing_that_was_deleted() {
    for drain_first in [false, true] {
        let world = slow(true);
        let Opened { log, tables, table } = &world.opened;
        world.put_into_store(1, "old");
        let mut deleted = Position(0);
        let found = world.fetch_while(1, || {
            // Another request inserts the row, and deletes it; the database may even have that before the
            // first read answers.
            table.upsert(row(table.schema(), 1, None, "new").as_ref()).unwrap();
            deleted = table.delete(ValueRef::Bigint(1), |_| ()).unwrap().1;
            if drain_first {
                world.store.drain(log, tables);
            }
        });
        assert_eq!(found, Ok(Fetched::Gone(deleted)), "an answer that says so waits for the delete");
        assert_eq!(table.count().0, 0);
        let read = table.get(ValueRef::Bigint(1), Counters::Shown, |_| ());
        assert!(!matches!(read, Read::Found(..)), "{read:?}");
    }
}

#[test]
fn a_slow_read_replaces_nothing_newer() {
    let world = slow(true);
    let Opened { log, tables, table } = &world.opened;
    world.put_into_store(1, "old");
    let found = world.fetch_while(1, || {
        table.upsert(row(table.schema(), 1, None, "new").as_ref()).unwrap();
        world.store.drain(log, tables);
    });
    assert_eq!(found, Ok(Fetched::Present));
    assert!(matches!(body(&world.opened, 1), Read::Found(body, _) if body == text("new")));
}

#[test]
fn a_slow_read_does_not_fill_a_stub_that_changed() {
    let world = slow(false);
    let Opened { log, tables, table } = &world.opened;
    let rows = fill(&world.opened);
    world.store.drain(log, tables);
    let evict_all = || {
        for id in 10_000..10_000 + 2 * rows {
            while table.insert(big(&world.opened, id).as_ref()).is_err() {
                world.store.drain(log, tables);
            }
        }
        world.store.drain(log, tables);
    };
    evict_all();
    assert!(matches!(body(&world.opened, 1), Read::Fetch(_)));
    let found = world.fetch_while(1, || {
        table.upsert(row(table.schema(), 1, Some("new code"), &"y".repeat(900)).as_ref()).unwrap();
        world.store.drain(log, tables);
        for id in 20_000..20_000 + 2 * rows {
            while table.insert(big(&world.opened, id).as_ref()).is_err() {
                world.store.drain(log, tables);
            }
        }
        assert!(matches!(body(&world.opened, 1), Read::Fetch(_)), "evicted again, in its new state");
    });
    assert_eq!(found, Ok(Fetched::Present));
    assert!(
        matches!(body(&world.opened, 1), Read::Found(body, _) if body == Value::Text("y".repeat(900).into()))
    );
}

#[test]
fn a_deleted_row_of_a_shared_table_is_gone_before_the_database_knows() {
    let world = slow(true);
    let Opened { log, tables, table } = &world.opened;
    world.gate.add_permits(100);
    world.put_into_store(1, "there");
    assert_eq!(table.get(ValueRef::Bigint(1), Counters::Shown, |_| ()), Read::Fetch(Value::Bigint(1)));
    assert_eq!(block_on(table.fetch(Value::Bigint(1))), Ok(Fetched::Present));
    let ((), position) = table.delete(ValueRef::Bigint(1), |_| ()).unwrap();
    assert_eq!(table.get(ValueRef::Bigint(1), Counters::Shown, |_| ()), Read::Missing(position));
    assert_eq!(table.delete(ValueRef::Bigint(1), |_| ()), Err(WriteError::Missing { mark: position }));
    let gone = Ok(Fetched::Gone(position));
    assert_eq!(
        block_on(table.fetch(Value::Bigint(1))),
        gone,
        "the database still has it, and the delete is not durable"
    );
    world.store.drain(log, tables);
    assert_eq!(table.get(ValueRef::Bigint(1), Counters::Shown, |_| ()), Read::Fetch(Value::Bigint(1)));
    assert_eq!(block_on(table.fetch(Value::Bigint(1))), Ok(Fetched::Gone(Position(0))));
}

#[test]
fn a_scan_that_began_earlier_undoes_nothing() {
    let world = slow(true);
    let Opened { log, tables, table } = &world.opened;
    world.put_into_store(1, "old");
    world.put_into_store(2, "old");
    let load = table.begin_load();
    let scanned: Vec<Row> = world.store.rows.lock().unwrap().values().cloned().collect();
    for id in [1, 2] {
        table.upsert(row(table.schema(), id, None, "new").as_ref()).unwrap();
    }
    table.delete(ValueRef::Bigint(2), |_| ()).unwrap();
    world.store.drain(log, tables);
    scanned.iter().for_each(|row| load.row(row.as_ref()));
    assert!(matches!(body(&world.opened, 1), Read::Found(body, _) if body == text("new")));
    assert!(!matches!(body(&world.opened, 2), Read::Found(..)), "deleted while the scan went on");
    drop(load);
    world.store.drain(log, tables);
    assert_eq!(table.count().0, 1);
}

#[test]
fn a_scan_that_began_earlier_does_not_fill_a_stub_that_changed() {
    let world = slow(false);
    let Opened { log, tables, table } = &world.opened;
    let rows = fill(&world.opened);
    world.store.drain(log, tables);
    let load = table.begin_load();
    let scanned: Vec<Row> = world.store.rows.lock().unwrap().values().cloned().collect();
    let changed: Vec<i64> = (0..rows).collect();
    for id in &changed {
        let row = row(table.schema(), *id, Some(&format!("new {id}")), &"y".repeat(900));
        while table.upsert(row.as_ref()).is_err() {
            world.store.drain(log, tables);
        }
    }
    world.store.drain(log, tables);
    for id in 20_000..20_000 + 2 * rows {
        while table.insert(big(&world.opened, id).as_ref()).is_err() {
            world.store.drain(log, tables);
        }
    }
    // Makes room for the rows of the scan.
    world.store.drain(log, tables);
    for id in 20_000..20_000 + 2 * rows {
        let _ = table.delete(ValueRef::Bigint(id), |_| ());
    }
    assert!(changed.iter().any(|id| matches!(body(&world.opened, *id), Read::Fetch(_))));
    scanned.iter().for_each(|row| load.row(row.as_ref()));
    for id in changed {
        if let Read::Found(body, _) = body(&world.opened, id) {
            assert_eq!(body, Value::Text("y".repeat(900).into()), "row {id} is as it was before the scan");
        }
    }
}

#[test]
fn one_read_for_all_who_ask() {
    let world = slow(true);
    world.put_into_store(1, "there");
    let table = &world.opened.table;
    block_on(async {
        let fetches: Vec<_> = (0..1_000).map(|_| tokio::spawn(table.fetch(Value::Bigint(1)))).collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        // A dropped caller does not stop the others, even when its own read was the one under way.
        fetches[0].abort();
        tokio::task::yield_now().await;
        world.gate.add_permits(2);
        let mut found = 0;
        for fetch in fetches {
            found += usize::from(matches!(fetch.await, Ok(Ok(Fetched::Present))));
        }
        assert_eq!(found, 999);
    });
    assert_eq!(world.asked.load(Ordering::SeqCst), 2, "once, and once more after the first was dropped");
}

#[test]
fn too_many_reads_are_refused() {
    let world = slow(true);
    let table = &world.opened.table;
    block_on(async {
        let fetches: Vec<_> = (0..10_000).map(|id| tokio::spawn(table.fetch(Value::Bigint(id)))).collect();
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.asked.load(Ordering::SeqCst), 64, "no more than that at once");
        world.gate.add_permits(20_000);
        let (mut missing, mut refused) = (0, 0);
        for fetch in fetches {
            match fetch.await.unwrap() {
                Ok(found) => missing += usize::from(found != Fetched::Present),
                Err(error) => refused += usize::from(error.retry),
            }
        }
        assert_eq!((missing, refused), (64 + 4096, 10_000 - 64 - 4096));
    });
}
