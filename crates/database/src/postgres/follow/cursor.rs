//! The tables of a follower on PostgreSQL, and its progress.

use super::snapshot::Snapshot;
use crate::Follow;
use crate::postgres::session::Session;
use forebay_value::Type;
use tokio::sync::Mutex;

/// The state that a poll uses, on any thread.
pub(super) struct Link {
    pub(super) log: u128,
    pub(super) follows: Vec<Follow>,
    pub(super) session: Mutex<Option<Session>>,
}

/// The progress of a follower. A poll returns a new cursor, which applies once its caller has what was found.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) home: String,
    pub(super) tables: Vec<Table>,
    /// Identifies the server: its identifier and its timeline.
    pub(super) server: String,
    /// Identifies each table's file and triggers.
    pub(super) shapes: Vec<String>,
    pub(super) seen: Snapshot,
    pub(super) pass: Option<Pass>,
}

/// A followed table in the database.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) oid: i64,
    pub(super) key_type: Type,
    /// The types of [`Follow::old`], in SQL.
    pub(super) old_types: Vec<String>,
}

/// A pass that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    /// The snapshot of its first page.
    pub(super) snapshot: Snapshot,
    /// The last change read, by transaction and id.
    pub(super) after: (i64, i64),
}
