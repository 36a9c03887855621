//! Held changes: changes that the database refused and that may still become valid.
//!
//! Queues that are drained concurrently (the shards of a memory tier) have no common order: a row may come
//! before the row that it refers to, or before the delete that frees its unique value. A drain of such queues
//! has a refused change held ([`OnError::Hold`](crate::OnError::Hold)): the change goes to `forebay_held` in
//! the transaction that moves the position past it, and so does every later change of its row. Batches settle
//! held changes ([`Holding::settles`]): they apply them, or make them dead letters. The drain decides when.
//!
//! What must stay true: a change is held, applied or a dead letter, never two of these, because it moves
//! between them in one transaction, which locks its rows of `forebay_held`.

use crate::{Batch, Change, DeadLetter, Error, HeldId, Kind, Op};
use forebay_value::Schema;

/// A held change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The change's id.
    pub id: HeldId,
    /// The same for all changes of one row ([`Change::key_hash`](crate::Change::key_hash)).
    pub key_hash: i64,
    /// Its dead letter, should it become one; the dead letter's id is 0.
    pub letter: DeadLetter,
}

impl Held {
    /// The change, for the present form of the table.
    ///
    /// # Errors
    /// [`Kind::Type`](crate::Kind::Type) when its values no longer fit.
    pub fn change(&self, schema: &Schema) -> Result<Op, Error> {
        self.letter.change(schema)
    }
}

/// The reason recorded for one of [`Holding::more`](crate::Holding::more).
pub(crate) fn unrefused(batch: &Batch, change: &Change) -> Error {
    let name = &batch.schemas[change.table].name;
    let acts = batch.held.cascades.as_ref().is_some_and(|cascades| cascades.has(name));
    match &change.op {
        Op::Delete(_) if acts => {
            let message = "it acts on other rows (ON DELETE): what was written before it comes first";
            Error::new(crate::Kind::Newer, message)
        }
        _ => behind_held(),
    }
}

/// The reason recorded for a held change that the database did not refuse.
pub(crate) fn behind_held() -> Error {
    Error::new(crate::Kind::Newer, "an earlier change of its row is held")
}

/// Why the drain's tables are not removed: one of them is not empty.
pub(crate) fn would_lose(table: &str) -> Error {
    let what = "is not empty: replay its changes (`forebay drain --replay`), or delete its rows";
    Error::new(Kind::Schema, format!("table {table} {what}"))
}

/// Why the drain's tables are not removed: another server has its position there.
pub(crate) fn in_use(server: &str) -> Error {
    let server = if server.is_empty() { "an unknown server" } else { server };
    let what = "still writes with Forebay's tables, or has ended with changes that are not in the database: stop and drain it first";
    Error::new(Kind::Schema, format!("{server} {what}"))
}
