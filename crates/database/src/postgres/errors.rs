//! PostgreSQL's SQLSTATEs as kinds, its messages as sentences.
//!
//! Codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>. What a connection was doing when it was lost decides
//! between "nothing happened" and "outcome unknown"; that is the business of whoever sent the statement ([`unknown`]).

use crate::{Error, Kind};
use std::error::Error as _;
use tokio_postgres::error::DbError;

/// Maps what the client library reports of a statement that a read, or a transaction not yet committed, was made of.
pub(super) fn map(error: tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error() {
        let (kind, message) = kind(db);
        let column = column(db);
        return Error::new(kind, message).with_column(column).with_source(error);
    }
    if let Some(refused) = refused(&error) {
        let refused = refused.clone();
        return Error::new(Kind::Type, refused.message).with_column(refused.column).with_source(error);
    }
    let why = error.source().map_or(String::new(), |source| format!(" ({source})"));
    Error::new(Kind::Unavailable, format!("the connection to PostgreSQL was lost: {error}{why}"))
        .with_source(error)
}

/// The same for a statement that commits by itself, or for a COMMIT: when no answer came it may have happened.
pub(super) fn unknown(error: tokio_postgres::Error) -> Error {
    let answered = error.as_db_error().is_some();
    let error = map(error);
    if answered || *error.kind() != Kind::Unavailable { error } else { uncertain(&error) }
}

/// An error at COMMIT that does not say that it was rolled back.
pub(super) fn at_commit(error: tokio_postgres::Error) -> Error {
    let rolled_back =
        error.code().is_some_and(|code| matches!(&code.code()[..2], "23" | "40" | "P0" | "22" | "53"));
    let error = map(error);
    if rolled_back { error } else { uncertain(&error) }
}

/// The change may be there or not.
pub(super) fn uncertain(error: &Error) -> Error {
    let message = format!("the change may be there or not: {}", error.message());
    Error::new(Kind::UnknownOutcome, message).with_source(error.clone())
}

/// The value that was not sent, when that is what failed: the server has heard nothing of the statement.
pub(super) fn refused(error: &tokio_postgres::Error) -> Option<&Refused> {
    error.source()?.downcast_ref()
}

/// The transaction was given up because of an earlier statement of it.
pub(super) fn is_aborted(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "25P02")
}

/// The statement was prepared for a table that has changed, or the server has forgotten it; it was not run.
pub(super) fn is_stale(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|db| match db.code().code() {
        "26000" => true,
        "0A000" => db.message().contains("cached plan"),
        _ => false,
    })
}

/// A value that cannot be sent as the type that its parameter or column has.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) message: String,
    pub(super) column: Option<String>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refused {}

fn kind(db: &DbError) -> (Kind, String) {
    let code = db.code().code();
    let mut message = db.message().to_owned();
    if let Some(detail) = db.detail().filter(|_| code.starts_with("23")) {
        message = format!("{message}: {detail}");
    }
    let kind = match code {
        "23505" | "23P01" => Kind::Conflict { column: column(db) },
        "23502" => Kind::NotNull { column: column(db) },
        "2200H" => return (Kind::Schema, format!("no serial keys left: {message}")),
        "57014" => return (Kind::Timeout, "the statement ran into its time-out".into()),
        "55P03" | "40001" | "40P01" | "55006" => Kind::Busy,
        "53100" => return (Kind::Full, format!("no space is left where the database is: {message}")),
        "53300" => {
            let message = format!(
                "PostgreSQL's max_connections is used up ({message}); raise it, or give this pool_size=N in the URL"
            );
            return (Kind::Unavailable, message);
        }
        "25006" => return (Kind::ReadOnly, format!("the database cannot be written: {message}")),
        "42P07" | "42710" | "42701" => Kind::Schema,
        "P0001" => Kind::Check,
        _ => match &code[..2] {
            "23" | "44" => Kind::Check,
            "22" | "54" => Kind::Type,
            "53" | "57" | "08" | "58" | "28" | "3D" => {
                return (Kind::Unavailable, format!("PostgreSQL does not serve: {message}"));
            }
            "40" | "55" => Kind::Busy,
            "XX" if matches!(code, "XX001" | "XX002") => Kind::Corrupt,
            "XX" => Kind::Type,
            _ => Kind::Syntax,
        },
    };
    (kind, message)
}

/// The column that an error speaks of: named by the server, by the key in its detail, or by the name that PostgreSQL gives a constraint
/// of one column.
fn column(db: &DbError) -> Option<String> {
    if let Some(column) = db.column() {
        return Some(column.to_owned());
    }
    let in_detail = db.detail().and_then(|detail| {
        let (columns, _) = detail.strip_prefix("Key (")?.split_once(")=")?;
        let name = columns.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(columns);
        // An index over several columns, or over an expression, names no column.
        (!columns.contains([',', '(', ')'])).then(|| name.replace("\"\"", "\""))
    });
    in_detail.or_else(|| {
        let rest = db.constraint()?.strip_prefix(db.table()?)?.strip_prefix('_')?;
        let column = rest.strip_suffix("_check").or_else(|| rest.strip_suffix("_fkey"))?;
        Some(column.to_owned())
    })
}

/// Adds where in the SQL an error is, as the server tells it in characters.
pub(super) fn with_place(error: Error, sql: &str, position: Option<u32>) -> Error {
    let near: Option<String> = position.and_then(|at| {
        let near: String = sql.chars().skip(at.checked_sub(1)? as usize).take(30).collect();
        (!near.is_empty()).then_some(near)
    });
    match near {
        Some(near) => error.append(format_args!(" (at {near:?})")),
        None => error,
    }
}

/// The place of a failed statement, when the server names one.
pub(super) fn position(error: &tokio_postgres::Error) -> Option<u32> {
    match error.as_db_error()?.position()? {
        tokio_postgres::error::ErrorPosition::Original(at) => Some(*at),
        tokio_postgres::error::ErrorPosition::Internal { .. } => None,
    }
}

/// Which row of a COPY failed, counted from 0: the server's context says `COPY codes, line 3`.
pub(super) fn copy_row(error: &tokio_postgres::Error) -> Option<usize> {
    let context = error.as_db_error()?.where_()?;
    let (_, after) = context.split_once(", line ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// What the server said, or the library, without its causes.
pub(super) fn map_message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}

/// The SQLSTATE behind an error of ours.
pub(super) fn code(error: &Error) -> Option<&str> {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<tokio_postgres::Error>() {
            return error.code().map(|code| code.code());
        }
        source = cause.source();
    }
    None
}

/// The table that was asked for does not exist.
pub(super) fn is_missing_table(error: &Error) -> bool {
    code(error) == Some("42P01")
}
