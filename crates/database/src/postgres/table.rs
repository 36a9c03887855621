//! A table's statements, built from its schema, and rows from their results.

use super::codec::{Codec, Decoded};
use super::errors;
use super::session::{Session, column_list};
use super::sql::quoted;
use crate::limits::RESULT_BYTES;
use crate::position::unfit;
use crate::{Error, Kind, Rows, UnfitRow};
use forebay_value::{Column, Row, Schema, Type, Value, ValueRef, encode_row};
use tokio_postgres::types::Type as PgType;

/// The columns of a schema as a SELECT list: what is carried as text is read as text, what the table lacks as
/// NULL.
pub(super) fn columns(schema: &Schema) -> String {
    column_list_of("", schema)
}

/// A value of this type as it is read; what is carried as text is read as its type writes it, as in JSON. A
/// cast to text may write another one: of `inet`, the length of the netmask too.
pub(super) fn as_read(ty: Type, value: &str) -> String {
    match ty {
        Type::AsText => format!("CASE WHEN {value} IS DISTINCT FROM NULL THEN format('%s', {value}) END"),
        _ => value.to_owned(),
    }
}

/// A column in the SELECT list that creates a staging table.
pub(super) fn staged_as(column: &Column) -> String {
    let name = quoted(&column.name);
    format!("{} AS {name}", as_read(column.ty, &name))
}

/// How the columns of a staging table become those of the table: what is carried as text is staged as text.
pub(super) struct Casts(Vec<Option<String>>);

impl Casts {
    pub(super) async fn of(session: &Session, schema: &Schema) -> Result<Casts, Error> {
        if schema.columns.iter().all(|column| column.ty != Type::AsText) {
            return Ok(Casts(vec![None; schema.columns.len()]));
        }
        let names = column_list(schema.columns.iter().map(|column| column.name.as_str()));
        let sql = format!("SELECT {names} FROM {}", quoted(&schema.name));
        let types = |statement: tokio_postgres::Statement| {
            let name = |ty: &PgType| format!("{}.{}", quoted(ty.schema()), quoted(ty.name()));
            statement.columns().iter().map(|column| name(column.type_())).collect::<Vec<_>>()
        };
        let types = session.answer(session.look_at(&sql, types)).await?.map_err(errors::map)?;
        let is_text = |column: &Column| column.ty == Type::AsText;
        let casts = schema.columns.iter().zip(types).map(|(column, ty)| is_text(column).then_some(ty));
        Ok(Casts(casts.collect()))
    }

    /// Whether a row can be copied into the table without a staging table.
    pub(super) fn are_none(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// A staged column as the table stores it.
    pub(super) fn stored(&self, row: &str, schema: &Schema, column: usize) -> String {
        let name = quoted(&schema.columns[column].name);
        match &self.0[column] {
            Some(ty) => format!("{row}.{name}::{ty}"),
            None => format!("{row}.{name}"),
        }
    }

    /// All columns of a staged row, as the table stores them.
    pub(super) fn all(&self, row: &str, schema: &Schema) -> String {
        let columns = (0..schema.columns.len()).map(|column| self.stored(row, schema, column));
        columns.collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn fetch_sql(schema: &Schema) -> String {
    let key = quoted(&schema.key_column().name);
    format!("SELECT {} FROM {} WHERE {key} = $key", columns(schema), quoted(&schema.name))
}

/// Selects the position of a log and its note before the row's columns, which are all NULL when there is no
/// such row.
pub(super) fn fetch_at_sql(schema: &Schema, log: u128) -> String {
    let (table, key) = (quoted(&schema.name), quoted(&schema.key_column().name));
    format!(
        "SELECT (SELECT position FROM _forebay.forebay_position WHERE log = '{log:032x}'), \
         (SELECT note FROM _forebay.forebay_position WHERE log = '{log:032x}'), {} \
         FROM (SELECT) AS moment LEFT JOIN {table} AS found ON found.{key} = $key",
        column_list_of("found.", schema)
    )
}

fn column_list_of(prefix: &str, schema: &Schema) -> String {
    let column = |(index, column): (usize, &Column)| {
        let name = quoted(&column.name);
        match schema.presence.is_gone(index) {
            true => format!("NULL AS {name}"),
            false => format!("{} AS {name}", as_read(column.ty, &format!("{prefix}{name}"))),
        }
    };
    schema.columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
}

/// The codecs for the columns of a schema, in the table's present form. A schema is less specific than the
/// table: its bigint may be an int4.
pub(super) async fn codecs(session: &mut Session, schema: &Schema) -> Result<Vec<Codec>, Error> {
    let sql = format!("SELECT {} FROM {}", columns(schema), quoted(&schema.name));
    let prepared = session.prepared(&sql.into(), &[]).await?;
    Ok(prepared.readers.clone())
}

/// A row from the values of its columns.
///
/// # Errors
/// [`Kind::Unfit`](crate::Kind::Unfit).
pub(super) fn row_from_values(schema: &Schema, values: &[Value]) -> Result<Row, Error> {
    let misfit = values.iter().enumerate().find(|(index, value)| !is_fit(schema, *index, value.as_ref()));
    match misfit {
        Some((index, _)) => Err(unfit(schema, values.get(schema.key), index)),
        None => Ok(Row::from_values(schema, values)),
    }
}

/// The error for a row that is larger than a result may be.
fn too_large(schema: &Schema, key: &Value) -> Error {
    let key = match key {
        Value::Bigint(key) => key.to_string(),
        Value::Uuid(key) => key.to_string(),
        key => format!("{:?}", text(key)),
    };
    let message =
        format!("table {}, row {key}: the row has more than {} MiB", schema.name, RESULT_BYTES >> 20);
    Error::new(Kind::Unfit, message)
}

/// Names the row in an error that one of its values causes.
pub(super) fn of_row(schema: &Schema, key: &Value, error: Error) -> Error {
    match error.column().and_then(|column| schema.position(column)) {
        Some(column) if *error.kind() == Kind::Unfit => unfit(schema, Some(key), column),
        _ if *error.kind() == Kind::TooLarge => too_large(schema, key),
        _ => error,
    }
}

fn is_fit(schema: &Schema, index: usize, value: ValueRef<'_>) -> bool {
    let column = &schema.columns[index];
    value.fits(column.ty) && (column.nullable || !value.is_null() || schema.presence.is_gone(index))
}

/// A row from the bytes of its columns; `out` is scratch.
pub(super) fn row_from_bytes(
    schema: &Schema,
    codecs: &[Codec],
    bytes: &[Option<&[u8]>],
    out: &mut Vec<u8>,
) -> Result<Row, UnfitRow> {
    let decoded = |index: usize| match bytes[index] {
        None => Some(Decoded::Ref(ValueRef::Null)),
        Some(bytes) => codecs[index].decode(bytes),
    };
    let mut values = Vec::with_capacity(bytes.len());
    for index in 0..schema.columns.len() {
        match decoded(index).filter(|value| is_fit(schema, index, value.as_ref())) {
            Some(value) => values.push(value),
            None => {
                let key = decoded(schema.key).filter(|key| is_fit(schema, schema.key, key.as_ref()));
                let key = key.map(Decoded::into_owned);
                let why = unfit(schema, key.as_ref(), index).message().into();
                return Err(UnfitRow { key, why });
            }
        }
    }
    out.clear();
    encode_row(schema, values.iter().map(Decoded::as_ref), out);
    Ok(Row(out.as_slice().into()))
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
    let columns = column_list(schema.columns.iter().map(|column| column.name.as_str()));
    format!("INSERT INTO {} ({columns}) OVERRIDING SYSTEM VALUE {rows}", quoted(&schema.name))
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
