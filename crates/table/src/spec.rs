//! What a hot table is to be, on either tier.

use crate::rules::LiveRules;
use forebay_value::Schema;
use std::sync::Arc;

/// What a table is to be.
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

/// Who else writes to a table in the database, and how memory hears of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// No other writer: memory has all its rows.
    None,
    /// Others do, and memory does not hear of it: a row that is not in memory is looked for in the database.
    Unseen,
    /// Others do, and memory follows: it has all rows, and takes over what others commit.
    Followed,
}

impl Others {
    /// [`Others::Unseen`] or [`Others::None`].
    pub fn unseen_if(others_write: bool) -> Others {
        if others_write { Others::Unseen } else { Others::None }
    }
}
