//! What a follower of PostgreSQL follows, and how far it is.

use super::snapshot::Snapshot;
use crate::Follow;
use crate::postgres::session::Session;
use forebay_value::Type;
use tokio::sync::Mutex;

/// What a poll works with, wherever it runs.
pub(super) struct Link {
    pub(super) log: u128,
    pub(super) follows: Vec<Follow>,
    pub(super) session: Mutex<Option<Session>>,
}

/// How far a follower is. A poll makes a new one, which counts once its caller has what was found.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    pub(super) home: String,
    pub(super) tables: Vec<Table>,
    /// What stands for the server: its identifier and its timeline.
    pub(super) server: String,
    /// What stands for each table's file and triggers.
    pub(super) shapes: Vec<String>,
    pub(super) seen: Snapshot,
    pub(super) pass: Option<Pass>,
}

/// A table that is followed, in the database.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) oid: i64,
    pub(super) key_type: Type,
    /// The types of [`Follow::old`], in SQL.
    pub(super) old_types: Vec<String>,
}

/// A pass that is not over.
#[derive(Debug, Clone)]
pub(super) struct Pass {
    /// That of its first page.
    pub(super) snapshot: Snapshot,
    /// The last change read, by transaction and id.
    pub(super) after: (i64, i64),
}
