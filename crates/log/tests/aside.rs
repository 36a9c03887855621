//! Records that are set aside: read as before, with their positions, whatever is deleted, replaced, torn or
//! crashed meanwhile.

mod support;

use forebay_log::{AppendError, Kind, Log, Needed, Options, Position};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{Faults, Random, SimDisk};

const PARTS: [&str; 4] = ["a", "b", "c", "d"];

/// The first byte of a record is its part.
fn part_of(record: &[u8]) -> Option<&'static str> {
    PARTS.get(usize::from(*record.first()?)).copied()
}

fn folder() -> PathBuf {
    PathBuf::from("/log")
}

fn options() -> Options {
    Options { segment_bytes: 2048, buffer_bytes: 2048, limit_bytes: 40_000, ..Options::new(folder()) }
}

fn open(disk: &SimDisk) -> Log {
    Log::open_on(options(), Arc::new(disk.clone())).unwrap_or_else(|error| panic!("open: {error}")).0
}

/// Appends a record of a part; `None`: the log is full, or has failed.
fn append(log: &Log, part: usize, number: u32) -> Option<(Position, Vec<u8>)> {
    let mut record = vec![part as u8];
    record.extend_from_slice(&number.to_le_bytes());
    record.resize(5 + (number as usize * 37) % 400, part as u8);
    loop {
        match log.append(&record) {
            Ok(position) => return Some((position, record)),
            Err(AppendError::Busy) => drop(log.wait_durable(log.durable(), Duration::from_millis(5))),
            Err(AppendError::Full | AppendError::Poisoned) => return None,
            Err(error) => panic!("append: {error}"),
        }
    }
}

fn read(log: &Log, from: Position, max_bytes: usize) -> Vec<(Position, Vec<u8>)> {
    let mut reader = log.reader(from).expect("a reader");
    let mut found: Vec<(Position, Vec<u8>)> = Vec::new();
    loop {
        let batch = reader.next_batch(max_bytes).expect("a batch");
        assert_eq!(batch.iter().count(), batch.len());
        if batch.is_empty() {
            assert!(found.is_sorted_by(|one, next| one.0 < next.0), "in order, each once");
            return found;
        }
        found.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
        assert_eq!(reader.position(), batch.end());
    }
}

fn needed(others: Position, parts: &[(&str, Position)]) -> Needed {
    let parts = parts.iter().map(|(part, from)| ((*part).to_owned(), *from)).collect();
    Needed { others, parts }
}

/// What a reader must find of the records that were written.
fn expected(written: &[(Position, Vec<u8>)], needed: &Needed) -> Vec<(Position, Vec<u8>)> {
    let is_needed =
        |(position, record): &&(Position, Vec<u8>)| *position > needed.of(part_of(record).expect("a part"));
    written.iter().filter(is_needed).cloned().collect()
}

/// Every needed record is found, once, in order, from wherever it is read; and nothing that was not written.
#[track_caller]
fn assert_found(log: &Log, written: &[(Position, Vec<u8>)], needed: &Needed) {
    assert!(log.covers(needed));
    for max_bytes in [1, 1500, 1 << 20] {
        let found = read(log, needed.all().max(log.first()), max_bytes);
        assert!(found.iter().all(|record| written.contains(record)));
        let found: Vec<_> = expected(&found, needed);
        assert_eq!(found, expected(written, needed));
    }
    let all = read(log, log.first(), 700);
    for (at, (position, _)) in all.iter().enumerate().step_by(7) {
        let behind = read(log, *position, 3000);
        assert!(behind.ends_with(&all[at + 1..]), "behind {position}");
    }
}

/// Appends records of all parts until the log is full; returns them.
fn fill(log: &Log, written: &mut Vec<(Position, Vec<u8>)>) {
    while let Some(record) = append(log, written.len() % PARTS.len(), written.len() as u32) {
        written.push(record);
    }
    log.flush().expect("durable");
}

/// The position of a record. A disk that is fast beside the appends has fewer records in a group, and then a
/// full log has fewer.
fn at(written: &[(Position, Vec<u8>)], percent: usize) -> Position {
    written[written.len() * percent / 100].0
}

#[test]
fn one_part_that_stays_does_not_fill_the_log() {
    let disk = SimDisk::new(1);
    let (mut log, mut written) = (open(&disk), Vec::new());
    fill(&log, &mut written);
    let stopped = written[5].0;
    for round in 0..6 {
        let others = written[written.len() - 3].0;
        let needs = needed(others, &[("b", stopped)]);
        log.set_aside(&needs, part_of).expect("set aside");
        assert!(log.whole_from() > stopped && log.first() == stopped);
        log.release(needs.all()).expect("release");
        assert_found(&log, &written, &needs);
        let before = written.len();
        fill(&log, &mut written);
        assert!(written.len() > before + 50, "there is room again");
        if round % 2 == 1 {
            log.close().expect("close");
            log = open(&disk);
            assert_found(&log, &written, &needs);
        }
        let (bytes, parts) = log.aside();
        let of_b = expected(&written, &needed(Position::MAX, &[("b", stopped)]));
        let in_it = of_b.iter().filter(|(position, _)| *position <= others).map(|(_, record)| record.len());
        assert_eq!(parts, [("b".to_owned(), in_it.map(|length| length as u64 + 16).sum())]);
        assert!(bytes > parts[0].1);
    }
    assert!(!log.covers(&needed(written[200].0, &[("b", stopped)])), "the others' records are gone");
    assert!(!log.covers(&needed(log.durable(), &[("c", stopped)])));
    assert!(log.has_part("b", stopped) && !log.has_part("a", stopped));
    // The part has caught up.
    log.release(written[written.len() - 1].0).expect("release");
    assert_eq!((log.first(), log.aside().0), (log.whole_from(), 0));
    assert!(!disk.files().contains_key(Path::new("/log/aside")));
    log.close().expect("close");
    assert_eq!(read(&open(&disk), written[written.len() - 1].0, 100), []);
}

#[test]
fn what_is_kept_is_there_for_a_database_that_goes_back() {
    let disk = SimDisk::new(2);
    let keep = Options { keep: Duration::from_secs(3600), limit_bytes: 1 << 20, ..options() };
    let open = || Log::open_on(keep.clone(), Arc::new(disk.clone())).expect("open").0;
    let (mut log, mut written) = (open(), Vec::new());
    for number in 0..200 {
        written.push(append(&log, number % 4, number as u32).expect("room"));
        log.flush().expect("durable");
    }
    let (stopped, others) = (written[50].0, written[150].0);
    let needs = needed(others, &[("c", stopped)]);
    log.set_aside(&needs, part_of).expect("set aside");
    log.release(stopped).expect("release");
    assert_found(&log, &written, &needs);
    // Further back than what was set aside: the segments are still there.
    let back = needed(written[100].0, &[("c", written[40].0)]);
    log.unrelease(&back).expect("it is kept");
    assert_eq!((log.released(), log.unreleased()), (back.all(), stopped));
    assert_found(&log, &written, &back);
    assert!(!disk.files().contains_key(Path::new("/log/aside")));
    log.set_aside(&needs, part_of).expect("set aside again");
    // It has caught up, and the database goes back to before.
    log.release(written[199].0).expect("release");
    log.close().expect("close");
    log = open();
    assert_eq!(log.released(), written[199].0);
    log.unrelease(&needs).expect("it is kept");
    assert_found(&log, &written, &needs);
}

/// Records that the caller keeps for itself are set aside too, as long as the log has them.
#[test]
fn what_is_wanted_is_set_aside_too() {
    let disk = SimDisk::new(3);
    let (log, mut written) = (open(&disk), Vec::new());
    fill(&log, &mut written);
    log.keep_from(written[10].0).expect("kept");
    let needs = needed(at(&written, 75), &[("a", written[20].0), ("b", at(&written, 50))]);
    log.set_aside(&needs, part_of).expect("set aside");
    fill(&log, &mut written);
    log.release(Position(0)).expect("segments that are only kept are deleted");
    for part in ["a", "b"] {
        assert!(log.has_part(part, written[10].0) && !log.has_part(part, written[9].0));
    }
    let wanted = needed(at(&written, 75), &[("a", written[10].0), ("b", written[10].0)]);
    assert_found(&log, &written, &wanted);
    let late = at(&written, 90);
    let later = needed(at(&written, 99), &[("a", late), ("c", at(&written, 95))]);
    log.set_aside(&later, part_of).expect("set aside");
    fill(&log, &mut written);
    log.release(Position(0)).expect("segments that are only kept are deleted");
    assert!(log.has_part("a", written[10].0) && !log.has_part("b", late));
    assert_found(&log, &written, &later);
}

#[test]
fn a_damaged_file_is_refused_and_one_that_is_not_needed_is_forgotten() {
    let disk = SimDisk::new(4);
    let (log, mut written) = (open(&disk), Vec::new());
    fill(&log, &mut written);
    let needs = needed(at(&written, 75), &[("d", written[5].0)]);
    log.set_aside(&needs, part_of).expect("set aside");
    log.close().expect("close");
    let files = disk.files();
    let path = Path::new("/log/aside");
    let length = files[path].len();
    for at in (0..length).step_by(13).chain([length - 1]) {
        for torn in [false, true] {
            let mut damaged = files.clone();
            let bytes = damaged.get_mut(path).expect("the file");
            if torn {
                bytes.truncate(at)
            } else {
                bytes[at] ^= 4
            };
            let opened = Log::open_on(options(), Arc::new(SimDisk::holding(&damaged)));
            let Err(error) = opened else { panic!("byte {at} was not noticed") };
            assert!(matches!(error.kind(), Kind::Corrupt(_) | Kind::Foreign(_)), "{error}");
            assert!(error.to_string().contains("/log/aside at byte"), "{error}");
        }
    }
    let mut without = files.clone();
    without.remove(path);
    let Err(error) = Log::open_on(options(), Arc::new(SimDisk::holding(&without))) else { panic!("opened") };
    assert!(matches!(error.kind(), Kind::Missing(_)), "{error}");
    let mut other = files;
    let (stranger, mut more) = (SimDisk::new(5), Vec::new());
    let log = open(&stranger);
    fill(&log, &mut more);
    log.set_aside(&needed(at(&more, 75), &[("d", more[5].0)]), part_of).expect("set aside");
    drop(log);
    other.insert(path.to_owned(), stranger.files()[path].clone());
    let Err(error) = Log::open_on(options(), Arc::new(SimDisk::holding(&other))) else { panic!("opened") };
    assert!(matches!(error.kind(), Kind::Foreign(_)), "{error}");
}

/// A reader goes on while what it reads is set aside, and deleted.
#[test]
fn a_reader_goes_on_from_the_segments_in_what_was_set_aside() {
    let disk = SimDisk::new(6);
    let (log, mut written) = (open(&disk), Vec::new());
    fill(&log, &mut written);
    let needs = needed(at(&written, 80), &[("a", Position(0))]);
    let mut reader = log.reader(Position(0)).expect("a reader");
    let mut found = Vec::new();
    for round in 0.. {
        if round == 5 {
            log.set_aside(&needs, part_of).expect("set aside");
            fill(&log, &mut written);
        }
        let batch = reader.next_batch(600).expect("a batch");
        if batch.is_empty() {
            break;
        }
        found.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
    }
    assert_eq!(expected(&found, &needs), expected(&written, &needs));
    assert!(found.is_sorted_by(|one, next| one.0 < next.0));
}

/// A full disk: nothing changes, and no rest stays.
#[test]
fn without_space_nothing_is_set_aside() {
    let disk = SimDisk::new(7);
    let (log, mut written) = (open(&disk), Vec::new());
    fill(&log, &mut written);
    disk.set_space_bytes(disk.used_bytes() + 600);
    let needs = needed(at(&written, 50), &[("b", Position(0))]);
    let error = log.set_aside(&needs, part_of).expect_err("no space");
    assert_eq!(*error.kind(), Kind::Full);
    assert!(log.aside().0 == 0 && !disk.files().contains_key(Path::new("/log/aside.new")));
    disk.set_space_bytes(u64::MAX);
    log.set_aside(&needs, part_of).expect("there is space");
    assert_found(&log, &written, &needs);
}

/// What a database has, and lacks of some parts.
struct Model {
    written: Vec<(Position, Vec<u8>)>,
    durable: usize,
    needs: Needed,
    /// What it lacked before.
    past: Vec<Needed>,
    numbers: u32,
}

impl Model {
    fn observe(&mut self, log: &Log) {
        let durable = log.durable();
        self.durable = self.durable.max(self.written.partition_point(|(position, _)| *position <= durable));
    }

    /// A position behind `from`, at most the last durable one.
    fn behind(&self, from: Position, random: &mut Random) -> Position {
        let first = self.written.partition_point(|(position, _)| *position <= from);
        match self.durable.saturating_sub(first) {
            0 => from,
            more => self.written[first + random.below(more as u64) as usize].0,
        }
    }

    /// The database takes more, a part stops, goes on, or has caught up.
    fn moves(&mut self, random: &mut Random) {
        self.past.push(self.needs.clone());
        self.needs.others = self.behind(self.needs.others, random);
        let part = PARTS[random.below(4) as usize];
        match self.needs.parts.get(part).copied() {
            None if random.below(2) == 0 => {
                self.needs.parts.insert(part.to_owned(), self.needs.others);
            }
            None => {}
            Some(_) if random.below(3) == 0 => drop(self.needs.parts.remove(part)),
            Some(from) => {
                let from = self.behind(from, random).min(self.needs.others);
                self.needs.parts.insert(part.to_owned(), from);
            }
        }
    }

    /// The database goes back, as far as the log still has what it then lacks.
    fn goes_back(&mut self, log: &Log, random: &mut Random) -> bool {
        let Some(at) = self.past.len().checked_sub(1).map(|last| random.below(last as u64 + 1)) else {
            return false;
        };
        let back = self.past[at as usize].clone();
        if !log.covers(&back) || back == self.needs {
            return false;
        }
        self.past.truncate(at as usize);
        self.needs = back;
        true
    }

    /// All that is needed of what was durable is there, in order.
    fn check(&mut self, log: &Log, seed: u64) {
        assert!(log.covers(&self.needs), "seed {seed}");
        log.unrelease(&self.needs).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found = read(log, self.needs.all().max(log.first()), 900);
        let end = found.last().map_or(self.needs.all(), |(position, _)| *position).max(self.needs.others);
        let kept = self.written.partition_point(|(position, _)| *position <= end);
        assert!(kept >= self.durable, "seed {seed}: {} durable, {kept} found", self.durable);
        self.written.truncate(kept);
        self.durable = kept;
        assert_eq!(expected(&found, &self.needs), expected(&self.written, &self.needs), "seed {seed}");
        assert!(found.iter().all(|record| self.written.contains(record)), "seed {seed}");
    }
}

fn live(log: &Log, disk: &SimDisk, model: &mut Model, random: &mut Random) {
    for _ in 0..random.below(60) {
        match random.below(10) {
            0 => drop(log.flush()),
            1 => model.moves(random),
            2 => {
                let done = log.set_aside(&model.needs, part_of);
                assert!(done.is_ok() || disk.is_crashed(), "{done:?}");
            }
            3 => drop(log.release(model.needs.all())),
            4 => drop(log.keep_from(model.behind(Position(0), random))),
            _ => {
                model.numbers += 1;
                model.written.extend(append(log, random.below(4) as usize, model.numbers));
            }
        }
        model.observe(log);
    }
}

#[test]
fn whatever_crashes_what_is_needed_stays() {
    let (mut crashes, mut found, mut back) = (0, 0, 0);
    for seed in 0..300 {
        let (mut random, disk) = (Random(seed), SimDisk::new(seed));
        let (written, needs) = (Vec::new(), Needed { others: Position(0), parts: BTreeMap::new() });
        let mut model = Model { written, durable: 0, needs, past: Vec::new(), numbers: 0 };
        let keep = Duration::from_secs(if seed % 2 == 0 { 0 } else { 3600 });
        let options = Options { keep, ..options() };
        let open = || Log::open_on(options.clone(), Arc::new(disk.clone()));
        for _ in 0..10 {
            let crash_at = (random.below(6) > 0).then(|| random.below(120));
            disk.set_faults(Faults { crash_at, ..Faults::default() });
            match open() {
                Ok((log, _)) => {
                    let begun = log.unrelease(&model.needs);
                    assert!(begun.is_ok() || disk.is_crashed(), "seed {seed}: {begun:?}");
                    if !disk.is_crashed() {
                        live(&log, &disk, &mut model, &mut random);
                        found += u64::from(log.aside().0 > 0);
                    }
                    if random.below(4) == 0 {
                        let _ = log.clone().close();
                    }
                    model.observe(&log);
                }
                Err(error) => assert!(disk.is_crashed(), "seed {seed}: {error}"),
            }
            crashes += u64::from(disk.is_crashed());
            if random.below(3) == 0 {
                disk.kill()
            } else {
                disk.reboot()
            }
            let (log, _) = open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            back += u64::from(random.below(3) == 0 && model.goes_back(&log, &mut random));
            model.check(&log, seed);
        }
    }
    println!("{crashes} crashes, {found} lives with a file, {back} times the database went back");
    assert!(crashes > 1000 && found > 500 && back > 100);
}
