//! Maps SQLite's result codes to kinds, and its messages to sentences.

use crate::{Error, Kind, Raised};
use forebay_value::Schema;
use rusqlite::ffi;

/// How SQLite begins to refuse every write of two tables, one of which refers to columns of the other that
/// are not unique.
pub(super) const KEY_MISMATCH: &str = "foreign key mismatch";

/// Maps rusqlite's errors.
pub(super) fn map(error: rusqlite::Error) -> Error {
    let (code, message) = match &error {
        rusqlite::Error::SqliteFailure(code, message) => {
            (*code, message.clone().unwrap_or_else(|| error.to_string()))
        }
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            let (kind, message) = match msg.contains("already exists") {
                true => (Kind::Schema, msg.clone()),
                false => (Kind::Syntax, syntax_message(msg, sql, *offset)),
            };
            return Error::new(kind, message).with_source(error);
        }
        rusqlite::Error::MultipleStatement => {
            return Error::new(Kind::Syntax, "there is more than one statement in this SQL; write one");
        }
        rusqlite::Error::NulError(_) => {
            return Error::new(Kind::Syntax, "the SQL holds a NUL character").with_source(error);
        }
        _ => return Error::new(Kind::Type, error.to_string()).with_source(error),
    };
    let constraint = constraint(&message);
    let raised = (code.extended_code == ffi::SQLITE_CONSTRAINT_TRIGGER)
        .then(|| Raised { message: message.as_str().into(), status: None });
    let (kind, message) = kind(code, message);
    Error::new(kind, message).with_constraint(constraint).with_raised(raised).with_source(error)
}

/// The name in a constraint's message: a CHECK's name or expression, the columns of other constraints, an
/// index; a foreign key has none.
fn constraint(message: &str) -> Option<String> {
    let (_, what) = message.split_once(" constraint failed: ")?;
    let name = what.strip_prefix("index '").and_then(|rest| rest.strip_suffix('\''));
    Some(name.unwrap_or(what).to_owned())
}

/// The error of one change of a batch, with what is at fault: the row, or the table as a whole.
///
/// Wrong SQL is the table's fault, because the statements are built from the schema and compiled with the
/// table's triggers. A NULL that the schema permits, or in a column that it does not contain, is the table's
/// fault.
pub(super) fn of_change(error: Error, schema: &Schema) -> Error {
    let is_of_table = match error.kind() {
        Kind::Syntax | Kind::Schema => true,
        Kind::NotNull { column: Some(column) } => {
            let known = schema.position(column).map(|index| &schema.columns[index]);
            known.is_none_or(|column| column.nullable)
                && error.message().ends_with(&format!(": {}.{column}", schema.name))
        }
        _ => false,
    };
    if is_of_table { error.of_table(&schema.name) } else { error }
}

fn syntax_message(message: &str, sql: &str, offset: i32) -> String {
    let from = usize::try_from(offset).ok().filter(|&from| from < sql.len() && sql.is_char_boundary(from));
    match from {
        Some(from) => {
            let near: String = sql[from..].chars().take(30).collect();
            format!("{message} (at {near:?})")
        }
        None => message.to_owned(),
    }
}

fn kind(code: ffi::Error, message: String) -> (Kind, String) {
    use rusqlite::ErrorCode as Code;
    match (code.extended_code, code.code) {
        (
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID,
            _,
        ) => (Kind::Conflict { column: constrained_column(&message) }, message),
        (ffi::SQLITE_CONSTRAINT_NOTNULL, _) => {
            (Kind::NotNull { column: constrained_column(&message) }, message)
        }
        (ffi::SQLITE_CONSTRAINT_DATATYPE, _) => (Kind::Type, message),
        (_, Code::ConstraintViolation) => (Kind::Check, message),
        (_, Code::OperationInterrupted) => (Kind::Timeout, "the statement ran into its time-out".into()),
        (_, Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => {
            (Kind::Busy, "the database is locked by another process".into())
        }
        (_, Code::TypeMismatch | Code::TooBig) => (Kind::Type, message),
        (_, Code::DatabaseCorrupt) => (Kind::Corrupt, format!("the database file is damaged: {message}")),
        (_, Code::NotADatabase) => (Kind::Corrupt, "the file is not an SQLite database".into()),
        (ffi::SQLITE_READONLY_DBMOVED, _) => (Kind::Unavailable, "the database file was moved away".into()),
        (_, Code::ReadOnly | Code::PermissionDenied | Code::AuthorizationForStatementDenied) => {
            (Kind::ReadOnly, format!("the database cannot be written: {message}"))
        }
        (_, Code::DiskFull) => (Kind::Full, "no space is left where the database is".into()),
        (_, Code::CannotOpen) => (Kind::Unavailable, format!("the database cannot be opened: {message}")),
        (_, Code::SystemIoFailure | Code::OutOfMemory | Code::NoLargeFileSupport) => {
            (Kind::Unavailable, format!("the database cannot be read or written: {message}"))
        }
        (_, Code::SchemaChanged) => (Kind::Busy, message),
        (_, Code::InternalMalfunction | Code::OperationAborted | Code::ApiMisuse) => {
            (Kind::Internal, message)
        }
        // SQLITE_ERROR means wrong SQL, or a function's error about its arguments.
        _ if message.starts_with("no such") || message.contains("syntax error") => (Kind::Syntax, message),
        _ if message.contains("already exists") || message.starts_with(KEY_MISMATCH) => {
            (Kind::Schema, message)
        }
        _ => (Kind::Type, message),
    }
}

/// "UNIQUE constraint failed: codes.code" names a column; an index over several, or an expression, does not.
fn constrained_column(message: &str) -> Option<String> {
    let (_, what) = message.split_once(": ")?;
    let (_, column) = what.split_once('.')?;
    if column.contains(',') { None } else { Some(column.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A case that no test through the store can cause without a separate disk.
    #[test]
    fn a_database_that_cannot_grow_is_full_and_keeps_what_it_had() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1); PRAGMA max_page_count = 3")
            .unwrap();
        let error = map(connection.execute("INSERT INTO t VALUES (zeroblob(100000))", []).unwrap_err());
        assert_eq!((error.kind(), error.may_retry(), error.is_data()), (&Kind::Full, true, false));
        assert_eq!(connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    }

    #[test]
    fn a_database_that_may_not_be_written_says_so() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x); PRAGMA query_only = on").unwrap();
        let error = map(connection.execute("INSERT INTO t VALUES (1)", []).unwrap_err());
        assert_eq!(error.kind(), &Kind::ReadOnly, "{error}");
    }

    #[test]
    fn columns_of_constraints() {
        for (message, expected) in [
            ("UNIQUE constraint failed: codes.code", Some("code")),
            ("NOT NULL constraint failed: a b.c d", Some("c d")),
            ("UNIQUE constraint failed: pair.a, pair.b", None),
            ("UNIQUE constraint failed: index 'i'", None),
        ] {
            assert_eq!(constrained_column(message).as_deref(), expected, "{message}");
        }
    }
}
