//! Which form the times of a column have ([`TimeForm`]): its DEFAULT says it, else its oldest rows, else it
//! is SQLite's own.

use super::errors::map;
use super::schema::quoted;
use super::time_form::TimeForm;
use super::types;
use crate::Error;
use forebay_value::{Column, Schema, Type};
use rusqlite::Connection;

/// How many of the oldest rows are looked at for one that has a time.
const ROWS_SEEN: u32 = 100;

/// The forms of a table's columns; those that hold no times have any.
pub(super) fn of_schema(connection: &Connection, schema: &Schema) -> Result<Vec<TimeForm>, Error> {
    let of_column = |column: &Column| match column.ty {
        Type::Timestamp => form(connection, &schema.name, &column.name),
        _ => Ok(TimeForm::default()),
    };
    schema.columns.iter().map(of_column).collect()
}

/// The form of a column.
pub(super) fn form(connection: &Connection, table: &str, column: &str) -> Result<TimeForm, Error> {
    let sql = "SELECT dflt_value FROM pragma_table_info(?1) WHERE name = ?2 AND dflt_value IS NOT NULL";
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    let mut rows = statement.query([table, column]).map_err(map)?;
    if let Some(row) = rows.next().map_err(map)? {
        let default: String = row.get(0).map_err(map)?;
        if let Some(form) = TimeForm::of_default(&default) {
            return Ok(form);
        }
    }
    let (table, column) = (quoted(table), quoted(column));
    let oldest = format!("SELECT {column} AS held FROM {table} LIMIT {ROWS_SEEN}");
    let sql = format!("SELECT held FROM ({oldest}) WHERE held IS NOT NULL LIMIT 1");
    // A table or column that is gone: the write itself reports that.
    let Ok(mut statement) = connection.prepare_cached(&sql) else { return Ok(TimeForm::default()) };
    let mut rows = statement.query([]).map_err(map)?;
    match rows.next().map_err(map)? {
        Some(row) => Ok(TimeForm::of_stored(row.get_ref(0).map_err(map)?)),
        None => Ok(TimeForm::default()),
    }
}

/// The form for the times that a statement is given: that of the columns of the tables that it names, if they
/// have one form, else SQLite's own.
pub(super) fn form_for(connection: &Connection, sql: &str) -> Result<TimeForm, Error> {
    let of_tables = "SELECT t.name, c.name, c.type FROM sqlite_schema t, pragma_table_info(t.name) c \
         WHERE t.type = 'table' AND substr(t.name, 1, 8) <> 'forebay_' AND instr(lower(?1), lower(t.name))";
    let mut statement = connection.prepare_cached(of_tables).map_err(map)?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get::<_, String>(2)?))
    };
    let columns = statement.query_map([sql], read).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut found = None;
    for (table, column, declaration) in columns.map_err(map)? {
        if types::declared(&declaration) != Type::Timestamp {
            continue;
        }
        let form = form(connection, &table, &column)?;
        if found.is_some_and(|found| found != form) {
            return Ok(TimeForm::default());
        }
        found = Some(form);
    }
    Ok(found.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_form_of_its_default_or_its_rows() {
        let connection = Connection::open_in_memory().unwrap();
        let tables = "CREATE TABLE t (id INTEGER PRIMARY KEY, a DATETIME DEFAULT CURRENT_TIMESTAMP, b DATETIME, c DATETIME, \
             d DATETIME, e DATETIME, f DATETIME DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))); \
             INSERT INTO t (b, c, d, e) VALUES (NULL, '2026-01-01T00:00:00.000Z', 1795255380, 1795255380000), \
             ('2026-01-01 00:00:00', '2026-01-01 00:00:00', NULL, NULL);";
        connection.execute_batch(tables).unwrap();
        let expected = [
            TimeForm::Sqlite,
            TimeForm::Sqlite,
            TimeForm::Rfc3339,
            TimeForm::Seconds,
            TimeForm::Millis,
            TimeForm::Rfc3339,
        ];
        for (column, expected) in ["a", "b", "c", "d", "e", "f"].into_iter().zip(expected) {
            assert_eq!(form(&connection, "t", column).unwrap(), expected, "{column}");
        }
    }
}
