//! What a batch gives.

use crate::Error;
use forebay_database::{Acting, Error as DatabaseError, Kind, OnError};
use forebay_log::Position;
use std::sync::Arc;

/// The batch that was not applied.
pub(super) struct Tried {
    pub to: Option<Position>,
    pub rows: usize,
    /// Its tables, as indexes of the queue's schemas.
    pub tables: Vec<usize>,
    /// The table of each change; empty unless tables are stopped.
    pub places: Vec<usize>,
    /// What it was prepared for.
    pub acting: Arc<Acting>,
    pub on_error: OnError,
    /// Whether it is of stopped tables that catch up.
    pub is_of_stopped: bool,
}

impl Tried {
    /// The table whose change was refused, as far as the error or the batch tells.
    pub fn refused(&self, error: &DatabaseError) -> Option<usize> {
        match error.kind() {
            Kind::Row { index, .. } => self.places.get(*index).copied(),
            _ => self.tables.first().copied().filter(|_| self.tables.len() == 1),
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
