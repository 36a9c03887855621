//! An image: a row as the database has it in one snapshot.

use forebay_value::{Row, Value};
use std::sync::Arc;

/// A row as the database has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Which row it is.
    pub key: Value,
    /// The row; `None`: there is none.
    pub row: Option<Row>,
    /// Why memory cannot hold the row that is there; `row` is `None` then.
    pub unfit: Option<Arc<str>>,
}
