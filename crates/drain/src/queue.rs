//! What the drain reads: a queue of log records, in this process (`embedded`) or one shard's on Redis
//! (`remote`).
//!
//! A queue gives records in the order in which they happened, as often as it is asked, and knows where the
//! database stands. What becomes of them (coalescing, sizing, retries, dead letters) is the batcher's
//! business and the same for both.

use crate::Error;
use crate::stopped::{Reached, StoppedTable};
use forebay_database::{Cascades, Change, OnError, Op, Refused, Store};
use forebay_log::Position;
use forebay_table::{Catalogue, LogRecord, TableId, is_intent};
use forebay_value::{Row, Schema, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A queue of log records, with positions that only rise.
pub(crate) trait Queue {
    /// Records at most in a batch that was not read while the database was busy.
    const ROWS_FIRST: usize;

    /// Whether only this process moves its position. Where it has moved otherwise, [`Queue::locate`] says
    /// whether this drain may go on.
    const IS_OWN: bool;

    /// What becomes of a change that the database refuses by itself.
    const ON_REFUSAL: OnError;

    /// The id under which the database keeps the position reached.
    fn id(&self) -> u128;

    /// The opening of the log that the database must know as the one that moves the position; empty when the
    /// queue has none.
    fn opening(&self) -> String;

    /// Where the database stands. What it has is released, when the answer to a commit was lost.
    ///
    /// # Errors
    /// Also when queue and database do not belong together: going on would skip records or write them twice.
    async fn locate(&mut self, database: &Store) -> Result<Place, Error>;

    /// Records behind `after`, at most `limit`. Empty when there is nothing durable.
    async fn read_after(
        &mut self,
        after: Position,
        limit: Limit,
        schemas: &mut Schemas,
    ) -> Result<Taken, Error>;

    /// The database has made everything before `position` durable: it may be forgotten, up to what is held.
    /// False: this drain does not own the queue any more.
    async fn release(&mut self, position: Position) -> Result<bool, Error>;

    /// What has become of intents, once the database has `reached`: answers those who wait. Before
    /// [`Queue::release`].
    async fn settle(&mut self, reached: &Reached, verdict: &Verdict);

    /// Says which tables are stopped: their intents are answered.
    fn set_stopped(&self, stopped: &[StoppedTable]);

    /// The database does not have what the changes of these rows (their tables' schemas, their keys) say:
    /// memory gives them up, and shows what the database has.
    async fn undo(&mut self, rows: Vec<RowKey>);

    /// Which deletes act on rows of other tables; `None`: that does not matter, because the queue has an
    /// order of all its changes.
    fn cascades(&self) -> Option<Arc<Cascades>>;

    /// Takes the changes out that are held without being tried: those of rows that have held ones, and
    /// deletes that act on other rows.
    async fn take_held(
        &mut self,
        changes: &mut Vec<Change>,
        schemas: &[Arc<Schema>],
    ) -> Result<Vec<Change>, Error>;

    /// Changes of it are held from now on.
    fn note_held(&mut self);

    /// Whether so much lies behind `position` that the next batch is worth reading while the database is
    /// busy.
    fn is_long_behind(&self, position: Position) -> bool;
}

/// What a batch made of its intents.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// All were applied but these, which are in the order of the queue.
    But(Vec<Refused>),
    /// The answer was lost that says which of them were refused.
    Unknown,
}

/// A row: the schema of its table, and its key.
pub(crate) type RowKey = (Arc<Schema>, Value);

/// Where a database stands in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// What the database has for this queue; `None`: nothing yet.
    pub stored: Option<Position>,
    /// What it has beside that.
    pub note: String,
    /// How far each table is, with those stopped since.
    pub reached: Reached,
    /// Everything before it is in the database or of a stopped table: `reached.others`, or behind the padding
    /// that follows it.
    pub drained: Position,
}

impl Place {
    /// As the database has it.
    pub(crate) fn new(stored: Option<Position>, reached: Reached) -> Place {
        let note = reached.note();
        Place { stored, note, drained: reached.others, reached }
    }

    /// Everything before it is in the database, of all tables.
    pub(crate) fn all(&self) -> Position {
        if self.reached.stopped.is_empty() { self.drained } else { self.reached.all() }
    }
}

/// How much is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Records at most.
    pub rows: usize,
    /// No record that ends behind it.
    pub until: Option<Position>,
}

/// Changes in the order in which they happened.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub changes: Vec<Change>,
    /// What the records take in the queue.
    pub bytes: u64,
    /// Whether there is nothing more, or nothing that ends before the limit's `until`.
    pub is_end: bool,
    /// The end of the last of them: what the database is told.
    pub last: Option<Position>,
    /// Where the next begin: there, or behind the padding that follows it. After a restart the log may end at
    /// `last`.
    pub next: Position,
}

/// The tables that changes speak of, in the order they were first met; shared by all batches of a queue.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub list: Vec<Arc<Schema>>,
    /// Of each: whether others write to it.
    pub is_shared: Vec<bool>,
    places: HashMap<TableId, usize>,
    /// The names of the tables that only Forebay writes to.
    own: Arc<HashSet<String>>,
}

impl Schemas {
    /// `own` are the names of the tables that only Forebay writes to.
    pub(crate) fn new(own: Arc<HashSet<String>>) -> Schemas {
        Schemas { list: Vec::new(), is_shared: Vec::new(), places: HashMap::new(), own }
    }

    /// Whether changes are of a table as it was and as it is now: a key of both is one row, which only their
    /// order in the queue shows.
    pub fn mixes(&self, changes: &[Change]) -> bool {
        let is_older =
            |schema: &Arc<Schema>| self.list.iter().filter(|other| other.name == schema.name).count() > 1;
        let mut older =
            self.list.iter().enumerate().filter(|(_, schema)| is_older(schema)).map(|(table, _)| table);
        older.any(|table| {
            let name = &self.list[table].name;
            let is_other = |change: &Change| change.table != table && self.list[change.table].name == *name;
            changes.iter().any(|change| change.table == table) && changes.iter().any(is_other)
        })
    }

    fn place(&mut self, catalogue: &Catalogue, id: TableId) -> Option<usize> {
        if let Some(&place) = self.places.get(&id) {
            return Some(place);
        }
        let schema = catalogue.schema(id)?.clone();
        self.is_shared.push(!self.own.contains(&schema.name));
        self.list.push(schema);
        self.places.insert(id, self.list.len() - 1);
        Some(self.list.len() - 1)
    }
}

/// What a change takes in memory, about.
pub(crate) fn op_bytes(op: &Op) -> usize {
    match op {
        Op::Insert(row) | Op::Put(row) => row.0.len(),
        Op::Update { columns, .. } => {
            let text = |value: &Value| match value {
                Value::Numeric(text) | Value::Text(text) | Value::Json(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            columns.iter().map(|(_, value)| size_of::<(usize, Value)>() + text(value)).sum()
        }
        Op::Delete(_) | Op::Increment { .. } => size_of::<Op>(),
    }
}

/// The change that a log record is; `None`: it is none, and the database has no use for it. An error says
/// what it is instead, as the rest of a sentence.
pub(crate) fn decode(
    position: Position,
    bytes: &[u8],
    catalogue: &Catalogue,
    schemas: &mut Schemas,
) -> Result<Option<Change>, String> {
    let record = LogRecord::decode(bytes).map_err(|error| error.to_string())?;
    let id = record.table();
    let table = schemas.place(catalogue, id).ok_or_else(|| format!("is of table {id}, which is unknown"))?;
    record.check(&schemas.list[table]).map_err(|error| error.to_string())?;
    let op = match record {
        LogRecord::Undone { .. } | LogRecord::Committed { .. } => return Ok(None),
        LogRecord::Insert { row, .. } => Op::Insert(Row(row.0.into())),
        LogRecord::Put { row, .. } => Op::Put(Row(row.0.into())),
        LogRecord::Delete { key, .. } => Op::Delete(key.to_owned()),
        LogRecord::Increment { key, column, delta, .. } => {
            Op::Increment { key: key.to_owned(), column, delta }
        }
        LogRecord::Update { columns, row, .. } => {
            let schema = &schemas.list[table];
            let columns = columns.of(row, schema).map(|(column, value)| (column, value.to_owned())).collect();
            #[cfg(feature = "planted")]
            let columns = if forebay_database::planted_bugs::is("whole-row-update") {
                let all = row.values(schema).map(|value| value.to_owned()).enumerate();
                all.filter(|(column, _)| *column != schema.key).collect()
            } else {
                columns
            };
            Op::Update { key: row.key(schema).to_owned(), columns }
        }
    };
    Ok(Some(Change { table, position: position.0, is_intent: is_intent(bytes), op }))
}
