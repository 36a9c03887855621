//! Opening a folder of arbitrary or mutated bytes never panics, never delivers a record that fails
//! its checksum, and a folder that was opened once opens again with the same records.
//!
//!     cargo +nightly fuzz run open -- -max_total_time=120      (in fuzz/log)
//!
//! The input is a list of edits to a good log of three segments; an edit may also correct a group's
//! checksum, so that the code behind the checksum test is reached.
#![no_main]

#[path = "../../../crates/log/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use forebay_log::{Log, Options, Position};
use libfuzzer_sys::fuzz_target;
use support::SimDisk;

const HEADER_BYTES: usize = 512;
const GROUP_HEADER_BYTES: usize = 48;
const NAMES: [&str; 4] = [
    "/log/MANIFEST",
    "/log/00000000000000000000.log",
    "/log/00000000000000003072.log",
    "/log/00000000000000006144.log",
];
const GOOD: [&[u8]; 4] = [
    include_bytes!("../../../crates/log/fixtures/good/MANIFEST"),
    include_bytes!("../../../crates/log/fixtures/good/00000000000000000000.log"),
    include_bytes!("../../../crates/log/fixtures/good/00000000000000003072.log"),
    include_bytes!("../../../crates/log/fixtures/good/00000000000000006144.log"),
];

type Files = BTreeMap<PathBuf, Vec<u8>>;
type Records = Vec<(Position, Vec<u8>)>;

fuzz_target!(|input: &[u8]| {
    let files = mutate(input);
    let disk = SimDisk::holding(&files);
    let Some(first) = open_and_read(&disk) else {
        return;
    };
    assert_eq!(first, checked_records(&disk.files()), "delivered what does not check");
    let again = open_and_read(&disk).expect("what opened once opens again");
    assert_eq!(first, again);
});

/// Opens, reads everything, appends nothing, closes.
fn open_and_read(disk: &SimDisk) -> Option<Records> {
    let options = Options {
        segment_bytes: 4096,
        buffer_bytes: 2048,
        ..Options::new("/log")
    };
    let (log, recovery) = Log::open_on(options, Arc::new(disk.clone())).ok()?;
    let mut records = Vec::new();
    let mut reader = log.reader(log.first()).expect("the first position can be read");
    loop {
        let batch = reader.next_batch(1500).expect("what opening checked can be read");
        if batch.is_empty() {
            break;
        }
        records.extend(batch.iter().map(|(position, record)| (position, record.to_vec())));
    }
    assert_eq!(records.len() as u64, recovery.records);
    log.close().expect("close");
    Some(records)
}

/// Edits of seven bytes: file, operation, offset (two), length or value (two), value.
fn mutate(input: &[u8]) -> Files {
    let mut contents: Vec<Option<Vec<u8>>> = GOOD.iter().map(|good| Some(good.to_vec())).collect();
    let salt = GOOD[0][32..40].to_vec();
    for edit in input.chunks_exact(7) {
        let file = usize::from(edit[0]) % NAMES.len();
        let Some(bytes) = &mut contents[file] else {
            continue;
        };
        let offset = usize::from(u16::from_le_bytes([edit[2], edit[3]])) % 4200;
        let value = usize::from(u16::from_le_bytes([edit[4], edit[5]]));
        match edit[1] % 9 {
            0 => set(bytes, offset, &[edit[6]]),
            1 => set(bytes, offset, &(value as u32).to_le_bytes()),
            2 => set(bytes, offset, &vec![edit[6]; value % 4200]),
            3 => bytes.truncate(offset),
            4 => bytes.resize(bytes.len() + value % 4200, edit[6]),
            5 => contents[file] = None,
            6 => {
                // A piece of another file, or of this one.
                let from = GOOD[usize::from(edit[6]) % GOOD.len()];
                let start = value % from.len();
                let end = from.len().min(start + 1024);
                set(bytes, offset, &from[start..end]);
            }
            7 => reseal(bytes, offset / 512 * 512, &salt),
            _ => {
                if let Some(last) = bytes.len().checked_sub(4) {
                    let crc = crc32c::crc32c(&bytes[..last]).to_le_bytes();
                    set(bytes, last, &crc);
                    if bytes.len() >= HEADER_BYTES && file > 0 {
                        let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]).to_le_bytes();
                        set(bytes, HEADER_BYTES - 4, &crc);
                    }
                }
            }
        }
    }
    let named = NAMES.iter().zip(contents);
    named.filter_map(|(name, bytes)| Some((PathBuf::from(name), bytes?))).collect()
}

fn set(bytes: &mut [u8], offset: usize, new: &[u8]) {
    let end = bytes.len().min(offset + new.len());
    if offset < end {
        bytes[offset..end].copy_from_slice(&new[..end - offset]);
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

fn group_crc(group: &[u8], salt: &[u8]) -> u32 {
    let seed = crc32c::crc32c(salt);
    let head = crc32c::crc32c_append(seed, &group[..GROUP_HEADER_BYTES - 4]);
    crc32c::crc32c_append(head, &group[GROUP_HEADER_BYTES..])
}

/// Corrects the checksum of the group at `offset`.
fn reseal(bytes: &mut [u8], offset: usize, salt: &[u8]) {
    if bytes.len() < offset + GROUP_HEADER_BYTES {
        return;
    }
    let length = number(bytes, offset + 32);
    if length < GROUP_HEADER_BYTES || bytes.len() - offset < length {
        return;
    }
    let crc = group_crc(&bytes[offset..offset + length], salt).to_le_bytes();
    bytes[offset + 44..offset + 48].copy_from_slice(&crc);
}

/// The records that a reader may deliver, found by code that shares nothing with the log's.
fn checked_records(files: &Files) -> Records {
    let manifest = &files[Path::new(NAMES[0])];
    let salt = &manifest[32..40];
    let mut records = Vec::new();
    for (path, bytes) in files.iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "log")) {
        let start: u64 = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse().ok()).expect("a position");
        let mut offset = HEADER_BYTES;
        while bytes.len() >= offset + GROUP_HEADER_BYTES && &bytes[offset..offset + 8] == b"FBGROUP1" {
            let group = &bytes[offset..offset + number(bytes, offset + 32)];
            assert_eq!(group_crc(group, salt) as usize, number(group, 44));
            let mut at = GROUP_HEADER_BYTES;
            while at < number(group, 36) {
                let length = number(group, at);
                let end = at + 4 + length;
                let position = Position(start + (offset - HEADER_BYTES + end) as u64);
                records.push((position, group[at + 4..end].to_vec()));
                at = end;
            }
            offset += group.len();
        }
    }
    records
}
