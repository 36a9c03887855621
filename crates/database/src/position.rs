//! The drain's positions, and scans that report the position of their snapshot.

use crate::Error;
use forebay_value::{Row, Timestamp};
use tokio::sync::mpsc;

/// The drain's position for one log, as stored in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPosition {
    /// The log's id.
    pub log: u128,
    /// Everything of that log before this position is in the database.
    pub position: u64,
    /// The drain's note beside the position.
    pub note: String,
    /// The opening of the log that moved the position last; empty when unknown.
    pub opening: String,
    /// The host and process of the server that moved the position last.
    pub server: String,
    /// The log of the server that has taken over its tables; empty when none has.
    pub taken_by: String,
    /// When the position last moved.
    pub updated_at: Timestamp,
}

/// A table's rows as of one moment, and the drain position of that same moment.
#[derive(Debug)]
pub struct Scan {
    /// The position of the log asked for, in the snapshot that the rows come from.
    pub position: Option<u64>,
    /// The rows. The channel ends when the scan does; an error is its last message.
    pub rows: mpsc::Receiver<Result<Vec<Row>, Error>>,
}
