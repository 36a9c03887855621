//! Seeded crashes at any operation: the acknowledged records survive, in order, and nothing that was not
//! appended appears.
//!
//! The log's threads make a run not exactly repeatable, but the checks must hold in every schedule. A failure
//! reports its seed.

mod support;

use forebay_log::{AppendError, Disk, Kind, Log, Options, Position};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{Faults, Random, SimDisk};

const SEEDS: u64 = 400;
const LIVES: u64 = 8;

fn folder() -> PathBuf {
    PathBuf::from("/log")
}

fn options(random: &mut Random) -> Options {
    Options {
        segment_bytes: 2048 << random.below(3),
        buffer_bytes: 1024 << random.below(3),
        ..Options::new(folder())
    }
}

/// The records appended since the beginning, and how many of them must survive.
#[derive(Default)]
struct Model {
    records: Vec<(Position, Vec<u8>)>,
    /// Records known to be durable.
    durable: usize,
    /// Highest released position.
    released: Position,
    next: u64,
}

impl Model {
    /// A unique record; sometimes one that looks like the log's own bytes.
    fn record(&mut self, random: &mut Random, log: &Log) -> Vec<u8> {
        self.next += 1;
        let mut record = self.next.to_le_bytes().to_vec();
        record.resize(8 + random.below(300) as usize, self.next as u8);
        if random.below(10) == 0 {
            record.extend_from_slice(b"FBGROUP1");
            record.extend_from_slice(&log.id().0.to_le_bytes());
            record.extend_from_slice(&(log.end().0 + 512).to_le_bytes());
            record.resize(record.len() + 700, 0);
        }
        record
    }

    fn observe(&mut self, durable: Position) {
        self.durable = self.durable.max(self.records.partition_point(|(position, _)| *position <= durable));
    }

    /// Checks that a log that was just opened has a prefix of the appended records, with all durable ones.
    fn check(&mut self, log: &Log, seed: u64) {
        assert!(log.first() <= self.released.max(log.released()), "seed {seed}");
        let mut reader = log.reader(log.first()).expect("reader");
        let mut found = Vec::new();
        loop {
            let batch = reader.next_batch(3000).expect("batch");
            if batch.is_empty() {
                break;
            }
            found.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
        }
        let skipped = self.records.partition_point(|(position, _)| *position <= log.first());
        let kept = skipped + found.len();
        assert!(kept >= self.durable, "seed {seed}: {} durable, {kept} found", self.durable);
        assert!(kept <= self.records.len(), "seed {seed}: more than was appended");
        assert_eq!(found, self.records[skipped..kept], "seed {seed}");
        self.records.truncate(kept);
        // Records that were read must survive from now on.
        self.durable = kept;
    }
}

/// Whether a run releases segments.
#[derive(Clone, Copy, PartialEq)]
enum Releasing {
    Yes,
    No,
}

fn live(log: &Log, model: &mut Model, random: &mut Random, steps: u64, releasing: Releasing) {
    for _ in 0..steps {
        match random.below(12) {
            0 => {
                if let Ok(durable) = log.flush() {
                    model.observe(durable);
                }
            }
            1 if model.durable > 0 && releasing == Releasing::Yes => {
                let (position, _) = model.records[random.below(model.durable as u64) as usize];
                // An error means the crash. The position may be on the disk nevertheless.
                let _ = log.release(position);
                model.released = model.released.max(position);
            }
            _ => {
                let record = model.record(random, log);
                match log.append(&record) {
                    Ok(position) => model.records.push((position, record)),
                    Err(AppendError::Busy) => {
                        log.wait_durable(log.durable(), Duration::from_millis(5));
                    }
                    // The largest records do not fit into the smallest buffers.
                    Err(AppendError::TooLarge) => {}
                    Err(AppendError::Poisoned) => return,
                    Err(error) => panic!("append: {error}"),
                }
            }
        }
        model.observe(log.durable());
    }
}

#[test]
fn acknowledged_records_survive_crashes_at_any_operation() {
    let mut crashes = 0;
    let mut kept = 0;
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let disk = SimDisk::new(seed);
        let mut model = Model::default();
        for _ in 0..LIVES {
            disk.set_faults(Faults {
                crash_at: (random.below(8) > 0).then(|| random.below(60)),
                ..Faults::default()
            });
            match Log::open_on(options(&mut random), Arc::new(disk.clone())) {
                Ok((log, _)) => {
                    let steps = random.below(80);
                    live(&log, &mut model, &mut random, steps, Releasing::Yes);
                    if random.below(4) == 0 {
                        let _ = log.clone().close();
                    }
                    model.observe(log.durable());
                }
                Err(error) => assert!(disk.is_crashed(), "seed {seed}: {error}"),
            }
            crashes += u64::from(disk.is_crashed());
            if random.below(3) == 0 {
                disk.kill();
            } else {
                disk.reboot();
            }
            let opened = Log::open_on(options(&mut random), Arc::new(disk.clone()));
            let (log, _) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            model.check(&log, seed);
            kept += model.records.len();
            drop(log);
        }
    }
    assert!(crashes > SEEDS * LIVES / 2, "only {crashes} crashes");
    assert!(kept > 10_000, "only {kept} records were ever checked");
}

#[test]
fn a_failed_write_or_sync_poisons_and_loses_nothing_acknowledged() {
    for at in 0..40 {
        for fail_write in [false, true] {
            let disk = SimDisk::new(at);
            let mut random = Random(at);
            let (log, _) = Log::open_on(options(&mut random), Arc::new(disk.clone())).expect("open");
            let told = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let telling = told.clone();
            log.on_poisoned(Box::new(move |error| {
                assert!(error.to_string().contains("failed"), "{error}");
                telling.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }));
            disk.set_faults(Faults {
                fail_write_at: fail_write.then_some(at),
                fail_sync_at: (!fail_write).then_some(at),
                ..Faults::default()
            });
            let mut model = Model::default();
            while log.poisoned().is_none() {
                live(&log, &mut model, &mut random, 5, Releasing::No);
            }
            assert_eq!(log.append(b"more"), Err(AppendError::Poisoned));
            let durable = log.durable();
            if log.end() > durable {
                let Err(error) = log.flush() else {
                    panic!("flushed what is poisoned");
                };
                assert_eq!(*error.kind(), Kind::Poisoned);
            }
            assert!(log.clone().close().is_err());
            assert_eq!(log.durable(), durable, "published after the poison");
            assert_eq!(told.load(std::sync::atomic::Ordering::SeqCst), 1);
            model.observe(durable);
            // The same system continues to run: bytes of the failed sync are only in its page cache.
            let (log, _) = Log::open_on(options(&mut random), Arc::new(disk.clone())).expect("open again");
            model.check(&log, at);
            append_after(&log, &mut model);
            drop(log);
            // The records that were read there, and those that were added, must survive a power failure.
            disk.reboot();
            let (log, _) = Log::open_on(options(&mut random), Arc::new(disk.clone())).expect("open after");
            model.check(&log, at);
        }
    }
}

/// One more small record, durably.
fn append_after(log: &Log, model: &mut Model) {
    let position = loop {
        match log.append(b"after") {
            Ok(position) => break position,
            Err(error) => assert_eq!(error, AppendError::Busy),
        }
        std::thread::yield_now();
    };
    model.records.push((position, b"after".to_vec()));
    model.observe(log.flush().expect("flush"));
}

#[test]
fn a_segment_whose_name_was_not_synced_is_before_it_is_used_again() {
    let disk = SimDisk::new(1);
    let open = || {
        let mut random = Random(1);
        Log::open_on(options(&mut random), Arc::new(disk.clone())).expect("open").0
    };
    let log = open();
    let mut model = Model::default();
    append_after(&log, &mut model);
    disk.set_faults(Faults { fail_folder_sync_at: Some(0), ..Faults::default() });
    let mut random = Random(2);
    while log.poisoned().is_none() {
        live(&log, &mut model, &mut random, 5, Releasing::No);
    }
    drop(log);
    disk.set_faults(Faults::default());
    let log = open();
    model.check(&log, 0);
    append_after(&log, &mut model);
    drop(log);
    disk.reboot_losing_all();
    model.check(&open(), 0);
}

#[test]
fn a_full_disk_refuses_appends_and_takes_them_again() {
    let disk = SimDisk::new(1);
    let options = Options { segment_bytes: 8192, buffer_bytes: 4096, ..Options::new(folder()) };
    disk.set_space_bytes(30_000);
    let (log, _) = Log::open_on(options, Arc::new(disk.clone())).expect("open");
    let mut appended = 0;
    let fill = |appended: &mut u64| loop {
        match log.append(&[3; 700]) {
            Ok(_) => *appended += 1,
            Err(AppendError::Busy) => {
                log.wait_durable(log.durable(), Duration::from_millis(5));
            }
            Err(error) => return error,
        }
    };
    assert_eq!(fill(&mut appended), AppendError::Full);
    log.flush().expect("all that was taken can be written");
    assert!(log.poisoned().is_none());
    assert!(appended > 15 && disk.used_bytes() <= 30_000);
    let before = appended;
    disk.set_space_bytes(60_000);
    while appended < before + 20 {
        if log.append(&[3; 700]).is_ok() {
            appended += 1;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(fill(&mut appended), AppendError::Full);
    // A release also frees space.
    let end = log.flush().expect("flush");
    log.release(end).expect("release");
    let before = appended;
    while appended < before + 20 {
        if log.append(&[3; 700]).is_ok() {
            appended += 1;
        } else {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    log.close().expect("close");
}

#[test]
fn what_is_only_kept_leaves_the_disk_to_others_and_to_what_is_not_released() {
    let disk = SimDisk::new(1);
    let space_bytes = 100_000;
    disk.set_space_bytes(space_bytes);
    let keep = Duration::from_secs(3600);
    let options = Options { segment_bytes: 8192, buffer_bytes: 4096, keep, ..Options::new(folder()) };
    let (log, _) = Log::open_on(options, Arc::new(disk.clone())).expect("open");
    let append = || {
        let taken = |_: &i32| {
            log.append(&[7; 700]).is_ok() || {
                std::thread::sleep(Duration::from_millis(1));
                false
            }
        };
        assert!((0..10_000).any(|again| taken(&again)), "there is no space, and only what is kept has it");
    };
    for _ in 0..100 {
        (0..5).for_each(|_| append());
        log.release(log.flush().expect("flush")).expect("release");
        let free_bytes = disk.free_bytes(&folder()).expect("it can tell");
        let kept_bytes = log.released().0 - log.first().0;
        // The reserve may have taken a segment since.
        assert!(kept_bytes <= free_bytes + 2 * 8192, "{kept_bytes} are kept, {free_bytes} free");
    }
    assert!(log.first().0 > space_bytes && log.first() < log.released());
    // No space is free any more: unreleased records take the place of retained ones.
    let first = log.first();
    while log.first() == first {
        append();
    }
    log.close().expect("close");
}

#[test]
fn a_group_that_has_no_place_waits_and_closing_does_not_hang() {
    let disk = SimDisk::new(1);
    disk.set_space_bytes(6000);
    let options = Options { segment_bytes: 2048, buffer_bytes: 16_384, ..Options::new(folder()) };
    let (log, _) = Log::open_on(options, Arc::new(disk.clone())).expect("open");
    // Larger than a segment, and than the free space.
    while log.append(&[1; 9000]) == Err(AppendError::Busy) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(log.wait_durable(Position(0), Duration::from_millis(50)), Position(0));
    assert!(log.poisoned().is_none());
    assert!(log.close().is_err(), "not everything was written");
}

#[test]
fn busy_while_the_disk_is_behind() {
    let disk = SimDisk::new(1);
    let options = Options { buffer_bytes: 2048, ..Options::new(folder()) };
    let (log, _) = Log::open_on(options, Arc::new(disk)).expect("open");
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    // The log thread is blocked in the hook.
    log.on_durable(Box::new(move |_| {
        let _ = held.lock().expect("one thread").recv();
    }));
    let mut taken = 0;
    let refused = loop {
        match log.append(&[9; 200]) {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, AppendError::Busy);
    assert!(taken >= 9, "{taken}");
    drop(hold);
    log.flush().expect("flush");
    log.append(&[9; 200]).expect("takes again");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let disk = SimDisk::new(1);
    disk.set_faults(Faults { read_only: true, ..Faults::default() });
    let Err(error) = Log::open_on(Options::new(folder()), Arc::new(disk)) else {
        panic!("opened");
    };
    assert_eq!(*error.kind(), Kind::Io);
    assert!(error.to_string().contains("/log/LOCK"), "{error}");
    assert!(!Path::new("/log").exists());
}
