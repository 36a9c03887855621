//! The connections of a follower by logical decoding, and its progress.

use super::stream::{Own, Stream};
use super::wire::Wire;
use crate::Follow;
use crate::postgres::follow::cursor::Tracked;
use crate::postgres::session::Session;
use tokio::sync::Mutex;

/// The state that a poll uses, on any thread.
pub(super) struct Link {
    pub(super) log: u128,
    pub(super) follows: Vec<Follow>,
    /// The slot's name.
    pub(super) slot: String,
    pub(super) connections: Mutex<Connections>,
}

/// The connections of a follower; a missing one is opened.
#[derive(Default)]
pub(super) struct Connections {
    pub(super) session: Option<Session>,
    /// The connection that will stream. It starts with the first poll: while tables are loaded the follower
    /// does not read it, and the server closes a stream that is not read.
    pub(super) wire: Option<Wire>,
    pub(super) stream: Option<Stream>,
}

/// The progress of a follower. A poll returns a new cursor, which applies once its caller has what was found.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) tables: Vec<Tracked>,
    /// Which of the drain's own changes memory has already, by table.
    pub(super) own: Vec<Own>,
    /// How many bytes of WAL the server retains for slots at most; `None`: without a bound, and the slot is a
    /// temporary one.
    pub(super) keeps: Option<u64>,
    /// How far the stream may lag; beyond that, reading the tables again costs less.
    pub(super) lag_bytes_max: u64,
    /// Identifies the server: its identifier and its timeline.
    pub(super) server: String,
    /// Identifies the table of the drain's positions.
    pub(super) positions: String,
    /// The last snapshot whose shapes were those of `tables`, as text; empty: none.
    pub(super) checked: String,
    /// The `xmax` of the last snapshot.
    pub(super) xmax: i64,
    /// Every transaction that committed up to here was handed over to the caller.
    pub(super) at: u64,
    /// Up to here triggers of the database may have changed rows in addition to the drain's changes.
    pub(super) triggers_to: u64,
    /// Where the present pass ends.
    pub(super) target: Option<u64>,
}

impl Cursor {
    /// Whether the server may retain what was committed since this position. Half of the retained WAL at most
    /// is used, so that the slot is not lost while it is read: an old checkpoint costs more at the next
    /// start, a lost slot costs it now.
    pub(super) fn can_hold(&self, held: u64) -> bool {
        self.keeps.is_some_and(|keeps| self.at.saturating_sub(held) <= keeps / 2)
    }
}
