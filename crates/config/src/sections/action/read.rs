//! Actions that read a hot table: `get`, `get_many`, `random`, `count`, `list`, `redirect`.

use super::facts::{Access, ActionFacts, Shows, ValueRole};
use super::scope::Typed;
use crate::sections::table::TableConfig;
use crate::sections::values;
use crate::syntax::expr::Expr;
use crate::syntax::fields::Cursor;
use crate::syntax::keys::{ActionKeys, action};
use crate::syntax::tree::Data;
use forebay_value::Type;

pub(crate) const GET: ActionKeys = action! {
    "get" | "table" | "returns the row with this key" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
    }
};

/// One row by its key. Answers with the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Get {
    /// The hot table that is read.
    pub table: String,
    /// The key of the row.
    pub key: Expr,
}

pub(crate) fn get(typed: Typed<'_>) -> Option<Get> {
    let table = typed.hot_table()?;
    Some(Get { key: typed.key(table)?, table: table.name.clone() })
}

impl Get {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Get { table, key } = self;
        ActionFacts {
            table,
            does: format!("get {table}"),
            summary: format!("Reads a row of {table}"),
            access: Access::Row,
            shows: Shows::Row,
            status: 200,
            values: vec![(ValueRole::Key, key)],
        }
    }
}

pub(crate) const GET_MANY: ActionKeys = action! {
    "get_many" | "table" | "returns the rows with these keys, in this order; missing rows are left out" => {
        "keys" | "value" | "\"$keys\"" |
            "the keys, 1000 at most: an array (`params = { keys = \"bigint[]\" }`), or a text with commas \
            between the keys (`?keys=1,2,3`)"
    }
};

/// Several rows by their keys. Answers with an array.
#[derive(Debug, Clone, PartialEq)]
pub struct GetMany {
    /// The hot table that is read.
    pub table: String,
    /// The keys: an array, or a text in which commas separate them.
    pub keys: Expr,
}

pub(crate) fn get_many(typed: Typed<'_>) -> Option<GetMany> {
    typed.hot_table().map(|table| GetMany {
        table: table.name.clone(),
        keys: typed.value("keys").unwrap_or(Expr::Param("keys".into())),
    })
}

impl GetMany {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let GetMany { table, keys } = self;
        ActionFacts {
            table,
            does: format!("get_many {table}"),
            summary: format!("Reads rows of {table} by their keys"),
            access: Access::Row,
            shows: Shows::Rows,
            status: 200,
            values: vec![(ValueRole::Text, keys)],
        }
    }
}

pub(crate) const RANDOM: ActionKeys = action! { "random" | "table" | "returns a random row" => {} };

/// A random row. Answers with the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Random {
    /// The hot table that is read.
    pub table: String,
}

pub(crate) fn random(typed: Typed<'_>) -> Option<Random> {
    typed.hot_table().map(|table| Random { table: table.name.clone() })
}

impl Random {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Random { table } = self;
        ActionFacts {
            table,
            does: format!("random {table}"),
            summary: format!("Reads a random row of {table}"),
            access: Access::Memory,
            shows: Shows::Row,
            status: 200,
            values: Vec::new(),
        }
    }
}

pub(crate) const COUNT: ActionKeys = action! {
    "count" | "table" | "returns the number of rows" => {
        "by" | "{ column = value }" | "(all rows)" |
            "counts only rows with this value; the column must be indexed"
    }
};

/// Counts rows. Answers with `count`, preceded by the column of `by`.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// The hot table that is read.
    pub table: String,
    /// Count only rows with this value in this (indexed) column.
    pub by: Option<(String, Expr)>,
}

pub(crate) fn count(typed: Typed<'_>) -> Option<Count> {
    let table = typed.hot_table()?;
    let by = typed.fields.get("by").and_then(|by| counted(by, typed, table));
    Some(Count { table: table.name.clone(), by })
}

impl Count {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Count { table, by } = self;
        let by_column = by.as_ref().map(|(column, _)| column.as_str());
        ActionFacts {
            table,
            does: by_column.map_or_else(|| format!("count {table}"), |by| format!("count {table} by {by}")),
            summary: format!("Counts rows of {table}"),
            access: Access::Memory,
            shows: Shows::Count(by_column),
            status: 200,
            values: by.iter().map(|(column, value)| (ValueRole::Column(column), value)).collect(),
        }
    }
}

/// Reads `by`: one column and its value.
fn counted(by: Cursor<'_>, typed: Typed<'_>, table: &TableConfig) -> Option<(String, Expr)> {
    let [entry] = (match &by.node.data {
        Data::Table(entries) => entries.as_slice(),
        _ => &[],
    }) else {
        by.wrong("by: must be one column and its value, such as { name = \"$name\" }");
        return None;
    };
    let column = values::column(table, &entry.key).ok().flatten();
    if column.is_some_and(|column| !column.indexed) {
        let (column, table) = (&entry.key, &table.name);
        let what =
            format!("by: column {column} is not counted; write \"… indexed\" in the columns of {table}");
        by.mistakes.add(entry.at, what);
    }
    typed.values_of("by", by, table).pop()
}

pub(crate) const LIST: ActionKeys = action! {
    "list" | "table" | "returns rows in the order of their keys" => {
        "after" | "value" | "\"$after\"" | "only rows after this key"
        "limit" | "value" | "\"$limit\"" |
            "most rows of an answer; unless declared, `limit` is `bigint 1..1000 = 100`"
    }
};

/// Rows in the order of their keys. Answers with an array.
#[derive(Debug, Clone, PartialEq)]
pub struct List {
    /// The hot table that is read.
    pub table: String,
    /// Only rows after this key; null: from the first row.
    pub after: Expr,
    /// The maximum number of rows.
    pub limit: Expr,
}

pub(crate) fn list(typed: Typed<'_>) -> Option<List> {
    typed.hot_table().map(|table| List {
        table: table.name.clone(),
        after: typed.value("after").unwrap_or(Expr::Param("after".into())),
        limit: typed.value("limit").unwrap_or(Expr::Param("limit".into())),
    })
}

impl List {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let List { table, after, limit } = self;
        ActionFacts {
            table,
            does: format!("list {table}"),
            summary: format!("Lists rows of {table}"),
            access: Access::Memory,
            shows: Shows::Rows,
            status: 200,
            values: vec![(ValueRole::KeyOrNull, after), (ValueRole::Whole, limit)],
        }
    }
}

pub(crate) const REDIRECT: ActionKeys = action! {
    "redirect" | "table" | "redirects the client to the target that the row with this key stores" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
        "location" | "column" | "" | "the text column with the target"
        "counter" | "column" | "(none)" |
            "the bigint column that counts redirects; the answer does not wait for the count"
        "expires" | "column" | "(none)" | "the timestamp column with the time after which the answer is 410"
    }
};

/// Redirects the client to a target stored in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Redirect {
    /// The hot table that is read.
    pub table: String,
    /// The key of the row.
    pub key: Expr,
    /// The text column with the target.
    pub location: String,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
    /// The bigint column that counts requests; the answer does not wait for the increment.
    pub increment: Option<String>,
    /// The timestamp column with the expiry; after it the answer is 410.
    pub expires: Option<String>,
}

pub(crate) fn redirect(typed: Typed<'_>) -> Option<Redirect> {
    let table = typed.hot_table()?;
    let key = typed.key(table);
    typed.required("location")?;
    let location = typed.column("location", table, |ty| matches!(ty, Type::Text { .. }), "text")?;
    let increment = typed.counter("counter", table);
    let expires = typed.column("expires", table, |ty| ty == Type::Timestamp, "timestamp");
    // `endpoint` replaces this status by the status of `reply`.
    Some(Redirect { table: table.name.clone(), key: key?, location, status: 302, increment, expires })
}
