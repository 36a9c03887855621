//! The bytes of a checkpoint.
//!
//! ```text
//! checkpoint := head · block … · index · tail     all numbers little-endian, crc = CRC-32C
//! head  := magic "FBCHECK1" · length u32 · crc u32 of the text · text, JSON:
//!     { "version": 1, "log": "…", "opening": "…", "begin": 0, "settled": 0, "secret": "…", "place": "…",
//!       "tables": [ { "id": 1, "name": "codes", "tracked": [[1, true, false]], "highest_key": 7,
//!       "keys": [[8, 99]], "begin": 0, "followed": 0 } ] }
//!     place, followed: when tables are followed; a table's begin: when another was stopped
//! block := crc u32 of its entries · entries       of one shard of one table; its place is in the index
//! entry := state u64 · length u32 · bytes
//!     kind 0, rows: the position of the last change, above it EVICTED; a row or a stub, as in memory
//!     kind 1, doubts: a position; a key as in the log
//!     kind 2, unread: 0; the key of a row that is to be read from the database, as in the log
//! index := for each block: offset u64 · length u32 · entries u32 · table u16 · shard u8 · kind u8
//! tail  := offset of the index u64 · blocks u32 · crc u32 of the index · magic "FBCHEND1"
//! ```
//! **It is valid** when both magics are present, version, head and index are intact, and each block that is
//! read matches its crc. A shard's blocks are in the order in which they were taken; of two entries with one
//! key the later one counts. `secret` is the hasher's: stubs contain fingerprints that were computed with it.
//! So only the file's owner may read it.

use super::unusable::UnusableCheckpoint;
use crate::embedded::table::Table;
use crate::hash::{Hasher, SECRET_BYTES};
use forebay_log::{LogId, Position};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// The file's name in a data folder.
pub(crate) const FILE: &str = "checkpoint";
/// The file's name while it is written.
pub(crate) const NEW: &str = "checkpoint.new";

const MAGIC: &[u8; 8] = b"FBCHECK1";
const END_MAGIC: &[u8; 8] = b"FBCHEND1";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const TAIL_BYTES: usize = 24;
const BLOCK_BYTES: usize = 20;
const ENTRY_BYTES: usize = 12;
/// Rejects an absurd length: a head has some hundred bytes a table.
const HEAD_TEXT_BYTES_MAX: usize = 64 << 20;

/// The part of a checkpoint before the rows.
pub(crate) struct CheckpointHead {
    pub log: LogId,
    /// The opening of the log during which it was written.
    pub opening: u128,
    /// The log position at which replay begins: the least of all tables.
    pub begin: Position,
    /// The position up to which the outcomes of changes were known when the checkpoint was begun.
    pub settled: Position,
    pub hasher: Hasher,
    /// The place in the database's changes from which following continues, when tables are followed.
    pub place: Option<Arc<str>>,
    pub tables: Vec<SavedTable>,
}

/// What a checkpoint stores of a table besides its rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedTable {
    pub id: u16,
    pub name: String,
    pub tracked: Vec<(usize, bool, bool)>,
    pub highest_key: i64,
    /// Reserved serial keys, as blocks: the first key, and one past the last.
    pub keys: Vec<(i64, i64)>,
    /// The log position behind which its changes are to be replayed, when that is not the head's begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<u64>,
    /// Of a followed table: the position up to which the database had this process's changes at the head's
    /// place, or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followed: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHead {
    version: u32,
    log: String,
    opening: String,
    begin: u64,
    settled: u64,
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    tables: Vec<SavedTable>,
}

/// The kind of a block's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows,
    /// Keys of which only the database knows whether the row exists.
    Doubts,
    /// Keys of rows that are to be read from the database.
    Unread,
}

const KINDS: [Kind; 3] = [Kind::Rows, Kind::Doubts, Kind::Unread];

/// The index entry of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    pub offset: u64,
    /// Bytes, its crc included.
    pub length: u32,
    pub entries: u32,
    pub table: u16,
    pub shard: u8,
    pub kind: Kind,
}

impl CheckpointHead {
    /// What the checkpoint stores of a table besides its rows; `None` when the table is not in it.
    pub fn saved(&self, table: &Table) -> Option<&SavedTable> {
        self.tables.iter().find(|saved| saved.name == table.schema().name)
    }

    /// The log position behind which a table's changes are to be replayed.
    pub fn begin_of(&self, saved: &SavedTable) -> Position {
        saved.begin.map_or(self.begin, Position)
    }

    pub fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        let text = serde_json::to_vec(&StoredHead {
            version: VERSION,
            log: self.log.to_string(),
            opening: format!("{:032x}", self.opening),
            begin: self.begin.0,
            settled: self.settled.0,
            secret: hex(self.hasher.secret()),
            place: self.place.as_deref().map(str::to_owned),
            tables: self.tables.clone(),
        })?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&text).to_le_bytes());
        bytes.extend_from_slice(&text);
        Ok(bytes)
    }

    fn decode(text: &[u8]) -> Option<CheckpointHead> {
        let stored: StoredHead = serde_json::from_slice(text).ok()?;
        let number = |text: &str| u128::from_str_radix(text, 16).ok();
        (stored.version == VERSION).then_some(())?;
        Some(CheckpointHead {
            log: LogId(number(&stored.log)?),
            opening: number(&stored.opening)?,
            begin: Position(stored.begin),
            settled: Position(stored.settled),
            hasher: Hasher::of(unhex(&stored.secret)?.try_into().ok()?),
            place: stored.place.map(Arc::from),
            tables: stored.tables,
        })
    }
}

/// Appends an entry to a block.
pub(crate) fn put_entry(state: u64, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&state.to_le_bytes());
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// The entries of a block. Ends after the last one, and before one that is cut short.
pub(crate) fn entries(mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = bytes.split_first_chunk::<ENTRY_BYTES>()?;
        let (state, length) = head.split_first_chunk::<8>()?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        let (entry, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some((u64::from_le_bytes(*state), entry))
    })
}

/// The bytes of index and tail.
pub(crate) fn encode_end(offset: u64, blocks: &[Block]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK_BYTES + TAIL_BYTES);
    for block in blocks {
        bytes.extend_from_slice(&block.offset.to_le_bytes());
        bytes.extend_from_slice(&block.length.to_le_bytes());
        bytes.extend_from_slice(&block.entries.to_le_bytes());
        bytes.extend_from_slice(&block.table.to_le_bytes());
        bytes.extend_from_slice(&[block.shard, block.kind as u8]);
    }
    let crc = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&(blocks.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(END_MAGIC);
    bytes
}

/// Reads head and index, and returns them with the length of the file. An error is the rest of a sentence
/// that begins with the file's path.
pub(crate) fn read(file: &File) -> Result<(CheckpointHead, Vec<Block>, u64), UnusableCheckpoint> {
    let failed = |error: io::Error| format!("cannot be read: {error}");
    let length = file.metadata().map_err(failed)?.len();
    let mut start = [0; HEAD_BYTES];
    file.read_exact_at(&mut start, 0).map_err(failed)?;
    let text_bytes = u32_at(&start, 8) as usize;
    if &start[..8] != MAGIC || text_bytes > HEAD_TEXT_BYTES_MAX {
        return Err("is not one of this version".into());
    }
    let mut text = vec![0; text_bytes];
    file.read_exact_at(&mut text, HEAD_BYTES as u64).map_err(failed)?;
    if crc32c::crc32c(&text) != u32_at(&start, 12) {
        return Err("has a damaged head".into());
    }
    let head = CheckpointHead::decode(&text).ok_or("is not one of this version")?;
    let mut tail = [0; TAIL_BYTES];
    let tail_at = length.checked_sub(TAIL_BYTES as u64).ok_or("is cut short")?;
    file.read_exact_at(&mut tail, tail_at).map_err(failed)?;
    let index_at = u64::from_le_bytes(tail[..8].try_into().expect("eight bytes"));
    let index_bytes = u64::from(u32_at(&tail, 8)) * BLOCK_BYTES as u64;
    if &tail[16..] != END_MAGIC || index_at.checked_add(index_bytes) != Some(tail_at) {
        return Err("has no end".into());
    }
    let mut index = vec![0; index_bytes as usize];
    file.read_exact_at(&mut index, index_at).map_err(failed)?;
    if crc32c::crc32c(&index) != u32_at(&tail, 12) {
        return Err("has a damaged index".into());
    }
    let blocks: Option<Vec<_>> = index.chunks_exact(BLOCK_BYTES).map(block).collect();
    let fits = |block: &Block| {
        block.length >= 4 && block.offset.checked_add(block.length.into()).is_some_and(|end| end <= index_at)
    };
    let blocks = blocks.filter(|blocks| blocks.iter().all(fits)).ok_or("has a wrong index")?;
    Ok((head, blocks, length))
}

fn block(bytes: &[u8]) -> Option<Block> {
    Some(Block {
        offset: u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")),
        length: u32_at(bytes, 8),
        entries: u32_at(bytes, 12),
        table: u16::from_le_bytes([bytes[16], bytes[17]]),
        shard: bytes[18],
        kind: *KINDS.get(usize::from(bytes[19]))?,
    })
}

/// Reads a block's entries into `buffer`, whose content is replaced.
pub(crate) fn read_block<'b>(
    file: &File,
    block: &Block,
    buffer: &'b mut Vec<u8>,
) -> Result<&'b [u8], UnusableCheckpoint> {
    buffer.resize(block.length as usize, 0);
    file.read_exact_at(buffer, block.offset).map_err(|error| format!("cannot be read: {error}"))?;
    let (crc, content) = buffer.split_at(4);
    if crc32c::crc32c(content) != u32_at(crc, 0) || entries(content).count() != block.entries as usize {
        return Err(format!("is damaged at byte {}", block.offset).into());
    }
    Ok(content)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn hex(bytes: &[u8; SECRET_BYTES]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().as_chunks::<2>().0.iter();
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Replaces the file `path` by `new`, which must be complete and synced, and makes that durable.
pub(crate) fn publish(dir: &Path, new: &Path, path: &Path) -> io::Result<()> {
    fs::rename(new, path)?;
    File::open(dir)?.sync_all()
}
