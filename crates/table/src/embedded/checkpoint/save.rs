//! Memory to file, while serving continues.

use super::format::{Block, CheckpointHead, FILE, Kind, NEW, SavedTable, encode_end, publish, put_entry};
use crate::embedded::follow::Mark;
use crate::embedded::shard::{Absence, Shard};
use crate::embedded::slab::EVICTED;
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::error::{Error, Kind as ErrorKind};
use crate::limits::{
    CHECKPOINT_SLICE_BYTES, CHECKPOINT_SLICE_SLOTS, CHECKPOINT_SYNC_BYTES, CHECKPOINT_WRITE_BYTES, SHARDS,
};
use crate::record::put_key;
use forebay_log::{Log, Position};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A checkpoint that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// The log position at which replay begins.
    pub begin: Position,
    /// Bytes of the file.
    pub bytes: u64,
    /// Rows in the file; a row that was written twice counts twice.
    pub rows: u64,
}

impl Tables {
    /// Writes a checkpoint in place of the one before; from then on the log is retained from the checkpoint's
    /// begin. `None`: `goes_on` returned false, the database has lost changes meanwhile, a table is not
    /// loaded or not followed yet, no table can be in a checkpoint, or an intent that the database has passed
    /// has no outcome yet. One call at a time writes.
    ///
    /// # Errors
    /// [`ErrorKind::Io`]: the checkpoint before is still in place. [`ErrorKind::Log`]: the log could not be
    /// made durable, and the checkpoint before is still in place; or old segments could not be deleted after
    /// this one was published.
    pub fn save_checkpoint(&self, goes_on: impl Fn() -> bool) -> Result<Option<Saved>, Error> {
        let core = &self.inner.core;
        let mut seen = core.checkpointing.lock();
        let removals = core.removals.load(Ordering::SeqCst);
        let goes_on = || goes_on() && core.removals.load(Ordering::SeqCst) == removals;
        // The order matters: a row that memory had not read at the mark is among the unread keys, or the
        // database reports it again.
        let mark = core.stream.mark();
        let tables: Vec<_> = self.all().iter().filter(|table| table.is_checkpointed()).cloned().collect();
        let is_followed = mark.is_some() || tables.iter().all(|table| !table.followed());
        if tables.is_empty() || !is_followed || !self.all().iter().all(|table| table.is_loaded()) {
            return Ok(None);
        }
        let new = self.inner.dir.join(NEW);
        let saved = self.save(&tables, mark, &new, &goes_on);
        if matches!(saved, Ok(Some(_))) {
            *seen = removals;
        } else {
            // If this fails, the next checkpoint or the next start removes the unfinished file.
            let _ = fs::remove_file(&new);
        }
        saved
    }

    fn save(
        &self,
        tables: &[Arc<Table>],
        mark: Option<Mark>,
        new: &Path,
        goes_on: &impl Fn() -> bool,
    ) -> Result<Option<Saved>, Error> {
        let core = &self.inner.core;
        // The order matters: the outcomes up to `settled` are in memory before any row is written.
        let settled = core.settled();
        let begins: Vec<Position> = tables.iter().map(|table| table.replay_begin()).collect();
        let begin = begins.iter().copied().min().unwrap_or_default();
        if tables.iter().zip(&begins).any(|(table, begin)| table.has_intent_until(*begin)) {
            // A start from there would not know what the intent reserves.
            return Ok(None);
        }
        let failed = |error| Error::caused(ErrorKind::Io, format!("cannot write {}", new.display()), error);
        let place = mark.as_ref().map(|mark| mark.place.clone());
        let ids: Vec<_> = tables.iter().map(|table| table.id()).collect();
        let head = self.head(tables, &begins, begin, settled, place);
        let head = head.encode().map_err(|error| failed(io::Error::other(error)))?;
        let mut writer = Writer::create(new, &core.log, &head).map_err(failed)?;
        let mut rows = 0;
        for table in tables {
            writer.unread(table);
            for number in 0..SHARDS {
                match writer.shard(table, number, goes_on).map_err(failed)? {
                    Some(written) => rows += written,
                    None => return Ok(None),
                }
            }
        }
        // When the file is published, it contains nothing that a crash could still lose from the log.
        core.log.flush().map_err(|error| Error::caused(ErrorKind::Log, "the log is not durable", error))?;
        let bytes = writer.finish().map_err(failed)?;
        if !goes_on() || tables.iter().zip(&ids).any(|(table, id)| table.id() != *id) {
            return Ok(None);
        }
        publish(&self.inner.dir, new, &self.inner.dir.join(FILE)).map_err(failed)?;
        *core.saved_settled.lock() = Some(settled);
        if let Some(mark) = mark {
            core.stream.published(mark);
        }
        let kept = core.log.keep_from(begin);
        kept.map_err(|error| Error::caused(ErrorKind::Log, "cannot delete old segments of the log", error))?;
        Ok(Some(Saved { begin, bytes, rows }))
    }

    fn head(
        &self,
        tables: &[Arc<Table>],
        begins: &[Position],
        begin: Position,
        settled: Position,
        place: Option<Arc<str>>,
    ) -> CheckpointHead {
        let core = &self.inner.core;
        let saved = |(table, own): (&Arc<Table>, &Position)| SavedTable {
            id: table.id().0,
            name: table.schema().name.clone(),
            tracked: table.tracked(),
            highest_key: table.rows.highest_key(),
            keys: table.keys.in_hand(),
            begin: (*own != begin).then_some(own.0),
            followed: table.followed().then(|| table.followed_position().0),
        };
        CheckpointHead {
            log: core.log.id(),
            opening: core.log.openings().last().map_or(0, |opening| opening.nonce),
            begin,
            settled,
            hasher: core.hasher.clone(),
            place,
            tables: tables.iter().zip(begins).map(saved).collect(),
        }
    }
}

impl Table {
    /// The position behind which a start replays the table's changes.
    fn replay_begin(&self) -> Position {
        let begin = self.core.log.end().min(self.rows.drained());
        // Of followed tables, the operations that the database lacks may be more than the rows in memory
        // show.
        if self.followed() { begin.min(self.followed_position()) } else { begin }
    }
}

/// The file that is being written.
struct Writer<'a> {
    /// The log, which must keep room on the disk.
    log: &'a Log,
    file: File,
    /// The bytes to be written next.
    buffer: Vec<u8>,
    /// The file offset at which the buffer is to be written.
    offset: u64,
    synced: u64,
    blocks: Vec<Block>,
}

impl<'a> Writer<'a> {
    fn create(path: &Path, log: &'a Log, head: &[u8]) -> io::Result<Writer<'a>> {
        // An existing file would retain its old permissions.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let buffer = Vec::with_capacity(CHECKPOINT_WRITE_BYTES + CHECKPOINT_SLICE_BYTES);
        let mut writer = Writer { log, file, buffer, offset: 0, synced: 0, blocks: Vec::new() };
        writer.buffer.extend_from_slice(head);
        Ok(writer)
    }

    /// Writes a shard, slice by slice; returns its rows. `None`: `goes_on` returned false.
    fn shard(
        &mut self,
        table: &Table,
        number: usize,
        goes_on: &impl Fn() -> bool,
    ) -> io::Result<Option<u64>> {
        let mut rows = 0;
        // Slots from this number on are written.
        let mut above = u32::MAX;
        while above > 0 {
            if !goes_on() {
                return Ok(None);
            }
            let shard = table.rows.lock(number);
            if above == u32::MAX {
                self.block(table, number, Kind::Doubts, |out| doubts(&shard, out));
            }
            above = above.min(shard.slots.len());
            let from = above;
            self.block(table, number, Kind::Rows, |out| {
                above = slice(&shard, above, out);
                from - above
            });
            drop(shard);
            rows += u64::from(from - above);
            if self.buffer.len() >= CHECKPOINT_WRITE_BYTES {
                self.write()?;
            }
        }
        Ok(Some(rows))
    }

    /// Writes the keys of rows that differ from the database's and are to be read.
    fn unread(&mut self, table: &Table) {
        let keys = table.unread_keys();
        self.block(table, 0, Kind::Unread, |out| {
            let mut key_bytes = Vec::new();
            for key in &keys {
                key_bytes.clear();
                put_key(key.as_ref(), &mut key_bytes);
                put_entry(0, &key_bytes, out);
            }
            keys.len() as u32
        });
    }

    /// Appends a block, unless `put` writes no entries.
    fn block(&mut self, table: &Table, shard: usize, kind: Kind, put: impl FnOnce(&mut Vec<u8>) -> u32) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 4]);
        let entries = put(&mut self.buffer);
        if entries == 0 {
            return self.buffer.truncate(start);
        }
        let crc = crc32c::crc32c(&self.buffer[start + 4..]);
        self.buffer[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        self.blocks.push(Block {
            offset: self.offset + start as u64,
            length: u32::try_from(self.buffer.len() - start).expect("a slice and a row are far below 4 GiB"),
            entries,
            table: table.id().0,
            shard: shard as u8,
            kind,
        });
    }

    fn write(&mut self) -> io::Result<()> {
        if self.log.spare_bytes() < self.buffer.len() as u64 {
            let why = "it would leave the log no room on the disk";
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        self.file.write_all(&self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        if self.offset - self.synced >= CHECKPOINT_SYNC_BYTES {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(())
    }

    /// Writes the end, and syncs the file; returns its bytes.
    fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.buffer = encode_end(self.offset, &self.blocks);
        self.write()?;
        self.file.sync_all()?;
        Ok(self.offset)
    }
}

/// Writes rows from `above` downwards; returns the last slot written.
fn slice(shard: &Shard, above: u32, out: &mut Vec<u8>) -> u32 {
    let start = out.len();
    let end = above.saturating_sub(CHECKPOINT_SLICE_SLOTS);
    let mut at = above;
    while at > end && out.len() - start < CHECKPOINT_SLICE_BYTES {
        at -= 1;
        let slot = shard.slots.get(at);
        let evicted = if slot.has(EVICTED) { EVICTED } else { 0 };
        put_entry(slot.position().0 | evicted, &slot.bytes, out);
    }
    at
}

/// Writes the keys of which only the database knows whether the row exists; returns how many.
fn doubts(shard: &Shard, out: &mut Vec<u8>) -> u32 {
    let (mut count, mut key_bytes) = (0, Vec::new());
    for (key, tombstone) in shard.tombstones() {
        if tombstone.absence == Absence::Refused {
            key_bytes.clear();
            put_key(key.as_ref(), &mut key_bytes);
            put_entry(tombstone.position.0, &key_bytes, out);
            count += 1;
        }
    }
    count
}
