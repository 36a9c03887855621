//! A log truncated at any byte, and a flipped byte: in the middle of the log the server refuses to start
//! and names the place; at its end it truncates what one unfinished write may have left, and prints how
//! much.

use crate::start;
use forebay_tests::{Folder, Group, Segment, Server, last_segment, segments};
use rand::RngExt;
use std::fs;
use std::path::Path;

const WRITES: usize = 12;

/// A folder whose log contains [`WRITES`] groups of one record each, none of them drained.
fn written() -> (Folder, Segment) {
    let folder = Folder::new();
    let server = start(&folder).set("drain.paused=true").start();
    let mut client = server.client();
    for i in 0..WRITES {
        super::put(&mut client, &format!("key{i}"), i as i64);
    }
    server.kill();
    let segment = last_segment(&folder.data());
    // One connection, one write at a time: nothing to group.
    assert_eq!(segment.groups.len(), WRITES, "{segment:?}");
    assert!(segment.groups.iter().all(|group| group.records == 1), "{segment:?}");
    assert_eq!(segments(&folder.data()).iter().filter(|segment| !segment.groups.is_empty()).count(), 1);
    (folder, segment)
}

/// The same file in a copy of the folder.
fn in_copy(folder: &Folder, copy: &Folder, path: &Path) -> std::path::PathBuf {
    copy.path().join(path.strip_prefix(folder.path()).expect("the file lies in the folder"))
}

/// How many of the writes exist; they must be the first ones.
#[track_caller]
fn count_prefix(server: &Server) -> usize {
    let mut client = server.client();
    let found: Vec<bool> = (0..WRITES)
        .map(|i| {
            let answer = client.get(&format!("/things/key{i}"));
            if answer.status == 200 {
                assert_eq!(answer.json()["version"], i);
            }
            answer.status == 200
        })
        .collect();
    let count = found.iter().take_while(|found| **found).count();
    assert!(
        found[count..].iter().all(|found| !found),
        "a write is missing before one that is there: {found:?}"
    );
    count
}

/// Whether a text contains the number as a separate word.
fn says_number(text: &str, number: usize) -> bool {
    let digits: String = text.chars().map(|c| if c.is_ascii_digit() { c } else { ' ' }).collect();
    digits.split_whitespace().any(|found| found == number.to_string())
}

/// Truncates a copy of the log at `length`, and starts a server.
fn check_cut(folder: &Folder, segment: &Segment, length: usize) {
    let copy = folder.copy();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(in_copy(folder, &copy, &segment.path))
        .expect("the log is there");
    file.set_len(length as u64).expect("a file can be cut");
    let whole = segment.groups.iter().take_while(|group| group.offset + group.bytes <= length).count();
    let with_content =
        segment.groups.iter().take_while(|group| group.offset + group.content <= length).count();
    match start(&copy).set("drain.paused=true").try_start() {
        Ok(server) => {
            let count = count_prefix(&server);
            // With missing padding, the group may or may not count as torn.
            assert!(
                (whole..=with_content).contains(&count),
                "cut at {length}: {count} of {whole} whole groups"
            );
            let torn = segment.groups.get(count).filter(|group| group.offset < length);
            if torn.is_some() {
                server.wait_for_output("cut");
            }
            // Writing continues from there.
            super::put(&mut server.client(), "after", 1);
            server.kill();
            let server = start(&copy).start();
            assert_eq!(count_prefix(&server), count);
            assert_eq!(server.client().get("/things/after").status, 200);
        }
        Err(ended) => {
            assert!(
                length < segment.groups[0].offset,
                "cut at {length}, a torn end is no reason to refuse: {ended:?}"
            );
            assert!(ended.output.contains(&copy.data().display().to_string()), "no place: {ended:?}");
        }
    }
}

#[test]
fn cut_at_any_byte() {
    let (folder, segment) = written();
    let last = segment.groups[WRITES - 1];
    let mut lengths = vec![0, 1, 100, 511];
    for group in [segment.groups[0], segment.groups[1], segment.groups[WRITES / 2], last] {
        let edges = [0, 1, 8, 47, 48, 49, 52, group.content - 1, group.content, group.bytes - 1, group.bytes];
        lengths.extend(edges.map(|edge| group.offset + edge));
    }
    let mut random = rand::rng();
    lengths.extend((0..12).map(|_| random.random_range(512..last.offset + last.bytes)));
    for length in lengths {
        check_cut(&folder, &segment, length);
    }
}

fn flip(path: &Path, offset: usize, mask: u8) -> Vec<u8> {
    let mut bytes = fs::read(path).expect("the log can be read");
    bytes[offset] ^= mask;
    fs::write(path, &bytes).expect("the log can be written");
    bytes
}

/// Some offsets of a group: its header field by field, its first and last bytes, and some at random.
fn offsets(group: &Group, random: &mut impl rand::Rng) -> Vec<usize> {
    let mut offsets = vec![0, 8, 24, 32, 36, 40, 44, 48, group.content - 1, group.bytes - 1];
    offsets.extend((0..5).map(|_| random.random_range(0..group.bytes)));
    offsets.into_iter().map(|offset| group.offset + offset).collect()
}

#[test]
fn a_flipped_byte_in_the_middle_is_refused() {
    let (folder, segment) = written();
    let mut random = rand::rng();
    let name = segment.path.file_name().and_then(|name| name.to_str()).expect("a name of digits");
    for group in [segment.groups[0], segment.groups[WRITES / 2], segment.groups[WRITES - 2]] {
        for offset in offsets(&group, &mut random) {
            let copy = folder.copy();
            let path = in_copy(&folder, &copy, &segment.path);
            let damaged = flip(&path, offset, 1 << random.random_range(0..8));
            let Err(ended) = start(&copy).set("drain.paused=true").try_start() else {
                panic!("byte {offset} is flipped, valid groups follow, and it starts");
            };
            assert!(!ended.status.success(), "{ended:?}");
            assert!(ended.output.contains(name), "byte {offset}: the file is not named: {ended:?}");
            assert!(
                says_number(&ended.output, group.offset),
                "byte {offset}: {} is not named: {ended:?}",
                group.offset
            );
            assert!(
                fs::read(&path).expect("the log can be read") == damaged,
                "byte {offset}: the log was changed"
            );
        }
    }
    // The segment's own header, with groups behind it.
    for offset in [0, 9, 20, 33, 41, 509] {
        let copy = folder.copy();
        flip(&in_copy(&folder, &copy, &segment.path), offset, 0x10);
        let Err(ended) = start(&copy).set("drain.paused=true").try_start() else {
            panic!("byte {offset} of the header is flipped, and it starts");
        };
        assert!(ended.output.contains(name), "byte {offset}: the file is not named: {ended:?}");
    }
}

#[test]
fn a_flipped_byte_in_the_last_group_is_cut() {
    let (folder, segment) = written();
    let mut random = rand::rng();
    let last = segment.groups[WRITES - 1];
    for offset in offsets(&last, &mut random) {
        let copy = folder.copy();
        flip(&in_copy(&folder, &copy, &segment.path), offset, 1 << random.random_range(0..8));
        let server = start(&copy).set("drain.paused=true").start();
        assert_eq!(count_prefix(&server), WRITES - 1, "byte {offset}");
        server.wait_for_output("cut");
        let output = server.output();
        // The number: at least the length without padding, at most with it.
        let says = (last.content - 8..=last.bytes).any(|bytes| says_number(&output, bytes));
        assert!(says, "byte {offset}: not said how many of {} bytes:\n{output}", last.bytes);
    }
}

#[test]
fn a_damaged_manifest_is_refused() {
    let (folder, _) = written();
    let mut random = rand::rng();
    let manifest = find(&folder.data(), "MANIFEST").expect("a log has a manifest");
    let length = fs::read(&manifest).expect("the manifest can be read").len();
    for offset in [0, 8, 16, 32, 40, length - 1, random.random_range(0..length)] {
        let copy = folder.copy();
        flip(&in_copy(&folder, &copy, &manifest), offset, 0x04);
        let Err(ended) = start(&copy).set("drain.paused=true").try_start() else {
            panic!("byte {offset} of the manifest is flipped, and it starts");
        };
        assert!(ended.output.contains("MANIFEST"), "byte {offset}: the file is not named: {ended:?}");
    }
    let copy = folder.copy();
    fs::remove_file(in_copy(&folder, &copy, &manifest)).expect("a file can be deleted");
    let Err(ended) = start(&copy).set("drain.paused=true").try_start() else {
        panic!("the manifest of a log with writes is gone, and it starts");
    };
    assert!(ended.output.contains("MANIFEST"), "{ended:?}");
}

fn find(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    entries.map(|entry| entry.expect("the folder can be read").path()).find_map(|path| match path.is_dir() {
        true => find(&path, name),
        false => (path.file_name()? == name).then_some(path),
    })
}
