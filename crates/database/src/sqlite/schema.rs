//! Tables: created from a schema, with types and defaults such that plain SQL works on them, and read back as
//! one.
//!
//! [`describe`] reads the statements of [`create_sql`] back as the same schema, including fills. For tables
//! made by others it reads what a schema can express and refuses what a hot table would handle wrongly.

use super::defaults::{self, NOW, UUID4, UUID7};
use super::errors::map;
use super::time_form::TimeForm;
use super::types;
use crate::{Error, Kind};
use forebay_value::{Column, Fill, KeyKind, Schema, Type, Value};
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension};
use std::fmt::Write;

/// A name as an SQL identifier, whatever characters it has. In double quotes, the name of a column that is
/// gone would be a text.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A name as standard SQL quotes it, for statements that define a table.
fn defined(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as an SQL literal.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The statements that create a table and its indexes.
pub(super) fn create_sql(schema: &Schema) -> Result<String, Error> {
    let mut sql = format!("CREATE TABLE {} (", defined(&schema.name));
    for (index, column) in schema.columns.iter().enumerate() {
        if index > 0 {
            sql.push(',');
        }
        write_column(schema, index, column, &mut sql)?;
    }
    sql.push_str("\n);");
    for column in schema.columns.iter().filter(|column| column.indexed && !column.unique) {
        let index = defined(&format!("{}_{}", schema.name, column.name));
        write!(sql, "\nCREATE INDEX {index} ON {} ({});", defined(&schema.name), defined(&column.name))
            .expect("a String takes everything");
    }
    Ok(sql)
}

fn write_column(schema: &Schema, index: usize, column: &Column, sql: &mut String) -> Result<(), Error> {
    let name = defined(&column.name);
    let mut put = |text: &str| sql.push_str(text);
    put(&format!("\n  {name} {}", types::declaration(column.ty)));
    if index == schema.key {
        put(" PRIMARY KEY");
        if schema.key_kind == KeyKind::Serial {
            put(" AUTOINCREMENT");
        }
    }
    if !column.nullable {
        put(" NOT NULL");
    }
    if column.unique && index != schema.key {
        put(" UNIQUE");
    }
    if let Some(fill) = &column.fill {
        put(&format!(" DEFAULT {}", default(fill, &column.name)?));
    }
    match column.ty {
        Type::Text { max_chars: Some(chars) } => put(&format!(" CHECK (length({name}) <= {chars})")),
        Type::Bool => put(&format!(" CHECK ({name} IN (0, 1))")),
        Type::Smallint | Type::Integer => {
            let (min, max) = column.ty.range().expect("a type of whole numbers");
            put(&format!(" CHECK ({name} BETWEEN {min} AND {max})"));
        }
        _ => {}
    }
    Ok(())
}

fn default(fill: &Fill, column: &str) -> Result<String, Error> {
    Ok(match fill {
        Fill::Now | Fill::UtcClock => format!("({NOW})"),
        Fill::Uuid4 => format!("({UUID4})"),
        Fill::Uuid7 => format!("({UUID7})"),
        // Only `describe` finds one, and its tables exist.
        Fill::Asked(_) => {
            return Err(Error::new(Kind::Schema, format!("column {column} cannot have this default")));
        }
        Fill::Value(value) => match value {
            Value::Null => "NULL".into(),
            Value::Bool(v) => i64::from(*v).to_string(),
            Value::Bigint(v) => v.to_string(),
            Value::Double(v) if v.is_finite() => format!("{v:?}"),
            Value::Double(v) if !v.is_nan() => if *v > 0.0 { "9e999" } else { "-9e999" }.into(),
            Value::Double(_) => {
                return Err(Error::new(Kind::Schema, format!("column {column} cannot have this default")));
            }
            Value::Numeric(v) | Value::Text(v) | Value::Json(v) => literal(v),
            Value::Uuid(v) => literal(&v.to_string()),
            Value::Timestamp(v) => match TimeForm::default().write(*v) {
                ToSqlOutput::Owned(rusqlite::types::Value::Text(text)) => literal(&text),
                _ => literal(&v.to_string()),
            },
            Value::Local(v) => literal(&v.to_string()),
            Value::Bytes(v) => {
                let mut hex = String::from("x'");
                for byte in v {
                    write!(hex, "{byte:02x}").expect("a String takes everything");
                }
                hex + "'"
            }
        },
    })
}

/// The names of all tables except SQLite's and Forebay's own, and those of a module (FTS, R*Tree).
pub(super) fn tables(connection: &Connection) -> Result<Vec<String>, Error> {
    let sql = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') \
         AND substr(name, 1, 7) <> 'sqlite_' AND substr(name, 1, 8) <> 'forebay_' ORDER BY name";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let names = statement.query_map([], |row| row.get(0)).and_then(Iterator::collect);
    names.map_err(map)
}

/// Reads a table's schema; `None` when there is no such table.
pub(super) fn describe(connection: &Connection, table: &str) -> Result<Option<Schema>, Error> {
    let found: Option<(String, String, String)> = connection
        .query_row(
            "SELECT list.type, made.name, coalesce(made.sql, '') FROM sqlite_schema made \
             JOIN pragma_table_list list ON list.schema = 'main' AND list.name = made.name \
             WHERE made.type IN ('table', 'view') AND made.name = ?1 COLLATE NOCASE",
            [table],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        .map_err(map)?;
    let Some((kind, name, sql)) = found else {
        return Ok(None);
    };
    let refused = |what: String| Err(Error::new(Kind::Schema, format!("table {name} {what}")));
    match kind.as_str() {
        "view" => return refused("is a view".into()),
        // A trigger on one of them makes SQLite crash in every program that writes to it.
        "virtual" | "shadow" => {
            return refused("belongs to a module of SQLite (FTS, R*Tree): use an `sql` endpoint".into());
        }
        _ => {}
    }
    let mut keys = Vec::new();
    let mut columns = Vec::new();
    for raw in raw_columns(connection, &name)? {
        let ty = types::declared(&raw.declaration);
        if raw.key_place > 0 {
            keys.push(columns.len());
        }
        let nullable = !raw.not_null && raw.key_place == 0;
        let fill = raw.default.as_deref().and_then(|text| defaults::fill(ty, &raw.declaration, text));
        columns.push(Column { name: raw.name, ty, nullable, unique: false, indexed: false, fill });
    }
    mark_indexes(connection, &name, &mut columns)?;
    let key = match key_of(&keys, &columns) {
        Ok(key) => key,
        Err(what) => return refused(what),
    };
    if let Some(collation) = loose_key(connection, &name, &columns[key].name)? {
        return refused(format!(
            "has a key, {}, with the collation {collation}, in which different texts are equal, so that memory \
             would hold two rows where the database has one; give it COLLATE BINARY",
            columns[key].name
        ));
    }
    (columns[key].unique, columns[key].indexed) = (false, false);
    let key_kind = match columns[key].ty {
        Type::Bigint if is_autoincrement(&sql) => KeyKind::Serial,
        Type::Bigint => KeyKind::Bigint,
        Type::Uuid => KeyKind::Uuid,
        Type::Text { .. } => KeyKind::Text,
        ty => return refused(format!("has a key of type {ty}, which no hot table can have")),
    };
    match Schema::new(name.clone(), columns, key, key_kind) {
        Ok(schema) => Ok(Some(schema)),
        Err(error) => Err(Error::new(Kind::Schema, error.to_string()).with_source(error)),
    }
}

/// The key: the PRIMARY KEY, or the first column that is UNIQUE and NOT NULL. `keys`: the columns of the
/// PRIMARY KEY.
fn key_of(keys: &[usize], columns: &[Column]) -> Result<usize, String> {
    let is_key = |column: &Column| column.unique && !column.nullable && types::may_be_key(column.ty);
    if let [key] = keys {
        return Ok(*key);
    }
    columns.iter().position(is_key).ok_or_else(|| match keys.len() {
        0 => "has no PRIMARY KEY; a hot table needs a key of one column".into(),
        count => format!("has a PRIMARY KEY of {count} columns; a hot table needs a key of one column"),
    })
}

/// The collation of a text key that is not that of its bytes, of its column or of its index.
fn loose_key(connection: &Connection, table: &str, key: &str) -> Result<Option<String>, Error> {
    let (_, of_column, ..) = connection.column_metadata(None::<&str>, table, key).map_err(map)?;
    let of_column = of_column.map(|name| name.to_string_lossy().into_owned());
    let sql = "SELECT info.coll FROM pragma_index_list(?1) list, pragma_index_xinfo(list.name) info \
         WHERE list.origin = 'pk' AND info.key";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let of_index = statement.query_map([table], |row| row.get::<_, String>(0)).map_err(map)?;
    let collations = of_index.collect::<Result<Vec<_>, _>>().map_err(map)?.into_iter().chain(of_column);
    Ok(collations.into_iter().find(|name| !name.eq_ignore_ascii_case("BINARY")))
}

pub(super) struct RawColumn {
    pub(super) name: String,
    pub(super) declaration: String,
    pub(super) not_null: bool,
    default: Option<String>,
    /// 1 and up for the columns of the primary key.
    pub(super) key_place: i64,
}

pub(super) fn raw_columns(connection: &Connection, table: &str) -> Result<Vec<RawColumn>, Error> {
    let sql = "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info(?1) ORDER BY cid";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let rows = statement.query_map([table], |row| {
        Ok(RawColumn {
            name: row.get(0)?,
            declaration: row.get(1)?,
            not_null: row.get(2)?,
            default: row.get(3)?,
            key_place: row.get(4)?,
        })
    });
    rows.and_then(Iterator::collect).map_err(map)
}

/// Marks which columns are unique by themselves and which have an index; partial indexes and indexes over
/// several columns are ignored.
fn mark_indexes(connection: &Connection, table: &str, columns: &mut [Column]) -> Result<(), Error> {
    let sql = "SELECT list.\"unique\", (SELECT group_concat(coalesce(info.name, ''), char(0)) FROM pragma_index_info(list.name) info) \
         FROM pragma_index_list(?1) list WHERE NOT list.partial";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let indexes = statement
        .query_map([table], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, Option<String>>(1)?)))
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(map)?;
    for (unique, over) in indexes {
        let Some(at) = over.and_then(|over| columns.iter().position(|column| column.name == over)) else {
            continue;
        };
        columns[at].unique |= unique;
        columns[at].indexed |= !unique;
    }
    Ok(())
}

/// Whether a table's SQL contains the keyword AUTOINCREMENT, outside names and literals.
pub(super) fn is_autoincrement(sql: &str) -> bool {
    let mut plain = String::with_capacity(sql.len());
    let mut quote = None;
    for c in sql.chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None => match c {
                '\'' | '"' | '`' => quote = Some(c),
                '[' => quote = Some(']'),
                _ => plain.push(c.to_ascii_uppercase()),
            },
        }
    }
    plain.contains("AUTOINCREMENT")
}
