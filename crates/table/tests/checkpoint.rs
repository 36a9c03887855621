//! Checkpoints: a start restores memory from one and the log, whatever happened while it was written and
//! after.

mod common;

use common::*;
use forebay_log::Position;
use forebay_table::{
    Called, Counters, Fetched, HotKind, HotTable, Others, Read, RereadRow, TableSpec, WriteError,
};
use forebay_value::{KeyKind, Row, RowRef, Schema, Value};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{self, Waker};
use std::thread;

const FILE: &str = "checkpoint";

fn insert(opened: &Opened, id: i64, body: &str) {
    let row = row(opened.table.schema(), id, Some(&format!("code {id}")), body);
    while let Err(error) = opened.table.insert(row.as_ref()) {
        assert!(matches!(error, WriteError::Busy), "{error:?}");
        opened.log.flush().unwrap();
    }
}

/// Opens the tables of a folder without loading anything.
fn unloaded(dir: &Path, spec: TableSpec) -> Opened {
    unloaded_over(dir, spec, &Arc::default())
}

/// A folder with a checkpoint of some rows, and more of them in the log.
fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let opened = open(&path, spec(KeyKind::Bigint), 1 << 30, &Arc::default());
    (0..300).for_each(|id| insert(&opened, id, &"b".repeat(id as usize)));
    save(&opened);
    (300..310).for_each(|id| insert(&opened, id, "later"));
    close(opened);
    (dir, path)
}

#[test]
fn a_start_needs_no_source() {
    let (_dir, path) = folder();
    assert_eq!(fs::metadata(path.join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
    let opened = unloaded(&path, spec(KeyKind::Bigint));
    let loaded = opened.tables.load_checkpoint();
    assert_eq!((loaded.rows, loaded.notes.len()), (300, 0));
    let replayed = opened.tables.replay(Position(0)).unwrap();
    assert_eq!(replayed.records, 10, "no row that the checkpoint has is replayed");
    opened.table.set_loaded();
    assert_eq!(opened.table.count().0, 310);
    assert_eq!(opened.table.count_by(NAME, text("n").as_ref()).0, 310);
    let taken = row(opened.table.schema(), 999, Some("code 7"), "");
    assert!(opened.table.insert(taken.as_ref()).is_err(), "unique values are known");
}

/// The result of a read by key before the table is loaded: the row's id, no row, or an error when it must
/// wait.
fn early(opened: &Opened, id: i64) -> Result<Option<i64>, ()> {
    let hot = HotTable::Embedded(opened.table.clone());
    let show = |row: RowRef<'_>| row.to_values(opened.table.schema())[0].clone();
    match hot.get(Value::Bigint(id).as_ref(), Counters::Shown, show) {
        Ok(Called::Now(Value::Bigint(id), _)) => Ok(Some(id)),
        Ok(Called::First(_)) => Err(()),
        Err(error) if error.kind() == HotKind::Missing => Ok(None),
        _ => panic!("a read of a row in this process"),
    }
}

#[test]
fn rows_of_which_the_log_says_nothing_are_read_before_the_table_is_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let opened = open(&path, spec(KeyKind::Bigint), 1 << 30, &Arc::default());
    (0..300).for_each(|id| insert(&opened, id, "before"));
    opened.log.flush().unwrap();
    opened.tables.drained(opened.log.end());
    opened.tables.settled(opened.log.end());
    save(&opened);
    (300..310).for_each(|id| insert(&opened, id, "later"));
    opened.table.delete(Value::Bigint(7).as_ref(), |_| ()).unwrap();
    close(opened);
    let opened = unloaded(&path, spec(KeyKind::Bigint));
    assert_eq!(early(&opened, 5), Err(()), "nothing is there");
    let waits = {
        let hot = HotTable::Embedded(opened.table.clone());
        let Ok(Called::First(waits)) = hot.get(Value::Bigint(5).as_ref(), Counters::Shown, |_| ()) else {
            panic!("nothing is there")
        };
        waits
    };
    opened.tables.load_checkpoint();
    let resolved = pin!(waits).poll(&mut task::Context::from_waker(Waker::noop()));
    assert!(resolved.is_ready());
    assert_eq!((early(&opened, 5), early(&opened, 299)), (Ok(Some(5)), Ok(Some(299))));
    assert_eq!(early(&opened, 5_000), Ok(None), "the log says nothing of it");
    assert_eq!((early(&opened, 7), early(&opened, 305)), (Err(()), Err(())), "the log changes these");
    assert!(matches!(HotTable::Embedded(opened.table.clone()).count(), Ok(Called::First(_))));
    opened.tables.replay(Position(0)).unwrap();
    opened.table.set_loaded();
    assert_eq!((early(&opened, 7), early(&opened, 305)), (Ok(None), Ok(Some(305))));
    close(opened);
    // A damaged checkpoint answers no read.
    let mut bytes = fs::read(path.join(FILE)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path.join(FILE), bytes).unwrap();
    let opened = unloaded(&path, spec(KeyKind::Bigint));
    assert_eq!(opened.tables.load_checkpoint().notes.len(), 1);
    assert!((0..300).all(|id| early(&opened, id) == Err(())));
}

#[test]
fn writes_go_on_while_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Store> = Arc::default();
    for round in 0..6 {
        let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..2i64 {
                let (opened, ended) = (&opened, &ended);
                scope.spawn(move || {
                    for step in (0..).take_while(|_| !ended.load(Ordering::Relaxed)) {
                        let id = (step * 7919 % 2_000) * 2 + writer;
                        let body = "b".repeat((step % 600) as usize);
                        let row = row(opened.table.schema(), id, None, &body);
                        let key = Value::Bigint(id);
                        // A conflict, a missing row and a busy log change nothing.
                        let _ = match step % 4 {
                            0 => opened.table.delete(key.as_ref(), |_| ()).map(drop),
                            1 => opened.table.increment(key.as_ref(), CLICKS, 1, |_| ()).map(drop),
                            _ => opened.table.upsert(row.as_ref()).map(drop),
                        };
                    }
                });
            }
            for _ in 0..3 {
                save(&opened);
            }
            ended.store(true, Ordering::Relaxed);
        });
        let expected = contents(&opened.table);
        close(opened);
        let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
        assert!(opened.table.is_from_checkpoint());
        assert_eq!(contents(&opened.table), expected, "round {round}");
        assert_eq!(opened.table.count().0, expected.len() as u64);
        close(opened);
    }
}

#[test]
fn a_damaged_one_is_told_and_not_used() {
    let (_dir, path) = folder();
    let whole = fs::read(path.join(FILE)).unwrap();
    let history = fs::read(path.join("log/HISTORY")).unwrap();
    let mut used = 0;
    let damaged = |bytes: &[u8], at: usize| {
        fs::write(path.join(FILE), bytes).unwrap();
        // After so many openings the log has forgotten the oldest.
        fs::write(path.join("log/HISTORY"), &history).unwrap();
        let opened = unloaded(&path, spec(KeyKind::Bigint));
        let loaded = opened.tables.load_checkpoint();
        let is_used = opened.tables.is_from_checkpoint();
        assert_eq!(is_used, loaded.notes.is_empty(), "byte {at}: {:?}", loaded.notes);
        if is_used {
            assert_eq!((loaded.rows, opened.table.count().0), (300, 300), "byte {at}");
        } else {
            assert_eq!((opened.table.count().0, opened.tables.used_bytes()), (0, 0), "byte {at}");
        }
        close(opened);
        is_used
    };
    for at in (0..whole.len()).step_by(487) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        used += usize::from(damaged(&bytes, at));
        assert!(!damaged(&whole[..at], at), "cut at {at}");
    }
    assert_eq!(used, 0, "every byte is under a checksum or a magic");
    assert!(damaged(&whole, whole.len()));
}

#[test]
fn one_that_was_not_finished_is_not_there() {
    let (_dir, path) = folder();
    let whole = fs::read(path.join(FILE)).unwrap();
    fs::remove_file(path.join(FILE)).unwrap();
    for at in (0..=whole.len()).step_by(4096) {
        fs::write(path.join("checkpoint.new"), &whole[..at]).unwrap();
        let opened = unloaded(&path, spec(KeyKind::Bigint));
        assert_eq!(opened.tables.load_checkpoint().notes, Vec::<String>::new());
        assert!(!opened.tables.is_from_checkpoint() && !path.join("checkpoint.new").exists());
        close(opened);
    }
    // An abandoned checkpoint leaves the one before in place.
    fs::write(path.join(FILE), &whole).unwrap();
    let opened = open(&path, spec(KeyKind::Bigint), 1 << 30, &Arc::default());
    for slices in 0..20u32 {
        let left = std::cell::Cell::new(slices);
        let saved = opened.tables.save_checkpoint(|| left.replace(left.get().saturating_sub(1)) > 0);
        assert_eq!(saved.unwrap(), None);
        assert_eq!(fs::read(path.join(FILE)).unwrap(), whole);
        assert!(!path.join("checkpoint.new").exists());
    }
    close(opened);
}

#[test]
fn one_of_other_columns_or_of_another_log_is_told_and_not_used() {
    let (_dir, path) = folder();
    let not_used = |spec: TableSpec, why: &str| {
        let opened = unloaded(&path, spec);
        let notes = opened.tables.load_checkpoint().notes;
        assert!(notes.len() == 1 && notes[0].contains(why), "{notes:?}");
        assert!(!opened.tables.is_from_checkpoint());
        close(opened);
    };
    let mut columns = schema(KeyKind::Bigint).columns;
    columns[BODY].unique = true;
    let other = |columns| Schema::new("things", columns, ID, KeyKind::Bigint).unwrap();
    not_used(TableSpec { schema: other(columns.clone()), ..spec(KeyKind::Bigint) }, "other unique");
    columns.pop();
    not_used(TableSpec { schema: other(columns), ..spec(KeyKind::Bigint) }, "has other columns");
    not_used(TableSpec { others: Others::Unseen, ..spec(KeyKind::Bigint) }, "others write to");
    let (_dir, foreign) = folder();
    fs::copy(foreign.join(FILE), path.join(FILE)).unwrap();
    not_used(spec(KeyKind::Bigint), "is of another log");
}

#[test]
fn an_older_copy_of_the_log_does_not_get_the_memory_of_a_newer_one() {
    let (_dir, path) = folder();
    let copy = tempfile::tempdir().unwrap();
    let copied = copy_files(&path.join("log"), &copy.path().join("log"));
    assert!(copied > 0);
    // The copy is behind: later acknowledged changes are in the other folder, and in its checkpoint.
    let opened = open(&path, spec(KeyKind::Bigint), 1 << 30, &Arc::default());
    (310..400).for_each(|id| insert(&opened, id, "newest"));
    save(&opened);
    close(opened);
    for name in [FILE, "tables.json"] {
        fs::copy(path.join(name), copy.path().join(name)).unwrap();
    }
    let opened = unloaded(copy.path(), spec(KeyKind::Bigint));
    let notes = opened.tables.load_checkpoint().notes;
    assert!(notes.len() == 1 && notes[0].contains("another copy"), "{notes:?}");
    close(opened);
}

/// Copies the files of a folder; returns how many.
fn copy_files(from: &Path, to: &Path) -> usize {
    fs::create_dir(to).unwrap();
    let files: Vec<_> = fs::read_dir(from).unwrap().map(|entry| entry.unwrap()).collect();
    for file in &files {
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
    files.len()
}

#[test]
fn refused_changes_stay_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Store> = Arc::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    (0..6).for_each(|id| insert(&opened, id, "taken"));
    store.drain(&opened.log, &opened.tables);
    opened.tables.settled(*store.position.lock().unwrap());
    save(&opened);
    let change = |opened: &Opened, id: i64, body: &str| {
        let (key, body) = (Value::Bigint(id), text(body));
        opened.table.update(key.as_ref(), &[(BODY, body.as_ref())], |_| ()).unwrap();
    };
    // The database refuses these changes; it reports the first two.
    (0..2).for_each(|id| change(&opened, id, "told"));
    insert(&opened, 10, "told");
    for id in [0, 1, 10] {
        opened.table.undo(Value::Bigint(id).as_ref());
    }
    (2..4).for_each(|id| change(&opened, id, "unheard"));
    insert(&opened, 11, "unheard");
    opened.table.delete(Value::Bigint(5).as_ref(), |_| ()).unwrap();
    // It commits this one later.
    *store.position.lock().unwrap() = opened.log.flush().unwrap();
    change(&opened, 4, "left");
    close(opened);

    // First with the database unreachable, then with it reachable.
    let opened = unloaded_over(dir.path(), spec(KeyKind::Bigint), &store);
    let position = *store.position.lock().unwrap();
    opened.tables.load_checkpoint();
    opened.tables.replay(Position(0)).unwrap();
    opened.table.set_loaded();
    opened.tables.undo_unsettled(|_| position).unwrap();
    opened.tables.drained(position);
    let again = opened.tables.take_rereads();
    assert_eq!(again.len(), 10, "three that the log tells, and all of unknown outcome");
    for RereadRow { from, table, key, .. } in again {
        assert!(from <= position);
        let gone = matches!(key, Value::Bigint(10 | 11));
        let fetched = block_on(table.fetch(key)).unwrap();
        assert_eq!(gone, fetched != Fetched::Present);
    }
    shows_what_was_taken(&opened);
    close(opened);
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    assert!(opened.table.is_from_checkpoint());
    shows_what_was_taken(&opened);
    close(opened);
}

/// A crash between the database's refusal and the log's record of it; a start that asks the database; and
/// another crash before a checkpoint has the answers.
#[test]
fn outcomes_that_a_start_asked_for_outlive_the_next_crash() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Store> = Arc::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    (0..6).for_each(|id| insert(&opened, id, "taken"));
    store.drain(&opened.log, &opened.tables);
    opened.tables.settled(*store.position.lock().unwrap());
    save(&opened);
    for id in 0..4 {
        let (key, body) = (Value::Bigint(id), text("refused"));
        opened.table.update(key.as_ref(), &[(BODY, body.as_ref())], |_| ()).unwrap();
    }
    insert(&opened, 11, "refused");
    *store.position.lock().unwrap() = opened.log.flush().unwrap();
    let change = (Value::Bigint(4), text("left"));
    opened.table.update(change.0.as_ref(), &[(BODY, change.1.as_ref())], |_| ()).unwrap();
    close(opened);
    for begin in 0..3 {
        let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
        assert!(opened.table.is_from_checkpoint());
        shows_what_was_taken(&opened);
        store.drain(&opened.log, &opened.tables);
        opened.tables.settled(*store.position.lock().unwrap());
        if begin == 1 {
            save(&opened);
        }
        opened.tables.save_settled().unwrap();
        close(opened);
    }
}

#[track_caller]
fn shows_what_was_taken(opened: &Opened) {
    let body = |id: i64| {
        let shown = opened.table.get(Value::Bigint(id).as_ref(), Counters::Shown, |row| Row(row.0.into()));
        let Read::Found(row, _) = shown else { return None };
        Some(row.as_ref().to_values(opened.table.schema())[BODY].clone())
    };
    for id in 0..4 {
        assert_eq!(body(id), Some(text("taken")), "{id}");
    }
    assert_eq!((body(4), body(5)), (Some(text("left")), Some(text("taken"))));
    assert_eq!((body(10), body(11)), (None, None));
}

#[test]
fn serial_keys_in_hand_outlive_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Store> = Arc::default();
    let opened = open(dir.path(), spec(KeyKind::Serial), 1 << 30, &store);
    block_on(opened.table.wait_keys()).unwrap();
    let key = |opened: &Opened| opened.table.next_key();
    let first = key(&opened).unwrap();
    insert(&opened, first, "one");
    opened.table.delete(Value::Bigint(first).as_ref(), |_| ()).unwrap();
    save(&opened);
    let second = key(&opened).unwrap();
    insert(&opened, second, "two");
    opened.table.delete(Value::Bigint(second).as_ref(), |_| ()).unwrap();
    close(opened);
    let opened = open(dir.path(), spec(KeyKind::Serial), 1 << 30, &store);
    assert_eq!(key(&opened), None, "they are taken up when there is no database to ask");
    opened.tables.take_saved_keys();
    assert_eq!(key(&opened), Some(second + 1), "no key is given out twice");
    close(opened);
}

#[test]
fn the_log_keeps_what_the_last_checkpoint_needs() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<Store> = Arc::default();
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    let fill = |from: i64| (from..from + 4_000).for_each(|id| insert(&opened, id, &"b".repeat(900)));
    let release = || {
        store.drain(&opened.log, &opened.tables);
        opened.log.release(*store.position.lock().unwrap()).unwrap();
    };
    save(&opened);
    let begin = opened.log.first();
    fill(0);
    release();
    assert_eq!(opened.log.first(), begin, "drained, and needed by a start");
    save(&opened);
    assert!(opened.log.first() > begin, "needed no more");
    fill(10_000);
    release();
    let expected = contents(&opened.table);
    close(opened);
    let opened = open(dir.path(), spec(KeyKind::Bigint), 1 << 30, &store);
    assert!(opened.table.is_from_checkpoint());
    assert_eq!(contents(&opened.table), expected);
    close(opened);
}
