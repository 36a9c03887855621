//! The drain's positions, and rows that are read together with one.

use crate::Error;
use forebay_value::{Row, Timestamp};
use tokio::sync::mpsc;

/// The drain's position for one log, as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The log's id.
    pub log: u128,
    /// Everything of that log before this position is in the store.
    pub position: u64,
    /// What the drain keeps beside it.
    pub note: String,
    /// The opening of the log that moved it last; empty when that is not known.
    pub opening: String,
    /// Where the server is that moved it.
    pub server: String,
    /// The log of the server that has taken over its tables; empty when none has.
    pub taken_by: String,
    /// When it last moved.
    pub updated_at: Timestamp,
}

/// A table's rows as of one moment, and the drain position of that same moment.
#[derive(Debug)]
pub struct Scan {
    /// The position of the log asked for, in the snapshot that the rows come from.
    pub position: Option<u64>,
    /// The rows. It ends when the sender is gone; an error is the last message.
    pub rows: mpsc::Receiver<Result<Vec<Row>, Error>>,
}
