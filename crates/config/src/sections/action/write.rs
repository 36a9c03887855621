//! Actions that write a row of a hot table: `insert`, `upsert`, `update`, `increment`, `delete`.

use super::facts::{Access, ActionFacts, Shows, ValueRole};
use super::scope::Typed;
use crate::sections::table::TableConfig;
use crate::sections::values::{self, literal_fits};
use crate::syntax::expr::{Expr, Literal};
use crate::syntax::fields::{Cursor, choice, integer, literal};
use crate::syntax::keys::{ActionKeys, action};
use crate::syntax::tree::Data;
use forebay_value::KeyKind;

/// The default number of retries for a randomly drawn value.
const RETRY: u32 = 8;

pub(crate) const INSERT: ActionKeys = action! {
    "insert" | "table" | "adds a row and returns it; 409 when a key or unique value is taken" => {
        "values" | "table: column = value" | "{}" | "the values of the row"
        "retry" | "number" | "8" |
            "how often Forebay draws a generated key or unique value again when it is taken"
    }
};

/// A new row. Answers with the row, 201.
#[derive(Debug, Clone, PartialEq)]
pub struct Insert {
    /// The hot table that is written.
    pub table: String,
    /// (column, value), in the order of the file.
    pub values: Vec<(String, Expr)>,
    /// How often a key or unique value that this server drew at random (not one from the request) is drawn
    /// again on a conflict.
    pub retry: u32,
}

pub(crate) fn insert(typed: Typed<'_>) -> Option<Insert> {
    let table = typed.hot_table()?;
    let values = typed.complete_values(table);
    let retry = typed.fields.read("retry", integer(0, 1000)).map_or(RETRY, |retry| retry as u32);
    Some(Insert { table: table.name.clone(), values, retry })
}

impl Insert {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Insert { table, values, retry: _ } = self;
        ActionFacts {
            table,
            does: format!("insert {table}"),
            summary: format!("Adds a row to {table}"),
            access: Access::Write,
            shows: Shows::NewRow,
            status: 201,
            values: new_row(values).collect(),
        }
    }
}

/// The values of a new row.
fn new_row(values: &[(String, Expr)]) -> impl Iterator<Item = (ValueRole<'_>, &Expr)> {
    values.iter().map(|(column, value)| (ValueRole::NewRow(column), value))
}

pub(crate) const UPSERT: ActionKeys = action! {
    "upsert" | "table" | "adds or replaces the row with this key and returns it" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
        "values" | "table: column = value" | "{}" | "the values of the row"
    }
};

/// A new row, or new values for an existing row. Answers with the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Upsert {
    /// The hot table that is written.
    pub table: String,
    /// The key of the row.
    pub key: Expr,
    /// (column, value) except the key, in the order of the file.
    pub values: Vec<(String, Expr)>,
}

pub(crate) fn upsert(typed: Typed<'_>) -> Option<Upsert> {
    let table = typed.hot_table()?;
    let (mut values, at) = typed.values(table);
    let schema = table.columns.as_ref();
    let key_column = schema.map(|schema| schema.key_column().name.as_str());
    let in_values = values.iter().position(|(column, _)| Some(column.as_str()) == key_column);
    let key = match in_values {
        Some(_) if typed.fields.has("key") => {
            typed.fields.mistakes.add(at, "the key is given twice, by `key` and in `values`");
            return None;
        }
        Some(index) => values.remove(index).1,
        None => typed.key(table)?,
    };
    let is_serial = schema.is_some_and(|schema| schema.key_kind == KeyKind::Serial);
    let given = |name: &str| {
        !is_serial && Some(name) == key_column || values.iter().any(|(column, _)| column == name)
    };
    values::check_complete(table, &given, at, typed.fields.mistakes);
    Some(Upsert { table: table.name.clone(), key, values })
}

impl Upsert {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Upsert { table, key, values } = self;
        ActionFacts {
            table,
            does: format!("upsert {table}"),
            summary: format!("Adds or replaces a row of {table}"),
            access: Access::Write,
            shows: Shows::NewRow,
            status: 200,
            values: std::iter::once((ValueRole::NewKey, key)).chain(new_row(values)).collect(),
        }
    }
}

pub(crate) const UPDATE: ActionKeys = action! {
    "update" | "table" | "changes the row with this key and returns it" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
        "values" | "table: column = value" | "" |
            "the new values; an optional parameter that is not given changes nothing"
    }
};

/// New values for a row that must exist. Answers with the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Update {
    /// The hot table that is written.
    pub table: String,
    /// The key of the row.
    pub key: Expr,
    /// (column, value) except the key, in the order of the file. An optional parameter that is missing from
    /// the request leaves its column unchanged.
    pub values: Vec<(String, Expr)>,
}

pub(crate) fn update(typed: Typed<'_>) -> Option<Update> {
    let table = typed.hot_table()?;
    let key = typed.key(table);
    let cursor = typed.required("values")?;
    let values = typed.values_of("values", cursor, table);
    if values.is_empty() && matches!(cursor.node.data, Data::Table(_)) {
        cursor.wrong("update needs at least one value");
    }
    if let Some(schema) = &table.columns
        && let key = &schema.key_column().name
        && values.iter().any(|(column, _)| column == key)
    {
        cursor.wrong(format!("values: the key `{key}` of a row cannot be changed"));
    }
    Some(Update { table: table.name.clone(), key: key?, values })
}

impl Update {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Update { table, key, values } = self;
        let changes = values.iter().map(|(column, value)| (ValueRole::Change(column), value));
        ActionFacts {
            table,
            does: format!("update {table}"),
            summary: format!("Changes a row of {table}"),
            access: Access::Write,
            shows: Shows::Row,
            status: 200,
            values: std::iter::once((ValueRole::Key, key)).chain(changes).collect(),
        }
    }
}

pub(crate) const INCREMENT: ActionKeys = action! {
    "increment" | "table" | "adds to a bigint column of the row with this key and returns the row" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
        "column" | "column" | "" | "the column"
        "by" | "value" | "1" | "the amount"
    }
};

/// Adds to a bigint column. Answers with the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Increment {
    /// The hot table that is written.
    pub table: String,
    /// The key of the row.
    pub key: Expr,
    /// The bigint column that changes.
    pub column: String,
    /// The amount; 1 by default.
    pub by: Expr,
}

pub(crate) fn increment(typed: Typed<'_>) -> Option<Increment> {
    let table = typed.hot_table()?;
    let key = typed.key(table);
    typed.required("column")?;
    let column = typed.counter("column", table)?;
    let by = typed.value("by").unwrap_or(Expr::Literal(Literal::Int(1)));
    if matches!(&by, Expr::Literal(literal) if !matches!(literal, Literal::Int(_))) {
        typed.fields.wrong_at("by", "by: must be a whole number");
    }
    Some(Increment { table: table.name.clone(), key: key?, column, by })
}

impl Increment {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Increment { table, key, column, by } = self;
        ActionFacts {
            table,
            does: format!("increment {table}.{column}"),
            summary: format!("Adds to {column} of a row of {table}"),
            access: Access::Write,
            shows: Shows::Row,
            status: 200,
            values: vec![(ValueRole::Key, key), (ValueRole::Whole, by)],
        }
    }
}

pub(crate) const DELETE: ActionKeys = action! {
    "delete" | "table" | "removes a row and returns it as it was" => {
        "key" | "value" | "(the parameter of the route)" | "the key of the row"
        "row" | "\"random\"" | "" | "removes a random row, instead of one by its key"
        "except" | "array of keys" | "[]" | "keys of rows that `row = \"random\"` never removes"
    }
};

/// Deletes a row. Answers with the row as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Delete {
    /// The hot table that is written.
    pub table: String,
    /// Which row.
    pub pick: Pick,
}

/// Which row.
#[derive(Debug, Clone, PartialEq)]
pub enum Pick {
    /// The row with this key.
    Key(Expr),
    /// Any row except those in `except`. If no row is left, the answer is as if a row had existed, so that a
    /// load test sees no errors.
    Random {
        /// Keys that are never deleted.
        except: Vec<Literal>,
    },
}

pub(crate) fn delete(typed: Typed<'_>) -> Option<Delete> {
    let (table, fields) = (typed.hot_table()?, typed.fields);
    if fields.read("row", choice(&[("random", ())])).is_none() {
        if let Some(except) = fields.get("except") {
            except.wrong("except goes with row = \"random\"");
        }
        if fields.has("row") {
            return None;
        }
        return Some(Delete { table: table.name.clone(), pick: Pick::Key(typed.key(table)?) });
    }
    if let Some(key) = fields.get("key") {
        key.wrong("either key or row = \"random\", not both");
    }
    let except = fields.get("except").map_or_else(Vec::new, |except| {
        let what = format!("except: must be an array of keys, not {}", except.node.kind());
        except.items(&what).into_iter().filter_map(|item| spared(item, table)).collect()
    });
    Some(Delete { table: table.name.clone(), pick: Pick::Random { except } })
}

impl Delete {
    pub(super) fn facts(&self) -> ActionFacts<'_> {
        let Delete { table, pick } = self;
        let (does, shows, key) = match pick {
            Pick::Key(key) => (format!("delete {table}"), Shows::Row, Some(key)),
            Pick::Random { .. } => (format!("delete a random row of {table}"), Shows::RowOrNulls, None),
        };
        ActionFacts {
            table,
            does,
            summary: format!("Removes a row of {table}"),
            access: Access::Write,
            shows,
            status: 200,
            values: key.map(|key| (ValueRole::Key, key)).into_iter().collect(),
        }
    }
}

/// Reads a key that `row = "random"` never deletes.
fn spared(item: Cursor<'_>, table: &TableConfig) -> Option<Literal> {
    item.read("except", |node| {
        let literal = literal(node)?;
        match &table.columns {
            Some(schema) => literal_fits(&literal, schema.key_column().ty).map(|()| literal),
            None => Ok(literal),
        }
    })
}
