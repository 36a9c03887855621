//! The batches that a drain applies to a database, and their results.

use crate::acting::TableActing;
use crate::limits::{BULK_ANSWER_MS, BULK_LOCK_WAIT_MS, SERVER_GRACE_MS};
use crate::{Acting, Cascades, Error, Kind};
use forebay_value::{Row, Schema, Timestamp, Value, ValueRef};
use std::collections::HashSet;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::Duration;

/// The changes of one transaction, together with the log position that it reaches.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The id of the log that the changes come from.
    pub log: u128,
    /// The position that the database must have for this log; `None`: it must not have one yet.
    pub from: Option<u64>,
    /// The position that the database has afterwards.
    pub to: u64,
    /// The drain's note beside the position.
    pub note: Note,
    /// The opening of the log that the database must have stored as the one that moves the position
    /// ([`Claim`](crate::Claim)); empty for a queue without openings.
    pub opening: String,
    /// The tables of the changes.
    pub schemas: Vec<Arc<Schema>>,
    /// The changes, executed in this order.
    pub changes: Vec<Change>,
    /// What the batch was prepared for: if that has changed, the batch is [`Kind::Altered`]. `None`: it does
    /// not matter how the changes were prepared.
    pub basis: Option<Basis>,
    /// What happens when a change is refused.
    pub on_error: OnError,
    /// Whether direct writes may interrupt it.
    pub priority: Priority,
    /// How long it may wait and run.
    pub patience: Patience,
    /// The held changes that the batch adds or settles.
    pub held: Holding,
}

/// What the changes of a batch were prepared for.
#[derive(Debug, Clone)]
pub struct Basis {
    /// Which changes act.
    pub acting: Arc<Acting>,
    /// The tables of the changes before they were coalesced, each once, ascending. Of a table whose changes
    /// cancelled out each other the batch has none.
    pub tables: Vec<usize>,
    /// Whether the batch itself alters tables (a trigger makes a partition): the catalogue that it was
    /// prepared for is not compared then.
    pub alters: bool,
    /// The refusals that make dead letters: of a table, for a reason. Any other fails the batch, and the
    /// error names the change.
    pub judged: Vec<(usize, Discriminant<Kind>)>,
}

/// How long a batch may wait for others' locks, and how long each of its statements may run; on SQLite, how
/// long all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For one lock, in milliseconds.
    pub lock_ms: u64,
    /// For one statement with its triggers and its waits for locks, in milliseconds.
    pub statement_ms: u64,
}

impl Default for Patience {
    /// Ends before the client stops waiting for the answer.
    fn default() -> Patience {
        Patience { lock_ms: BULK_LOCK_WAIT_MS, statement_ms: BULK_ANSWER_MS - SERVER_GRACE_MS }
    }
}

/// A text that the drain stores beside a position, compared and set together with it. Both are empty unless
/// the drain has stopped tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// The text that the database must have.
    pub from: String,
    /// The text that the database has afterwards.
    pub to: String,
}

/// One change of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The index of the table in [`Batch::schemas`].
    pub table: usize,
    /// The end of its log record (the last record's, when several were coalesced).
    pub position: u64,
    /// Whether no client has been answered yet: a refused intent does not become a dead letter
    /// ([`Applied::refused`]).
    pub is_intent: bool,
    /// The operation.
    pub op: Op,
}

/// An operation on one row.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// A plain INSERT: an existing row with this key or one of its unique values is a conflict.
    Insert(Row),
    /// Writes the whole row, whether it exists or not.
    Put(Row),
    /// Deletes the row with this key; a missing row is no error.
    Delete(Value),
    /// Sets columns of the row with this key; a missing row is counted ([`Applied::missing`]).
    Update {
        /// The row's key.
        key: Value,
        /// The indexes of the columns, at least one, each once, never the key's, with their new values.
        columns: Vec<(usize, Value)>,
    },
    /// Adds to a bigint column; a missing row is counted ([`Applied::missing`]).
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
    fn acts(&self, table: &TableActing) -> bool {
        match self {
            Op::Insert(_) => table.inserts,
            Op::Put(_) => table.inserts || table.updates || !table.columns.is_empty(),
            Op::Delete(_) => table.deletes,
            Op::Update { columns, .. } => {
                table.updates || columns.iter().any(|(column, _)| table.columns.contains(column))
            }
            Op::Increment { column, .. } => table.updates || table.columns.contains(column),
        }
    }

    /// The key of the row.
    pub fn key<'a>(&'a self, schema: &Schema) -> ValueRef<'a> {
        match self {
            Op::Insert(row) | Op::Put(row) => row.as_ref().key(schema),
            Op::Update { key, .. } | Op::Delete(key) | Op::Increment { key, .. } => key.as_ref(),
        }
    }
}

impl Change {
    /// Whether the change acts.
    pub fn acts(&self, acting: &Acting) -> bool {
        self.op.acts(acting.of(self.table))
    }

    /// Whether it runs code of the database's owner.
    pub(crate) fn runs_code(&self, acting: &Acting) -> bool {
        acting.of(self.table).runs_code && self.acts(acting)
    }

    /// Whether the change is an intent that has no effect without an existing row.
    pub(crate) fn must_meet_row(&self) -> bool {
        self.is_intent && matches!(self.op, Op::Update { .. } | Op::Increment { .. })
    }
}

/// Identifies a held change: its log and the end of its record there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeldId {
    /// The change's log.
    pub log: u128,
    /// The end of its record.
    pub position: u64,
}

/// The held changes of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holding {
    /// Changes that are held without being tried: earlier changes of their rows are held, or they are deletes
    /// that act on other rows.
    pub more: Vec<Change>,
    /// Held changes that the batch settles instead of moving a position. With [`OnError::Fail`] and
    /// [`OnError::Sift`] the batch's changes are the sum of these; otherwise each change is the held change
    /// of the same index.
    pub settles: Vec<HeldId>,
    /// With this, rows that the batch's deletes act on through foreign keys are reported
    /// ([`Applied::differing`]); `None`: they are not looked for.
    pub cascades: Option<Arc<Cascades>>,
    /// The only rows that the batch's deletes may act on ([`Change::key_hash`]), otherwise the batch is
    /// [`Kind::Fenced`]; `None`: any rows.
    pub reached: Option<Arc<HashSet<i64>>>,
}

impl Batch {
    /// The tables of the changes, each once, ascending.
    pub(crate) fn changed_tables(&self) -> Vec<usize> {
        let mut tables: Vec<usize> = self.changes.iter().map(|change| change.table).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }

    /// Whether some change acts.
    pub(crate) fn acts(&self) -> bool {
        let acts = |basis: &Basis| self.changes.iter().any(|change| change.acts(&basis.acting));
        self.basis.as_ref().is_some_and(acts)
    }

    /// Whether the batch settles held changes instead of moving its log's position.
    pub(crate) fn is_settling(&self) -> bool {
        !self.held.settles.is_empty()
    }

    /// The log of a change.
    pub(crate) fn log_of(&self, index: usize) -> u128 {
        self.held.settles.get(index).map_or(self.log, |id| id.log)
    }

    /// The held changes that the commit deletes, when the changes with these indexes were refused and stay
    /// held.
    pub(crate) fn settled(&self, refused: &[usize]) -> Vec<HeldId> {
        let stays: HashSet<&usize> = refused.iter().collect();
        let settles = self.held.settles.iter().enumerate();
        settles.filter(|(index, _)| !stays.contains(index)).map(|(_, id)| *id).collect()
    }

    /// Whether the refused change becomes a dead letter.
    pub(crate) fn is_judged(&self, index: usize, refused: &Error) -> bool {
        let refusal = (self.changes[index].table, discriminant(refused.kind()));
        let basis = self.basis.as_ref().filter(|_| self.on_error == OnError::DeadLetter);
        basis.is_none_or(|basis| basis.judged.contains(&refusal))
    }

    /// Fails a batch with [`OnError::Sift`] when the changes with these indexes were refused.
    pub(crate) fn sift(&self, refused: &[usize]) -> Result<(), Error> {
        if self.on_error != OnError::Sift || refused.is_empty() {
            return Ok(());
        }
        let message = format!("{} of {} changes are refused", refused.len(), self.changes.len());
        Err(Error::new(Kind::Rows { indexes: refused.to_vec() }, message))
    }

    /// The error when another drain has settled one of the held changes.
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

/// The treatment of a batch when one of its changes is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// Nothing of the batch is applied; the error names the change.
    Fail,
    /// The change goes to `forebay_dead_letter` in the same transaction, unless it is an intent; the others
    /// are applied.
    DeadLetter,
    /// The change and all later changes of its row go to `forebay_held` in the same transaction, or stay
    /// there; the others are applied.
    Hold,
    /// Nothing of the batch is applied; the error names every change that is refused by itself
    /// ([`Kind::Rows`](crate::Kind::Rows)). For batches that settle held changes.
    Sift,
}

/// Whether a batch yields to direct writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The batch is rolled back when direct writes wait and its slice is over:
    /// [`Kind::Yielded`](crate::Kind::Yielded).
    Yields,
    /// The batch runs to its end: for batches that are small enough, and for those that yielded before.
    Holds,
}

/// The result of an applied batch.
#[derive(Debug, Clone)]
pub struct Applied {
    /// Refused changes: their dead letters went to `forebay_dead_letter`, or were stored elsewhere.
    pub dead: u64,
    /// Those of them whose dead letters were stored elsewhere.
    pub unwritten: u64,
    /// The indexes of the changes that are held: refused changes, and later changes of their rows.
    pub held: Vec<usize>,
    /// Updates and increments whose row did not exist: another program had deleted it.
    pub missing: u64,
    /// Rows that may differ from what their changes say: rows of refused changes, rows of a run of changes in
    /// which one met no row, and rows that deletes acted on ([`Holding::cascades`]). The index of the table
    /// in [`Batch::schemas`], and the key.
    pub differing: Vec<(usize, Value)>,
    /// The intents that were not applied, in the order of the batch.
    pub refused: Vec<Refused>,
    /// How long the batch held the writer.
    pub took: Duration,
    /// Whether direct writes waited meanwhile.
    pub others_waited: bool,
}

/// An intent that the database did not apply.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Its [`Change::position`].
    pub position: u64,
    /// The reason; `None`: the row that the intent would change does not exist.
    pub reason: Option<Error>,
}

/// A change that the database refused, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Ascending.
    pub id: i64,
    /// The change's log.
    pub log: u128,
    /// The end of the change's log record.
    pub position: u64,
    /// The table of the change.
    pub table: String,
    /// `insert`, `put`, `update`, `delete` or `increment`.
    pub op: String,
    /// The row as JSON, as far as the database can store it; for a delete only its key, for an update the key
    /// and the columns that it sets, for an increment the key, the column and the amount.
    pub row: String,
    /// The same as bytes; `None` for a dead letter of an earlier version.
    pub(crate) change: Option<Vec<u8>>,
    /// The database's error.
    pub reason: String,
    /// When the change was refused.
    pub at: Timestamp,
}
