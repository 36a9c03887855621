//! What a batch gives.

use crate::Error;
use forebay_database::{Acting, Error as DatabaseError, Kind};
use forebay_log::Position;
use std::sync::Arc;

/// The batch that was not applied.
pub(super) struct Tried {
    pub to: Option<Position>,
    pub rows: usize,
    /// Its tables, as indexes of the queue's schemas.
    pub tables: Vec<usize>,
    /// The table of each change.
    pub places: Vec<usize>,
    /// What it was prepared for.
    pub acting: Arc<Acting>,
    /// Whether it is of stopped tables that catch up.
    pub is_of_stopped: bool,
}

impl Tried {
    /// The table whose change was refused, and the reason, as far as the error or the batch tells.
    pub fn refusal(&self, error: &DatabaseError) -> Option<(usize, Kind)> {
        match (error.kind(), &self.places[..]) {
            (Kind::Row { index, reason }, places) => Some((*places.get(*index)?, Kind::clone(reason))),
            (reason, [only]) => Some((*only, reason.clone())),
            _ => None,
        }
    }
}

/// The outcome of a batch.
pub(crate) enum Outcome {
    /// The batch is in the database.
    Committed(Committed),
    /// The batch is to be tried again at once: smaller, one by one, or without a table.
    Again,
    /// Another drain has moved the position in the database.
    Fenced(DatabaseError),
}

/// A batch that is in the database.
pub(crate) struct Committed {
    pub rows: usize,
    pub bytes: u64,
    /// After coalescing.
    pub changes: usize,
    pub dead: u64,
    /// Dead letters among them that are in the file.
    pub unwritten: u64,
    /// Intents that were not applied.
    pub refused: u64,
    /// Whether the queue has released the batch; false: another drain has the queue now.
    pub released: Result<bool, Error>,
}

/// How far a queue is drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Drained {
    /// Everything before it is in the database, of all tables.
    pub all: Position,
    /// The same for the tables that are not stopped.
    pub others: Position,
    /// The same for the tables that are not stopped as far as that is announced: callers wait for it.
    pub announced: Position,
}
