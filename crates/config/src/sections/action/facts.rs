//! What an action on a hot table says of itself to those who do not run it: checks, explanations, the
//! description of the routes, the identity of kept answers. Each action says it beside its model.

use crate::syntax::expr::Expr;

/// What is to be known of an action on a hot table.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// The hot table.
    pub table: &'a str,
    /// What it does, in the config's words: `count orders by status`. Two that do different things for
    /// the same `values` say so here.
    pub does: String,
    /// The same as a sentence: `Counts rows of orders`.
    pub summary: String,
    /// What it needs of memory.
    pub access: Access,
    /// What its answer shows.
    pub shows: Shows<'a>,
    /// The status of its answer when nothing else is said.
    pub status: u16,
    /// What it computes for each request, and what that must be.
    pub values: Vec<(Wants<'a>, &'a Expr)>,
}

/// What an action needs of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A row, which may have to be looked for in the database.
    Row,
    /// What memory knows of the table.
    Memory,
    /// A new row, or a change or the end of one that is there.
    Write,
}

/// What an answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows<'a> {
    /// The row that was made.
    NewRow,
    /// A row that was there; without it the answer is 404.
    Row,
    /// Any row; nulls when there is none.
    RowOrNulls,
    /// An array of rows.
    Rows,
    /// A number of rows, and before it the value of this column that they have.
    Count(Option<&'a str>),
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants<'a> {
    /// The key of a row that is there.
    Key,
    /// A key, or null.
    KeyOrNull,
    /// A value of this column.
    Column(&'a str),
    /// A new value of this column; null when it stays as it is.
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
