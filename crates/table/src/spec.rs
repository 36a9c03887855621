//! What a hot table is to be, on either tier.

use crate::rules::LiveRules;
use forebay_value::Schema;
use std::sync::Arc;

/// What a table is to be.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// Its columns and key.
    pub schema: Schema,
    /// Whether others write to it in the database as well: what is not in memory is then looked for there.
    pub shared: bool,
    /// Whether it is listed in the order of its keys.
    pub ordered: bool,
    /// What the database enforces on its columns.
    pub rules: Arc<LiveRules>,
}
