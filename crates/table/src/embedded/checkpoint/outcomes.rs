//! Outcomes of changes in the database, as far as a start must know them.

use super::settled;
use crate::embedded::budget::allocated_bytes;
use crate::embedded::shard::Absence;
use crate::embedded::slab::Slot;
use crate::embedded::table::Table;
use crate::embedded::tables::Tables;
use crate::embedded::undo::RereadRow;
use crate::error::{Error, Kind};
use crate::key::KeyRef;
use crate::limits::REPLAY_BATCH_BYTES;
use crate::record::{LogRecord, is_intent};
use forebay_log::Position;
use forebay_value::{Row, Value, ValueRef};
use hashbrown::HashSet;
use std::collections::HashMap;
use std::hash::RandomState;
use std::mem::discriminant;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A row, by its table and key.
pub type RowId = (Arc<Table>, Value);

impl Tables {
    /// Notes that the outcomes of all changes up to `position` are in memory, and each refusal in the log.
    pub fn settled(&self, position: Position) {
        self.inner.core.set_settled(position);
    }

    /// The position up to which all outcomes are known.
    pub fn settled_at(&self) -> Position {
        self.inner.core.settled()
    }

    /// The position up to which outcomes were known before the start, though the database may have lost
    /// changes since.
    pub fn decided_at(&self) -> Position {
        self.settled_at().max(Position(self.inner.core.forgotten.load(Ordering::Relaxed)))
    }

    /// Saves that position for the next start, if it is higher than the saved one. It saves nothing after a
    /// start that asked the database for outcomes: the checkpoint is older than the answers and the log does
    /// not contain them, so every start asks again until the next checkpoint.
    ///
    /// # Errors
    /// [`Kind::Io`], [`Kind::Log`].
    pub fn save_settled(&self) -> Result<(), Error> {
        let (core, dir) = (&self.inner.core, &self.inner.dir);
        let mut saved = core.saved_settled.lock();
        let settled = core.settled();
        if saved.is_none_or(|saved| settled <= saved) {
            return Ok(());
        }
        // The log's records of refused changes must be durable before the saved position relies on them.
        core.log.flush().map_err(|error| Error::caused(Kind::Log, "the log is not durable", error))?;
        let what = || format!("cannot write what is settled in {}", dir.display());
        settled::write(dir, core.log.id(), settled)
            .map_err(|error| Error::caused(Kind::Io, what(), error))?;
        *saved = Some(settled);
        Ok(())
    }

    /// The rows, of tables that came from a checkpoint, for which it is unknown whether the database
    /// committed or refused a change: those with a change behind the settled position, and those with an
    /// outcome in the log. `reached` returns each table's position in the database. The caller reads each row
    /// and passes it to [`Tables::restore`] before the replay; rows of followed tables it passes to
    /// [`Tables::undo_followed_row`] after the replay.
    ///
    /// # Errors
    /// [`Kind::Log`], [`Kind::BadRecord`].
    pub fn unsettled_rows(&self, reached: impl Fn(&str) -> Position) -> Result<Vec<RowId>, Error> {
        let Some(begin) = self.checkpoint_begin() else { return Ok(Vec::new()) };
        let core = &self.inner.core;
        let settled = core.settled();
        self.inner.is_asked.store(true, Ordering::Relaxed);
        let mut loaded = self.all().iter().filter(|table| table.is_from_checkpoint());
        if loaded.any(|table| reached(&table.schema().name) > settled) {
            *core.saved_settled.lock() = None;
        }
        self.rows_behind(begin.min(settled), core.log.end(), reached)
    }

    /// Removes the checkpoint if it contains changes that the database, which has `reached` these positions,
    /// has lost: a database that gets them again may decide otherwise, and then only a start that reads its
    /// rows knows them. Returns whether it did. To be called when the position is known, at start.
    ///
    /// # Errors
    /// [`Kind::Io`].
    pub fn forget_beyond(&self, reached: impl Fn(&str) -> Position) -> Result<bool, Error> {
        let mut found = self.inner.found.lock();
        let head = found.as_ref().and_then(|found| found.as_ref().ok()).map(|found| &found.head);
        let is_beyond = head.or(self.inner.checkpoint.get()).is_some_and(|head| {
            let begins = head.tables.iter().map(|saved| (&saved.name, head.begin_of(saved)));
            begins.into_iter().any(|(name, begin)| reached(name) < begin.max(head.settled))
        });
        if is_beyond {
            let settled = head.or(self.inner.checkpoint.get()).map_or(0, |head| head.settled.0);
            self.inner.core.forgotten.fetch_max(settled, Ordering::Relaxed);
            self.remove()?;
            *found = None;
        }
        Ok(is_beyond)
    }

    /// Finds out whether the database has lost changes: it has those of a table up to `reached`, and all up
    /// to `least`. It may decide otherwise when it gets the lost ones again. One that it refuses then is
    /// undone as always. For the case that it takes one that it has refused, the rows of such changes are
    /// dropped, to be read again ([`Tables::take_rereads`]), and no start may rely on a checkpoint that has
    /// the first outcomes. Returns whether it has.
    ///
    /// # Errors
    /// [`Kind::Io`], [`Kind::Log`], [`Kind::BadRecord`].
    pub fn went_back(&self, reached: impl Fn(&str) -> Position, least: Position) -> Result<bool, Error> {
        let core = &self.inner.core;
        let all = self.all().iter().map(|table| (table, reached(&table.schema().name)));
        let lost: Vec<_> = all.filter(|(table, reached)| table.rows.has_lost_behind(*reached)).collect();
        let Some(from) = lost.iter().map(|(_, reached)| *reached).min() else { return Ok(false) };
        core.removals.fetch_add(1, Ordering::SeqCst);
        // A checkpoint that is being written gives up, and the next one has no row of the first outcomes.
        let _alone = core.checkpointing.lock();
        let mut saved = core.saved_settled.lock();
        self.remove()?;
        core.unsettle(least);
        *saved = Some(least);
        drop(saved);
        for (table, key) in self.refused_behind(from, &lost)? {
            let Some(row) = KeyRef::of(key.as_ref()) else { continue };
            let (hash, drained) = (table.rows.hasher.key(row), table.rows.drained());
            let from = {
                let mut shard = table.rows.lock(hash.shard());
                // What is being read now may come from the database as it was.
                table.intents.unknown_outcomes.fetch_add(1, Ordering::SeqCst);
                table.undo_logged(&mut shard, hash, row, drained).max(drained)
            };
            self.inner.again.lock().push(RereadRow::new(from, table, key));
        }
        lost.iter().for_each(|(table, reached)| table.rows.set_lost_behind(*reached));
        Ok(true)
    }

    /// The rows of changes behind the position of a table that the database may have refused: it said so, or
    /// did not say that it took an intent, or decided before the start or while the log was full.
    fn refused_behind(&self, from: Position, lost: &[(&Arc<Table>, Position)]) -> Result<Vec<RowId>, Error> {
        // A full log may lack the record of a refusal.
        let lacks_some = self.inner.core.lacks_outcomes();
        let unsaid = |table: &Table| if lacks_some { table.rows.drained() } else { table.rows.began() };
        let (mut refused, mut open) = (HashMap::new(), HashMap::<_, Vec<Position>>::new());
        self.each_record(from, self.inner.core.log.end(), |at, table, key, record, is_intent| {
            let is_lost = |(of, reached): &(&Arc<Table>, Position)| Arc::ptr_eq(of, table) && *reached < at;
            if !lost.iter().any(is_lost) {
                return;
            }
            let id = || (table.id(), key.to_owned());
            match record {
                LogRecord::Committed { position, .. } => {
                    if let Some(intents) = open.get_mut(&id()) {
                        intents.retain(|intent| intent != position);
                    }
                }
                _ if at <= unsaid(table) || matches!(record, LogRecord::Undone { .. }) => {
                    refused.insert(id(), Arc::clone(table));
                }
                _ if is_intent && at <= table.rows.drained() => open.entry(id()).or_default().push(at),
                _ => {}
            }
        })?;
        for ((id, key), _) in open.into_iter().filter(|(_, intents)| !intents.is_empty()) {
            let table = lost.iter().map(|(table, _)| *table).find(|table| table.id() == id);
            refused.extend(table.map(|table| ((id, key), Arc::clone(table))));
        }
        let rows = refused.into_iter().map(|((_, key), table)| (table, key.to_value()));
        Ok(rows.collect())
    }

    fn remove(&self) -> Result<(), Error> {
        let dir = &self.inner.dir;
        let what = || format!("cannot remove the checkpoint in {}", dir.display());
        Tables::remove_checkpoint(dir).map_err(|error| Error::caused(Kind::Io, what(), error))
    }

    /// Puts in a row as the database has it (`None`: no such row), which had all of the table's changes up to
    /// `at`.
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

    /// Drops a row of a followed table for which it is unknown whether the database took a change; the next
    /// poll reads it. To be called after the replay.
    pub fn undo_followed_row(&self, table: &Table, key: ValueRef<'_>) {
        if let Some(key) = KeyRef::of(key) {
            let hash = table.rows.hasher.key(key);
            table.undo_logged(&mut table.rows.lock(hash.shard()), hash, key, Position(0));
        }
    }

    /// Drops, while serving, the rows that [`Tables::unsettled_rows`] would have returned, after a start that
    /// could not ask the database. They are to be read again ([`Tables::take_rereads`]). After a start that
    /// asked the database it does nothing.
    ///
    /// # Errors
    /// [`Kind::Log`], [`Kind::BadRecord`].
    pub fn undo_unsettled(&self, reached: impl Fn(&str) -> Position) -> Result<(), Error> {
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
                self.inner.again.lock().push(RereadRow::new(from, table, key));
            }
        }
        Ok(())
    }

    /// The rows with changes behind the settled position that the database has `reached`, and those with a
    /// record of an outcome.
    fn rows_behind(
        &self,
        from: Position,
        to: Position,
        reached: impl Fn(&str) -> Position,
    ) -> Result<Vec<RowId>, Error> {
        let settled = self.inner.core.settled();
        let (mut seen, mut found) = (HashSet::<_, RandomState>::default(), Vec::new());
        self.each_record(from, to, |position, table, key, record, _| {
            let is_undone = matches!(record, LogRecord::Undone { .. } | LogRecord::Committed { .. });
            let is_behind = settled < position && position <= reached(&table.schema().name);
            let is_found = table.is_from_checkpoint() && (is_undone || is_behind);
            if is_found && seen.insert((table.id(), key.to_owned())) {
                found.push((Arc::clone(table), key.value().to_owned()));
            }
        })?;
        Ok(found)
    }

    /// Calls `see` with each record between two positions of a table that is configured with the same key:
    /// the record's end, its table and key, and whether it is an intent.
    fn each_record(
        &self,
        from: Position,
        to: Position,
        mut see: impl FnMut(Position, &Arc<Table>, KeyRef<'_>, &LogRecord<'_>, bool),
    ) -> Result<(), Error> {
        let (log, catalogue) = (&self.inner.core.log, self.catalogue());
        let unreadable = |error| Error::caused(Kind::Log, "cannot read the log", error);
        let mut reader = log.reader(from.max(log.first())).map_err(unreadable)?;
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
                // The columns may have been others then.
                let Some(then) = catalogue.schema(record.table()) else { continue };
                let Some(table) = self.get(&then.name) else { continue };
                let (key, key_then) = (table.schema().key, then.key_column());
                let now = &table.schema().columns[key];
                if now.name == key_then.name && discriminant(&now.ty) == discriminant(&key_then.ty) {
                    record.check(then).map_err(bad)?;
                    see(position, &table, record.key(then), &record, is_intent(bytes));
                }
            }
        }
        Ok(())
    }

    /// Takes the rows that were dropped and that are to be read again.
    pub fn take_rereads(&self) -> Vec<RereadRow> {
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
