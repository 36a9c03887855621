//! A write that waits for the database, and whose outcome is unknown: no other row gets the unique values
//! that the write takes before its row has been read.

use crate::common::*;
use crate::{opened, pends, read};
use forebay_log::{Durability, Position};
use forebay_table::{
    BoxFuture, Fetched, HotTable, Others, Outcome, RereadRow, Source, SourceError, TableSpec, Tables,
    WriteError,
};
use forebay_value::{KeyKind, Row, Schema, Value, ValueRef};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The table with another source, and nothing loaded.
fn over(dir: &Path, source: Arc<dyn Source>) -> Opened {
    let log = open_log(&dir.join("log"), Durability::Async);
    let specs = vec![spec(KeyKind::Bigint)];
    let tables = Tables::open(log.clone(), dir, 1 << 30, specs, source).unwrap();
    Opened { log, table: tables.all()[0].clone(), tables }
}

fn lose(opened: &Opened, store: &Store) -> Vec<RereadRow> {
    let position = *store.position.lock().unwrap();
    opened.tables.settle(|_| position, |_| Outcome::Unknown)
}

fn is_taken(written: Result<Position, WriteError>) -> bool {
    match written {
        Ok(_) => false,
        Err(WriteError::Conflict { rule: CODE, .. }) => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_value_of_an_insert_is_kept_until_its_row_is_read() {
    for (shared, is_refused) in [(false, false), (false, true), (true, false), (true, true)] {
        let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
        let spec = TableSpec { others: Others::unseen_if(shared), ..spec(KeyKind::Bigint) };
        let opened = open(dir.path(), spec, 1 << 30, &store);
        let table = &opened.table;
        let of = |key| row(table.schema(), key, Some("c"), "");
        // The insert lets the indexes allocate their room beforehand.
        table.insert(of(2).as_ref()).unwrap();
        table.delete(ValueRef::Bigint(2), |_| ()).unwrap();
        store.drain(&opened.log, &opened.tables);
        let used_bytes = opened.tables.used_bytes();
        begin(HotTable::Embedded(table.clone()).strict().insert(of(1).as_ref()));
        store.drain(&opened.log, &opened.tables);
        if is_refused {
            store.rows.lock().unwrap().clear();
        }
        assert_eq!(
            opened.tables.save_checkpoint(|| true).unwrap(),
            None,
            "a start from it would not know what is taken"
        );
        let again = lose(&opened, &store);
        assert_eq!(again.len(), 1);
        pends(table, of(2));
        assert_eq!(
            opened.tables.save_checkpoint(|| true).unwrap(),
            None,
            "a start from it would not know what is taken"
        );
        assert!(lose(&opened, &store).is_empty(), "it is told once");
        pends(table, of(2));
        block_on(again[0].read()).unwrap();
        assert_eq!(is_taken(table.insert(of(2).as_ref())), !is_refused);
        assert_eq!(table.count().0, 1);
        if is_refused {
            table.delete(ValueRef::Bigint(2), |_| ()).unwrap();
            store.drain(&opened.log, &opened.tables);
            assert_eq!(opened.tables.used_bytes(), used_bytes, "what was charged was given back");
        }
        assert!(opened.tables.save_checkpoint(|| true).unwrap().is_some() || shared);
    }
}

#[test]
fn both_values_of_an_update_are_kept_until_its_row_is_read() {
    for is_refused in [false, true] {
        let (_dir, store, opened) = opened();
        let table = &opened.table;
        table.insert(row(table.schema(), 1, Some("old"), "").as_ref()).unwrap();
        store.drain(&opened.log, &opened.tables);
        let before = store.rows.lock().unwrap().clone();
        let strict = HotTable::Embedded(table.clone()).strict();
        begin(strict.update(ValueRef::Bigint(1), &[(CODE, ValueRef::Text("new"))], |_| ()));
        store.drain(&opened.log, &opened.tables);
        if is_refused {
            *store.rows.lock().unwrap() = before;
        }
        let again = lose(&opened, &store);
        let other = |code| row(table.schema(), 2, Some(code), "");
        assert!(is_taken(table.insert(other("old").as_ref())));
        pends(table, other("new"));
        block_on(again[0].read()).unwrap();
        let (taken, free) = if is_refused { ("old", "new") } else { ("new", "old") };
        assert!(is_taken(table.insert(other(taken).as_ref())));
        assert!(!is_taken(table.insert(other(free).as_ref())));
    }
}

#[test]
fn who_waits_for_a_later_write_waits_for_the_unheard_one_too() {
    let (_dir, store, opened) = opened();
    let table = &opened.table;
    let strict = HotTable::Embedded(table.clone()).strict();
    begin(strict.insert(row(table.schema(), 1, Some("c"), "").as_ref()));
    store.drain(&opened.log, &opened.tables);
    let again = lose(&opened, &store);
    let competitor = strict.insert(row(table.schema(), 2, Some("c"), "").as_ref());
    let Ok(forebay_table::Called::Later(competitor)) = competitor else { panic!("it waits") };
    block_on(async {
        let waits = tokio::spawn(competitor);
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        again[0].read().await.unwrap();
        let told = tokio::time::timeout(Duration::from_secs(5), waits).await.expect("it is told").unwrap();
        let told = told.map(drop).map_err(|error| error.kind());
        assert_eq!(told, Err(forebay_table::HotKind::Conflict { rule: CODE }));
    });
}

/// A database whose answer shows the state at the time of the question, although it arrives later.
struct Slow(Arc<Store>);

impl Source for Slow {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        self.0.next_keys(schema, count)
    }

    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        let row = self.0.fetch(schema, key);
        Box::pin(async move {
            tokio::task::yield_now().await;
            row.await
        })
    }
}

/// A database that fails while the flag is set, with an error that must not be retried.
struct Broken(Arc<Store>, AtomicBool);

impl Source for Broken {
    fn next_keys(
        &self,
        schema: &Schema,
        count: u64,
    ) -> BoxFuture<'static, Result<Vec<RangeInclusive<i64>>, SourceError>> {
        self.0.next_keys(schema, count)
    }

    fn fetch(&self, schema: &Schema, key: Value) -> BoxFuture<'static, Result<Option<Row>, SourceError>> {
        if self.1.load(Ordering::Relaxed) {
            let error = SourceError { message: "there is no such table".into(), retry: false };
            return Box::pin(async { Err(error) });
        }
        self.0.fetch(schema, key)
    }
}

/// A client reads an evicted row while a write of it is under way: the row that it reads is older than the
/// write.
#[test]
fn a_read_that_began_before_the_write_does_not_tell_its_outcome() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let log = open_log(&dir.path().join("log"), Durability::Async);
    let source = Arc::new(Slow(store.clone()));
    let tables = Tables::open(log.clone(), dir.path(), 1 << 30, vec![spec(KeyKind::Bigint)], source).unwrap();
    let table = tables.all()[0].clone();
    table.set_loaded();
    let opened = Opened { log, tables, table };
    let table = &opened.table;
    table.insert(row(table.schema(), 1, Some("old"), "").as_ref()).unwrap();
    store.drain(&opened.log, &opened.tables);
    let strict = HotTable::Embedded(table.clone()).strict();
    begin(strict.update(ValueRef::Bigint(1), &[(CODE, ValueRef::Text("new"))], |_| ()));
    table.undo(ValueRef::Bigint(1));
    block_on(async {
        let mut early = table.fetch(Value::Bigint(1));
        let polled =
            std::future::poll_fn(|context| std::task::Poll::Ready(early.as_mut().poll(context).is_pending()));
        assert!(polled.await, "it waits for the database");
        store.drain(&opened.log, &opened.tables);
        let again = lose(&opened, &store);
        assert_eq!(early.await.unwrap(), Fetched::Present);
        again[0].read().await.unwrap();
    });
    assert_eq!(read(table, 1).unwrap()[CODE], text("new"));
    assert!(is_taken(table.insert(row(table.schema(), 2, Some("new"), "").as_ref())));
}

/// A start without the database: a delete of the row precedes the write of unknown outcome.
#[test]
fn a_row_that_was_deleted_before_is_read_all_the_same() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let of = |key| row(opened.table.schema(), key, Some("c"), "");
    opened.table.insert(of(1).as_ref()).unwrap();
    store.drain(&opened.log, &opened.tables);
    opened.tables.settled(*store.position.lock().unwrap());
    opened.tables.save_checkpoint(|| true).unwrap().unwrap();
    opened.table.delete(ValueRef::Bigint(1), |_| ()).unwrap();
    begin(HotTable::Embedded(opened.table.clone()).strict().insert(of(1).as_ref()));
    store.drain(&opened.log, &opened.tables);
    let (first, second) = (of(1), of(2));
    let Opened { log, tables, table } = opened;
    drop((tables, table));
    log.close().unwrap();

    let opened = over(dir.path(), store.clone());
    opened.tables.load_checkpoint();
    opened.tables.replay(opened.tables.settled_at()).unwrap();
    opened.table.set_loaded();
    let mut again = lose(&opened, &store);
    let position = *store.position.lock().unwrap();
    opened.tables.undo_unsettled(|_| position).unwrap();
    again.extend(opened.tables.take_rereads());
    pends(&opened.table, second.clone());
    opened.tables.drained(position);
    for row in &again {
        block_on(row.read()).unwrap();
    }
    assert_eq!(read(&opened.table, 1).unwrap(), first.as_ref().to_values(opened.table.schema()));
    assert!(is_taken(opened.table.insert(second.as_ref())));
}

#[test]
fn no_checkpoint_is_taken_while_outcomes_are_told() {
    let (_dir, store, opened) = opened();
    let strict = HotTable::Embedded(opened.table.clone()).strict();
    begin(strict.insert(row(opened.table.schema(), 1, Some("c"), "").as_ref()));
    store.drain(&opened.log, &opened.tables);
    let position = *store.position.lock().unwrap();
    let saving = std::sync::Mutex::new(None);
    let outcome = |_| {
        let tables = opened.tables.clone();
        let saved = std::thread::spawn(move || tables.save_checkpoint(|| true).unwrap());
        *saving.lock().unwrap() = Some(saved);
        std::thread::sleep(Duration::from_millis(50));
        Outcome::Unknown
    };
    assert_eq!(opened.tables.settle(|_| position, outcome).len(), 1);
    let saved = saving.into_inner().unwrap().expect("the outcome was asked for").join().unwrap();
    assert_eq!(saved, None, "a start from it would not know what the write takes");
}

/// For example, the database has no such table for a while: that error does not show what the write did.
#[test]
fn an_error_does_not_tell_the_outcome() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let source = Arc::new(Broken(store.clone(), true.into()));
    let opened = over(dir.path(), source.clone());
    opened.table.set_loaded();
    let of = |key| row(opened.table.schema(), key, Some("c"), "");
    begin(HotTable::Embedded(opened.table.clone()).strict().insert(of(1).as_ref()));
    store.drain(&opened.log, &opened.tables);
    let again = lose(&opened, &store);
    block_on(again[0].read()).unwrap_err();
    pends(&opened.table, of(2));
    source.1.store(false, Ordering::Relaxed);
    block_on(again[0].read()).unwrap();
    assert!(is_taken(opened.table.insert(of(2).as_ref())));
}

/// Memory has two rows with the same value, and the body of neither: an upsert of one of them reads the row
/// first, also when the row no longer exists.
#[test]
fn an_upsert_of_a_row_with_a_twin_reads_it_first() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let spec = TableSpec { others: Others::unseen_if(true), ..spec(KeyKind::Bigint) };
    let opened = open(dir.path(), spec, 1 << 30, &store);
    let table = &opened.table;
    let of = |key| row(table.schema(), key, Some("c"), "");
    table.insert(of(1).as_ref()).unwrap();
    store.drain(&opened.log, &opened.tables);
    // Others delete the row, and insert another one with its value, which is read.
    store.rows.lock().unwrap().clear();
    store.rows.lock().unwrap().insert(key_text(ValueRef::Bigint(2)), of(2));
    read(table, 2).unwrap();
    table.undo(ValueRef::Bigint(1));
    for is_strict in [false, true] {
        let hot = HotTable::Embedded(table.clone());
        let hot = if is_strict { hot.strict() } else { hot };
        let upserted = block_on(async {
            loop {
                match hot.upsert(of(1).as_ref()) {
                    Ok(forebay_table::Called::First(first)) => first.await.unwrap(),
                    Ok(forebay_table::Called::Later(later)) => break later.await,
                    Ok(forebay_table::Called::Now(..)) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }
        });
        let kind = upserted.map_err(|error| error.kind());
        assert_eq!(kind, Err(forebay_table::HotKind::Conflict { rule: CODE }));
    }
}
