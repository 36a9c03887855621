//! One hot table: its handle, and reading from it.
//!
//! Every answer carries the position that it must wait for: that of the last change of what it shows, or of
//! the change that made the answer negative. Position 0: the answer need not wait.

use super::budget::Budget;
use super::core::Core;
use super::early_reads::Early;
use super::follow::Follow;
use super::intent::Intents;
use super::misfit::Misfit;
use super::readers::Readers;
use super::rows::Rows;
use super::shard::{Absence, Shard, key_of};
use super::slab::{EVICTED, REFERENCED, Slot};
use super::unfit_rows::UnfitRows;
use crate::error::{Error, HotError, Kind};
use crate::flights::Flights;
use crate::key::KeyRef;
use crate::limits::SHARDS;
use crate::record::TableId;
use crate::rules::LiveRules;
use crate::serial_keys::Keys;
use crate::source::SourceError;
use crate::spec::{Others, TableSpec};
use forebay_log::{LogId, Position};
use forebay_value::{RowRef, Schema, Value, ValueRef};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::SetOnce;

/// Whether an answer shows a column that increments change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counters {
    /// The answer shows such a column, and waits for the last increment too.
    Shown,
    /// The answer shows none: it does not wait for an increment of a row that was already durable.
    Hidden,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq)]
pub enum Read<R> {
    /// The row, and what an answer that shows it waits for.
    Found(R, Position),
    /// No row, and what an answer that says so waits for.
    Missing(Position),
    /// Not in memory: [`Table::fetch`] this key, then read again.
    Fetch(Value),
}

/// The result of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetched {
    /// The row is in memory.
    Present,
    /// There is no such row; what an answer that says so waits for.
    Gone(Position),
}

/// One row for [`Table::for_each`].
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The key for [`Table::get`].
    pub key: ValueRef<'a>,
    /// The row; `None` when it was evicted.
    pub row: Option<RowRef<'a>>,
    /// The position of its last change or of its last intent without an outcome; 0 when the row has not
    /// changed since it was loaded.
    pub position: Position,
}

/// A hot table.
pub struct Table {
    /// This handle's own `Arc`, for futures that outlive a borrow.
    pub(crate) this: Weak<Table>,
    id: AtomicU16,
    pub(crate) core: Arc<Core>,
    pub(crate) rows: Arc<Rows>,
    pub(crate) keys: Keys,
    pub(crate) flights: Flights<Result<Fetched, SourceError>>,
    pub(crate) readers: Readers,
    pub(crate) rules: Arc<LiveRules>,
    pub(super) others: Others,
    /// Whether its rows came from a checkpoint.
    pub(super) from_checkpoint: AtomicBool,
    /// Writes whose outcome in the database is not known yet.
    pub(crate) intents: Intents,
    /// Rows that memory cannot hold.
    pub(super) unfit: UnfitRows,
    /// The state of following; `None` when the table is not followed.
    pub(crate) follow: Option<Box<Follow>>,
    loaded: SetOnce<()>,
    /// Why its rows cannot be served: its columns in the database are others.
    misfit: Misfit,
    /// Why it takes no change of this process.
    no_room: Misfit,
    /// What can be read before the table is loaded.
    pub(super) early: Early,
}

impl Table {
    pub(crate) fn new(core: Arc<Core>, id: TableId, spec: TableSpec) -> Arc<Table> {
        let budget = Arc::new(Budget::of_table(core.budget.clone()));
        let rows = Rows::new(Arc::new(spec.schema), budget, core.hasher.clone(), spec.ordered);
        if spec.others == Others::Followed {
            rows.begin_seeing();
        }
        Arc::new_cyclic(|this| Table {
            this: this.clone(),
            id: AtomicU16::new(id.0),
            core,
            keys: Keys::new(rows.schema.key_kind),
            rows: Arc::new(rows),
            flights: Flights::default(),
            readers: Readers::default(),
            rules: spec.rules,
            others: spec.others,
            from_checkpoint: AtomicBool::new(false),
            intents: Intents::new(),
            unfit: UnfitRows::default(),
            follow: (spec.others == Others::Followed).then(|| Box::new(Follow::new())),
            loaded: SetOnce::new(),
            misfit: Misfit::default(),
            no_room: Misfit::default(),
            early: Early::new(),
        })
    }

    /// Its columns and key.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.rows.schema
    }

    /// The id that its log records carry.
    pub fn id(&self) -> TableId {
        TableId(self.id.load(Ordering::Acquire))
    }

    /// Sets the id that its log records carry from now on.
    pub(super) fn set_id(&self, id: TableId) {
        self.id.store(id.0, Ordering::Release);
    }

    /// The log that its changes are in.
    pub fn log(&self) -> LogId {
        self.core.log.id()
    }

    /// Whether others also write to the table, and memory is not told of their changes.
    pub fn shared(&self) -> bool {
        self.others == Others::Unseen
    }

    /// Marks the table as loaded: memory has all rows that the database had.
    pub fn set_loaded(&self) {
        // A second call changes nothing.
        let _ = self.loaded.set(());
        self.forget_tombstones();
    }

    /// Whether the table is loaded. Before that, no key or value is known to be free: the caller must neither
    /// answer from the table nor write to it.
    pub fn is_loaded(&self) -> bool {
        self.loaded.initialized()
    }

    /// Sets why requests are refused although the table is loaded; `None`: they are answered.
    pub fn set_misfit(&self, why: Option<Arc<str>>) {
        self.misfit.set(why);
    }

    /// Why requests are refused although the table is loaded.
    pub fn misfit(&self) -> Option<Arc<str>> {
        self.misfit.why()
    }

    /// Fails when the table's rows cannot be served.
    pub(crate) fn fits(&self) -> Result<(), HotError> {
        match self.misfit.why() {
            Some(why) => Err(HotError::misfit(&why)),
            None => Ok(()),
        }
    }

    /// Sets why the table takes no changes, although it is served: the drain has stopped it, and its room in
    /// the log is full. `None`: it takes them.
    pub fn set_no_room(&self, why: Option<Arc<str>>) {
        self.no_room.set(why);
    }

    /// Why the table takes no changes, although it is served.
    pub fn no_room(&self) -> Option<Arc<str>> {
        self.no_room.why()
    }

    /// Resolves when the table is loaded.
    pub async fn wait_loaded(&self) {
        self.loaded.wait().await;
    }

    /// Shows the row with this key. `show` runs under the shard's lock: it must only copy out of the row.
    pub fn get<R>(
        &self,
        key: ValueRef<'_>,
        counters: Counters,
        show: impl FnOnce(RowRef<'_>) -> R,
    ) -> Read<R> {
        let Some(key) = KeyRef::of(key) else {
            return Read::Missing(Position(0));
        };
        let hash = self.rows.hasher.key(key);
        let mut shard = self.rows.lock(hash.shard());
        match shard.find(self.schema(), hash, key) {
            Some(slot) => self.show(shard.slots.get_mut(slot), counters, show),
            None => self.absent(&shard, key),
        }
    }

    /// Shows a random row; each row is equally likely. `show` as in [`Table::get`].
    pub fn random<R>(&self, show: impl FnOnce(RowRef<'_>) -> R) -> Read<R> {
        match self.rows.random() {
            Some((mut shard, slot)) => self.show(shard.slots.get_mut(slot), Counters::Shown, show),
            None => Read::Missing(self.rows.count().1),
        }
    }

    fn show<R>(&self, slot: &mut Slot, counters: Counters, show: impl FnOnce(RowRef<'_>) -> R) -> Read<R> {
        if slot.has(EVICTED) {
            return Read::Fetch(key_of(slot, self.schema()).value().to_owned());
        }
        if !slot.has(REFERENCED) {
            slot.set(REFERENCED);
        }
        let mark = match counters {
            Counters::Hidden => slot.row_mark(),
            Counters::Shown => slot.position(),
        };
        Read::Found(show(RowRef(&slot.bytes)), mark)
    }

    /// What a read returns for a key that is not in the locked shard.
    pub(crate) fn absent<R>(&self, shard: &Shard, key: KeyRef<'_>) -> Read<R> {
        match shard.tombstone(key) {
            Some(tombstone) if tombstone.absence == Absence::Refused => Read::Fetch(key.value().to_owned()),
            _ if !self.shared() => Read::Missing(shard.deleted),
            Some(tombstone) if tombstone.absence == Absence::Deleted => Read::Missing(tombstone.position),
            _ => Read::Fetch(key.value().to_owned()),
        }
    }

    /// Bytes that its rows, keys and indexes take in memory.
    pub fn used_bytes(&self) -> u64 {
        self.rows.budget.used_bytes()
    }

    /// The number of rows (of a shared table, of those in memory), and what an answer that shows it waits
    /// for.
    pub fn count(&self) -> (u64, Position) {
        self.rows.count()
    }

    /// The number of rows with this value in an indexed column (as in SQL, no row matches NULL), and what an
    /// answer that shows it waits for.
    ///
    /// # Panics
    /// When the column is not indexed: what is configured must be checked at start.
    pub fn count_by(&self, column: usize, value: ValueRef<'_>) -> (u64, Position) {
        assert!(self.rows.is_indexed(column), "column {column} of {} is not indexed", self.schema().name);
        self.rows.count_by(column, value)
    }

    /// Calls `f` with every row, shard by shard, under that shard's lock. `f` may or may not see rows that
    /// are inserted or deleted meanwhile.
    pub fn for_each(&self, mut f: impl FnMut(Entry<'_>)) {
        (0..SHARDS).for_each(|shard| self.for_each_in(shard, &mut f));
    }

    /// [`Table::for_each`] for one shard.
    pub(crate) fn for_each_in(&self, shard: usize, f: &mut impl FnMut(Entry<'_>)) {
        let shard = self.rows.lock(shard);
        for slot in shard.slots.iter() {
            let row = (!slot.has(EVICTED)).then_some(RowRef(&slot.bytes));
            let key = key_of(slot, self.schema());
            let position = slot.position().max(shard.intents.last(key).unwrap_or_default());
            f(Entry { key: key.value(), row, position });
        }
    }

    /// Forgets all rows and all reserved serial keys, for a database that was emptied. No request may use the
    /// table meanwhile.
    ///
    /// # Errors
    /// [`Kind::Undrained`] when that would lose a change: nothing is forgotten.
    pub fn clear(&self) -> Result<(), Error> {
        if !self.rows.clear(self.rows.drained()) {
            let what = format!("table {} has changes that are not drained yet", self.schema().name);
            return Err(Error::new(Kind::Undrained, what));
        }
        self.keys.clear();
        Ok(())
    }

    /// Whether a change at `position` will survive a crash as the log's durability level promises, or is in
    /// the database.
    pub(crate) fn is_promised(&self, position: Position) -> bool {
        position <= self.rows.drained() || position <= self.core.log.promised()
    }

    /// Forgets the tombstones that no reader needs any more.
    pub(crate) fn forget_tombstones(&self) {
        if self.is_loaded() {
            self.rows.forget(self.readers.floor(&self.rows));
        }
    }

    pub(crate) fn keeps_tombstones(&self) -> bool {
        self.shared() || !self.is_loaded()
    }
}
