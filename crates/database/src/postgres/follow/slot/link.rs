//! What a follower by logical decoding works with, and how far it is.

use super::stream::{Own, Stream};
use super::wire::Wire;
use crate::Follow;
use crate::postgres::follow::cursor::Table;
use crate::postgres::session::Session;
use tokio::sync::Mutex;

/// What a poll works with, wherever it runs.
pub(super) struct Link {
    pub(super) log: u128,
    pub(super) follows: Vec<Follow>,
    /// The slot's name.
    pub(super) slot: String,
    pub(super) connections: Mutex<Connections>,
}

/// The connections of a follower; those that are not there are opened.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) session: Option<Session>,
    /// The one that will stream. It does from the first poll on: while tables are loaded the follower does
    /// not read it, and the server gives up a stream that is not read.
    pub(super) wire: Option<Wire>,
    pub(super) stream: Option<Stream>,
}

/// How far a follower is. A poll makes a new one, which counts once its caller has what was found.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) tables: Vec<Table>,
    /// What is known of own changes, by table.
    pub(super) own: Vec<Own>,
    /// How many bytes of WAL the server keeps for slots at most; `None`: without a bound, and the slot is a
    /// temporary one.
    pub(super) keeps: Option<u64>,
    /// How far the stream may be behind; beyond it, to read the tables again costs less.
    pub(super) lag_bytes_max: u64,
    /// What stands for the server: its identifier and its timeline.
    pub(super) server: String,
    /// What stands for each table, and for the drain's positions behind them.
    pub(super) shapes: Vec<String>,
    /// The `xmax` of the last snapshot.
    pub(super) xmax: i64,
    /// Every transaction that committed up to here was handed over.
    pub(super) at: u64,
    /// Triggers of the database may have changed rows beside the drain's up to here.
    pub(super) triggers_to: u64,
    /// Where the pass under way ends.
    pub(super) target: Option<u64>,
}

impl Cursor {
    /// Whether the server may keep what was committed since this position. Half of what it keeps at most is
    /// left, so that the slot is not lost while it is read from: an old checkpoint is dearer at the next
    /// start, a lost slot is now.
    pub(super) fn can_hold(&self, held: u64) -> bool {
        self.keeps.is_some_and(|keeps| self.at.saturating_sub(held) <= keeps / 2)
    }
}
