//! A checked statement and what running it gives.

use forebay_value::{Type, Value};
use std::sync::Arc;

/// A statement that the store has checked: it parses, and all that it names is there.
#[derive(Debug, Clone, Default)]
pub struct Statement {
    /// As it is prepared; PostgreSQL's has `$1`, `$2` … for the parameters.
    pub sql: Arc<str>,
    /// The names of its parameters without the `$`, in the order in which values are given.
    pub params: Vec<String>,
    /// Whether it may change the database, and so goes to the writer.
    pub writes: bool,
    /// The types of its parameters, in that order; `None` where the store takes whatever comes (SQLite,
    /// always). A value of another type is converted where that loses nothing (a text of digits to a number),
    /// else refused.
    pub param_types: Vec<Option<Type>>,
    /// Not to share a transaction with what arrives at the same time, although it could: for an INSERT whose
    /// triggers or defaults must not see, or be run again for, another caller's. (SQLite shares all the same;
    /// each statement has a savepoint there.)
    pub alone: bool,
    /// Its result's columns; empty when it gives no rows.
    pub columns: Arc<[ResultColumn]>,
}

/// One column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// As the statement's `AS` or the database gives it; the member in JSON.
    pub name: String,
    /// The type of the table column that it comes from; `None` for expressions, whose values have the type
    /// they come with.
    pub ty: Option<Type>,
}

/// What a statement gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// In the order of the values of a row.
    pub columns: Arc<[ResultColumn]>,
    /// The values, row after row.
    pub values: Vec<Value>,
    /// How many rows the statement inserted, updated or deleted.
    pub changed: u64,
}

impl Rows {
    /// The rows in order.
    pub fn iter(&self) -> impl Iterator<Item = &[Value]> {
        self.values.chunks_exact(self.columns.len().max(1))
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.values.len() / self.columns.len().max(1)
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
