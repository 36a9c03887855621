//! The format of the files on disk, when they are valid, and how they are read.
//!
//! ```text
//! A data folder holds
//!     LOCK                      locked while the log is open; the holder's process id in decimal
//!     MANIFEST                  56 bytes, replaced by rename only
//!     HISTORY                   the openings of the log, replaced by rename only
//!     aside                     records whose segments are deleted, replaced by rename only; see `aside`
//!     00000000000000000000.log  segments, named by their start position, 20 decimal digits
//!     *.new                     files that are being made; deleted when the log is opened
//!
//! All numbers are little-endian. crc = CRC-32C (Castagnoli).
//!
//! MANIFEST
//!     0  magic "FBMANIF1"      8  version u32 (1)     12  zero u32      16  log id u128
//!    32  salt u64             40  released u64        48  zero u32      52  crc u32 of bytes 0..52
//!
//! HISTORY = header (32 bytes) + openings, oldest first + crc u32 of all bytes before it
//!     0  magic "FBHISTO1"      8  version u32 (1)     12  number of openings u32      16  log id u128
//!     Opening: nonce u128, end u64: where the log ended when it was opened
//!
//! Segment = header (one sector, 512 bytes) + groups, back to back + zeros up to the end of the file
//!     0  magic "FBSEGMT1"      8  version u32 (1)     12  zero u32      16  log id u128
//!    32  salt u64             40  start u64           48  zeros        508  crc u32 of bytes 0..508
//!
//! Group = header (48 bytes) + records, back to back + zeros up to a whole sector
//!     0  magic "FBGROUP1"      8  log id u128         24  start u64: position of the header's first byte
//!    32  bytes u32: header + records + padding        36  content u32: header + records
//!    40  records u32          44  crc u32 of bytes 0..44 and 48..bytes, seeded with the salt
//!
//! Record = length u32 + that many bytes. Length 0 is a record.
//! ```
//!
//! **Positions.** The group at file offset `o` of a segment that starts at `s` has position `s + o - 512`. A
//! group never spans segments, and a segment starts where the one before it ends its last group. The position
//! of a record is that of its end: the byte after it.
//!
//! **A group is valid** when its magic, log id and start are those expected at that place, `bytes`
//! is a multiple of 512 that fits the file, `48 <= content <= bytes < content + 512`, the crc is
//! right, and the records fill the content exactly.
//!
//! **Why no other bytes pass as a group.** Group starts never repeat within a log and the place must match
//! the start, so an old copy elsewhere is not valid. Only zeros follow the last group: segments are created
//! from zeros, and recovery zeroes what it cuts off. A client that writes the bytes of a group into a record
//! does not know the salt, which never leaves the folder.
//!
//! **The reader's algorithm** (recovery): segments in order of their names; the header must be valid and the
//! start equal to the end of the segment before, otherwise refuse. Then groups, one after the other, until
//! one is not valid, at position `p`. If that is not the last segment: refuse, because a segment is only
//! begun when everything before it is durable. In the last segment: if anywhere behind `p`, at any byte,
//! there is a group of this log with a start above `p` and a right crc: refuse, because the damage is in the
//! middle. Otherwise everything behind `p` was left by one unfinished write: overwrite it with zeros, sync,
//! and continue at `p`. At most one group that is not durable is being written at any time, so nothing valid
//! can follow a torn one.

use crate::limits::{
    GROUP_HEADER_BYTES, HISTORY_HEADER_BYTES, MANIFEST_BYTES, OPENING_BYTES, RECORD_HEADER_BYTES,
    SECTOR_BYTES, SEGMENT_HEADER_BYTES, align_up,
};
use crate::position::{LogId, Opening, Position};

const MANIFEST_MAGIC: &[u8; 8] = b"FBMANIF1";
const HISTORY_MAGIC: &[u8; 8] = b"FBHISTO1";
const SEGMENT_MAGIC: &[u8; 8] = b"FBSEGMT1";
pub(crate) const GROUP_MAGIC: &[u8; 8] = b"FBGROUP1";
const VERSION: u32 = 1;

/// The id and the salt that distinguish the bytes of one log from those of any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub id: LogId,
    /// Secret, unlike the id.
    pub salt: u64,
}

/// Why some bytes are not what was expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invalid {
    /// Magic, checksum, length or structure is wrong.
    Damaged,
    /// Intact, but of a version that this program does not support.
    Version(u32),
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    let mut field = [0; 16];
    field.copy_from_slice(&bytes[at..at + 16]);
    u128::from_le_bytes(field)
}

/// Encodes a manifest or a segment header: both begin with magic, version, log id, salt and one position, and
/// end with their crc.
fn encode_header<const N: usize>(magic: &[u8; 8], identity: Identity, position: Position) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[0..8].copy_from_slice(magic);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&identity.id.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&identity.salt.to_le_bytes());
    bytes[40..48].copy_from_slice(&position.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..N - 4]);
    bytes[N - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

fn decode_header(magic: &[u8; 8], length: usize, bytes: &[u8]) -> Result<(Identity, Position), Invalid> {
    if bytes.len() != length
        || &bytes[0..8] != magic
        || crc32c::crc32c(&bytes[..length - 4]) != u32_at(bytes, length - 4)
    {
        return Err(Invalid::Damaged);
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(Invalid::Version(version));
    }
    let identity = Identity { id: LogId(u128_at(bytes, 16)), salt: u64_at(bytes, 32) };
    Ok((identity, Position(u64_at(bytes, 40))))
}

/// Encodes a manifest: the log's identity, and the released position.
pub(crate) fn encode_manifest(identity: Identity, released: Position) -> [u8; MANIFEST_BYTES] {
    encode_header(MANIFEST_MAGIC, identity, released)
}

pub(crate) fn decode_manifest(bytes: &[u8]) -> Result<(Identity, Position), Invalid> {
    decode_header(MANIFEST_MAGIC, MANIFEST_BYTES, bytes)
}

/// Encodes a history: the log's id, and its openings, oldest first.
pub(crate) fn encode_history(log: LogId, openings: &[Opening]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HISTORY_HEADER_BYTES + openings.len() * OPENING_BYTES + 4);
    bytes.extend_from_slice(HISTORY_MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(openings.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&log.0.to_le_bytes());
    for opening in openings {
        bytes.extend_from_slice(&opening.nonce.to_le_bytes());
        bytes.extend_from_slice(&opening.end.0.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

pub(crate) fn decode_history(bytes: &[u8], log: LogId) -> Result<Vec<Opening>, Invalid> {
    let Some(content) = bytes.len().checked_sub(4).filter(|content| *content >= HISTORY_HEADER_BYTES) else {
        return Err(Invalid::Damaged);
    };
    if &bytes[..8] != HISTORY_MAGIC || crc32c::crc32c(&bytes[..content]) != u32_at(bytes, content) {
        return Err(Invalid::Damaged);
    }
    let version = u32_at(bytes, 8);
    if version != VERSION {
        return Err(Invalid::Version(version));
    }
    let openings = bytes[HISTORY_HEADER_BYTES..content].chunks_exact(OPENING_BYTES);
    if openings.len() != u32_at(bytes, 12) as usize
        || !openings.remainder().is_empty()
        || u128_at(bytes, 16) != log.0
    {
        return Err(Invalid::Damaged);
    }
    Ok(openings.map(|bytes| Opening { nonce: u128_at(bytes, 0), end: Position(u64_at(bytes, 16)) }).collect())
}

/// Encodes a segment's header, its first sector.
pub(crate) fn encode_segment(identity: Identity, start: Position) -> [u8; SEGMENT_HEADER_BYTES as usize] {
    encode_header(SEGMENT_MAGIC, identity, start)
}

pub(crate) fn decode_segment(bytes: &[u8]) -> Result<(Identity, Position), Invalid> {
    decode_header(SEGMENT_MAGIC, SEGMENT_HEADER_BYTES as usize, bytes)
}

/// A group's header, decoded; its checksum is not verified yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupHeader {
    pub start: Position,
    /// Header, records and padding.
    pub bytes: u32,
    /// Header and records.
    pub content: u32,
    pub records: u32,
    crc: u32,
}

fn group_crc(salt: u64, group: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&salt.to_le_bytes());
    let head = crc32c::crc32c_append(seed, &group[..GROUP_HEADER_BYTES - 4]);
    crc32c::crc32c_append(head, &group[GROUP_HEADER_BYTES..])
}

/// Fills in the header of a group, whose buffer has [`GROUP_HEADER_BYTES`] of arbitrary content and then the
/// records; pads it to a whole sector.
pub(crate) fn seal_group(group: &mut Vec<u8>, identity: Identity, start: Position, records: u32) {
    let content = group.len();
    let bytes = align_up(content as u64) as usize;
    group.resize(bytes, 0);
    group[0..8].copy_from_slice(GROUP_MAGIC);
    group[8..24].copy_from_slice(&identity.id.0.to_le_bytes());
    group[24..32].copy_from_slice(&start.0.to_le_bytes());
    group[32..36].copy_from_slice(&(bytes as u32).to_le_bytes());
    group[36..40].copy_from_slice(&(content as u32).to_le_bytes());
    group[40..44].copy_from_slice(&records.to_le_bytes());
    let crc = group_crc(identity.salt, group);
    group[44..48].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes a header from the first bytes of a group. `None` when the bytes are not a group header of this
/// log.
pub(crate) fn decode_group_header(bytes: &[u8], id: LogId) -> Option<GroupHeader> {
    if bytes.len() < GROUP_HEADER_BYTES || &bytes[0..8] != GROUP_MAGIC || u128_at(bytes, 8) != id.0 {
        return None;
    }
    let header = GroupHeader {
        start: Position(u64_at(bytes, 24)),
        bytes: u32_at(bytes, 32),
        content: u32_at(bytes, 36),
        records: u32_at(bytes, 40),
        crc: u32_at(bytes, 44),
    };
    let fits = header.content as usize >= GROUP_HEADER_BYTES
        && u64::from(header.bytes) == align_up(u64::from(header.content));
    fits.then_some(header)
}

/// Whether the whole group (`header.bytes` long) is intact: checksum and record lengths.
pub(crate) fn check_group(group: &[u8], header: &GroupHeader, salt: u64) -> bool {
    debug_assert_eq!(group.len(), header.bytes as usize);
    group_crc(salt, group) == header.crc && records_fill(group, header)
}

/// Whether the records fill the content exactly: after this, [`next_record`] cannot run over.
fn records_fill(group: &[u8], header: &GroupHeader) -> bool {
    let content = header.content as usize;
    let mut at = GROUP_HEADER_BYTES;
    let mut records: u32 = 0;
    while at < content {
        if content - at < RECORD_HEADER_BYTES {
            return false;
        }
        let length = u32_at(group, at) as usize;
        if length > content - at - RECORD_HEADER_BYTES {
            return false;
        }
        at += RECORD_HEADER_BYTES + length;
        records += 1;
    }
    records == header.records
}

/// The length of a checked group, and that of its header and records together.
pub(crate) fn group_lengths(group: &[u8]) -> (usize, usize) {
    (u32_at(group, 32) as usize, u32_at(group, 36) as usize)
}

/// The record at `at` in checked bytes, and where the next one begins.
pub(crate) fn next_record(bytes: &[u8], at: usize) -> (&[u8], usize) {
    let length = u32_at(bytes, at) as usize;
    let end = at + RECORD_HEADER_BYTES + length;
    (&bytes[at + RECORD_HEADER_BYTES..end], end)
}

const _: () = assert!(MANIFEST_BYTES >= 48 + 4);
const _: () = assert!(SECTOR_BYTES >= 48 + 4);

#[cfg(test)]
mod tests;
