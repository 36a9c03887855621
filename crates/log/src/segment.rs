//! Segments: their names, where a position lies in one, how one comes into being and which ones there are.
//!
//! **How space is got, and why so.** Measured on ext4 on a virtio disk, per group, `pwrite` +
//! `fdatasync`, wall / CPU in µs:
//!
//! | group | plain append | `fallocate` ahead | zeroed ahead | old segment overwritten |
//! |---|---|---|---|---|
//! | 1 KiB | 166 / 59 | 122 / 42 | 109 / 46 | 96 / 42 |
//! | 36 KiB | 209 / 80 | 196 / 74 | 124 / 50 | 119 / 50 |
//! | 256 KiB | 359 / 143 | 295 / 95 | 172 / 65 | 162 / 65 |
//!
//! Writing into blocks that are already allocated and written spares the journal commit in every
//! sync. Zeroing 64 MiB costs 13 ms of CPU, 7 µs for each of the 1,800 groups of 36 KiB that it
//! makes 30 µs cheaper. Old segments would save that too, but then stale groups stand behind the
//! last one and a reader's file can change under it; zeros make "what follows the last group is
//! zero" true, so that recovery can say exactly what it cut. So: zeroed ahead by a thread of its
//! own (`reserve`); when that is not ready in time, and for the first segment, `fallocate`.
//!
//! **Past the page cache.** Groups are whole sectors and their buffers are aligned, so they are
//! written with `O_DIRECT` where the file system has it: 104 / 39 instead of 124 / 50 for a group
//! of 36 KiB. It also spares the memory: zeroing and writing through the page cache took a fresh
//! page for each 4 KiB of log. With `POST /code-ultra-fast` (550 bytes, the machine of
//! docs/performance.md) the whole machine's CPU time a request fell from 13.7 to 10.9 µs, pipelined
//! from 6.0 to 4.6 µs. Readers read past it, too: what they read is read once, and in recovery the
//! memory is wanted for rows.

use crate::disk::{Access, Disk, DiskFile};
use crate::format::{self, Identity};
use crate::limits::{SEGMENT_HEADER_BYTES, align_up};
use crate::position::Position;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const NAME_SUFFIX: &str = ".log";
const NAME_DIGITS: usize = 20;
/// What files are called while they are being made.
pub(crate) const NEW_SUFFIX: &str = ".new";

/// A segment's file name.
pub(crate) fn file_name(start: Position) -> String {
    format!("{start:0width$}{NAME_SUFFIX}", start = start.0, width = NAME_DIGITS)
}

/// The start position in a segment's file name; `None` for other files.
pub(crate) fn parse_file_name(name: &str) -> Option<Position> {
    let digits = name.strip_suffix(NAME_SUFFIX)?;
    let all_digits = digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| digits.parse().ok().map(Position)).flatten()
}

/// One segment that exists on disk.
#[derive(Debug)]
pub(crate) struct Segment {
    pub start: Position,
    pub path: PathBuf,
}

impl Segment {
    pub fn new(folder: &Path, start: Position) -> Segment {
        Segment { start, path: folder.join(file_name(start)) }
    }

    /// Where in the file the byte at `position` is.
    pub fn offset_of(&self, position: Position) -> u64 {
        position.0 - self.start.0 + SEGMENT_HEADER_BYTES
    }
}

/// A file with space reserved, not a segment yet.
pub(crate) struct Blank {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    /// Bytes for groups.
    pub capacity_bytes: u64,
}

/// Makes a blank with room for `capacity_bytes` of groups; on failure nothing is left behind.
pub(crate) fn make_blank(disk: &dyn Disk, path: PathBuf, capacity_bytes: u64) -> io::Result<Blank> {
    let made = disk.open(&path, Access::Create).and_then(|file| {
        file.allocate(SEGMENT_HEADER_BYTES + capacity_bytes)?;
        Ok(file)
    });
    match made {
        Ok(file) => Ok(Blank { file, path, capacity_bytes }),
        Err(error) => {
            discard(disk, &path);
            Err(error)
        }
    }
}

/// Deletes a file that never became part of the log. A failure is not one of the log: `Log::open`
/// tries again.
pub(crate) fn discard(disk: &dyn Disk, path: &Path) {
    let _ = disk.remove(path);
}

/// The segment that is being written.
pub(crate) struct Active {
    pub file: Arc<dyn DiskFile>,
    pub segment: Arc<Segment>,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
}

impl Active {
    pub fn remaining_bytes(&self) -> u64 {
        self.capacity_bytes - self.used_bytes
    }

    /// Writes a whole group behind the last one and syncs it.
    pub fn write(&mut self, group: &[u8]) -> io::Result<()> {
        debug_assert_eq!(align_up(group.len() as u64), group.len() as u64);
        self.file.write_all_at(group, SEGMENT_HEADER_BYTES + self.used_bytes)?;
        self.file.sync()?;
        self.used_bytes += group.len() as u64;
        Ok(())
    }
}

/// Turns a blank into the segment that starts at `start`: its header is on disk before its name is,
/// and its name before this returns.
pub(crate) fn activate(
    disk: &dyn Disk,
    folder: &Path,
    blank: Blank,
    identity: Identity,
    start: Position,
) -> io::Result<Active> {
    blank.file.write_all_at(&format::encode_segment(identity, start), 0)?;
    blank.file.sync()?;
    let segment = Segment::new(folder, start);
    disk.rename(&blank.path, &segment.path)?;
    disk.sync_folder(folder)?;
    Ok(Active {
        file: blank.file,
        segment: Arc::new(segment),
        capacity_bytes: blank.capacity_bytes,
        used_bytes: 0,
    })
}

/// A released segment that is still there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub start: Position,
    /// Where the next one starts.
    pub end: Position,
    /// Since when it is released.
    pub since: Instant,
}

/// The segments of the log, oldest first. Never empty: the last is the one that is written.
pub(crate) struct Segments {
    list: Mutex<List>,
}

struct List {
    segments: VecDeque<Arc<Segment>>,
    /// The first so many are released and kept: since when. Never the last one.
    kept_since: VecDeque<Instant>,
}

impl List {
    /// Whether the segment behind the kept ones ends at or before `position`.
    fn may_keep_next(&self, position: Position) -> bool {
        self.segments.get(self.kept_since.len() + 1).is_some_and(|next| next.start <= position)
    }
}

impl Segments {
    /// What ends at or before `released` counts as released now.
    pub fn new(segments: VecDeque<Arc<Segment>>, released: Position) -> Segments {
        assert!(!segments.is_empty());
        let segments = Segments { list: Mutex::new(List { segments, kept_since: VecDeque::new() }) };
        segments.release(released);
        segments
    }

    /// Adds the newest. It replaces the last one when that is still empty (and too small for the
    /// group that comes): the two then start at the same position, and are the same file name.
    pub fn push(&self, segment: Arc<Segment>) {
        let list = &mut self.list.lock().segments;
        if list.back().is_some_and(|last| last.start == segment.start) {
            list.pop_back();
        }
        list.push_back(segment);
    }

    /// Start of the oldest.
    pub fn first(&self) -> Position {
        self.list.lock().segments[0].start
    }

    /// The segment that holds `position` (or will), and where it ends if it is not the last. `None`
    /// when it was given back.
    pub fn find(&self, position: Position) -> Option<(Arc<Segment>, Option<Position>)> {
        let list = &self.list.lock().segments;
        let after = list.partition_point(|segment| segment.start <= position);
        let at = after.checked_sub(1)?;
        Some((list[at].clone(), list.get(after).map(|next| next.start)))
    }

    /// Whether [`Segments::release`] would release a whole one.
    pub fn any_before(&self, position: Position) -> bool {
        self.list.lock().may_keep_next(position)
    }

    /// Those that end at or before `position` may be deleted from now on.
    pub fn release(&self, position: Position) {
        let mut list = self.list.lock();
        while list.may_keep_next(position) {
            list.kept_since.push_back(Instant::now());
        }
    }

    /// What lies behind `position` is needed again.
    pub fn unrelease(&self, position: Position) {
        let mut list = self.list.lock();
        while !list.kept_since.is_empty() && list.segments[list.kept_since.len()].start > position {
            list.kept_since.pop_back();
        }
    }

    /// Takes the oldest out if it is released and `may_go`.
    pub fn take_kept(&self, may_go: impl FnOnce(Kept) -> bool) -> Option<Arc<Segment>> {
        let mut list = self.list.lock();
        let since = *list.kept_since.front()?;
        // The last one is never kept: another follows.
        let kept = Kept { start: list.segments[0].start, end: list.segments[1].start, since };
        if !may_go(kept) {
            return None;
        }
        list.kept_since.pop_front();
        list.segments.pop_front()
    }
}
