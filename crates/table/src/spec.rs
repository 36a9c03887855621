//! The description of a hot table, for either tier.

use crate::rules::LiveRules;
use forebay_value::Schema;
use std::sync::Arc;

/// The description of a table that is to be opened.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// Its columns and key.
    pub schema: Schema,
    /// Who else writes to it.
    pub others: Others,
    /// Whether it is listed in the order of its keys.
    pub ordered: bool,
    /// What the database enforces on its columns.
    pub rules: Arc<LiveRules>,
}

/// Who else writes to a table in the database, and whether memory is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// No other writer: memory has all its rows.
    None,
    /// Others write to it, and memory is not told: a row that is not in memory is read from the database.
    Unseen,
    /// Others write to it, and memory follows: it has all rows, and applies what others commit.
    Followed,
}

impl Others {
    /// [`Others::Unseen`] or [`Others::None`].
    pub fn unseen_if(others_write: bool) -> Others {
        if others_write { Others::Unseen } else { Others::None }
    }
}
