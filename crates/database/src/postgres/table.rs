//! A table's statements, built from its schema, and rows from their results.

use super::codec::Codec;
use super::session::{Session, column_list};
use super::sql::quoted;
use crate::{Error, Kind, Rows};
use forebay_value::{Row, Schema, Type, Value};

/// The columns of a schema as an SQL list.
pub(super) fn columns(schema: &Schema) -> String {
    column_list(schema.columns.iter().map(|column| column.name.as_str()))
}

pub(super) fn fetch_sql(schema: &Schema) -> String {
    let key = quoted(&schema.key_column().name);
    format!("SELECT {} FROM {} WHERE {key} = $key", columns(schema), quoted(&schema.name))
}

/// Selects the position of a log before the row's columns, which are all NULL when there is no such row.
pub(super) fn fetch_at_sql(schema: &Schema, log: u128) -> String {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    format!(
        "SELECT (SELECT position FROM forebay_position WHERE log = '{log:032x}'), {} \
         FROM (SELECT) AS moment LEFT JOIN {table} AS found ON found.{key} = $key",
        column_list_of("found", schema)
    )
}

fn column_list_of(table: &str, schema: &Schema) -> String {
    let columns = schema.columns.iter().map(|column| format!("{table}.{}", quoted(&column.name)));
    columns.collect::<Vec<_>>().join(", ")
}

/// The codecs for the columns of a schema, in the table's present form. A schema is less specific than the
/// table: its bigint may be an int4.
pub(super) async fn codecs(session: &mut Session, schema: &Schema) -> Result<Vec<Codec>, Error> {
    let sql = format!("SELECT {} FROM {}", columns(schema), quoted(&schema.name));
    let prepared = session.prepared(&sql.into(), &[]).await?;
    Ok(prepared.readers.clone())
}

/// A row from the values of its columns.
pub(super) fn row_from_values(schema: &Schema, values: &[Value]) -> Result<Row, Error> {
    for (column, value) in schema.columns.iter().zip(values) {
        if !value.as_ref().fits(column.ty) || value.is_null() && !column.nullable {
            let key = &values[schema.key];
            let message = format!(
                "table {}, row {key:?}: column {} holds {value:?}, which is no {}{}",
                schema.name,
                column.name,
                column.ty,
                if column.nullable { "" } else { " (NULL is not permitted)" }
            );
            return Err(Error::new(Kind::Type, message).with_column(Some(column.name.clone())));
        }
    }
    Ok(Row::from_values(schema, values))
}

/// An integer of a result; 0 when it is missing.
pub(super) fn number(rows: &Rows, row: usize, column: usize) -> i64 {
    match rows.iter().nth(row).and_then(|values| values.get(column)) {
        Some(Value::Bigint(number)) => *number,
        _ => 0,
    }
}

/// A text of a result; empty when it is missing.
pub(super) fn text(value: &Value) -> &str {
    match value {
        Value::Text(text) | Value::Json(text) => text,
        _ => "",
    }
}

/// The statements that change a table's rows one by one.
pub(super) struct ChangeSql {
    pub(super) insert: String,
    pub(super) put: String,
    pub(super) delete: String,
}

impl ChangeSql {
    pub(super) fn of(schema: &Schema) -> ChangeSql {
        let insert = insert_sql(schema, 1);
        let put = format!("{insert} {}", on_conflict(schema));
        let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
        ChangeSql { insert, put, delete: format!("DELETE FROM {table} WHERE {key} = $1") }
    }
}

/// Inserts `rows` rows; the parameters are the values of one row after the other.
pub(super) fn insert_sql(schema: &Schema, rows: usize) -> String {
    let width = schema.columns.len();
    let row = |row: usize| {
        let places: Vec<String> = (1..=width).map(|place| format!("${}", row * width + place)).collect();
        format!("({})", places.join(", "))
    };
    let rows: Vec<String> = (0..rows).map(row).collect();
    insert_into(schema, &format!("VALUES {}", rows.join(", ")))
}

/// An INSERT of rows given in the order of the schema, including keys that an identity column would generate.
pub(super) fn insert_into(schema: &Schema, rows: &str) -> String {
    format!("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE {rows}", quoted(&schema.name), columns(schema))
}

pub(super) fn on_conflict(schema: &Schema) -> String {
    let sets: Vec<String> = (schema.columns.iter().enumerate())
        .filter(|(index, _)| *index != schema.key)
        .map(|(_, column)| format!("{0} = excluded.{0}", quoted(&column.name)))
        .collect();
    let action = if sets.is_empty() { "NOTHING".into() } else { format!("UPDATE SET {}", sets.join(", ")) };
    format!("ON CONFLICT ({}) DO {action}", quoted(&schema.key_column().name))
}

/// Sets these columns of the row with the key `$1`.
pub(super) fn update_sql(schema: &Schema, columns: impl Iterator<Item = usize>) -> String {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let sets: Vec<String> = (columns.enumerate())
        .map(|(place, index)| format!("{} = ${}", quoted(&schema.columns[index].name), place + 2))
        .collect();
    format!("UPDATE {table} SET {} WHERE {key} = $1", sets.join(", "))
}

/// Returns a row for each row that it changed: whether the sum is NULL, because NULL plus a number is NULL.
pub(super) fn increment_sql(schema: &Schema, column: usize) -> String {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    let name = quoted(&schema.columns[column].name);
    format!("UPDATE {table} SET {name} = {name} + $2 WHERE {key} = $1 RETURNING {name} IS NULL")
}

/// The array type of a table's keys.
pub(super) fn key_array(schema: &Schema) -> &'static str {
    match schema.key_column().ty {
        ty if ty.range().is_some() => "int8[]",
        Type::Uuid => "uuid[]",
        _ => "text[]",
    }
}
