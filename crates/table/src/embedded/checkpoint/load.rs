//! File to memory, at start: shards side by side.

use super::format::{Block, FILE, Kind, entries, read_block};
use super::save::Saved;
use super::source::CheckpointFile;
use super::unusable::UnusableCheckpoint;
use crate::embedded::budget::allocated_bytes;
use crate::embedded::shard::{Shard, key_of};
use crate::embedded::slab::{EVICTED, Slot};
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::limits::{CHECKPOINT_THREADS_MAX, POSITION_BITS, SHARDS};
use crate::record::split_key;
use forebay_log::Position;
use forebay_value::RowRef;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The result of loading a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Rows, evicted ones included.
    pub rows: u64,
    /// The checkpoint, if at least one table was loaded from it.
    pub saved: Option<Saved>,
    /// Why the checkpoint, or a table of it, was not used.
    pub notes: Vec<String>,
}

impl Tables {
    /// Loads the tables that the checkpoint contains, before anything else is loaded. The other tables are to
    /// be loaded from the database; [`Table::is_from_checkpoint`] is false for them.
    pub fn load_checkpoint(&self) -> Loaded {
        self.load_checkpoint_of(|_| true, true)
    }

    /// [`Tables::load_checkpoint`], but of followed tables only those for whose name `goes_on` returns true:
    /// the database can still report what was changed since [`Tables::checkpoint_place`]. They can be read
    /// while this loads only when the start is `alone`, without the database.
    pub fn load_checkpoint_of(&self, goes_on: impl Fn(&str) -> bool, alone: bool) -> Loaded {
        let mut loaded = Loaded::default();
        let source = match self.inner.found.lock().take() {
            None => return loaded,
            Some(Err(why)) => {
                loaded.notes.push(format!("{why}: it is not used"));
                return loaded;
            }
            Some(Ok(source)) => source,
        };
        let mut tables = Vec::new();
        for table in self.all() {
            let forgotten = "changed while it was not followed";
            let is_told = !table.followed() || goes_on(&table.schema().name);
            match source.misfit(table).or((!is_told).then_some(forgotten)) {
                None => tables.push(table.clone()),
                Some(why) if source.head.saved(table).is_some() => {
                    let name = &table.schema().name;
                    loaded.notes.push(format!("the checkpoint is not used for table {name}, which {why}"));
                }
                Some(_) => {}
            }
        }
        let early: Vec<_> = tables.iter().filter(|table| alone || !table.followed()).cloned().collect();
        self.begin_early(&early, source.head.begin.min(source.head.settled));
        match load_all(&source, &tables, source.head.settled) {
            Ok(rows) => loaded.rows = rows,
            Err(why) => {
                // The order matters: otherwise a reader would take a row that was cleared for one that does
                // not exist.
                tables.iter().for_each(|table| table.early.reset());
                tables.iter().for_each(|table| table.rows.clear_all());
                let path = self.inner.dir.join(FILE);
                loaded.notes.push(format!("{} {why}: it is not used", path.display()));
                return loaded;
            }
        }
        for table in &tables {
            if let Some(saved) = source.head.saved(table) {
                table.rows.saw_number(saved.highest_key);
                // The database had that; one that has lost it is not read before it has it again.
                table.rows.set_drained(source.head.begin_of(saved));
                table.from_checkpoint.store(true, Ordering::Relaxed);
                table.begin_following(Position(saved.followed.unwrap_or_default()));
            }
        }
        if let Some(place) = source.head.place.clone().filter(|_| tables.iter().any(|table| table.followed()))
        {
            self.inner.core.stream.begin(place);
        }
        if !tables.is_empty() {
            self.inner.core.set_settled(source.head.settled);
            let (begin, rows) = (source.head.begin, loaded.rows);
            loaded.saved = Some(Saved { begin, bytes: source.bytes, rows });
            // Set here and nowhere else, once.
            let _ = self.inner.checkpoint.set(source.head);
        }
        loaded
    }

    /// Takes over the serial keys that were reserved when the checkpoint was taken, for a start without the
    /// database. To be called after the replay.
    pub fn take_saved_keys(&self) {
        for saved in self.inner.checkpoint.get().iter().flat_map(|head| &head.tables) {
            if let Some(table) = self.get(&saved.name).filter(|table| table.is_from_checkpoint()) {
                table.take_saved_keys(&saved.keys);
            }
        }
    }
}

/// Loads these tables, of which the database has everything up to `drained`; returns the number of rows.
fn load_all(
    source: &CheckpointFile,
    tables: &[Arc<Table>],
    drained: Position,
) -> Result<u64, UnusableCheckpoint> {
    let mut jobs: Vec<Vec<&Block>> = vec![Vec::new(); tables.len() * SHARDS];
    for block in &source.blocks {
        let place = tables.iter().position(|table| table.id().0 == block.table);
        if usize::from(block.shard) >= SHARDS {
            return Err("has a wrong index".into());
        }
        if let Some(place) = place {
            jobs[place * SHARDS + usize::from(block.shard)].push(block);
        }
    }
    let is_begun: Vec<_> = jobs.iter().map(|_| AtomicBool::new(false)).collect();
    let begin = |job: &usize| !is_begun[*job].swap(true, Ordering::Relaxed);
    let is_asked = |job: &usize| tables[job / SHARDS].early.is_asked(job % SHARDS);
    let next = || (0..jobs.len()).filter(is_asked).find(begin).or_else(|| (0..jobs.len()).find(begin));
    let run = || {
        let (mut rows, mut buffer) = (0, Vec::new());
        loop {
            let Some(job) = next() else { return Ok(rows) };
            let blocks = &jobs[job];
            let table = &*tables[job / SHARDS];
            let seen = source.head.saved(table).and_then(|saved| saved.followed);
            let drained = seen.map_or(drained, |seen| drained.min(Position(seen)));
            let shard = Loading { table, number: job % SHARDS, drained };
            rows += shard.load(&source.file, blocks, &mut buffer)?;
            table.early.loaded(job % SHARDS);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(CHECKPOINT_THREADS_MAX);
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("a loading thread panicked"));
        ended.sum()
    })
}

/// One shard that is being loaded.
struct Loading<'a> {
    table: &'a Table,
    number: usize,
    drained: Position,
}

impl Loading<'_> {
    /// Loads the shard's blocks; returns the number of rows.
    fn load(&self, file: &File, blocks: &[&Block], buffer: &mut Vec<u8>) -> Result<u64, UnusableCheckpoint> {
        let rows = &*self.table.rows;
        let mut shard = rows.lock(self.number);
        let count = blocks.iter().filter(|block| block.kind == Kind::Rows);
        shard.reserve(count.map(|block| block.entries as usize).sum(), &rows.budget);
        for block in blocks {
            for (state, bytes) in entries(read_block(file, block, buffer)?) {
                let put = match block.kind {
                    Kind::Rows => self.row(&mut shard, state, bytes),
                    Kind::Doubts => self.mark_unknown(&mut shard, state, bytes),
                    Kind::Unread => self.unread(bytes),
                };
                put.map_err(|why| format!("has an entry that {why}, at byte {}", block.offset))?;
            }
        }
        Ok(u64::from(shard.slots.len()))
    }

    /// Puts a row or stub into its shard, in place of one with the same key.
    fn row(&self, shard: &mut Shard, state: u64, bytes: &[u8]) -> Result<(), &'static str> {
        let rows = &*self.table.rows;
        let at = Position(state & ((1 << POSITION_BITS) - 1));
        let mut slot = Slot::new(bytes.into(), at);
        if state & EVICTED != 0 {
            split_key(bytes).map_err(|error| error.0)?;
            slot.set(EVICTED);
        } else {
            RowRef(bytes).check(&rows.schema).map_err(|error| error.0)?;
        }
        let key = key_of(&slot, &rows.schema);
        let hash = rows.hasher.key(key);
        if hash.shard() != self.number {
            return Err("is of another shard");
        }
        rows.saw_key(key);
        let after = rows.fingerprints_of(&slot);
        if !rows.budget.try_take(allocated_bytes(slot.bytes.len())) {
            // Only a row whose last change the database has can be read again.
            if !slot.has(EVICTED) && at <= self.drained {
                slot.bytes = rows.stub(key, &after);
                slot.set(EVICTED);
            }
            rows.budget.take(allocated_bytes(slot.bytes.len()));
        }
        let key = key_of(&slot, &rows.schema);
        let found = shard.find(&rows.schema, hash, key);
        let before = found.map(|found| rows.fingerprints_of(shard.slots.get(found))).unwrap_or_default();
        rows.exchange_known(&before, &after, at);
        match found {
            Some(found) => {
                let old = shard.slots.get_mut(found);
                rows.budget.give(allocated_bytes(old.bytes.len()));
                *old = slot;
            }
            None => rows.insert(shard, hash, slot),
        }
        Ok(())
    }

    fn unread(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let (key, _) = split_key(bytes).map_err(|error| error.0)?;
        self.table.want([key.value().to_owned()], false);
        Ok(())
    }

    fn mark_unknown(&self, shard: &mut Shard, state: u64, bytes: &[u8]) -> Result<(), &'static str> {
        let (key, _) = split_key(bytes).map_err(|error| error.0)?;
        shard.mark_unknown(key, Position(state), &self.table.rows.budget);
        Ok(())
    }
}
