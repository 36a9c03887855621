//! Following: what others commit to tables that are served from memory.
//!
//! Triggers tell the keys of changed rows, and nothing else. A [`Follower`](crate::Follower) polls: in one
//! snapshot it reads the log's position, the keys that are visible now and were not at the last poll, and the
//! present rows of these keys and of those that its caller wants. So all rows that a server takes of a
//! followed table come from one connection, in the order of their snapshots, and the position that belongs to
//! a row is known exactly.
//!
//! What must stay true: a committed change is told at least once, whatever order transactions commit in; what
//! is told twice is read twice, which is harmless. Other programs' writes never fail because of the triggers,
//! and what the triggers write is deleted once every follower has passed it; when no follower has been heard
//! of for an hour they write nothing.

use forebay_value::{Row, Schema, Value};
use std::sync::Arc;

/// A table to follow.
#[derive(Debug, Clone)]
pub struct Follow {
    /// What the table is. Its key is its PRIMARY KEY, or UNIQUE and NOT NULL.
    pub schema: Arc<Schema>,
    /// The columns whose previous values are told with each change.
    pub old: Vec<usize>,
    /// Whether the drain's own writes are told too. They are in any case where the database may store
    /// something else than it is sent (triggers, rounding).
    pub own: bool,
}

/// What one poll has found.
#[derive(Debug, Default)]
pub struct Followed {
    /// The position of the log in the snapshot of the rows.
    pub position: Option<u64>,
    /// What the drain keeps beside it.
    pub note: String,
    /// Each key once: those that changed and those that were wanted.
    pub rows: Vec<FollowedRow>,
    /// Tables of which any row may have changed: every key of theirs is to be wanted. They hold for snapshots
    /// from this one on.
    pub reload: Vec<usize>,
    /// Whether more changes wait: the next poll should not.
    pub more: bool,
    /// Whether the follower has joined anew: no place from before
    /// ([`Follower::place`](crate::Follower::place)) is one to go on from.
    pub anew: bool,
}

/// A row as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowedRow {
    /// The table's index in what [`Store::follow`](crate::Store::follow) was given.
    pub table: usize,
    /// Which row it is, whether it is there or not.
    pub key: Value,
    /// The row; `None` when there is none with this key.
    pub row: Option<Row>,
    /// Why a row that is there is not in `row`: a hot table cannot hold one of its values.
    pub unfit: Option<Arc<str>>,
    /// The values of [`Follow::old`] before each change that this poll tells.
    pub old: Vec<Vec<Value>>,
    /// Whether the caller asked for it.
    pub wanted: bool,
}
