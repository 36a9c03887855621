//! A checked statement and its result.

use forebay_value::{Type, Value};
use std::sync::Arc;

/// A statement that the database has checked: it parses, and everything that it names exists.
#[derive(Debug, Clone, Default)]
pub struct Statement {
    /// The text that is prepared; PostgreSQL's has `$1`, `$2` … for the parameters.
    pub sql: Arc<str>,
    /// The names of its parameters without the `$`, in the order in which values are given.
    pub params: Vec<String>,
    /// Whether the statement may change the database, and so goes to the writer.
    pub writes: bool,
    /// The types of its parameters, in that order; `None` where the database accepts any type (SQLite,
    /// always). A value of another type is converted where that loses nothing (a text of digits to a number),
    /// otherwise refused.
    pub param_types: Vec<Option<Type>>,
    /// Whether the statement must not share a transaction with others, although it could: for an INSERT whose
    /// triggers or defaults must not see, or be run again for, another caller's. (SQLite shares all the same;
    /// each statement has a savepoint there.)
    pub alone: bool,
    /// The columns of its result; empty when it returns no rows.
    pub columns: Arc<[ResultColumn]>,
}

/// One column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultColumn {
    /// The name given by the statement's `AS` or by the database; the member in JSON.
    pub name: String,
    /// The type of its table column; `None` for expressions, whose values have their own type.
    pub ty: Option<Type>,
}

/// The result of a statement.
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
