//! The drain's input: a queue of log records, in this process (`embedded`) or one shard's on Redis
//! (`remote`).
//!
//! A queue returns records in order, as often as they are requested, and finds the position that the database
//! has reached. The batcher does the rest (coalescing, sizing, retries, dead letters), in the same way for
//! both.

use crate::form::Form;
use crate::reached::Reached;
use crate::stopped::StoppedTable;
use crate::{Error, Kind};
use forebay_database::{Acting, Cascades, Change, OnError, Op, Refused, Store};
use forebay_log::Position;
use forebay_table::{Catalogue, InvalidRecord, LogRecord, TableId, is_intent};
use forebay_value::{Row, Schema, Value};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A queue of log records, with positions that only rise.
pub(crate) trait Queue {
    /// Records at most in a batch that was not prepared while the database was busy.
    const ROWS_FIRST: usize;

    /// Whether only this process moves the position. When the position was moved by another process,
    /// [`Queue::locate`] decides whether this drain may continue.
    const IS_OWN: bool;

    /// The treatment of a change that the database refuses by itself.
    const ON_REFUSAL: OnError;

    /// The id under which the database stores the position reached.
    fn id(&self) -> u128;

    /// The opening of the log that the database must have stored as the one that moves the position; empty
    /// when the queue has none.
    fn opening(&self) -> String;

    /// Reads the position that the database has reached; `known` is what this drain knows of it, if no COMMIT
    /// is in doubt. Releases what the database contains, when the answer to a commit was lost.
    ///
    /// # Errors
    /// Also when queue and database do not belong together: continuing would skip records or write them
    /// twice.
    async fn locate(&mut self, database: &Store, known: Option<&Reached>) -> Result<QueuePlace, Error>;

    /// Records behind `after`, at most `limit`. Empty when no records are durable there.
    async fn read_after(
        &mut self,
        after: Position,
        limit: Limit,
        schemas: &mut Schemas,
    ) -> Result<QueueRead, Error>;

    /// The database has made everything that it has `reached` durable: the queue may delete it, except for
    /// held changes. False: this drain no longer owns the queue.
    async fn release(&mut self, reached: &Reached) -> Result<bool, Error>;

    /// Reports the outcome of intents, once the database has `reached`, to the clients that wait for them.
    /// Called before [`Queue::release`].
    async fn settle(&mut self, reached: &Reached, verdict: &IntentResult);

    /// The tables of which changes can be in the queue.
    fn catalogue(&self) -> Arc<Catalogue>;

    /// Whether changes of this table can be in the queue.
    fn knows(&self, table: &str) -> bool {
        self.catalogue().tables().any(|(_, schema)| schema.name == table)
    }

    /// Sets which tables are stopped: their intents are answered.
    fn set_stopped(&self, stopped: &[StoppedTable]);

    /// The database does not contain what the changes of these rows (their tables' schemas, their keys) say:
    /// memory drops the rows, and shows what the database contains.
    async fn undo(&mut self, rows: Vec<RowKey>);

    /// Which deletes act on rows of other tables; `None`: that does not matter, because the queue has one
    /// order for all its changes.
    fn cascades(&self) -> Option<Arc<Cascades>>;

    /// Takes out the changes that are held without being tried: those of rows with held changes, and deletes
    /// that act on other rows.
    async fn take_held(
        &mut self,
        changes: &mut Vec<Change>,
        schemas: &[Arc<Schema>],
    ) -> Result<Vec<Change>, Error>;

    /// Records that changes of this queue are held from now on.
    fn note_held(&mut self);

    /// Whether the backlog behind `position` is so long that the next batch should be prepared while the
    /// database is busy.
    fn is_long_behind(&self, position: Position) -> bool;
}

/// The outcome of a batch's intents.
#[derive(Debug)]
pub(crate) enum IntentResult {
    /// All were applied except these, which are in the order of the queue.
    But(Vec<Refused>),
    /// The answer was lost, so it is unknown which of them were refused.
    Unknown,
}

/// A row: the schema of its table, and its key.
pub(crate) type RowKey = (Arc<Schema>, Value);

/// The position that the database has reached in a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QueuePlace {
    /// The stored position of this queue; `None`: none yet.
    pub stored: Option<Position>,
    /// The note stored beside the position.
    pub note: String,
    /// How far each table is, including tables that were stopped since.
    pub reached: Reached,
    /// Everything before it is in the database or of a stopped table: `reached.others`, or the position
    /// behind the padding that follows it.
    pub drained: Position,
}

impl QueuePlace {
    /// From the database's stored position.
    pub(crate) fn new(stored: Option<Position>, reached: Reached) -> QueuePlace {
        let note = reached.note();
        QueuePlace { stored, note, drained: reached.others, reached }
    }

    /// Everything before it is in the database, of all tables.
    pub(crate) fn all(&self) -> Position {
        if self.reached.stopped.is_empty() { self.drained } else { self.reached.all() }
    }
}

/// The limits of one read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// Records at most.
    pub rows: usize,
    /// No record that ends after it.
    pub until: Option<Position>,
}

/// Changes in the order of the queue.
#[derive(Debug, Default)]
pub(crate) struct QueueRead {
    pub changes: Vec<Change>,
    /// The size of the records in the queue.
    pub bytes: u64,
    /// Whether the queue has no more records, or none that ends before the limit's `until`.
    pub is_end: bool,
    /// The end of the last record: the position that the database stores.
    pub last: Option<Position>,
    /// Where the next record begins: at `last`, or behind the padding that follows it. After a restart the
    /// log may end at `last`.
    pub next: Position,
}

/// The tables of the changes, in the order in which they first occurred; shared by all batches of a queue.
#[derive(Debug)]
pub(crate) struct Schemas {
    pub list: Vec<Arc<Schema>>,
    /// For each table: whether other programs write to it.
    pub is_shared: Vec<bool>,
    /// Which changes of the tables act; `None`: to be read from the database.
    pub acting: Option<Arc<Acting>>,
    /// Those in another form than they were written with: by place, the place of that one, and the form.
    pub forms: BTreeMap<usize, (usize, Form)>,
    /// By table id.
    places: Vec<Option<usize>>,
    /// The names of the tables that only Forebay writes to.
    own: Arc<HashSet<String>>,
}

impl Schemas {
    /// `own` are the names of the tables that only Forebay writes to.
    pub(crate) fn new(own: Arc<HashSet<String>>) -> Schemas {
        let (list, is_shared, places) = (Vec::new(), Vec::new(), Vec::new());
        Schemas { list, is_shared, acting: None, forms: BTreeMap::new(), places, own }
    }

    /// Which changes of the tables act: as last read, unless there are more tables since.
    pub(crate) async fn acting(&mut self, database: &Store) -> Result<Arc<Acting>, Error> {
        let known = self.acting.take().filter(|acting| acting.tables() == self.list.len());
        let acting = match known {
            Some(acting) => acting,
            None => Arc::new(database.acting(&self.list).await?),
        };
        Ok(self.acting.insert(acting).clone())
    }

    /// Whether the changes contain a table in an older and in its present form: the same key in both is one
    /// row, and only the order in the queue shows that.
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
        let index = usize::from(id.0);
        if let Some(&Some(place)) = self.places.get(index) {
            return Some(place);
        }
        let schema = catalogue.schema(id)?.clone();
        self.is_shared.push(!self.own.contains(&schema.name));
        self.list.push(schema);
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.places[index] = Some(self.list.len() - 1);
        self.places[index]
    }
}

/// The approximate size of a change in memory.
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

/// Decodes a log record; `None`: the record is not a change, and the database does not need it. The
/// error's message says what the record is, as the rest of a sentence.
pub(crate) fn decode(
    position: Position,
    bytes: &[u8],
    catalogue: &Catalogue,
    schemas: &mut Schemas,
) -> Result<Option<Change>, Error> {
    let bad = |error: InvalidRecord| Error::new(Kind::BadRecord, error.to_string());
    let record = LogRecord::decode(bytes).map_err(bad)?;
    let id = record.table();
    let table = schemas
        .place(catalogue, id)
        .ok_or_else(|| Error::new(Kind::BadRecord, format!("is of table {id}, which is unknown")))?;
    record.check(&schemas.list[table]).map_err(bad)?;
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
