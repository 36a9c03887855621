//! Maps PostgreSQL's SQLSTATEs to kinds, and its messages to sentences.
//!
//! Codes: <https://www.postgresql.org/docs/current/errcodes-appendix.html>. What a connection was doing when
//! it was lost decides between "nothing happened" and "outcome unknown"; the code that sent the statement
//! decides that ([`unknown`]).

use crate::{Error, Kind, Raised};
use forebay_value::Schema;
use std::error::Error as _;
use std::io;
use tokio_postgres::error::{DbError, Severity};

/// Maps the client library's error for a read, or for a statement of a transaction that is not committed yet.
pub(super) fn map(error: tokio_postgres::Error) -> Error {
    if let Some(db) = error.as_db_error() {
        return ServerError::of(db).into_error().with_source(error);
    }
    if let Some(refused) = refused(&error) {
        let refused = refused.clone();
        return Error::new(Kind::Type, refused.message).with_column(refused.column).with_source(error);
    }
    let why = error.source().map_or(String::new(), |source| format!(" ({source})"));
    Error::new(Kind::Unavailable, format!("the connection to PostgreSQL was lost: {error}{why}"))
        .with_source(error)
}

/// The same for a statement that commits by itself, or for a COMMIT: without an answer it may have been
/// committed.
pub(super) fn unknown(error: tokio_postgres::Error) -> Error {
    let answered = error.as_db_error().is_some();
    let error = map(error);
    if answered || *error.kind() != Kind::Unavailable { error } else { uncertain(&error) }
}

/// An error at COMMIT that does not show that the transaction was rolled back.
pub(super) fn at_commit(error: tokio_postgres::Error) -> Error {
    // A deferred constraint or trigger may raise any code. After the commit record only FATAL and PANIC
    // occur.
    let rolled_back = error.as_db_error().is_some_and(|db| db.parsed_severity() == Some(Severity::Error));
    let error = map(error);
    if rolled_back { stuck(error, None) } else { uncertain(&error) }
}

/// The error when a change may or may not have been committed.
pub(super) fn uncertain(error: &Error) -> Error {
    let message = format!("the change may or may not be committed: {}", error.message());
    Error::new(Kind::UnknownOutcome, message).with_source(error.clone())
}

/// The value that was not sent, when that is what failed: then the server has received nothing of the
/// statement.
pub(super) fn refused(error: &tokio_postgres::Error) -> Option<&Refused> {
    error.source()?.downcast_ref()
}

/// Whether the transaction was aborted because of an earlier statement.
pub(super) fn is_aborted(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == "25P02")
}

/// Whether the statement was prepared for a table that has changed, or the server has forgotten it; then it
/// was not run.
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

/// The server's error: the fields of its message, or those that an exception handler received.
#[derive(Default)]
pub(super) struct ServerError<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    pub(super) detail: Option<&'a str>,
    pub(super) table: Option<&'a str>,
    pub(super) column: Option<&'a str>,
    pub(super) constraint: Option<&'a str>,
    pub(super) routine: &'a str,
}

impl<'a> ServerError<'a> {
    fn of(db: &'a DbError) -> ServerError<'a> {
        ServerError {
            code: db.code().code(),
            message: db.message(),
            detail: db.detail(),
            table: db.table(),
            column: db.column(),
            constraint: db.constraint(),
            routine: db.routine().unwrap_or_default(),
        }
    }

    /// The same as this crate's error.
    pub(super) fn into_error(self) -> Error {
        let (kind, message) = kind(&self);
        let constraint = self.constraint.map(str::to_owned);
        let error = Error::new(kind, message).with_column(column(&self)).with_constraint(constraint);
        error.with_raised(self.raised())
    }

    /// What a function of the application raised: by RAISE, or with a code `PT` and an HTTP status.
    fn raised(&self) -> Option<Raised> {
        let status = self.code.strip_prefix("PT").and_then(|digits| digits.parse().ok());
        let status = status.filter(|status| (400..=599).contains(status));
        let is_raised = self.routine == "exec_stmt_raise" || status.is_some();
        is_raised.then(|| Raised { message: self.message.into(), status })
    }
}

fn kind(said: &ServerError<'_>) -> (Kind, String) {
    let message = without_values(said);
    let kind = match of_code(said.code, said.routine) {
        Kind::Conflict { .. } => Kind::Conflict { column: column(said) },
        Kind::NotNull { .. } => Kind::NotNull { column: column(said) },
        kind => kind,
    };
    let message = match (said.code, &kind) {
        ("2200H", _) => format!("no serial keys left: {message}"),
        ("57014", _) => "the statement ran into its time-out".into(),
        ("53300", _) => format!(
            "PostgreSQL's max_connections is used up ({message}); raise it, or give this pool_size=N in the URL"
        ),
        ("42501", _) if message.contains("forebay_") || message.contains("_forebay") => format!(
            "{message}: Forebay's own tables must belong to this role, or GRANT it ALL on their schema and on them"
        ),
        (_, Kind::Full) => format!("no space is left where the database is: {message}"),
        (_, Kind::ReadOnly) => format!("the database cannot be written: {message}"),
        (_, Kind::Unavailable) => format!("PostgreSQL does not serve: {message}"),
        _ => message,
    };
    (kind, message)
}

/// What the server quotes with, in its languages.
const QUOTES: [char; 9] =
    ['"', '\u{ab}', '\u{bb}', '\u{201c}', '\u{201d}', '\u{201e}', '\u{300c}', '\u{300d}', '\u{ff02}'];

/// The server's message without values of rows: errors of class 22 quote the value at fault, and the detail
/// of a violated constraint holds keys and whole rows: only the names of the key's columns are taken.
/// What a function of the application raises is the application's own sentence.
fn without_values(said: &ServerError<'_>) -> String {
    let message = said.message;
    match &said.code[..2] {
        "22" if said.routine != "exec_stmt_raise" => match (message.find(QUOTES), message.rfind(QUOTES)) {
            (Some(from), Some(to)) => {
                let rest = message[to..].chars().next().map_or("", |quote| &message[to + quote.len_utf8()..]);
                format!("{}\u{2026}{rest}", &message[..from])
            }
            _ => message.to_owned(),
        },
        "23" => match said.detail.and_then(key_in_detail) {
            Some(columns) => format!("{message} ({columns})"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

/// The columns or expressions of a key, from the detail "Key (email)=(…) already exists."
fn key_in_detail(detail: &str) -> Option<&str> {
    detail.strip_prefix("Key (")?.split_once(")=(").map(|(columns, _)| columns)
}

/// The kind of a SQLSTATE; `routine` is the server function that raised it, whose name no language setting
/// changes.
///
/// Every code that does not mean that the server is unreachable, busy or full, or asks for a retry, is the
/// fault of the row or the statement: triggers and their functions may raise any code.
fn of_code(code: &str, routine: &str) -> Kind {
    match code {
        "23505" | "23P01" => Kind::Conflict { column: None },
        "23502" => Kind::NotNull { column: None },
        // A row-level policy, not a permission.
        "42501" if routine == "ExecWithCheckOptions" => Kind::Check,
        // The statement was prepared for an earlier form of the table; it was not run.
        "26000" => Kind::Busy,
        "0A000" if routine == "RevalidateCachedQuery" => Kind::Busy,
        "2200H" | "42P07" | "42710" | "42701" => Kind::Schema,
        "57014" => Kind::Timeout,
        "40001" | "40003" | "40P01" | "55P03" | "55006" => Kind::Busy,
        "53100" => Kind::Full,
        "25006" => Kind::ReadOnly,
        "XX001" | "XX002" => Kind::Corrupt,
        _ => match &code[..2] {
            "22" | "54" => Kind::Type,
            "53" | "57" | "08" | "58" | "28" | "3D" => Kind::Unavailable,
            "24" | "25" | "2D" | "34" | "3B" | "XX" => Kind::Internal,
            "03" | "0A" | "0L" | "0P" | "20" | "2B" | "3F" | "42" | "55" | "F0" | "HV" => Kind::Syntax,
            // Constraints, views with a check option, and codes that functions make up.
            _ => Kind::Check,
        },
    }
}

/// The column at fault: named by the server, by the key in the error's detail, or by PostgreSQL's default
/// name for a constraint of one column.
fn column(said: &ServerError<'_>) -> Option<String> {
    if let Some(column) = said.column {
        return Some(column.to_owned());
    }
    let in_detail = said.detail.and_then(|detail| {
        let columns = key_in_detail(detail)?;
        let name = columns.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(columns);
        // An index over several columns, or over an expression, names no single column.
        (!columns.contains([',', '(', ')'])).then(|| name.replace("\"\"", "\""))
    });
    in_detail.or_else(|| {
        let rest = said.constraint?.strip_prefix(said.table?)?.strip_prefix('_')?;
        let column = rest.strip_suffix("_check").or_else(|| rest.strip_suffix("_fkey"))?;
        Some(column.to_owned())
    })
}

/// Adds the place of an error in the SQL, which the server reports in characters.
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

/// The place of a failed statement's error, when the server names one.
pub(super) fn position(error: &tokio_postgres::Error) -> Option<u32> {
    match error.as_db_error()?.position()? {
        tokio_postgres::error::ErrorPosition::Original(at) => Some(*at),
        tokio_postgres::error::ErrorPosition::Internal { .. } => None,
    }
}

/// Whether an object cannot be created or altered because another client creates or alters it meanwhile.
pub(super) fn is_made_by_another(error: &Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    source.and_then(|source| source.as_db_error()).is_some_and(|db| match db.code().code() {
        "42P07" | "42710" | "42P16" => true,
        "23505" => db.schema().is_some_and(|schema| schema == "pg_catalog"),
        "XX000" => db.message().contains("tuple concurrently"),
        _ => false,
    })
}

/// Which row of a COPY failed, counted from 0: the server's context says `COPY codes, line 3`.
pub(super) fn copy_row(error: &tokio_postgres::Error) -> Option<usize> {
    let context = error.as_db_error()?.where_()?;
    let (_, after) = context.split_once(", line ")?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// The message of the server, or of the library, without its causes.
pub(super) fn map_message(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
}

/// Maps the error of a first connection: [`Kind::Url`], unless the server is unreachable, full, or starting.
///
/// An unknown host name, an untrusted certificate and other refusals by the client library are mistakes in
/// the URL.
pub(super) fn at_open(error: Error) -> Error {
    let is_transient = match (code(&error), std::error::Error::source(&error)) {
        (Some(code), _) => ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class)),
        // The server did not answer in time.
        (None, None) => true,
        (None, Some(_)) => causes(&error).any(|cause| {
            cause.downcast_ref().is_some_and(tokio_postgres::Error::is_closed)
                || cause.downcast_ref().is_some_and(is_of_network)
        }),
    };
    if is_transient { error } else { error.with_kind(Kind::Url) }
}

/// No server listens, or the connection was lost.
fn is_of_network(error: &io::Error) -> bool {
    use io::ErrorKind as Io;
    matches!(
        error.kind(),
        Io::ConnectionRefused
            | Io::ConnectionReset
            | Io::ConnectionAborted
            | Io::NotConnected
            | Io::BrokenPipe
            | Io::TimedOut
            | Io::UnexpectedEof
            | Io::HostUnreachable
            | Io::NetworkUnreachable
            | Io::NetworkDown
            // The Unix socket of a server on this machine.
            | Io::NotFound
    )
}

/// The causes of an error, outermost first.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(error.source(), |&cause| cause.source())
}

/// The server's error that caused this crate's error.
fn answer(error: &Error) -> Option<&DbError> {
    causes(error).find_map(|cause| cause.downcast_ref::<tokio_postgres::Error>())?.as_db_error()
}

/// The SQLSTATE that caused this crate's error.
pub(super) fn code(error: &Error) -> Option<&str> {
    answer(error).map(|db| db.code().code())
}

/// The error of one change of a batch, with what is at fault: the row, or the table as a whole.
///
/// Wrong SQL is the table's fault: the statements are built from the schema, so a column, the table or a
/// permission must have been removed. Within a function (a trigger's) it is the row's fault, because other
/// rows may take another path. A NULL that the schema permits, or in a column that it does not contain, is
/// the table's fault.
pub(super) fn of_change(error: Error, schema: &Schema) -> Error {
    let error = stuck(error, Some(&schema.name));
    let places: Vec<Place> = answer(&error).and_then(DbError::where_).map_or(Vec::new(), places);
    let in_function = places.contains(&Place::Function);
    // Types report with any code what they do not understand: a tsquery as wrong syntax, a regtype as a
    // missing type, hstore as an internal error. A time-out may hit while a value is read.
    if places.contains(&Place::Value) && !in_function && error.stuck().is_none() {
        return error.with_kind(Kind::Type);
    }
    let is_of_table = match error.kind() {
        Kind::Syntax | Kind::Schema if in_function => return error.with_kind(Kind::Check),
        Kind::Syntax | Kind::Schema => true,
        Kind::NotNull { column: Some(column) } if !in_function => {
            let known = schema.position(column).map(|index| &schema.columns[index]);
            known.is_none_or(|column| column.nullable)
                && answer(&error).is_some_and(|db| db.table() == Some(&schema.name))
        }
        _ => false,
    };
    if is_of_table { error.of_table(&schema.name) } else { error }
}

/// A line of the server's context.
#[derive(PartialEq)]
enum Place {
    /// A value that it reads: the column in a COPY, or the parameter.
    Value,
    /// The row in a COPY.
    Row,
    Function,
}

fn places(context: &str) -> Vec<Place> {
    let place = |line: &str| match line {
        _ if line.starts_with("COPY ") && line.contains(", column ") => Place::Value,
        _ if line.starts_with("COPY ") => Place::Row,
        _ if ["unnamed portal parameter ", "portal "].iter().any(|begin| line.starts_with(begin)) => {
            Place::Value
        }
        _ => Place::Function,
    };
    context.lines().map(place).collect()
}

/// The error with where the batch made no progress, when the server has answered, serves other statements,
/// and the same statement may succeed later: a lock of others, the time-out, a conflict with others, or
/// whatever a function raises (a trigger's, a foreign server's).
pub(super) fn stuck(error: Error, table: Option<&str>) -> Error {
    let answered = answer(&error).filter(|db| db.parsed_severity() == Some(Severity::Error));
    let Some(db) = answered.filter(|_| error.may_retry() && error.stuck().is_none()) else { return error };
    let code = db.code().code();
    let why = match code {
        "55P03" => "another session holds a lock that it needs".to_owned(),
        "57014" => "a statement of it takes longer than it may".to_owned(),
        "40001" | "40P01" => format!("the database breaks off each try (SQLSTATE {code})"),
        _ if db.where_().is_some_and(|context| places(context).contains(&Place::Function)) => {
            format!("a trigger or function of it fails with SQLSTATE {code}")
        }
        _ => return error,
    };
    error.stuck_at(table, why)
}

/// Whether another session held a lock for too long.
pub(super) fn is_locked(error: &Error) -> bool {
    code(error) == Some("55P03")
}

/// Whether a read failed because a text of the result has characters that UTF-8 lacks. Of a session that
/// converts ([`Session::converts`](super::session::Session::converts)): functions fail so as well.
pub(super) fn is_unconvertible(error: &Error) -> bool {
    answer(error)
        .is_some_and(|said| said.where_().is_none() && conversion(said).is_some_and(|to| to == "UTF8"))
}

/// Whether a statement failed because a text, perhaps one of a parameter, has characters that an encoding
/// other than UTF-8 lacks.
pub(super) fn is_foreign_text(error: &Error) -> bool {
    answer(error).is_some_and(|said| conversion(said).is_some_and(|to| to != "UTF8"))
}

/// The encoding that the server could not convert to: in any language its message quotes the one converted
/// from, then this one.
fn conversion(said: &DbError) -> Option<&str> {
    (said.code().code() == "22P05").then(|| converted_to(said.message()))?
}

fn converted_to(message: &str) -> Option<&str> {
    message.split(QUOTES).skip(1).step_by(2).nth(1).map(str::trim)
}

/// The error of a read, by a session that converts.
pub(super) fn of_result(error: Error) -> Error {
    match is_unconvertible(&error) {
        true => {
            let message = "a text of the result has characters that UTF-8 lacks";
            Error::new(Kind::Unfit, message).with_source(error)
        }
        false => error,
    }
}

/// Whether the queried table does not exist.
pub(super) fn is_missing_table(error: &Error) -> bool {
    code(error) == Some("42P01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_what_follows_from_them() {
        // data: the row becomes a dead letter · retry: the batch waits · statement: the table, or a trigger's
        // row (`of_change`)
        for (follows, codes) in [
            (
                "data",
                "21000 22003 22021 22P02 22P05 23502 23503 23505 23514 23P01 27000 38000 39004 44000 54000 54001",
            ),
            ("data", "P0001 P0002 P0003 P0004 SH001 ZZZZZ 00000 01000 02000"),
            (
                "retry",
                "08006 25006 25P02 26000 28P01 40001 40P01 53100 53200 53300 55006 55P03 57014 57P01 57P03 58030 XX000",
            ),
            ("statement", "0A000 2200H 3F000 42501 42601 42703 42804 42883 42P01 42P10 428C9 55000"),
            ("neither", "XX001 XX002"),
        ] {
            for code in codes.split(' ') {
                let error = Error::new(of_code(code, ""), "");
                let found = match (error.is_data(), error.may_retry(), error.kind()) {
                    (true, false, _) => "data",
                    (false, true, _) => "retry",
                    (false, false, Kind::Syntax | Kind::Schema) => "statement",
                    _ => "neither",
                };
                assert_eq!(found, follows, "{code}");
            }
        }
        assert_eq!(of_code("42501", "ExecWithCheckOptions"), Kind::Check);
        assert_eq!(of_code("0A000", "RevalidateCachedQuery"), Kind::Busy);
    }

    #[test]
    fn the_encoding_that_a_text_could_not_be_converted_to() {
        for message in [
            "character with byte sequence 0x81 in encoding \"WIN1252\" has no equivalent in encoding \"UTF8\"",
            "符号化方式\"WIN1252\"においてバイト列0x81である文字は符号化方式\"UTF8\"で等価な文字を持ちません",
            "字节序列为 0x81 的字符在编码\"WIN1252\"里在编码\"UTF8\"没有相对应值",
            "Zeichen mit Byte-Folge 0x81 in Kodierung »WIN1252« hat keine Entsprechung in Kodierung »UTF8«",
            "le caractère 0x81 de «\u{a0}WIN1252\u{a0}» n'a pas d'équivalent dans «\u{a0}UTF8\u{a0}»",
        ] {
            assert_eq!(converted_to(message), Some("UTF8"), "{message}");
        }
        assert_eq!(converted_to("something \"else\""), None);
    }

    /// The server speaks the language of its `lc_messages`.
    #[test]
    fn messages_hold_no_values() {
        let said = |code, message, detail| {
            without_values(&ServerError { code, message, detail, ..ServerError::default() })
        };
        for (code, message, detail, expected) in [
            (
                "22P02",
                "invalid input syntax for type integer: \"a\"b\"",
                None,
                "invalid input syntax for type integer: …",
            ),
            (
                "22003",
                "value \"99\" is out of range for type integer",
                None,
                "value … is out of range for type integer",
            ),
            (
                "22P02",
                "ungültige Eingabesyntax für Typ integer: »a«",
                None,
                "ungültige Eingabesyntax für Typ integer: …",
            ),
            (
                "22001",
                "value too long for type character varying(8)",
                None,
                "value too long for type character varying(8)",
            ),
            ("22P02", "malformed array literal: \"", Some("a"), "malformed array literal: …"),
            ("23505", "duplicate key", Some("Key (email)=(a)=(b) already exists."), "duplicate key (email)"),
            (
                "23505",
                "duplicate key",
                Some("Key (lower(a), b)=(x, y) already exists."),
                "duplicate key (lower(a), b)",
            ),
            ("23514", "new row violates", Some("Failing row contains (1, a)."), "new row violates"),
            ("P0001", "not \"this\"", Some("a detail"), "not \"this\""),
        ] {
            assert_eq!(said(code, message, detail), expected);
        }
        let raised = ServerError {
            code: "22023",
            message: "no \"x\"",
            routine: "exec_stmt_raise",
            ..ServerError::default()
        };
        assert_eq!(without_values(&raised), "no \"x\"");
    }
}
