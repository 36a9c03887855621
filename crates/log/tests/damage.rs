//! Damage: a log cut at any byte, a byte flipped anywhere, and the corrupt folders kept in `fixtures/`.

mod support;

use forebay_log::{AppendError, Error, FilePlace, Kind, Log, Options, Position, Recovery, Verify};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::SimDisk;

const SEGMENT_BYTES: u64 = 4096;
const HEADER_BYTES: u64 = 512;

type Files = BTreeMap<PathBuf, Vec<u8>>;
type Records = Vec<(Position, Vec<u8>)>;

fn options(dir: &Path) -> Options {
    Options { segment_bytes: SEGMENT_BYTES, buffer_bytes: 2048, ..Options::new(dir) }
}

fn open(files: &Files) -> (SimDisk, Result<(Log, Recovery), Error>) {
    let disk = SimDisk::holding(files);
    let opened = Log::open_on(options(Path::new("/log")), Arc::new(disk.clone()));
    (disk, opened)
}

fn read_all(log: &Log) -> Result<Records, Error> {
    let mut reader = log.reader(log.first())?;
    let mut records = Vec::new();
    loop {
        let batch = reader.next_batch(1000)?;
        if batch.is_empty() {
            return Ok(records);
        }
        records.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
    }
}

/// A group on the disk, found by its length field.
#[derive(Clone, Debug)]
struct Group {
    file: PathBuf,
    offset: u64,
    bytes: u64,
    start: Position,
}

struct Small {
    files: Files,
    records: Records,
    groups: Vec<Group>,
}

impl Small {
    /// A log of several segments with a few groups each; the last segment is not full.
    fn new() -> Small {
        let disk = SimDisk::new(3);
        let (log, _) = Log::open_on(options(Path::new("/log")), Arc::new(disk.clone())).expect("open");
        let mut records = Vec::new();
        for i in 0..20_usize {
            for j in 0..=(i % 3) {
                let record = vec![(16 * i + j) as u8 | 1; 40 + i * 13];
                loop {
                    match log.append(&record) {
                        Ok(position) => {
                            records.push((position, record));
                            break;
                        }
                        Err(AppendError::Busy) => {
                            log.wait_durable(log.durable(), Duration::from_millis(5));
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            log.flush().expect("flush");
        }
        log.close().expect("close");
        let mut files = disk.files();
        files.retain(|path, _| !path.ends_with("LOCK"));
        let groups = find_groups(&files);
        assert!(files.len() >= 5, "segments and a manifest: {:?}", files.keys());
        Small { files, records, groups }
    }

    fn segments(&self) -> Vec<&PathBuf> {
        self.files.keys().filter(|path| path.extension().is_some()).collect()
    }

    /// Records of the groups before `position`.
    fn before(&self, position: Position) -> &[(Position, Vec<u8>)] {
        let count = self.records.partition_point(|(end, _)| *end <= position);
        &self.records[..count]
    }

    fn end(&self) -> Position {
        let last = &self.groups[self.groups.len() - 1];
        Position(last.start.0 + last.bytes)
    }
}

fn find_groups(files: &Files) -> Vec<Group> {
    let mut groups = Vec::new();
    for (path, bytes) in files.iter().filter(|(path, _)| path.extension().is_some()) {
        let name = path.file_stem().expect("a name").to_string_lossy();
        let start: u64 = name.parse().expect("a position");
        let mut offset = HEADER_BYTES;
        while bytes.get(offset as usize..).is_some_and(|rest| rest.starts_with(b"FBGROUP1")) {
            let at = offset as usize + 32;
            let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
            groups.push(Group {
                file: path.clone(),
                offset,
                bytes: length.into(),
                start: Position(start + offset - HEADER_BYTES),
            });
            offset += u64::from(length);
        }
    }
    groups
}

#[test]
fn cut_at_any_byte_every_whole_group_before_it_is_kept() {
    let small = Small::new();
    let segments = small.segments();
    for (at, path) in segments.iter().enumerate() {
        for length in 0..small.files[*path].len() {
            let mut files = small.files.clone();
            files.get_mut(*path).expect("the segment").truncate(length);
            for later in &segments[at + 1..] {
                files.remove(*later);
            }
            let whole = small
                .groups
                .iter()
                .filter(|group| files.contains_key(&group.file))
                .filter(|group| group.file != **path || group.offset + group.bytes <= length as u64);
            let end = whole
                .max_by_key(|group| group.start)
                .map_or(Position(0), |group| Position(group.start.0 + group.bytes));
            check_cut(&small, &files, end, &format!("{} cut to {length}", path.display()));
        }
    }
}

/// Checks that a log that was cut opens with the records before `end`, accepts more, and has both after the
/// next opening.
fn check_cut(small: &Small, files: &Files, end: Position, case: &str) {
    let (disk, opened) = open(files);
    let (log, recovery) = opened.unwrap_or_else(|error| panic!("{case}: {error}"));
    let expected = small.before(end);
    assert_eq!(recovery.end, end, "{case}");
    assert_eq!(recovery.records, expected.len() as u64, "{case}");
    assert_eq!(read_all(&log).expect("read"), expected, "{case}");
    let position = log.append(b"after").expect("append");
    log.flush().expect("flush");
    log.close().expect("close");
    let (log, recovery) = open(&disk.files()).1.unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(recovery.cut_bytes, 0, "{case}: the tail came back");
    let found = read_all(&log).expect("read");
    assert_eq!(found.len(), expected.len() + 1, "{case}");
    assert_eq!(found[expected.len()], (position, b"after".to_vec()), "{case}");
}

/// The expected effect of a flipped byte.
#[derive(Debug)]
enum Expected {
    /// Opening refuses and reports this file and offset.
    Refused(PathBuf, u64),
    /// Opening cuts off this many bytes and retains the records before the position.
    Cut(u64, Position),
    /// It is not part of the log.
    Nothing,
}

fn expected(small: &Small, path: &Path, at: u64) -> Expected {
    if path.ends_with("MANIFEST") || at < HEADER_BYTES {
        return Expected::Refused(path.to_owned(), 0);
    }
    let last = small.groups.last().expect("groups");
    let hit = small
        .groups
        .iter()
        .find(|group| group.file == path && (group.offset..group.offset + group.bytes).contains(&at));
    match hit {
        Some(group) if group.start == last.start => {
            let file = &small.files[path];
            let content = file.iter().rposition(|byte| *byte != 0).expect("content") as u64 + 1;
            Expected::Cut(content.max(at + 1) - group.offset, group.start)
        }
        Some(group) => Expected::Refused(path.to_owned(), group.offset),
        None if path == last.file => {
            let end = last.offset + last.bytes;
            Expected::Cut(at + 1 - end, small.end())
        }
        None => Expected::Nothing,
    }
}

#[test]
fn a_flipped_byte_anywhere_is_refused_or_cut_and_never_delivered() {
    let small = Small::new();
    let (mut refused, mut cut) = (0, 0);
    for (path, bytes) in &small.files {
        for at in 0..bytes.len() {
            for flip in [0xFF, 1_u8 << (at % 8)] {
                let mut files = small.files.clone();
                files.get_mut(path).expect("the file")[at] ^= flip;
                let case = format!("{} byte {at} ^ {flip:#x}", path.display());
                let (disk, opened) = open(&files);
                match (expected(&small, path, at as u64), opened) {
                    (Expected::Refused(file, offset), Err(error)) => {
                        let (Kind::Corrupt(place) | Kind::Foreign(place)) = error.kind() else {
                            panic!("{case}: {error}");
                        };
                        assert_eq!((&place.file, place.offset), (&file, offset), "{case}");
                        let mut after = disk.files();
                        after.retain(|path, _| !path.ends_with("LOCK"));
                        assert!(after == files, "{case}: refused and changed");
                        refused += 1;
                    }
                    (Expected::Cut(bytes, end), Ok((log, recovery))) => {
                        // When the last byte of the tail is flipped to zero, the tail is one byte shorter.
                        assert!(recovery.cut_bytes <= bytes && recovery.cut_bytes + 1 >= bytes, "{case}");
                        assert_eq!(recovery.end, end, "{case}");
                        assert_eq!(read_all(&log).expect("read"), small.before(end), "{case}");
                        cut += 1;
                    }
                    (Expected::Nothing, Ok((log, _))) => {
                        assert_eq!(read_all(&log).expect("read"), small.records, "{case}");
                    }
                    (expected, Ok(_)) => panic!("{case}: opened, expected {expected:?}"),
                    (expected, Err(error)) => panic!("{case}: {error}, expected {expected:?}"),
                }
            }
        }
    }
    assert!(refused > 10_000 && cut > 1_000, "{refused} refused, {cut} cut");
}

/// With checks left to the readers, the same damage is found and reported, by opening or by reading, and
/// nothing else is cut off than by a full check.
#[test]
fn damage_that_opening_left_to_the_reader_is_refused_by_it() {
    let small = Small::new();
    let (mut by_opening, mut by_reading) = (0, 0);
    for (path, bytes) in &small.files {
        for at in (0..bytes.len()).step_by(3) {
            let mut files = small.files.clone();
            files.get_mut(path).expect("the file")[at] ^= 1 << (at % 8);
            let case = format!("{} byte {at}", path.display());
            let disk = SimDisk::holding(&files);
            let options = Options { verify: Verify::WhenRead, ..options(Path::new("/log")) };
            let opened = Log::open_on(options, Arc::new(disk));
            let was_opened = opened.is_ok();
            let outcome = opened.and_then(|(log, recovery)| Ok((read_all(&log)?, recovery)));
            match (expected(&small, path, at as u64), outcome) {
                (Expected::Refused(file, offset), Err(error)) => {
                    let (Kind::Corrupt(place) | Kind::Foreign(place)) = error.kind() else {
                        panic!("{case}: {error}");
                    };
                    assert_eq!((&place.file, place.offset), (&file, offset), "{case}");
                    by_opening += u32::from(!was_opened);
                    by_reading += u32::from(was_opened);
                }
                (Expected::Cut(_, end), Ok((records, recovery))) => {
                    assert_eq!(recovery.end, end, "{case}");
                    assert_eq!(records, small.before(end), "{case}");
                }
                (Expected::Nothing, Ok((records, _))) => assert_eq!(records, small.records, "{case}"),
                (expected, Ok(_)) => panic!("{case}: read, expected {expected:?}"),
                (expected, Err(error)) => panic!("{case}: {error}, expected {expected:?}"),
            }
        }
    }
    assert!(by_opening > 0 && by_reading > by_opening, "{by_opening} and {by_reading}");
}

#[test]
fn a_segment_that_is_missing_is_refused_whenever_it_is_verified() {
    let small = Small::new();
    let middle = small.segments()[1].clone();
    for verify in [Verify::WhenOpened, Verify::WhenRead] {
        let mut files = small.files.clone();
        files.remove(&middle);
        let options = Options { verify, ..options(Path::new("/log")) };
        let opened = Log::open_on(options, Arc::new(SimDisk::holding(&files)));
        let outcome = opened.and_then(|(log, _)| read_all(&log));
        let error = outcome.expect_err("a segment is missing");
        assert!(matches!(error.kind(), Kind::Corrupt(_)), "{verify:?}: {error}");
    }
}

#[test]
fn damage_after_opening_is_not_delivered() {
    let small = Small::new();
    let (disk, opened) = open(&small.files);
    let (log, _) = opened.expect("open");
    let group = &small.groups[small.groups.len() / 2];
    let file = forebay_log::Disk::open(&disk, &group.file, forebay_log::Access::Write).expect("open");
    file.write_all_at(&[0xA5], group.offset + 60).expect("write");
    let Err(error) = read_all(&log) else {
        panic!("delivered");
    };
    let place = FilePlace { file: group.file.clone(), offset: group.offset, position: group.start };
    assert_eq!(*error.kind(), Kind::Corrupt(place));
}

#[test]
fn the_end_lost_after_it_was_released_is_not_given_out_again() {
    let small = Small::new();
    let (disk, opened) = open(&small.files);
    let (log, _) = opened.expect("open");
    let end = log.durable();
    log.release(end).expect("release");
    log.close().expect("close");
    let mut files = disk.files();
    let last = small.groups.last().expect("groups");
    files.get_mut(&last.file).expect("the last segment")[last.offset as usize + 50] ^= 1;
    let (disk, opened) = open(&files);
    let (log, recovery) = opened.expect("open");
    assert!(recovery.cut_bytes > 0);
    assert_eq!((recovery.first, recovery.end), (end, end));
    assert!(log.append(b"new").expect("append") > end);
    log.flush().expect("flush");
    log.close().expect("close");
    let (log, _) = open(&disk.files()).1.expect("open again");
    assert_eq!(read_all(&log).expect("read")[0].1, b"new");
}

#[test]
fn a_flooded_tail_of_old_groups_is_cut() {
    // Intact groups of this log at a wrong place, with starts below the end: an old copy, not later data.
    let small = Small::new();
    let mut files = small.files.clone();
    let (first, last) = (&small.groups[0], small.groups.last().expect("groups"));
    let copy = files[&first.file][first.offset as usize..][..first.bytes as usize].to_vec();
    let at = (last.offset + last.bytes) as usize;
    let segment = files.get_mut(&last.file).expect("segment");
    segment.resize(segment.len().max(at + copy.len()), 0);
    segment[at..at + copy.len()].copy_from_slice(&copy);
    check_cut(&small, &files, small.end(), "an old group behind the end");
}

/// The expected result of opening a folder under `fixtures/`.
#[derive(Debug, PartialEq)]
enum Outcome {
    Opens { records: u64, cut_bytes: u64 },
    Corrupt { file: &'static str, offset: u64, position: u64 },
    Foreign { file: &'static str },
    Missing { file: &'static str },
}

const FIRST: &str = "00000000000000000000.log";
const SECOND: &str = "00000000000000003072.log";
const THIRD: &str = "00000000000000006144.log";

#[test]
fn fixtures() {
    let corrupt = |file, offset, position| Outcome::Corrupt { file, offset, position };
    let cases = [
        ("good", Outcome::Opens { records: 7, cut_bytes: 0 }),
        ("torn-end", Outcome::Opens { records: 6, cut_bytes: 512 }),
        ("garbage-behind-the-end", Outcome::Opens { records: 7, cut_bytes: 100 }),
        ("no-segment-behind-the-manifest", Outcome::Missing { file: FIRST }),
        ("damaged-middle", corrupt(SECOND, 512, 3072)),
        ("damaged-middle-of-the-last-segment", corrupt(THIRD, 512, 6144)),
        ("damaged-segment-header", corrupt(SECOND, 0, 3072)),
        ("damaged-last-segment-header", corrupt(THIRD, 0, 6144)),
        ("missing-middle-segment", corrupt(FIRST, 3584, 3072)),
        ("missing-first-segment", Outcome::Missing { file: FIRST }),
        ("segment-of-another-log", Outcome::Foreign { file: SECOND }),
        ("missing-manifest", Outcome::Missing { file: "MANIFEST" }),
        ("damaged-manifest", corrupt("MANIFEST", 0, 0)),
        ("long-manifest", corrupt("MANIFEST", 0, 0)),
        ("later-version", Outcome::Foreign { file: "MANIFEST" }),
        ("unfinished-creation", Outcome::Opens { records: 0, cut_bytes: 0 }),
        ("leftover-new-files", Outcome::Opens { records: 7, cut_bytes: 0 }),
    ];
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for (name, expected) in &cases {
        let dir = tempfile::tempdir().expect("folder");
        for entry in std::fs::read_dir(fixtures.join(name)).expect("fixture") {
            let entry = entry.expect("entry");
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("copy");
        }
        let found = outcome(Log::open(options(dir.path())), name);
        assert_eq!(found, format!("{expected:?}"), "{name}");
    }
    let folders = std::fs::read_dir(&fixtures).expect("fixtures");
    let count = folders.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
    assert_eq!(count, cases.len(), "a fixture without a line");
}

fn outcome(opened: Result<(Log, Recovery), Error>, name: &str) -> String {
    let file_name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    match opened {
        Ok((log, recovery)) => {
            assert_eq!(read_all(&log).expect("read").len() as u64, recovery.records, "{name}");
            let Recovery { records, cut_bytes, .. } = recovery;
            format!("Opens {{ records: {records}, cut_bytes: {cut_bytes} }}")
        }
        Err(error) => match error.kind() {
            Kind::Corrupt(place) => format!(
                "Corrupt {{ file: {:?}, offset: {}, position: {} }}",
                file_name(&place.file),
                place.offset,
                place.position
            ),
            Kind::Foreign(place) => format!("Foreign {{ file: {:?} }}", file_name(&place.file)),
            Kind::Missing(file) => format!("Missing {{ file: {:?} }}", file_name(file)),
            _ => format!("{error:?}"),
        },
    }
}
