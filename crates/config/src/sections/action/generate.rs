//! `generate`: a background job that fills a table with generated rows.

use super::scope::Typed;
use crate::sections::values::complete;
use crate::syntax::expr::{Expr, Literal};
use crate::syntax::keys::{ActionKeys, action};

pub(crate) const GENERATE: ActionKeys = action! {
    "generate" | "table" | "clears the table and fills it in a background job; answers 202 at once" => {
        "count" | "value" | "" | "the number of rows, including those of `first`"
        "values" | "table: column = value" | "{}" | "the values of each row"
        "first" | "array of tables: column = value" | "[]" |
            "the first rows; their missing columns come from `values`"
    }
};

/// A background job that fills a table with generated rows. Answers 202 at once.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    /// The table; hot or not.
    pub table: String,
    /// The number of rows, including those of `first`.
    pub count: Expr,
    /// (column, value) for every row except the first ones.
    pub values: Vec<(String, Expr)>,
    /// The first rows: fixed values, completed from `values`.
    pub first: Vec<Vec<(String, Expr)>>,
}

pub(crate) fn generate(typed: Typed<'_>) -> Option<Generate> {
    let table = typed.table()?;
    typed.required("count");
    let count = typed.value("count");
    if matches!(&count, Some(Expr::Literal(literal)) if !matches!(literal, Literal::Int(0..))) {
        let what = "count: must be a whole number, or a parameter such as \"$size\"";
        typed.fields.wrong_at("count", what);
    }
    let values = typed.complete_values(table);
    let first = typed.fields.get("first").map_or_else(Vec::new, |first| {
        let what = format!("first: must be an array of tables, not {}", first.node.kind());
        let rows = first.items(&what).into_iter().map(|item| typed.values_of("first", item, table));
        rows.map(|row| complete(row, &values)).collect()
    });
    Some(Generate { table: table.name.clone(), count: count?, values, first })
}
