//! What a drain hands to a database, and what it gets back.

use crate::{Cascades, Error, Kind};
use forebay_value::{Row, Schema, Timestamp, Value, ValueRef};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// One transaction's worth of changes, together with the log position that it reaches.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The id of the log that the changes come from.
    pub log: u128,
    /// The position that the store must have for this log; `None`: it must have none yet.
    pub from: Option<u64>,
    /// The position that the store has afterwards.
    pub to: u64,
    /// What the drain keeps beside the position.
    pub note: Note,
    /// The opening of the log that the store must know as the one that moves the position
    /// ([`Claim`](crate::Claim)); empty for a queue without openings.
    pub opening: String,
    /// The tables that the changes speak of.
    pub schemas: Vec<Arc<Schema>>,
    /// The changes, executed in this order.
    pub changes: Vec<Change>,
    /// What happens when a change is refused.
    pub on_error: OnError,
    /// Whether direct writes may interrupt it.
    pub priority: Priority,
    /// What it has to do with held changes.
    pub held: Holding,
}

/// A text of the drain's own beside a position, compared and set together with it. Both are empty unless it
/// has stopped tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// The text that the store must have.
    pub from: String,
    /// The text that it has afterwards.
    pub to: String,
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The index of the table in [`Batch::schemas`].
    pub table: usize,
    /// The end of the log record that it comes from (the last one, when several became one change).
    pub position: u64,
    /// Whether no client has been told yet that it is done: refused, it is no dead letter
    /// ([`Applied::refused`]).
    pub is_intent: bool,
    /// What is done.
    pub op: Op,
}

/// What is done to one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A plain INSERT: a row with this key or a unique value of it is a conflict.
    Insert(Row),
    /// The whole row as it shall be, whether it is there or not.
    Put(Row),
    /// The row with this key shall not be there; that it is not is no error.
    Delete(Value),
    /// Sets columns of the row with this key; a row that is not there is counted ([`Applied::missing`]).
    Update {
        /// The row's key.
        key: Value,
        /// The indexes of the columns, at least one, each once, never the key's, with their new values.
        columns: Vec<(usize, Value)>,
    },
    /// Adds to a bigint column; a row that is not there is counted ([`Applied::missing`]).
    Increment {
        /// The row's key.
        key: Value,
        /// The column's index.
        column: usize,
        /// What is added.
        delta: i64,
    },
}

impl Op {
    /// The key of the row that it is about.
    pub fn key<'a>(&'a self, schema: &Schema) -> ValueRef<'a> {
        match self {
            Op::Insert(row) | Op::Put(row) => row.as_ref().key(schema),
            Op::Update { key, .. } | Op::Delete(key) | Op::Increment { key, .. } => key.as_ref(),
        }
    }
}

impl Change {
    /// Whether it is an intent that is nothing without a row.
    pub(crate) fn must_meet_row(&self) -> bool {
        self.is_intent && matches!(self.op, Op::Update { .. } | Op::Increment { .. })
    }
}

/// Which held change: the log that it came from and the end of its record there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldId {
    /// The log that it came from.
    pub log: u128,
    /// The end of its record.
    pub position: u64,
}

/// What a batch has to do with held changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holding {
    /// Changes that are held without being tried: earlier ones of their rows are held, or they are deletes
    /// that act on other rows.
    pub more: Vec<Change>,
    /// Held changes that the batch takes instead of moving a position. With
    /// [`OnError::Fail`] and [`OnError::Sift`] its changes are the sum of these; otherwise each change is the
    /// one of the same index.
    pub settles: Vec<HeldId>,
    /// Rows that deletes of the batch act on by foreign keys are told ([`Applied::differing`]); `None`: they
    /// are not looked for.
    pub cascades: Option<Arc<Cascades>>,
    /// The only rows that its deletes may act on ([`Change::key_hash`]), or it is [`Kind::Fenced`]; `None`:
    /// whichever they are.
    pub reached: Option<Arc<HashSet<i64>>>,
}

impl Batch {
    /// Whether it takes held changes instead of moving its log's position.
    pub(crate) fn is_settling(&self) -> bool {
        !self.held.settles.is_empty()
    }

    /// The log that a change comes from.
    pub(crate) fn log_of(&self, index: usize) -> u128 {
        self.held.settles.get(index).map_or(self.log, |id| id.log)
    }

    /// The held changes that are gone when it is committed and those of its changes with these indexes were
    /// refused and stay.
    pub(crate) fn settled(&self, refused: &[usize]) -> Vec<HeldId> {
        let stays: HashSet<&usize> = refused.iter().collect();
        let settles = self.held.settles.iter().enumerate();
        settles.filter(|(index, _)| !stays.contains(index)).map(|(_, id)| *id).collect()
    }

    /// Fails a batch that is sifted when some of its changes, with these indexes, were refused.
    pub(crate) fn sift(&self, refused: &[usize]) -> Result<(), Error> {
        if self.on_error != OnError::Sift || refused.is_empty() {
            return Ok(());
        }
        let message = format!("{} of {} changes are refused", refused.len(), self.changes.len());
        Err(Error::new(Kind::Rows { indexes: refused.to_vec() }, message))
    }

    /// Another drain has taken one of the held changes.
    pub(crate) fn not_held(&self, found: usize) -> Error {
        let wanted = self.held.settles.len();
        let message = format!("another drain settles held changes: {wanted} should be held, {found} are");
        Error::new(Kind::Fenced, message)
    }

    /// Table and key of a change.
    pub(crate) fn place(&self, change: &Change) -> (usize, Value) {
        (change.table, change.op.key(&self.schemas[change.table]).to_owned())
    }
}

/// What happens to a batch when one of its changes is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Nothing of it is applied; the error names the change.
    Fail,
    /// The change goes to `forebay_dead_letter` in the same transaction, unless it is an intent; the others
    /// are applied.
    DeadLetter,
    /// The change and all later ones of its row go to `forebay_held` in the same transaction, or stay there;
    /// the others are applied.
    Hold,
    /// Nothing of it is applied; the error names every change that is refused by itself
    /// ([`Kind::Rows`](crate::Kind::Rows)). For batches that settle.
    Sift,
}

/// Whether a batch gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// When direct writes wait and its slice is over it is rolled back:
    /// [`Kind::Yielded`](crate::Kind::Yielded).
    Yields,
    /// It runs to its end: for batches small enough, and for those that gave way before.
    Holds,
}

/// A batch that was applied.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Changes that were refused: they went to `forebay_dead_letter`, or were kept elsewhere.
    pub dead: u64,
    /// Those of them that were kept elsewhere.
    pub unwritten: u64,
    /// The indexes of the changes that are held: refused ones, and later ones of their rows.
    pub held: Vec<usize>,
    /// Updates and increments that met no row: others deleted it.
    pub missing: u64,
    /// Rows that are not what their changes say: those of refused changes, those of a run of changes in
    /// which one met no row, and those that deletes acted on ([`Holding::cascades`]). The index of the table
    /// in [`Batch::schemas`], and the key.
    pub differing: Vec<(usize, Value)>,
    /// The intents that were not applied, in the order of the batch.
    pub refused: Vec<Refused>,
    /// How long it held the writer.
    pub took: Duration,
    /// Whether direct writes waited for it.
    pub others_waited: bool,
}

/// An intent that the database did not apply.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Its [`Change::position`].
    pub position: u64,
    /// Why; `None`: there is no row that it could change.
    pub reason: Option<Error>,
}

/// A change that the database refused, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Counts up.
    pub id: i64,
    /// The log that it came from.
    pub log: u128,
    /// The end of its log record.
    pub position: u64,
    /// The table that it was meant for.
    pub table: String,
    /// `insert`, `put`, `update`, `delete` or `increment`.
    pub op: String,
    /// The row as JSON, as far as the database can hold it; for a delete its key alone, for an update the key
    /// and the columns that it sets, for an increment key, column and amount.
    pub row: String,
    /// The same as bytes; `None` for a letter of an earlier version.
    pub(crate) change: Option<Vec<u8>>,
    /// What the store said.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}
