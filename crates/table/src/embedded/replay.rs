//! Replay: the changes that are in the log and not in the database, applied to memory at start.
//!
//! An acknowledged change is never refused: unique values are claimed without a check, and the memory limit
//! may be exceeded.
//!
//! One thread reads the log, and a few apply it: each goes through all records and applies those of its own
//! shards. So the changes of one row are applied in their order, and nothing depends on the order of changes
//! of different rows: unique values are a multiset, counts are sums, and marks only rise.

use super::intent::Adds;
use super::replay_record::Missing;
use super::table::Table;
use super::tables::Tables;
use super::undo::RereadRow;
use crate::error::{Error, Kind};
use crate::hash::KeyHash;
use crate::key::{Key, KeyRef};
use crate::limits::{REPLAY_BATCH_BYTES, REPLAY_BATCHES, REPLAY_THREADS_MAX};
use crate::record::{InvalidRecord, LogRecord, TableId, is_intent};
use forebay_log::{Batch, Position, Reader};
use forebay_value::{KeyKind, RowRef, Schema, ValueRef};
use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;

/// The result of a replay.
pub struct Replayed {
    /// Changes read from the log.
    pub records: u64,
    /// Changes of tables that are no longer configured: only the drain uses them.
    pub skipped: u64,
    /// The position at which the replay ended.
    pub end: Position,
    /// Tables with serial keys, each with the highest key of its rows, from the log or loaded before; 0 when
    /// it has no row. The database's sequence must not lie below it.
    pub highest_keys: Vec<(Arc<Table>, i64)>,
}

/// How the records of a table id are applied.
enum RecordTarget {
    /// To a table with the same columns.
    Apply(Arc<Table>, TableProgress),
    /// The table still exists, with other columns.
    Old(OldColumns, TableProgress),
    Skip,
}

/// Up to which positions of the log a table's changes are known.
#[derive(Clone, Copy)]
struct TableProgress {
    /// The database has everything up to here, and the outcomes of intents are known, from the database or
    /// from the log.
    decided: Position,
    /// The outcomes of intents up to here are in memory: a checkpoint is written only after they are known.
    begin: Position,
    /// All changes up to here are in the rows in memory. They are not applied again, because others may have
    /// changed the rows since.
    applied: Position,
    /// Whether the log's records of outcomes count, because the start has not read these rows from the
    /// database.
    heeds_outcomes: bool,
}

impl Tables {
    /// Applies every change after `from`, up to which the database has everything. To be called after the
    /// rows were loaded and before serving.
    ///
    /// # Errors [`Kind::BadRecord`] with the position; [`Kind::OtherKey`]; [`Kind::Log`].
    pub fn replay(&self, from: Position) -> Result<Replayed, Error> {
        self.replay_uneven(from, |_| from)
    }

    /// [`Tables::replay`] when the database has more than `from` of some tables: `drained` returns the
    /// position of a table, by its name. To a table that came from a checkpoint, all changes behind the
    /// checkpoint's begin are applied, unless its row is newer.
    ///
    /// # Errors As [`Tables::replay`].
    pub fn replay_uneven(
        &self,
        from: Position,
        drained: impl Fn(&str) -> Position,
    ) -> Result<Replayed, Error> {
        self.drained_of(&drained);
        self.all().iter().for_each(|table| table.rows.set_began(drained(&table.schema().name)));
        let from = self.checkpoint_begin().map_or(from, |begin| begin.min(from));
        let mut replayed = Replayed { records: 0, skipped: 0, end: from, highest_keys: Vec::new() };
        let targets = self.targets(drained);
        let reader = self.inner.core.log.reader(from).map_err(unreadable)?;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(REPLAY_THREADS_MAX);
        let shares = thread::scope(|scope| {
            let (senders, applying): (Vec<_>, Vec<_>) = (0..threads)
                .map(|number| {
                    let (sender, batches) = mpsc::sync_channel(REPLAY_BATCHES);
                    let share = ReplayWorker {
                        number,
                        of: threads,
                        targets: &targets,
                        records: 0,
                        skipped: 0,
                        intents: HashMap::new(),
                        again: Vec::new(),
                    };
                    (sender, scope.spawn(move || share.run(&batches)))
                })
                .unzip();
            let end = read_batches(reader, &senders);
            drop(senders);
            let joined = applying.into_iter().map(|thread| thread.join().expect("a replay thread panicked"));
            let (shares, refused): (Vec<_>, Vec<_>) = joined.partition(Result::is_ok);
            // Of several errors, the first in the log is returned; a bad record precedes the part that could
            // not be read.
            match refused.into_iter().filter_map(Result::err).min_by_key(|refused| refused.position) {
                Some(refused) => return Err(refused.error),
                None => replayed.end = end?.unwrap_or(from),
            }
            Ok::<_, Error>(shares)
        })?;
        for share in shares.into_iter().flatten() {
            replayed.records += share.records;
            replayed.skipped += share.skipped;
            self.inner.again.lock().extend(share.again);
        }
        let serial = self.all().iter().filter(|table| table.schema().key_kind == KeyKind::Serial);
        replayed.highest_keys = serial.map(|table| (table.clone(), table.rows.highest_key())).collect();
        Ok(replayed)
    }

    /// The targets, indexed by table id.
    fn targets(&self, drained: impl Fn(&str) -> Position) -> Vec<Option<RecordTarget>> {
        let mut targets = Vec::new();
        for (id, schema) in self.catalogue().tables() {
            let drained = drained(&schema.name);
            let target = match self.get(&schema.name) {
                Some(table) if table.id() == id => {
                    table.begin_following(drained);
                    RecordTarget::Apply(table.clone(), self.known(&table, drained))
                }
                Some(table) => {
                    RecordTarget::Old(OldColumns::new(table.clone(), schema), self.known(&table, drained))
                }
                None => RecordTarget::Skip,
            };
            targets.resize_with(usize::from(id.0), || None);
            targets.push(Some(target));
        }
        targets
    }

    fn known(&self, table: &Table, drained: Position) -> TableProgress {
        if !table.is_from_checkpoint() {
            return TableProgress {
                decided: drained,
                begin: drained,
                applied: drained,
                heeds_outcomes: false,
            };
        }
        // The rows of a followed table are read by a poll, after the start.
        let heeds_outcomes = table.followed() || !self.inner.is_asked.load(Ordering::Relaxed);
        let decided = if heeds_outcomes { drained.min(self.settled_at()) } else { drained };
        let begin = self.checkpoint_begin_of(table);
        let applied = self.checkpoint_followed(table).max(begin);
        TableProgress { decided, begin, applied, heeds_outcomes }
    }
}

fn unreadable(error: forebay_log::Error) -> Error {
    Error::caused(Kind::Log, "cannot read the log", error)
}

/// A table with the columns that it had when a part of the log was written. Only the database knows the row
/// after such a change, because columns that were added since have defaults there. Memory stores the key and
/// the unique values, and reads the row once the database has the change.
struct OldColumns {
    table: Arc<Table>,
    schema: Arc<Schema>,
    /// For each old column, its present index, if it still exists.
    now: Vec<Option<usize>>,
}

impl OldColumns {
    fn new(table: Arc<Table>, schema: &Arc<Schema>) -> OldColumns {
        let present = table.schema();
        let numbers = schema.numbers.logged().zip(present.numbers.logged());
        let numbers = numbers.filter(|(then, now)| then.table == now.table);
        let is_it = |then: usize, now: usize| {
            let (old, new) = (&schema.columns[then], &present.columns[now]);
            let is_same = match &numbers {
                Some((old, new)) if old.columns[then] != 0 && new.columns.contains(&old.columns[then]) => {
                    old.columns[then] == new.columns[now]
                }
                _ => old.name == new.name,
            };
            is_same && discriminant(&old.ty) == discriminant(&new.ty)
        };
        let place = |then: usize| (0..present.columns.len()).find(|now| is_it(then, *now));
        let now = (0..schema.columns.len()).map(place).collect();
        OldColumns { table, schema: schema.clone(), now }
    }

    fn has_same_key(&self) -> bool {
        self.now[self.schema.key] == Some(self.table.schema().key)
    }

    /// The values of an old row in the present columns; `set` selects the old columns that count.
    fn changes<'r>(&self, row: RowRef<'r>, set: impl Fn(usize) -> bool) -> Vec<(usize, ValueRef<'r>)> {
        let values = row.values(&self.schema).enumerate().filter(|(column, _)| set(*column));
        values.filter_map(|(column, value)| Some((self.now[column]?, value))).collect()
    }
}

/// Sends the log's records to all threads that apply them, until the log's end, an error, or until one of the
/// threads has stopped. Returns where the last batch ended.
fn read_batches(
    mut reader: Reader,
    senders: &[mpsc::SyncSender<Arc<Batch>>],
) -> Result<Option<Position>, Error> {
    let mut end = None;
    loop {
        let batch = Arc::new(reader.next_batch(REPLAY_BATCH_BYTES).map_err(unreadable)?);
        if batch.is_empty() {
            return Ok(end);
        }
        end = Some(batch.end());
        if senders.iter().any(|sender| sender.send(batch.clone()).is_err()) {
            return Ok(end);
        }
    }
}

/// The part that one thread applies: the shards whose number modulo `of` is `number`.
struct ReplayWorker<'a> {
    number: usize,
    of: usize,
    targets: &'a [Option<RecordTarget>],
    records: u64,
    skipped: u64,
    /// By key, the intents that the database has decided and for which no outcome record was read yet: the
    /// last intent, or several additions, which do not wait for each other.
    intents: HashMap<(TableId, Key), Vec<Decided>>,
    /// Rows that memory dropped, to be read again.
    again: Vec<RereadRow>,
}

/// An intent that the database has committed or refused.
struct Decided {
    position: Position,
    record: Box<[u8]>,
}

/// The error that stopped a thread, and the position of its record.
struct Refused {
    position: Position,
    error: Error,
}

impl ReplayWorker<'_> {
    fn run(mut self, batches: &mpsc::Receiver<Arc<Batch>>) -> Result<Self, Refused> {
        for batch in batches {
            for (position, bytes) in batch.iter() {
                self.apply(position, bytes).map_err(|error| Refused { position, error })?;
            }
        }
        Ok(self)
    }

    /// Applies one record if it belongs to this share.
    fn apply(&mut self, position: Position, bytes: &[u8]) -> Result<(), Error> {
        let record = LogRecord::decode(bytes).map_err(|error| bad(position, error))?;
        let TableId(id) = record.table();
        let targets = self.targets;
        let (table, known) = match targets.get(usize::from(id)) {
            Some(Some(RecordTarget::Apply(_, known)))
                if position <= known.applied
                    && !is_intent(bytes)
                    && !matches!(record, LogRecord::Committed { .. }) =>
            {
                return Ok(());
            }
            Some(Some(RecordTarget::Old(_, known))) if position <= known.applied => return Ok(()),
            Some(Some(RecordTarget::Apply(table, known))) => (table, known),
            Some(Some(RecordTarget::Old(old, _))) => {
                return self.apply_old(old, &record, is_intent(bytes), position);
            }
            Some(Some(RecordTarget::Skip)) => {
                self.records += u64::from(self.number == 0);
                self.skipped += u64::from(self.number == 0);
                return Ok(());
            }
            _ => return Err(bad(position, InvalidRecord("is of a table that is not in the catalogue"))),
        };
        record.check(table.schema()).map_err(|error| bad(position, error))?;
        let key = record.key(table.schema());
        let hash = table.rows.hasher.key(key);
        if hash.shard() % self.of != self.number {
            return Ok(());
        }
        if is_intent(bytes) {
            self.apply_intent(table, *known, &record, bytes, (hash, key), position);
            return Ok(());
        }
        self.apply_change(table, *known, &record, (hash, key), position)
    }

    /// Notes an intent, unless memory already contains its outcome, or its row will be read.
    fn apply_intent(
        &mut self,
        table: &Table,
        known: TableProgress,
        record: &LogRecord<'_>,
        bytes: &[u8],
        (hash, key): (KeyHash, KeyRef<'_>),
        position: Position,
    ) {
        self.records += 1;
        if position <= known.begin {
            return;
        }
        if position > known.decided {
            table.note_intent(record, bytes, key, hash, position);
        } else if known.heeds_outcomes {
            let of_key = self.intents.entry((record.table(), key.to_owned())).or_default();
            if !matches!(table.adds(record), Adds::Beside(..)) {
                // This intent began when the outcomes of all earlier intents of the key were known.
                of_key.clear();
            }
            of_key.push(Decided { position, record: bytes.into() });
        }
    }

    fn apply_change(
        &mut self,
        table: &Arc<Table>,
        known: TableProgress,
        record: &LogRecord<'_>,
        (hash, key): (KeyHash, KeyRef<'_>),
        position: Position,
    ) -> Result<(), Error> {
        let has_newer = table.is_from_checkpoint() && table.has_newer(hash, key, position);
        if position <= known.applied || has_newer {
            if let (LogRecord::Committed { position: of, .. }, true) = (record, known.heeds_outcomes) {
                self.take_intent(table, key, *of);
            }
            if has_newer {
                table.note_logged(record, key, hash, position);
            }
            return Ok(());
        }
        self.records += 1;
        let is_known = match *record {
            LogRecord::Committed { position: of, .. } if known.heeds_outcomes || of > known.decided => {
                // The checkpoint's row may contain an intent of a followed table between `begin` and `had`,
                // or not.
                of <= known.begin || of > known.applied && self.apply_committed(table, key, hash, of)?
            }
            // A row that was read contains the outcomes of what the database had then.
            LogRecord::Undone { .. } => {
                let is_replayed = table.last_change(hash, key).is_some_and(|last| last > known.decided);
                !known.heeds_outcomes && !is_replayed
            }
            _ => true,
        };
        if !is_known {
            self.note_undecided(table, key, hash);
            let from = table.undo_logged(&mut table.rows.lock(hash.shard()), hash, key, Position(0));
            self.again.push(RereadRow::new(from, table.clone(), key.value().to_owned()));
        }
        table.replay_record(record, key, hash, position).map_err(|error| bad(position, error))
    }

    /// Applies an intent that was committed; false when memory cannot determine the row.
    fn apply_committed(
        &mut self,
        table: &Table,
        key: KeyRef<'_>,
        hash: KeyHash,
        position: Position,
    ) -> Result<bool, Error> {
        let intent = self.take_intent(table, key, position);
        let last = table.last_change(hash, key);
        if !table.followed() && last.is_some_and(|last| last >= position) && !table.is_unknown_row(hash, key)
        {
            // The row was saved after the intent.
            return Ok(true);
        }
        let Some(intent) = intent.filter(|_| last.is_none_or(|last| last <= position)) else {
            return Ok(false);
        };
        let record = LogRecord::decode(&intent).expect("it was checked when it was read");
        if last == Some(position) {
            table.note_logged(&record, key, hash, position);
        } else {
            table.replay_record(&record, key, hash, position).map_err(|error| bad(position, error))?;
        }
        Ok(true)
    }

    /// Takes the record of an intent that was committed, and forgets earlier intents of its key, whose
    /// outcomes were known then.
    fn take_intent(&mut self, table: &Table, key: KeyRef<'_>, position: Position) -> Option<Box<[u8]>> {
        let id = (table.id(), key.to_owned());
        let Some(of_key) = self.intents.get_mut(&id) else { return table.take_noted(position) };
        let mut taken = None;
        of_key.retain_mut(|decided| {
            if decided.position == position {
                taken = Some(std::mem::take(&mut decided.record));
            }
            decided.position > position
        });
        if of_key.is_empty() {
            self.intents.remove(&id);
        }
        taken.or_else(|| table.take_noted(position))
    }

    /// Reserves the values of the intents of a row that is dropped: the log does not contain their outcomes.
    fn note_undecided(&mut self, table: &Table, key: KeyRef<'_>, hash: KeyHash) {
        let of_key = self.intents.remove(&(table.id(), key.to_owned()));
        for Decided { position, record: bytes } in of_key.into_iter().flatten() {
            if table.is_unknown_row(hash, key)
                || table.last_change(hash, key).is_none_or(|last| last < position)
            {
                let record = LogRecord::decode(&bytes).expect("it was checked when it was read");
                table.note_intent(&record, &bytes, key, hash, position);
            }
        }
    }
}

impl ReplayWorker<'_> {
    /// Applies a record that has the old columns of a table.
    fn apply_old(
        &mut self,
        old: &OldColumns,
        record: &LogRecord<'_>,
        is_intent: bool,
        position: Position,
    ) -> Result<(), Error> {
        let table = &old.table;
        if !old.has_same_key() {
            return Err(other_key(&old.schema.name, position));
        }
        record.check(&old.schema).map_err(|error| bad(position, error))?;
        let key = record.key(&old.schema);
        let hash = table.rows.hasher.key(key);
        if hash.shard() % self.of != self.number {
            return Ok(());
        }
        self.records += 1;
        if is_intent {
            table.doubt_intent(key, hash, position);
            self.again.push(RereadRow::new(position, table.clone(), key.value().to_owned()));
            return Ok(());
        }
        match *record {
            LogRecord::Insert { row, .. } | LogRecord::Put { row, .. } => {
                table.replay_unseen(key, hash, &old.changes(row, |_| true), position, Missing::Put);
            }
            LogRecord::Update { columns, row, .. } => {
                let changes = old.changes(row, |column| columns.contains(column));
                table.replay_unseen(key, hash, &changes, position, Missing::Ignore);
            }
            LogRecord::Increment { column, sum, .. } => {
                let change = old.now[column].zip(sum.map(ValueRef::Bigint));
                table.replay_unseen(key, hash, change.as_slice(), position, Missing::Ignore);
            }
            LogRecord::Delete { .. } => table.replay_delete(key, hash, position),
            LogRecord::Undone { .. } | LogRecord::Committed { .. } => {}
        }
        Ok(())
    }
}

fn bad(position: Position, error: InvalidRecord) -> Error {
    Error::caused(
        Kind::BadRecord { position },
        format!("the log's record that ends at {position} is damaged"),
        error,
    )
}

fn other_key(table: &str, position: Position) -> Error {
    let what = format!(
        "table {table} has another key than when the change at log position {position} was written: \
         drain with the old key first"
    );
    Error::new(Kind::OtherKey { table: table.to_owned() }, what)
}
