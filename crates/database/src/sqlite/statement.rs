//! One statement: checked once ([`check`]), then run on any connection ([`execute`]).

use super::errors::map;
use super::time_form::TimeForm;
use super::{times, types};
use crate::limits::RESULT_BYTES;
use crate::{Error, Kind, ResultColumn, Rows, Statement};
use forebay_value::{Type, Value};
use rusqlite::Connection;
use std::sync::Arc;

/// Statements that would end a shared transaction, change a connection's settings, or open another file.
const REFUSED: &[&str] =
    &["BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "ATTACH", "DETACH", "PRAGMA", "VACUUM"];

/// Checks a statement and reads the facts that its callers need.
pub(super) fn check(connection: &Connection, sql: &str) -> Result<Statement, Error> {
    let word = first_word(sql).to_ascii_uppercase();
    if word.is_empty() {
        return Err(Error::new(Kind::Syntax, "the SQL is empty"));
    }
    if REFUSED.contains(&word.as_str()) {
        let message = format!("{word} cannot be used here: connections and transactions are shared");
        return Err(Error::new(Kind::Syntax, message));
    }
    let statement = connection.prepare(sql).map_err(map)?;
    let mut params = Vec::new();
    for index in 1..=statement.parameter_count() {
        let name = statement.parameter_name(index).unwrap_or("?");
        match name.strip_prefix('$') {
            Some(plain) if !plain.contains([':', '(']) => params.push(plain.to_owned()),
            _ => {
                let message = format!("the parameter {name} must be written $name");
                return Err(Error::new(Kind::Syntax, message));
            }
        }
    }
    let columns = result_columns(&statement);
    let param_types = vec![None; params.len()];
    Ok(Statement {
        sql: sql.into(),
        params,
        param_types,
        alone: false,
        writes: !statement.readonly(),
        columns,
    })
}

/// The first word past white space and comments.
fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}', ';']);
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, after)| after)
        } else {
            return rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        };
        rest = after.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}', ';']);
    }
}

fn result_columns(statement: &rusqlite::Statement<'_>) -> Arc<[ResultColumn]> {
    let column = |column: rusqlite::Column<'_>| ResultColumn {
        name: column.name().to_owned(),
        ty: column.decl_type().map(types::declared),
    };
    statement.columns().map(column).collect()
}

/// Runs a checked statement to its end. The caller sets the connection's deadline.
pub(super) fn execute(
    connection: &Connection,
    sql: &str,
    params: &[Value],
    columns: &Arc<[ResultColumn]>,
) -> Result<Rows, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(map)?;
    if statement.parameter_count() != params.len() {
        let message = format!("{} values for {} parameters", params.len(), statement.parameter_count());
        return Err(Error::new(Kind::Type, message));
    }
    let form = match params.iter().any(|value| matches!(value, Value::Timestamp(_))) {
        true => times::form_for(connection, sql)?,
        false => TimeForm::default(),
    };
    for (index, value) in params.iter().enumerate() {
        types::bind_as(&mut statement, index + 1, value.as_ref(), form).map_err(map)?;
    }
    let changes_before = connection.total_changes();
    let mut result = Rows { columns: columns.clone(), values: Vec::new(), changed: 0 };
    read_rows(&mut statement, &mut result)?;
    // SQLite's counter keeps the previous statement's number after a statement other than INSERT, UPDATE or
    // DELETE.
    if connection.total_changes() != changes_before {
        result.changed = connection.changes();
    }
    Ok(result)
}

fn read_rows(statement: &mut rusqlite::Statement<'_>, result: &mut Rows) -> Result<(), Error> {
    let mut bytes = 0;
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(map)? {
        let of: &rusqlite::Statement<'_> = row.as_ref();
        // The table was altered after the statement was checked: `SELECT *` has other columns now.
        if of.column_count() != result.columns.len() {
            result.columns = result_columns(of);
        }
        for index in 0..result.columns.len() {
            let stored = row.get_ref(index).map_err(map)?;
            bytes += stored_bytes(stored);
            let value = read_value(result.columns[index].ty, stored).ok_or_else(|| {
                let name = &result.columns[index].name;
                let message = format!("column {name} holds text that is not UTF-8");
                Error::new(Kind::Unfit, message).with_column(Some(name.clone()))
            })?;
            result.values.push(value);
        }
        if bytes > RESULT_BYTES {
            let message = format!("the result is larger than {} MiB; add a LIMIT", RESULT_BYTES >> 20);
            return Err(Error::new(Kind::TooLarge, message));
        }
    }
    Ok(())
}

fn read_value(ty: Option<Type>, stored: rusqlite::types::ValueRef<'_>) -> Option<Value> {
    ty.and_then(|ty| types::typed(ty, stored)).or_else(|| types::loose(stored))
}

fn stored_bytes(stored: rusqlite::types::ValueRef<'_>) -> usize {
    size_of::<Value>()
        + match stored {
            rusqlite::types::ValueRef::Text(bytes) | rusqlite::types::ValueRef::Blob(bytes) => bytes.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words() {
        for (sql, expected) in [
            ("SELECT 1", "SELECT"),
            ("  -- a\n/* b */ ;begin immediate", "begin"),
            ("/* never closed", ""),
            ("-- only", ""),
            ("", ""),
            ("(SELECT 1)", ""),
        ] {
            assert_eq!(first_word(sql), expected, "{sql:?}");
        }
    }
}
