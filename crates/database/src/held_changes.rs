//! Held changes: refused by the database, and not dead yet.
//!
//! Queues that are drained side by side (the shards of a memory tier) keep no order between them: a row may
//! come before the one that it refers to, or before the delete that frees its unique value. A drain of such
//! queues has a refused change held ([`OnError::Hold`](crate::OnError::Hold)): it goes to `forebay_held` in
//! the transaction that moves the position past it, and every later change of its row behind it. Held changes
//! are settled by batches that take them from there ([`Holding::settles`]): applied, or made dead letters.
//! When that is done is the drain's business.
//!
//! What must stay true: a change is held, applied or a dead letter, never two of these, because it moves
//! between them in one transaction, which locks what it takes.

use crate::{Batch, Change, DeadLetter, Error, HeldId, Op};
use forebay_value::Schema;

/// A change that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which one.
    pub id: HeldId,
    /// The same for all changes of one row ([`Change::key_hash`](crate::Change::key_hash)).
    pub key_hash: i64,
    /// What its dead letter would be; the letter's id is 0.
    pub letter: DeadLetter,
}

impl Held {
    /// The change, for the table as `schema` has it now.
    ///
    /// # Errors
    /// [`Kind::Type`](crate::Kind::Type) when its values do not fit that any more.
    pub fn change(&self, schema: &Schema) -> Result<Op, Error> {
        self.letter.change(schema)
    }
}

/// Why one of [`Holding::more`](crate::Holding::more) is held.
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

/// Why a change is held that the database did not refuse.
pub(crate) fn behind_held() -> Error {
    Error::new(crate::Kind::Newer, "an earlier change of its row is held")
}
