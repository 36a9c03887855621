//! Following: changes that other programs commit to tables that are served from memory.
//!
//! The database reports the keys of changed rows, and nothing else. A [`Follower`](crate::Follower) polls: in
//! one snapshot it reads the log's position, the keys that are visible now and were not at the last poll, and
//! the present rows of these keys and of those that its caller requests. So all rows of a followed table that
//! reach a server come from one connection, in the order of their snapshots, and the position that belongs to
//! a row is known exactly.
//!
//! What must stay true: a committed change is reported at least once, in whatever order transactions commit;
//! a change that is reported twice is read twice, which is harmless. Other programs' writes never fail
//! because of the triggers, and what the triggers write is deleted once every follower has passed it. When no
//! follower has reported for an hour, the triggers write nothing.

use forebay_value::{Row, Schema, Value};
use std::sync::Arc;

/// A table to follow.
#[derive(Debug, Clone)]
pub struct Follow {
    /// The table's schema. Its key is its PRIMARY KEY, or UNIQUE and NOT NULL.
    pub schema: Arc<Schema>,
    /// The columns whose previous values are reported with each change.
    pub old: Vec<usize>,
    /// Whether the drain's own writes are reported too. They always are where the database may store other
    /// values than those sent (triggers, rounding).
    pub own: bool,
}

/// The result of one poll.
#[derive(Debug, Default)]
pub struct Followed {
    /// The position of the log in the snapshot of the rows.
    pub position: Option<u64>,
    /// The drain's note beside the position.
    pub note: String,
    /// Each key once: those that changed and those that were requested.
    pub rows: Vec<FollowedRow>,
    /// Tables of which any row may have changed: the caller must request all of their keys. Their reads are
    /// valid from this snapshot on.
    pub reload: Vec<usize>,
    /// Tables whose definition has changed: the rules for their values may be others.
    pub redefined: Vec<usize>,
    /// Tables that cannot be followed or read at present.
    pub troubles: Vec<TableTrouble>,
    /// Keys that changed or were requested, of tables that could not be read: the caller must request them
    /// again.
    pub later: Vec<FollowedRow>,
    /// The number of rows, by table, in this snapshot: of tables from which the database may remove rows
    /// without reporting them. A caller that has another number must request all of a table's keys.
    pub counts: Vec<(usize, u64)>,
    /// Whether the previous values of a change are unknown: they hold a text that cannot be shown.
    pub old_unknown: bool,
    /// Whether more changes wait: then the next poll should follow at once.
    pub more: bool,
    /// Whether the follower has joined again: it cannot continue from an earlier place
    /// ([`Follower::place`](crate::Follower::place)).
    pub anew: bool,
}

/// Why a table cannot be followed or read at present. The others are followed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableTrouble {
    /// The table's index in the argument of [`Store::follow`](crate::Store::follow).
    pub table: usize,
    /// The reason, as a sentence that names the table.
    pub why: Arc<str>,
    /// Whether its changes are reported, and are read once that is possible. Otherwise its rows may be older
    /// than what others have committed, and it is read again as a whole later.
    pub is_followed: bool,
}

/// A row as the database contains it.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowedRow {
    /// The table's index in the argument of [`Store::follow`](crate::Store::follow).
    pub table: usize,
    /// The row's key, whether the row exists or not.
    pub key: Value,
    /// The row; `None` when no row has this key.
    pub row: Option<Row>,
    /// Why an existing row is not in `row`: a hot table cannot store one of its values.
    pub unfit: Option<Arc<str>>,
    /// The values of [`Follow::old`] before each change that this poll reports.
    pub old: Vec<Vec<Value>>,
    /// Whether the caller requested the row.
    pub wanted: bool,
}
