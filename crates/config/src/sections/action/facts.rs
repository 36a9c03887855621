//! Facts about an action on a hot table for code that does not run it: checks, explanations, the description
//! of the routes, the identity of cached answers. Each action defines them next to its model.

use crate::syntax::expr::Expr;

/// Facts about an action on a hot table.
#[derive(Debug, Clone)]
pub struct ActionFacts<'a> {
    /// The hot table.
    pub table: &'a str,
    /// What it does, in the config's words: `count orders by status`. Two actions that do different things
    /// with the same `values` must differ here.
    pub does: String,
    /// `does` as a sentence: `Counts rows of orders`.
    pub summary: String,
    /// How it uses memory.
    pub access: Access,
    /// The content of its answer.
    pub shows: Shows<'a>,
    /// The default status of its answer.
    pub status: u16,
    /// The values that it computes for each request, and what each must be.
    pub values: Vec<(ValueRole<'a>, &'a Expr)>,
}

/// How an action uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads a row, which may have to be fetched from the database.
    Row,
    /// Reads only memory's state of the table.
    Memory,
    /// Inserts, changes or deletes a row.
    Write,
}

/// The content of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows<'a> {
    /// The row that was inserted.
    NewRow,
    /// An existing row; without it the answer is 404.
    Row,
    /// Any row; nulls when there is no row.
    RowOrNulls,
    /// An array of rows.
    Rows,
    /// A number of rows; with a column, the value of that column precedes it.
    Count(Option<&'a str>),
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueRole<'a> {
    /// The key of an existing row.
    Key,
    /// A key, or null.
    KeyOrNull,
    /// A value of this column.
    Column(&'a str),
    /// A new value of this column; null leaves the column unchanged.
    Change(&'a str),
    /// The value of this column in a new row.
    NewRow(&'a str),
    /// The key of a new row.
    NewKey,
    /// A whole number.
    Whole,
    /// Text of any length.
    Text,
}
