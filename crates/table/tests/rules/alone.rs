//! A start without the database: what it knows of writes that waited for the database.

use crate::common::*;
use forebay_log::Position;
use forebay_table::{Counters, HotTable, Outcome, Read};
use forebay_value::{KeyKind, RowRef, Value};
use std::path::Path;
use std::sync::Arc;

/// Opens a folder without the database.
fn alone(dir: &Path, store: &Arc<Store>) -> Opened {
    let opened = unloaded_over(dir, spec(KeyKind::Bigint), store);
    assert!(opened.tables.load_checkpoint().saved.is_some());
    opened.tables.replay(opened.tables.settled_at()).unwrap();
    opened.table.set_loaded();
    opened
}

/// Row 1, drained and in a checkpoint.
fn with_a_row(dir: &Path, store: &Arc<Store>) -> Opened {
    let opened = open(dir, spec(KeyKind::Bigint), 1 << 30, store);
    opened.table.insert(row(opened.table.schema(), 1, None, "body").as_ref()).unwrap();
    store.drain(&opened.log, &opened.tables);
    opened.tables.settled(*store.position.lock().unwrap());
    save(&opened);
    opened
}

/// The clicks of row 1, and its body.
#[track_caller]
fn row_1(opened: &Opened) -> (Value, Value) {
    let values = |row: RowRef<'_>| row.to_values(opened.table.schema());
    let shown = opened.table.get(Value::Bigint(1).as_ref(), Counters::Shown, values);
    let Read::Found(values, _) = shown else { panic!("it is not shown") };
    (values[CLICKS].clone(), values[BODY].clone())
}

/// Makes writes that wait for the database, which commits them.
fn commit<T>(opened: &Opened, writes: impl Fn(&HotTable) -> T) -> Position {
    let strict = HotTable::Embedded(opened.table.clone()).strict();
    writes(&strict);
    drop(strict);
    let position = opened.log.flush().unwrap();
    assert!(opened.tables.settle(|_| position, |_| Outcome::Committed).is_empty());
    position
}

fn add_15(strict: &HotTable) {
    for delta in [10, 5] {
        begin(strict.increment(Value::Bigint(1).as_ref(), CLICKS, delta, |_| ()));
    }
}

/// Additions do not wait for each other.
#[test]
fn a_row_with_several_additions_is_shown() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    // Before a checkpoint, also with another table that is stopped, and after a checkpoint.
    for (index, is_settled, is_saved) in [(1, false, true), (2, true, true), (3, true, false)] {
        let opened = match index {
            1 => with_a_row(dir.path(), &store),
            _ => alone(dir.path(), &store),
        };
        let position = commit(&opened, add_15);
        if is_settled {
            opened.tables.drained(position);
            opened.tables.settled(position);
            opened.tables.save_settled().unwrap();
        }
        if is_saved {
            save(&opened);
        }
        close(opened);
        let opened = alone(dir.path(), &store);
        assert_eq!(row_1(&opened).0, Value::Bigint(15 * index));
        assert!(opened.tables.take_rereads().is_empty());
        close(opened);
    }
}

/// The checkpoint contains the write, and the drain has not reported it as settled.
#[test]
fn a_write_that_the_checkpoint_has_is_not_waited_for() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let opened = with_a_row(dir.path(), &store);
    let position = commit(&opened, add_15);
    opened.tables.drained(position);
    save(&opened);
    close(opened);
    let opened = alone(dir.path(), &store);
    assert_eq!(row_1(&opened).0, Value::Bigint(15));
    opened.table.update(Value::Bigint(1).as_ref(), &[(BODY, text("new").as_ref())], |_| ()).unwrap();
    close(opened);
}

/// Another table is stopped, so that the settled position does not advance.
#[test]
fn a_write_whose_outcome_the_log_tells_is_not_waited_for() {
    let (dir, store) = (tempfile::tempdir().unwrap(), Arc::<Store>::default());
    let opened = with_a_row(dir.path(), &store);
    let committed = text("committed");
    commit(&opened, |strict| {
        begin(strict.update(Value::Bigint(1).as_ref(), &[(BODY, committed.as_ref())], |_| ()));
    });
    let change = |opened: &Opened, body: &str| {
        opened.table.update(Value::Bigint(1).as_ref(), &[(BODY, text(body).as_ref())], |_| ()).map(drop)
    };
    change(&opened, "later").unwrap();
    save(&opened);
    close(opened);
    let opened = alone(dir.path(), &store);
    assert_eq!(row_1(&opened).1, text("later"));
    change(&opened, "after the start").unwrap();
    close(opened);
}
