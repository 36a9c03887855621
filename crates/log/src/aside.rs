//! Records that are set aside: those that are still needed from a part of the log whose other records are
//! not, in one file beside the segments, with their positions. So a few records need not keep all segments.
//!
//! ```text
//! aside := head · frame …                        all numbers little-endian, crc = CRC-32C
//! head  := magic "FBASIDE1" · version u32 (1) · parts u32 · log id u128 · salt u64 · upto u64 ·
//!          length of the file u64 · head's length u32 · zero u32 · part … · crc u32 of the bytes before it
//! part  := from u64 · bytes u64 · length of the name u16 · name
//! frame := position u64 · length u32 · crc u32 of both and the record, seeded with the salt · record
//! ```
//! **What it contains:** of each part the records behind its `from` and up to `upto`, in the order of the
//! log; a part is what the caller calls so. The segments contain everything behind `upto`.
//!
//! **What must stay true.** The file is replaced as a whole, by rename, and is durable before a segment is
//! deleted that contains its records. It is deleted only when the manifest says that nothing up to `upto` is
//! needed, or while the segments contain everything that is. A reader reads it only where the segments no
//! longer reach back.

use crate::disk::{Access, Disk, DiskFile};
use crate::error::{Error, FilePlace};
use crate::format::{Identity, u32_at, u64_at, u128_at};
use crate::limits::{ASIDE_INDEX_BYTES, WINDOW_BYTES};
use crate::position::{LogId, Position};
use crate::window::{Window, read_full};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const ASIDE_FILE: &str = "aside";
const ASIDE_NEW: &str = "aside.new";
const MAGIC: &[u8; 8] = b"FBASIDE1";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 64;
const PART_BYTES: usize = 18;
pub(crate) const FRAME_BYTES: usize = 16;

/// Which records of a log are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// Every record behind this position, except of the parts below.
    pub others: Position,
    /// Of each of these parts, by its name, the records behind an earlier position.
    pub parts: BTreeMap<String, Position>,
}

impl Needed {
    /// Every record behind this position.
    pub fn behind(position: Position) -> Needed {
        Needed { others: position, parts: BTreeMap::new() }
    }

    /// No record up to here is needed.
    pub fn all(&self) -> Position {
        self.parts.values().copied().fold(self.others, Position::min)
    }

    /// No record of this part up to here is needed.
    pub fn of(&self, part: &str) -> Position {
        self.parts.get(part).copied().unwrap_or(self.others)
    }
}

/// The records of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The records up to here are not among them.
    pub from: Position,
    pub bytes: u64,
}

/// The file, open for reading.
pub(crate) struct Aside {
    pub file: Arc<dyn DiskFile>,
    pub path: PathBuf,
    /// No record up to here is in it.
    pub start: Position,
    pub upto: Position,
    pub bytes: u64,
    pub parts: BTreeMap<String, Part>,
    salt: u64,
    /// Some frames: the position of the record, and the frame's offset.
    index: Vec<(Position, u64)>,
}

impl Aside {
    /// Whether it contains the records of `part` behind `from`, up to its end.
    pub fn has(&self, part: &str, from: Position) -> bool {
        from >= self.upto || self.parts.get(part).is_some_and(|part| part.from <= from)
    }

    /// Whether it contains what is `needed`, up to its end.
    pub fn covers(&self, needed: &Needed) -> bool {
        needed.others >= self.upto && needed.parts.iter().all(|(part, from)| self.has(part, *from))
    }

    /// The offset of the first frame whose record lies behind `after`; `None`: there is no such frame.
    pub fn offset_behind(&self, after: Position) -> Result<Option<u64>, Error> {
        let near = self.index.partition_point(|(position, _)| *position <= after);
        let Some((_, mut offset)) = self.index.get(near.saturating_sub(1)).copied() else { return Ok(None) };
        while offset < self.bytes {
            let mut head = [0; FRAME_BYTES];
            let filled = read_full(&*self.file, &mut head, offset).map_err(|error| self.unreadable(error))?;
            if filled < FRAME_BYTES {
                return Err(self.damaged(offset));
            }
            if u64_at(&head, 0) > after.0 {
                return Ok(Some(offset));
            }
            offset += (FRAME_BYTES + u32_at(&head, 8) as usize) as u64;
        }
        Ok(None)
    }

    pub fn unreadable(&self, error: io::Error) -> Error {
        Error::io("read", &self.path, error)
    }

    pub fn damaged(&self, offset: u64) -> Error {
        let place = FilePlace { file: self.path.clone(), offset, position: self.start };
        Error::corrupt("a record that was set aside is damaged", place)
    }

    /// The position and the length of the frame at the beginning of `bytes`, if it is whole and intact.
    pub fn frame(&self, bytes: &[u8]) -> Option<(Position, usize)> {
        frame(bytes, self.salt)
    }
}

fn frame(bytes: &[u8], salt: u64) -> Option<(Position, usize)> {
    let head = bytes.get(..FRAME_BYTES)?;
    let end = FRAME_BYTES + u32_at(head, 8) as usize;
    let record = bytes.get(FRAME_BYTES..end)?;
    let is_intact = frame_crc(salt, &head[..12], record) == u32_at(head, 12);
    is_intact.then(|| (Position(u64_at(head, 0)), end))
}

fn frame_crc(salt: u64, head: &[u8], record: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&salt.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(seed, head), record)
}

/// The position and the record at `at` in checked frames, and where the next one begins.
pub(crate) fn next_frame(bytes: &[u8], at: usize) -> (Position, &[u8], usize) {
    let end = at + FRAME_BYTES + u32_at(bytes, at + 8) as usize;
    (Position(u64_at(bytes, at)), &bytes[at + FRAME_BYTES..end], end)
}

/// Writes the file that replaces the present one.
pub(crate) struct Writer<'a> {
    disk: &'a dyn Disk,
    folder: &'a Path,
    identity: Identity,
    file: Arc<dyn DiskFile>,
    buffer: Vec<u8>,
    /// The file offset of the buffer.
    offset: u64,
    parts: BTreeMap<String, Part>,
    index: Vec<(Position, u64)>,
    last: Position,
}

impl<'a> Writer<'a> {
    /// Begins a file with the records of these parts, each behind its position.
    pub fn create(
        disk: &'a dyn Disk,
        folder: &'a Path,
        identity: Identity,
        parts: &BTreeMap<String, Position>,
    ) -> io::Result<Writer<'a>> {
        let file = disk.open(&folder.join(ASIDE_NEW), Access::Create)?;
        let parts = parts.iter().map(|(name, from)| (name.clone(), Part { from: *from, bytes: 0 }));
        let parts: BTreeMap<String, Part> = parts.collect();
        let offset = head_bytes(&parts) as u64;
        let (buffer, index) = (Vec::with_capacity(WINDOW_BYTES), Vec::new());
        Ok(Writer { disk, folder, identity, file, buffer, offset, parts, index, last: Position(0) })
    }

    /// Appends a record, unless it is of no part or not needed.
    pub fn put(&mut self, part: &str, position: Position, record: &[u8]) -> io::Result<()> {
        let Some(part) = self.parts.get_mut(part).filter(|part| part.from < position) else { return Ok(()) };
        assert!(position > self.last, "records are set aside in their order");
        self.last = position;
        let at = self.offset + self.buffer.len() as u64;
        if self.index.last().is_none_or(|(_, last)| at - last >= ASIDE_INDEX_BYTES) {
            self.index.push((position, at));
        }
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&position.0.to_le_bytes());
        self.buffer.extend_from_slice(&(record.len() as u32).to_le_bytes());
        let crc = frame_crc(self.identity.salt, &self.buffer[start..], record);
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.buffer.extend_from_slice(record);
        part.bytes += (self.buffer.len() - start) as u64;
        if self.buffer.len() >= WINDOW_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Puts the complete file in place of the present one, durably.
    pub fn publish(mut self, upto: Position) -> io::Result<Aside> {
        self.write()?;
        let head = encode_head(self.identity, upto, self.offset, &self.parts);
        self.file.write_all_at(&head, 0)?;
        self.file.sync()?;
        let path = self.folder.join(ASIDE_FILE);
        self.disk.rename(&self.folder.join(ASIDE_NEW), &path)?;
        self.disk.sync_folder(self.folder)?;
        Ok(Aside {
            file: self.disk.open(&path, Access::Read)?,
            path,
            start: start_of(&self.parts, upto),
            upto,
            bytes: self.offset,
            parts: self.parts,
            salt: self.identity.salt,
            index: self.index,
        })
    }
}

/// Deletes a file that was not completed. A failure is ignored, because the next opening tries again.
pub(crate) fn discard_new(disk: &dyn Disk, folder: &Path) {
    let _ = disk.remove(&folder.join(ASIDE_NEW));
}

fn start_of(parts: &BTreeMap<String, Part>, upto: Position) -> Position {
    parts.values().map(|part| part.from).fold(upto, Position::min)
}

fn head_bytes(parts: &BTreeMap<String, Part>) -> usize {
    HEAD_BYTES + parts.keys().map(|name| PART_BYTES + name.len()).sum::<usize>() + 4
}

fn encode_head(identity: Identity, upto: Position, length: u64, parts: &BTreeMap<String, Part>) -> Vec<u8> {
    let whole = head_bytes(parts);
    let mut bytes = Vec::with_capacity(whole);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&identity.id.0.to_le_bytes());
    bytes.extend_from_slice(&identity.salt.to_le_bytes());
    bytes.extend_from_slice(&upto.0.to_le_bytes());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(whole as u32).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    for (name, part) in parts {
        bytes.extend_from_slice(&part.from.0.to_le_bytes());
        bytes.extend_from_slice(&part.bytes.to_le_bytes());
        let length = u16::try_from(name.len()).expect("the name of a part is short");
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The file of a folder, checked; `None`: there is none.
///
/// # Errors
/// [`Kind::Corrupt`](crate::Kind::Corrupt), [`Kind::Foreign`](crate::Kind::Foreign) with the place.
pub(crate) fn open(disk: &dyn Disk, folder: &Path, identity: Identity) -> Result<Option<Aside>, Error> {
    let path = folder.join(ASIDE_FILE);
    let file = match disk.open(&path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", &path, error)),
    };
    let unreadable = |error| Error::io("read", &path, error);
    let place = || FilePlace { file: path.clone(), offset: 0, position: Position(0) };
    let damaged = || Error::corrupt("the head of what was set aside is damaged", place());
    let mut window = Window::new(&*file).map_err(unreadable)?;
    let head = window.get(0, HEAD_BYTES).map_err(unreadable)?.ok_or_else(damaged)?.to_vec();
    if &head[..8] != MAGIC {
        return Err(damaged());
    }
    let (version, whole) = (u32_at(&head, 8), u32_at(&head, 56) as usize);
    if version != VERSION {
        let what = format!("records set aside in version {version}, which this program does not know,");
        return Err(Error::foreign(&what, place()));
    }
    let head = window.get(0, whole.max(HEAD_BYTES + 4)).map_err(unreadable)?.ok_or_else(damaged)?.to_vec();
    let (content, crc) = head.split_at(head.len() - 4);
    let parts =
        decode_parts(content, u32_at(content, 12)).filter(|_| crc32c::crc32c(content) == u32_at(crc, 0));
    let parts = parts.ok_or_else(damaged)?;
    if LogId(u128_at(content, 16)) != identity.id || u64_at(content, 32) != identity.salt {
        return Err(Error::foreign("records that were set aside from another log", place()));
    }
    let (upto, bytes) = (Position(u64_at(content, 40)), u64_at(content, 48));
    let start = start_of(&parts, upto);
    let (salt, index) = (identity.salt, Vec::new());
    let mut aside = Aside { file: file.clone(), path: path.clone(), start, upto, bytes, parts, salt, index };
    aside.index = check_frames(&aside, &mut window, whole as u64)?;
    Ok(Some(aside))
}

fn decode_parts(content: &[u8], count: u32) -> Option<BTreeMap<String, Part>> {
    let (mut parts, mut at) = (BTreeMap::new(), HEAD_BYTES);
    for _ in 0..count {
        let head = content.get(at..at + PART_BYTES)?;
        let part = Part { from: Position(u64_at(head, 0)), bytes: u64_at(head, 8) };
        let length = usize::from(u16::from_le_bytes([head[16], head[17]]));
        at += PART_BYTES;
        let name = std::str::from_utf8(content.get(at..at + length)?).ok()?;
        parts.insert(name.to_owned(), part);
        at += length;
    }
    (at == content.len()).then_some(parts)
}

/// Checks every frame; returns the places of some.
fn check_frames(aside: &Aside, window: &mut Window<'_>, from: u64) -> Result<Vec<(Position, u64)>, Error> {
    let (mut index, mut last, mut offset) = (Vec::<(Position, u64)>::new(), aside.start, from);
    while offset < aside.bytes {
        let damaged = || aside.damaged(offset);
        let head = window.get(offset, FRAME_BYTES).map_err(|error| aside.unreadable(error))?;
        let length = FRAME_BYTES + u32_at(head.ok_or_else(damaged)?, 8) as usize;
        let bytes = window.get(offset, length).map_err(|error| aside.unreadable(error))?;
        let (position, length) = aside.frame(bytes.ok_or_else(damaged)?).ok_or_else(damaged)?;
        if position <= last || position > aside.upto {
            return Err(damaged());
        }
        last = position;
        if index.last().is_none_or(|(_, last)| offset - last >= ASIDE_INDEX_BYTES) {
            index.push((position, offset));
        }
        offset += length as u64;
    }
    if offset == aside.bytes { Ok(index) } else { Err(aside.damaged(offset)) }
}
