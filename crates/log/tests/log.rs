//! The log as its users see it: appending, the marks, reading back, limits, releasing, closing.

use forebay_log::{AppendError, Durability, Kind, Log, Needed, Options, Position};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn options(dir: &Path) -> Options {
    Options { segment_bytes: 8 * 1024, limit_bytes: 1 << 30, buffer_bytes: 4 * 1024, ..Options::new(dir) }
}

/// Appends, waiting for the disk when the buffer is full.
fn append(log: &Log, record: &[u8]) -> Position {
    loop {
        match log.append(record) {
            Ok(position) => return position,
            Err(AppendError::Busy) => {
                log.wait_durable(log.durable(), Duration::from_millis(10));
            }
            Err(error) => panic!("append: {error}"),
        }
    }
}

fn read_all(log: &Log, from: Position, max_bytes: usize) -> Vec<(Position, Vec<u8>)> {
    let mut reader = log.reader(from).expect("reader");
    let mut records = Vec::new();
    loop {
        let batch = reader.next_batch(max_bytes).expect("batch");
        if batch.is_empty() {
            assert_eq!(batch.iter().count(), 0);
            return records;
        }
        assert_eq!(batch.iter().count(), batch.len());
        assert_eq!(reader.position(), batch.end());
        records.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
    }
}

#[test]
fn what_was_appended_is_read_back_in_order_after_opening_again() {
    let dir = tempfile::tempdir().expect("folder");
    let folder = dir.path().join("a/b/log");
    let (log, recovery) = Log::open(options(&folder)).expect("open");
    assert!(recovery.created);
    let id = log.id();
    let mut expected = Vec::new();
    for i in 0..500_usize {
        let record = vec![i as u8; i % 97];
        expected.push((append(&log, &record), record));
        if i % 7 == 0 {
            let durable = log.flush().expect("flush");
            assert!(durable >= expected[i].0);
        }
    }
    assert_eq!(log.end(), expected[499].0);
    log.flush().expect("flush");
    for max_bytes in [1, 700, 1 << 20] {
        assert_eq!(read_all(&log, log.first(), max_bytes), expected);
    }
    for (at, (position, _)) in expected.iter().enumerate() {
        assert_eq!(read_all(&log, *position, 4096), expected[at + 1..]);
    }
    log.close().expect("close");

    let (log, recovery) = Log::open(options(&folder)).expect("open again");
    assert_eq!(log.id(), id);
    assert_eq!(recovery.records, 500);
    assert_eq!(recovery.cut_bytes, 0);
    assert_eq!(recovery.end, log.durable());
    assert!(!recovery.created);
    assert_eq!(read_all(&log, log.first(), 1 << 20), expected);
}

#[test]
fn a_reader_starts_at_boundaries_only() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let first = append(&log, b"one");
    let second = append(&log, b"second");
    let durable = log.flush().expect("flush");
    for bytes in 0..=durable.0 + 1 {
        let from = Position(bytes);
        // The start of the log, the ends of the records, the end of the last group (and of the
        // first, if they were two).
        let boundary = from == Position(0)
            || from == first
            || from == second
            || from == durable
            || (first.0 < 512 && second.0 > 512 && bytes == 512);
        match log.reader(from) {
            Ok(_) => assert!(boundary, "{from} was accepted"),
            Err(error) => {
                assert!(!boundary, "{from} was refused");
                assert_eq!(*error.kind(), Kind::NotABoundary(from));
            }
        }
    }
}

#[test]
fn the_second_to_open_is_told_who_has_it() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let Err(error) = Log::open(options(dir.path())) else {
        panic!("opened twice");
    };
    let pid = std::process::id();
    assert_eq!(*error.kind(), Kind::Locked { pid: Some(pid) });
    assert!(error.to_string().contains(&format!("process {pid}")), "{error}");
    log.close().expect("close");
    Log::open(options(dir.path())).expect("free again");
}

#[test]
fn full_at_the_limit_and_accepting_again_after_release() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(Options { limit_bytes: 32 * 1024, ..options(dir.path()) }).expect("open");
    let mut last = Position(0);
    loop {
        match log.append(&[7; 500]) {
            Ok(position) => last = position,
            Err(AppendError::Busy) => {
                log.flush().expect("flush");
            }
            Err(error) => {
                assert_eq!(error, AppendError::Full);
                break;
            }
        }
    }
    assert!(last.0 <= 32 * 1024 && last.0 > 31 * 1024, "{last}");
    assert_eq!(log.backlog_bytes(), last.0);
    assert_eq!(log.append(&[7; 500]), Err(AppendError::Full));
    log.flush().expect("flush");
    assert!(log.release(Position(log.durable().0 + 1)).is_err());
    log.release(last).expect("release");
    assert_eq!(log.backlog_bytes(), 0);
    assert!(log.first() > Position(0));
    append(&log, &[8; 500]);
}

#[test]
fn released_stays_released_and_the_rest_is_there() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let mut expected = Vec::new();
    for i in 0..200_u32 {
        let record = [i.to_le_bytes(); 60].concat();
        expected.push((append(&log, &record), record));
    }
    log.flush().expect("flush");
    let released = expected[150].0;
    log.release(released).expect("release");
    log.release(expected[10].0).expect("backwards does nothing");
    assert_eq!(log.released(), released);
    let first = log.first();
    assert!(first > Position(0) && first <= released);
    let Err(error) = log.reader(Position(0)) else {
        panic!("read what was released");
    };
    assert_eq!(*error.kind(), Kind::Released { first });
    log.close().expect("close");

    let (log, recovery) = Log::open(options(dir.path())).expect("open again");
    assert_eq!(log.released(), released);
    assert_eq!(recovery.first, first);
    assert_eq!(read_all(&log, released, 4096), expected[151..]);
    // Everything is released: the next opening continues behind it.
    let end = log.durable();
    log.release(end).expect("release all");
    log.close().expect("close");
    let (log, _) = Log::open(options(dir.path())).expect("open a third time");
    assert_eq!(log.released(), end);
    assert!(append(&log, b"next") > end);
    log.flush().expect("flush");
    assert_eq!(read_all(&log, end, 4096).len(), 1);
}

#[test]
fn a_reader_is_told_when_what_it_wants_was_released() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let mut reader = log.reader(log.first()).expect("reader");
    for _ in 0..100 {
        append(&log, &[1; 400]);
    }
    let end = log.flush().expect("flush");
    log.release(end).expect("release");
    let Err(error) = reader.next_batch(1 << 20) else {
        panic!("read what was released");
    };
    assert_eq!(*error.kind(), Kind::Released { first: log.first() });
}

#[test]
fn records_larger_than_the_buffer_are_refused_and_larger_than_a_segment_are_not() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(Options { buffer_bytes: 64 * 1024, ..options(dir.path()) }).expect("open");
    assert_eq!(log.append(&[0; 64 * 1024]), Err(AppendError::TooLarge));
    let mut expected = Vec::new();
    for bytes in [10, 40_000, 20, 64 * 1024 - 52, 30, 7_000, 7_000] {
        let record = vec![bytes as u8; bytes];
        expected.push((append(&log, &record), record));
    }
    log.flush().expect("flush");
    assert_eq!(read_all(&log, log.first(), 100), expected);
    log.close().expect("close");
    let (log, _) = Log::open(options(dir.path())).expect("open again");
    assert_eq!(read_all(&log, log.first(), 1 << 20), expected);
}

/// Found by the simulation: both segments were listed, and releasing the first deleted the second,
/// whose name is the same.
#[test]
fn a_group_too_large_for_an_empty_segment_takes_its_place() {
    let dir = tempfile::tempdir().expect("folder");
    let options = Options { buffer_bytes: 64 * 1024, ..options(dir.path()) };
    let (log, _) = Log::open(options.clone()).expect("open");
    let mut reader = log.reader(log.first()).expect("reader");
    let large = append(&log, &[1; 40_000]);
    assert!(log.flush().expect("flush") >= large);
    assert_eq!(reader.next_batch(10).expect("batch").len(), 1);
    log.release(large).expect("release");
    let small = append(&log, b"small");
    log.flush().expect("flush");
    log.release(large).expect("release");
    assert_eq!(read_all(&log, large, 1000), [(small, b"small".to_vec())]);
    log.close().expect("close");
    let (log, _) = Log::open(options).expect("open again");
    assert_eq!(read_all(&log, large, 1000), [(small, b"small".to_vec())]);
}

#[test]
fn appenders_keep_their_order_and_the_mark_only_rises() {
    const THREADS: u32 = 4;
    const EACH: u32 = 5_000;
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) =
        Log::open(Options { segment_bytes: 64 * 1024, buffer_bytes: 16 * 1024, ..options(dir.path()) })
            .expect("open");
    let marks = Arc::new(Mutex::new(Vec::new()));
    let seen = marks.clone();
    log.on_durable(Box::new(move |mark| seen.lock().expect("marks").push(mark)));
    let following = log.clone();
    let follower = std::thread::spawn(move || {
        let mut reader = following.reader(Position(0)).expect("reader");
        let mut records = Vec::new();
        while records.len() < (THREADS * EACH) as usize {
            let batch = reader.next_batch(10_000).expect("batch");
            assert!(batch.end() <= following.durable());
            records.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
            if batch.is_empty() {
                following.wait_durable(reader.position(), Duration::from_secs(10));
            }
        }
        records
    });
    let highest = Arc::new(AtomicU64::new(0));
    let appenders: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (log, highest) = (log.clone(), highest.clone());
            std::thread::spawn(move || {
                let mut positions = Vec::new();
                for i in 0..EACH {
                    let mut record = vec![0; 8 + (i as usize * 7) % 50];
                    record[..4].copy_from_slice(&thread.to_le_bytes());
                    record[4..8].copy_from_slice(&i.to_le_bytes());
                    positions.push(append(&log, &record));
                    let durable = log.durable().0;
                    let before = highest.fetch_max(durable, Ordering::SeqCst);
                    assert!(log.durable().0 >= before);
                }
                positions
            })
        })
        .collect();
    let positions: Vec<Vec<Position>> =
        appenders.into_iter().map(|thread| thread.join().expect("appender")).collect();
    let records = follower.join().expect("follower");
    let mut next = [0_u32; THREADS as usize];
    let mut last = Position(0);
    for (position, record) in &records {
        assert!(*position > last);
        last = *position;
        let thread = u32::from_le_bytes(record[..4].try_into().expect("4 bytes")) as usize;
        let i = u32::from_le_bytes(record[4..8].try_into().expect("4 bytes"));
        assert_eq!(i, next[thread], "order of appender {thread}");
        assert_eq!(positions[thread][i as usize], *position);
        next[thread] += 1;
    }
    assert_eq!(next, [EACH; THREADS as usize]);
    let durable = log.durable();
    log.close().expect("close");
    let marks = marks.lock().expect("marks");
    assert!(marks.is_sorted() && marks.last() == Some(&durable));
}

#[test]
fn async_promises_at_once_and_still_writes() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(Options { durability: Durability::Async, ..options(dir.path()) }).expect("open");
    let position = append(&log, b"promised");
    assert_eq!(log.promised(), Position::MAX);
    assert!(log.wait_durable(Position(position.0 - 1), Duration::from_secs(30)) >= position);
    assert_eq!(read_all(&log, Position(0), 100)[0].1, b"promised");
}

#[test]
fn closed_for_all_clones() {
    let dir = tempfile::tempdir().expect("folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let clone = log.clone();
    let position = append(&log, b"last");
    log.close().expect("close");
    assert!(clone.durable() >= position);
    assert_eq!(clone.append(b"more"), Err(AppendError::Closed));
    assert_eq!(clone.flush().expect("nothing to flush"), clone.durable());
    assert_eq!(read_all(&clone, Position(0), 100).len(), 1);
    clone.close().expect("closing twice is fine");
}

#[test]
fn options_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().expect("folder");
    for wrong in [
        Options { segment_bytes: 1024, ..options(dir.path()) },
        Options { buffer_bytes: 511, ..options(dir.path()) },
        Options { buffer_bytes: (1 << 30) + 512, ..options(dir.path()) },
    ] {
        let Err(error) = Log::open(wrong) else {
            panic!("accepted");
        };
        assert_eq!(*error.kind(), Kind::Options);
    }
}

#[test]
fn a_record_that_nobody_waits_for_becomes_durable_by_itself_and_goes_with_others() {
    let dir = tempfile::tempdir().expect("a folder");
    let (log, _) = Log::open(Options::new(dir.path())).expect("open");
    let alone = log.append_later(b"alone").expect("append");
    assert!(log.wait_durable(Position(alone.0 - 1), Duration::from_secs(60)) >= alone);
    let later = log.append_later(b"later").expect("append");
    let now = log.append(b"now").expect("append");
    assert!(later < now);
    assert_eq!(log.flush().expect("flush"), log.durable());
    assert!(log.durable() >= now);
    log.append_later(b"at the end").expect("append");
    log.close().expect("close");
    let (_, recovery) = Log::open(Options::new(dir.path())).expect("open");
    assert_eq!(recovery.records, 4);
}

/// Fills some segments; returns the written records.
fn fill(log: &Log, from: Position) -> Vec<(Position, Vec<u8>)> {
    let mut written = Vec::new();
    while log.end().0 < from.0 + 40 * 1024 {
        let record = vec![written.len() as u8; 900];
        let position = append(log, &record);
        log.flush().expect("durable");
        written.push((position, record));
    }
    written
}

#[test]
fn what_was_released_is_kept_for_a_time_and_can_be_needed_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = Options { keep: Duration::from_secs(3600), ..options(dir.path()) };
    let (log, _) = Log::open(kept.clone()).expect("open");
    let written = fill(&log, Position(0));
    let end = log.durable();
    log.release(end).expect("release");
    assert_eq!((log.first(), log.released()), (Position(0), end));
    assert_eq!(read_all(&log, Position(0), 4096), written);
    log.close().expect("close");
    // The next opening retains it too.
    let (log, recovery) = Log::open(kept).expect("open again");
    assert_eq!((recovery.first, log.first(), log.released()), (Position(0), Position(0), end));
    let half = written[written.len() / 2].0;
    log.unrelease(&Needed::behind(half)).expect("it is there");
    assert_eq!((log.released(), log.backlog_bytes()), (half, log.end().0 - half.0));
    log.close().expect("close");
    // Without a `keep` time, the next release deletes exactly the segments that are not needed.
    let (log, _) = Log::open(options(dir.path())).expect("open a third time");
    log.unrelease(&Needed::behind(half)).expect("it is there");
    log.release(half).expect("release");
    assert!(log.first() > Position(0) && log.first() <= half, "{} {half}", log.first());
    assert_eq!(read_all(&log, half, 4096), written[written.len() / 2 + 1..]);
    log.release(log.durable()).expect("release");
    assert!(log.first() > half);
    let Err(error) = log.unrelease(&Needed::behind(half)) else { panic!("it is gone") };
    assert!(matches!(error.kind(), Kind::Released { .. }), "{error}");
}

#[test]
fn what_is_kept_takes_no_room_from_what_is_not_released() {
    let dir = tempfile::tempdir().expect("a folder");
    let limit_bytes = 64 * 1024;
    let kept = Options { keep: Duration::from_secs(3600), limit_bytes, ..options(dir.path()) };
    let (log, _) = Log::open(kept).expect("open");
    for _ in 0..4 {
        fill(&log, log.end());
        log.release(log.durable()).expect("release");
        assert!(log.end().0 - log.first().0 <= limit_bytes, "{} {}", log.first(), log.end());
    }
    assert!(log.end().0 - log.first().0 > limit_bytes / 2, "nothing is kept");
}

#[test]
fn a_damaged_segment_that_was_only_kept_does_not_keep_the_log_from_opening() {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = Options { keep: Duration::from_secs(3600), ..options(dir.path()) };
    let (log, _) = Log::open(kept.clone()).expect("open");
    fill(&log, Position(0));
    log.release(log.durable()).expect("release");
    log.close().expect("close");
    let mut names: Vec<_> = std::fs::read_dir(dir.path())
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    names.sort();
    std::fs::write(&names[1], b"gone").expect("written");
    let (log, _) = Log::open(kept).expect("open");
    assert!(log.first() > Position(0) && !names[0].exists() && !names[1].exists());
    assert!(read_all(&log, log.first(), 4096).len() > 1);
}

#[test]
fn each_opening_is_remembered_with_the_end_that_it_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let (log, _) = Log::open(options(dir.path())).expect("open");
    let first = log.openings().to_vec();
    assert_eq!((first.len(), first[0].end), (1, Position(0)));
    fill(&log, Position(0));
    log.close().expect("close");
    let (log, recovery) = Log::open(options(dir.path())).expect("open again");
    assert_eq!((log.openings().len(), log.openings()[0]), (2, first[0]));
    assert_eq!(log.openings()[1].end, recovery.end);
    assert_ne!(log.openings()[1].nonce, first[0].nonce);
    log.close().expect("close");
    std::fs::write(dir.path().join("HISTORY"), b"damaged").expect("written");
    let Err(error) = Log::open(options(dir.path())) else { panic!("it is damaged") };
    assert!(matches!(error.kind(), Kind::Corrupt(_)), "{error}");
}
