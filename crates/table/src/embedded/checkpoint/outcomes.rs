//! What the database made of changes, as far as a start must know it.

use super::settled;
use crate::embedded::budget::allocated_bytes;
use crate::embedded::shard::Absence;
use crate::embedded::slab::Slot;
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::embedded::undo::Again;
use crate::error::{Error, Kind};
use crate::key::KeyRef;
use crate::limits::REPLAY_BATCH_BYTES;
use crate::record::LogRecord;
use forebay_log::Position;
use forebay_value::{Row, Value, ValueRef};
use hashbrown::HashSet;
use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Tables {
    /// What the database made of all changes up to there is in memory, and in the log where it refused one.
    pub fn settled(&self, position: Position) {
        self.inner.core.set_settled(position);
    }

    /// Up to where that is known.
    pub fn settled_at(&self) -> Position {
        self.inner.core.settled()
    }

    /// Has the next start know that, if it is news. Not after a start that asked the database for outcomes:
    /// its checkpoint is older than the answers and the log does not tell them, so that every start asks
    /// again until the next checkpoint.
    ///
    /// # Errors
    /// [`Kind::Io`], [`Kind::Log`].
    pub fn save_settled(&self) -> Result<(), Error> {
        let (core, dir) = (&self.inner.core, &self.inner.dir);
        let settled = core.settled();
        let mut saved = core.saved_settled.lock();
        if saved.is_none_or(|saved| settled <= saved) {
            return Ok(());
        }
        // What the log says of refused changes must be there before this counts on it.
        core.log.flush().map_err(|error| Error::caused(Kind::Log, "the log is not durable", error))?;
        let what = || format!("cannot write what is settled in {}", dir.display());
        settled::write(dir, core.log.id(), settled)
            .map_err(|error| Error::caused(Kind::Io, what(), error))?;
        *saved = Some(settled);
        Ok(())
    }

    /// The rows of tables that came from a checkpoint of which it is not known whether the database took a
    /// change: those with a change behind what is settled, and those that memory gave up. `reached` says how
    /// far each table is in the database. Each is to be read, and told by [`Tables::restore`], before the log
    /// is replayed; those of followed tables by [`Tables::doubt`], after it.
    ///
    /// # Errors
    /// [`Kind::Log`], [`Kind::BadRecord`].
    pub fn unheard(&self, reached: impl Fn(&str) -> Position) -> Result<Vec<(Arc<Table>, Value)>, Error> {
        let Some(begin) = self.checkpoint_begin() else { return Ok(Vec::new()) };
        let core = &self.inner.core;
        self.inner.is_asked.store(true, Ordering::Relaxed);
        let mut loaded = self.all().iter().filter(|table| table.is_from_checkpoint());
        if loaded.any(|table| reached(&table.schema().name) > core.settled()) {
            *core.saved_settled.lock() = None;
        }
        self.rows_behind(begin.min(core.settled()), core.log.end(), reached)
    }

    /// A row as the database has it, which has everything of its table up to `at`.
    pub fn restore(&self, table: &Table, key: ValueRef<'_>, row: Option<&Row>, at: Position) {
        let Some(key) = KeyRef::of(key) else { return };
        let (rows, hash) = (&*table.rows, table.rows.hasher.key(key));
        let mut shard = rows.lock(hash.shard());
        if let Some(number) = shard.find(table.schema(), hash, key) {
            let before = rows.fingerprints_of(shard.slots.get(number));
            rows.exchange_known(&before, &[], at);
            rows.remove(&mut shard, hash, number, at);
        }
        shard.settle(key, &rows.budget);
        let Some(row) = row else {
            return rows.bury(&mut shard, key, at, Absence::Deleted);
        };
        rows.exchange_known(&[], &rows.fingerprints(row.as_ref()), at);
        rows.budget.take(allocated_bytes(row.0.len()));
        rows.insert(&mut shard, hash, Slot::new(row.0.clone(), at));
    }

    /// Gives a row up, of which it is not known whether the database took a change: of a followed table,
    /// whose next poll reads it. Once the log is replayed.
    pub fn doubt(&self, table: &Table, key: ValueRef<'_>) {
        if let Some(key) = KeyRef::of(key) {
            let hash = table.rows.hasher.key(key);
            table.undo_logged(&mut table.rows.lock(hash.shard()), hash, key, Position(0));
        }
    }

    /// Gives up, while all is served, the rows that [`Tables::unheard`] would have had read: for a start that
    /// could not ask the database. They are to be read again ([`Tables::take_again`]). After a start that has
    /// asked it there are none.
    ///
    /// # Errors
    /// [`Kind::Log`], [`Kind::BadRecord`].
    pub fn undo_unheard(&self, reached: impl Fn(&str) -> Position) -> Result<(), Error> {
        if self.inner.is_asked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let settled = self.inner.core.settled();
        let loaded = self.all().iter().filter(|table| table.is_from_checkpoint());
        let most = loaded.map(|table| reached(&table.schema().name)).max().unwrap_or_default();
        if most > settled {
            for (table, key) in self.rows_behind(settled, most, &reached)? {
                let Some(row) = KeyRef::of(key.as_ref()) else { continue };
                let from = table.undo_from(row, reached(&table.schema().name));
                self.inner.again.lock().push(Again::new(from, table, key));
            }
        }
        Ok(())
    }

    /// The rows of changes behind what is settled that `reached` has, and of those that were undone.
    fn rows_behind(
        &self,
        from: Position,
        to: Position,
        reached: impl Fn(&str) -> Position,
    ) -> Result<Vec<(Arc<Table>, Value)>, Error> {
        let (core, settled) = (&self.inner.core, self.inner.core.settled());
        let loaded = self.all().iter().filter(|table| table.is_from_checkpoint());
        let loaded: Vec<_> = loaded.map(|table| (table, reached(&table.schema().name))).collect();
        let unreadable = |error| Error::caused(Kind::Log, "cannot read the log", error);
        let mut reader = core.log.reader(from.max(core.log.first())).map_err(unreadable)?;
        let (mut seen, mut found) = (HashSet::<_, RandomState>::default(), Vec::new());
        while reader.position() < to {
            let batch = reader.next_batch(REPLAY_BATCH_BYTES).map_err(unreadable)?;
            if batch.is_empty() {
                break;
            }
            for (position, bytes) in batch.iter() {
                let bad = |error| {
                    let what = format!("the log's record that ends at {position} is damaged");
                    Error::caused(Kind::BadRecord { position }, what, error)
                };
                let record = LogRecord::decode(bytes).map_err(bad)?;
                let is_undone = matches!(record, LogRecord::Undone { .. } | LogRecord::Committed { .. });
                let table = loaded.iter().find(|(table, reached)| {
                    table.id() == record.table() && (is_undone || settled < position && position <= *reached)
                });
                let Some((table, _)) = table else { continue };
                record.check(table.schema()).map_err(bad)?;
                let key = record.key(table.schema());
                if seen.insert((table.id(), key.to_owned())) {
                    found.push((Arc::clone(table), key.value().to_owned()));
                }
            }
        }
        Ok(found)
    }

    /// The rows that were given up by a start, and are to be read again.
    pub fn take_again(&self) -> Vec<Again> {
        std::mem::take(&mut *self.inner.again.lock())
    }

    /// Whether memory came from a checkpoint, at least in part.
    pub fn is_from_checkpoint(&self) -> bool {
        self.all().iter().any(|table| table.is_from_checkpoint())
    }
}

impl Table {
    /// Whether its rows came from a checkpoint.
    pub fn is_from_checkpoint(&self) -> bool {
        self.from_checkpoint.load(Ordering::Relaxed)
    }
}
