//! The position up to which the outcomes of changes are known: a small file beside the checkpoint, which is
//! written far more often.
//!
//! ```text
//! settled := magic "FBSETTL1" · log id u128 · position u64 · crc u32 of the bytes before it
//! ```
//! When the file is missing or damaged, a start only reads more rows again.

use super::format::publish;
use forebay_log::{LogId, Position};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

const MAGIC: &[u8; 8] = b"FBSETTL1";
pub(super) const FILE: &str = "checkpoint.settled";
const NEW: &str = "checkpoint.settled.new";
const BYTES: usize = 36;

/// The position up to which the log contains the outcomes of its changes; 0 when the file cannot be used.
pub(super) fn read(dir: &Path, log: LogId) -> Position {
    let Ok(bytes) = fs::read(dir.join(FILE)) else { return Position(0) };
    let Ok(bytes) = <[u8; BYTES]>::try_from(bytes) else { return Position(0) };
    let (content, crc) = bytes.split_at(BYTES - 4);
    let is_good = crc32c::crc32c(content).to_le_bytes() == crc
        && &content[..8] == MAGIC
        && content[8..24] == log.0.to_le_bytes();
    let position = u64::from_le_bytes(content[24..].try_into().expect("eight bytes"));
    Position(if is_good { position } else { 0 })
}

/// Replaces the file of a folder.
pub(super) fn write(dir: &Path, log: LogId, settled: Position) -> io::Result<()> {
    let (path, new) = (dir.join(FILE), dir.join(NEW));
    let mut bytes = Vec::with_capacity(BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&log.0.to_le_bytes());
    bytes.extend_from_slice(&settled.0.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    let mut file = File::create(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    publish(dir, &new, &path)
}
