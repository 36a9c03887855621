//! Segments: their names, the place of a position in one, how one is created, and the list of existing ones.
//!
//! **How space is allocated, and why.** Measured on ext4 on a virtio disk, per group, `pwrite` + `fdatasync`,
//! wall / CPU in µs:
//!
//! | group | plain append | `fallocate` ahead | zeroed ahead | old segment overwritten |
//! |---|---|---|---|---|
//! | 1 KiB | 166 / 59 | 122 / 42 | 109 / 46 | 96 / 42 |
//! | 36 KiB | 209 / 80 | 196 / 74 | 124 / 50 | 119 / 50 |
//! | 256 KiB | 359 / 143 | 295 / 95 | 172 / 65 | 162 / 65 |
//!
//! Writing into blocks that are already allocated and written spares the journal commit in every sync.
//! Zeroing 64 MiB costs 13 ms of CPU, 7 µs for each of the 1,800 groups of 36 KiB that it makes 30 µs
//! cheaper. Overwriting old segments would save that too, but then stale groups follow the last one and a
//! reader's file can change while it is read. With zeros, only zeros follow the last group, so that recovery
//! can report exactly what it cut off. So a separate thread zeroes segments ahead (`segment_reserve`); when
//! that is not ready in time, and for the first segment, the log uses `fallocate`.
//!
//! **Past the page cache.** Groups are whole sectors and their buffers are aligned, so they are written with
//! `O_DIRECT` where the file system supports it: 104 / 39 instead of 124 / 50 for a group of 36 KiB. That
//! also saves memory: zeroing and writing through the page cache took a fresh page for each 4 KiB of log.
//! With `POST /code-ultra-fast` (550 bytes, the machine of docs/performance.md) the whole machine's CPU time
//! a request fell from 13.7 to 10.9 µs, pipelined from 6.0 to 4.6 µs. Readers bypass it too: they read each
//! byte once, and during recovery the memory is needed for rows.

use crate::disk::{Access, Disk, DiskFile};
use crate::format::{self, Identity};
use crate::limits::{SEGMENT_HEADER_BYTES, align_up};
use crate::position::Position;
use crate::window::read_full;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const NAME_SUFFIX: &str = ".log";
const NAME_DIGITS: usize = 20;
/// The suffix of files that are being created.
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

    /// The file offset of the byte at `position`.
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

/// Creates a blank with room for `capacity_bytes` of groups; on failure the file is deleted.
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

/// Deletes a file that never became part of the log. A failure is ignored, because `Log::open` tries again.
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

    /// Writes a whole group after the last one and syncs it.
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

/// Overwrites a part of a file with zeros.
pub(crate) fn write_zeros(file: &dyn DiskFile, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = [0; 64 * 1024];
    while from < to {
        let length = (to - from).min(zeros.len() as u64) as usize;
        file.write_all_at(&zeros[..length], from)?;
        from += length as u64;
    }
    Ok(())
}

/// Writes the same bytes again. After a failed sync the system may have a group in the page cache, marked
/// clean, and never write it: a reader would see the group and a crash would undo it. After the rewrite, the
/// next sync includes the group.
pub(crate) fn rewrite(file: &dyn DiskFile, offset: u64, length: usize) -> io::Result<()> {
    let mut bytes = vec![0; length];
    let filled = read_full(file, &mut bytes, offset)?;
    file.write_all_at(&bytes[..filled], offset)
}

/// A released segment that still exists.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReleasedSegment {
    pub start: Position,
    /// The position at which the next segment starts.
    pub end: Position,
    /// When it was released.
    pub since: Instant,
}

/// The segments of the log, oldest first. Never empty: the last is the active one.
pub(crate) struct Segments {
    list: Mutex<List>,
}

struct List {
    segments: VecDeque<Arc<Segment>>,
    /// When each of the released segments was released; they are the first ones of `segments`. Never the last
    /// segment.
    kept_since: VecDeque<Instant>,
}

impl List {
    /// Whether the first unreleased segment ends at or before `position`.
    fn may_keep_next(&self, position: Position) -> bool {
        self.segments.get(self.kept_since.len() + 1).is_some_and(|next| next.start <= position)
    }
}

impl Segments {
    /// Segments that end at or before `released` count as released from now on.
    pub fn new(segments: VecDeque<Arc<Segment>>, released: Position) -> Segments {
        assert!(!segments.is_empty());
        let segments = Segments { list: Mutex::new(List { segments, kept_since: VecDeque::new() }) };
        segments.release(released);
        segments
    }

    /// Adds the newest segment. It replaces the last one when that is still empty (and too small for the next
    /// group): both then start at the same position, and have the same file name.
    pub fn push(&self, segment: Arc<Segment>) {
        let list = &mut self.list.lock().segments;
        if list.back().is_some_and(|last| last.start == segment.start) {
            list.pop_back();
        }
        list.push_back(segment);
    }

    /// Start of the oldest segment.
    pub fn first(&self) -> Position {
        self.list.lock().segments[0].start
    }

    /// The segment that contains `position` (or will), and where it ends if it is not the last. `None` when
    /// it was deleted.
    pub fn find(&self, position: Position) -> Option<(Arc<Segment>, Option<Position>)> {
        let list = &self.list.lock().segments;
        let after = list.partition_point(|segment| segment.start <= position);
        let at = after.checked_sub(1)?;
        Some((list[at].clone(), list.get(after).map(|next| next.start)))
    }

    /// Whether [`Segments::release`] would release a whole segment.
    pub fn any_before(&self, position: Position) -> bool {
        self.list.lock().may_keep_next(position)
    }

    /// Marks segments that end at or before `position` as released: they may be deleted from now on.
    pub fn release(&self, position: Position) {
        let mut list = self.list.lock();
        while list.may_keep_next(position) {
            list.kept_since.push_back(Instant::now());
        }
    }

    /// Marks segments with records behind `position` as unreleased again.
    pub fn unrelease(&self, position: Position) {
        let mut list = self.list.lock();
        while !list.kept_since.is_empty() && list.segments[list.kept_since.len()].start > position {
            list.kept_since.pop_back();
        }
    }

    /// Removes the oldest segment from the list if it is released and `may_go` returns true.
    pub fn take_kept(&self, may_go: impl FnOnce(ReleasedSegment) -> bool) -> Option<Arc<Segment>> {
        let mut list = self.list.lock();
        let since = *list.kept_since.front()?;
        // A released segment is never the last, so another follows.
        let kept = ReleasedSegment { start: list.segments[0].start, end: list.segments[1].start, since };
        if !may_go(kept) {
            return None;
        }
        list.kept_since.pop_front();
        list.segments.pop_front()
    }
}
