//! Memory to file, while memory is served.

use super::format::{Block, FILE, Head, Kind, NEW, SavedTable, encode_end, publish, put_entry};
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

/// A checkpoint that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Saved {
    /// Where a replay begins.
    pub begin: Position,
    /// Length of the file.
    pub bytes: u64,
    /// Rows in it; those that came in twice while it was written are counted twice.
    pub rows: u64,
}

impl Tables {
    /// Writes a checkpoint and puts it in the place of the one before; of the log, what lies behind its begin
    /// is kept from then on. `None`: `goes_on` said no, a table is not loaded or not followed yet, or no
    /// table can be in it; or what became of a write that is in the database was not told yet. One at a time.
    ///
    /// # Errors
    /// [`ErrorKind::Io`], [`ErrorKind::Log`]: the one before is still there.
    pub fn save_checkpoint(&self, goes_on: impl Fn() -> bool) -> Result<Option<Saved>, Error> {
        let core = &self.inner.core;
        let _alone = core.checkpointing.lock();
        // In this order: what memory has not read up to there is known, or is told again.
        let mark = core.stream.mark();
        let tables: Vec<_> = self.all().iter().filter(|table| table.is_checkpointed()).cloned().collect();
        let is_followed = mark.is_some() || tables.iter().all(|table| !table.followed());
        if tables.is_empty() || !is_followed || !self.all().iter().all(|table| table.is_loaded()) {
            return Ok(None);
        }
        let new = self.inner.dir.join(NEW);
        let saved = self.save(&tables, mark, &new, &goes_on);
        if !matches!(saved, Ok(Some(_))) {
            // It was never one; the next one, or the next start, replaces it.
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
        // In this order: what the log says of outcomes up to there lies before `begin`, and in memory.
        let settled = core.settled();
        // What the database does not have may be more than rows in memory say.
        let followed = tables.iter().filter(|table| table.followed());
        let followed = followed.map(|table| table.followed_position()).min().unwrap_or(Position::MAX);
        let begin = core.log.end().min(core.drained()).min(followed);
        if tables.iter().any(|table| table.has_intent_until(begin)) {
            // A start from there would not know what it takes.
            return Ok(None);
        }
        let failed = |error| Error::caused(ErrorKind::Io, format!("cannot write {}", new.display()), error);
        let place = mark.as_ref().map(|mark| mark.place.clone());
        let head = self.head(tables, begin, settled, place);
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
        // Nothing that a crash could undo is in it when it is there.
        core.log.flush().map_err(|error| Error::caused(ErrorKind::Log, "the log is not durable", error))?;
        let bytes = writer.finish().map_err(failed)?;
        if !goes_on() {
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
        begin: Position,
        settled: Position,
        place: Option<Arc<str>>,
    ) -> Head {
        let core = &self.inner.core;
        let saved = |table: &Arc<Table>| SavedTable {
            id: table.id().0,
            name: table.schema().name.clone(),
            tracked: table.tracked(),
            highest_key: table.rows.highest_key(),
            keys: table.keys.in_hand(),
            followed: table.followed().then(|| table.followed_position().0),
        };
        Head {
            log: core.log.id(),
            opening: core.log.openings().last().map_or(0, |opening| opening.nonce),
            begin,
            settled,
            hasher: core.hasher.clone(),
            place,
            tables: tables.iter().map(saved).collect(),
        }
    }
}

/// The file that is being written.
struct Writer<'a> {
    /// Which must always have room.
    log: &'a Log,
    file: File,
    /// What is to be written next.
    buffer: Vec<u8>,
    /// Where that goes.
    offset: u64,
    synced: u64,
    blocks: Vec<Block>,
}

impl<'a> Writer<'a> {
    fn create(path: &Path, log: &'a Log, head: &[u8]) -> io::Result<Writer<'a>> {
        // A file that is there has the permissions that it was made with.
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

    /// Writes a shard, slice by slice; its rows. `None`: it was told to stop.
    fn shard(
        &mut self,
        table: &Table,
        number: usize,
        goes_on: &impl Fn() -> bool,
    ) -> io::Result<Option<u64>> {
        let mut rows = 0;
        // Slots from here on are written.
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

    /// Writes the keys of rows that are not as the database has them.
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

    /// Puts a block behind the others, unless `put` has no entries for it.
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

    /// Writes the end, and has all of it on the disk; its bytes.
    fn finish(mut self) -> io::Result<u64> {
        self.write()?;
        self.buffer = encode_end(self.offset, &self.blocks);
        self.write()?;
        self.file.sync_all()?;
        Ok(self.offset)
    }
}

/// Rows from `above` downwards; where it ended.
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

/// Keys of which only the database knows whether there is a row; how many.
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
