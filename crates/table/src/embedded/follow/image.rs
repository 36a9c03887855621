//! An image: a row as the database has it in one snapshot.

use forebay_value::{Row, Value};
use std::sync::Arc;

/// A row as the database has it in one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// The key of the row.
    pub key: Value,
    /// The row; `None` when it does not exist or is `unfit`.
    pub row: Option<Row>,
    /// Why memory cannot hold the row that exists; `row` is `None` then.
    pub unfit: Option<Arc<str>>,
}
