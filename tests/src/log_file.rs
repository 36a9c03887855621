//! Finds the groups of a log in its files, for tests that damage them at a chosen place.
//!
//! Reads the little of the format that it needs (`crates/log/src/format.rs`: segments named by 20 digits, a
//! header of 512 bytes, groups that begin with a magic and carry their length) and shares no code with the
//! log, so that a mistake there is not repeated here.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a segment's header.
const HEADER_BYTES: usize = 512;

/// One group: records that were synced together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Offset of its first byte in the file.
    pub offset: usize,
    /// Header, records and padding.
    pub bytes: usize,
    /// Header and records.
    pub content: usize,
    /// The number of records.
    pub records: usize,
}

/// One file of the log.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// Its groups in order, up to the first gap.
    pub groups: Vec<Group>,
}

fn number_at(bytes: &[u8], at: usize) -> usize {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field) as usize
}

/// The segments of the log in a data folder and its subfolders, in order.
pub fn segments(data: &Path) -> Vec<Segment> {
    let mut paths = Vec::new();
    find(data, &mut paths);
    paths.sort();
    paths.into_iter().map(read).collect()
}

/// The last segment that contains a group.
#[track_caller]
pub fn last_segment(data: &Path) -> Segment {
    let with_groups = segments(data).into_iter().rfind(|segment| !segment.groups.is_empty());
    with_groups.unwrap_or_else(|| panic!("no log with groups under {}", data.display()))
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            find(&path, paths);
        } else if name.strip_suffix(".log").is_some_and(|digits| digits.len() == 20) {
            paths.push(path);
        }
    }
}

fn read(path: PathBuf) -> Segment {
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut groups = Vec::new();
    let mut at = HEADER_BYTES;
    while bytes.get(at..at + 8) == Some(b"FBGROUP1") {
        let group = Group {
            offset: at,
            bytes: number_at(&bytes, at + 32),
            content: number_at(&bytes, at + 36),
            records: number_at(&bytes, at + 40),
        };
        assert!(group.bytes > 0, "a group without bytes at {at} of {}", path.display());
        at += group.bytes;
        groups.push(group);
    }
    Segment { path, groups }
}
