//! The defaults of a table's columns, evaluated by SQLite itself, in a table of one column in memory: that
//! applies the affinity of the column and needs no access to the file.

use super::errors::map;
use super::types;
use crate::{Error, Kind};
use forebay_value::{Fill, Type, Value, from_text};
use rusqlite::Connection;

/// The default of `now()`: UTC with six digits, of which SQLite's clock gives three.
pub(super) const NOW: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now')";

/// The same as earlier versions wrote it.
const NOW_EARLIER: &str = "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')";

/// The default of `uuid()`: version 4, variant 10 (RFC 9562 section 5.4).
pub(super) const UUID4: &str = "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' \
     || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))";

/// The default of `uuid7()`: starts with the milliseconds since the epoch (RFC 9562 section 5.7).
pub(super) const UUID7: &str = "substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 1, 8) || '-' \
     || substr(printf('%012x', cast((julianday('now') - 2440587.5) * 86400000.0 as integer)), 9) || '-' \
     || lower('7' || substr(hex(randomblob(2)), 2) || '-' || substr('89ab', 1 + (random() & 3), 1) \
     || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))";

/// How a column with this declaration and this DEFAULT is filled; `None`: with NULL.
pub(super) fn fill(ty: Type, declaration: &str, expression: &str) -> Option<Fill> {
    let expression = expression.trim();
    if let Some(made_here) = made_here(ty, expression) {
        return Some(made_here);
    }
    let is_literal = is_literal(expression) || is_word(expression);
    let written = if is_literal { expression.to_owned() } else { format!("({expression})") };
    let declaration = declaration.replace('"', "\"\"");
    let definition = format!("\"{declaration}\" DEFAULT {written}");
    match is_literal.then(|| evaluate(ty, &definition)) {
        Some(Ok(Value::Null)) => None,
        Some(Ok(value)) => Some(Fill::Value(value)),
        // A literal that the column refuses: each row gets this refusal.
        Some(Err(_)) | None => Some(Fill::Asked(definition.into())),
    }
}

/// A number, text, blob or truth value. Anything else may depend on time or chance.
fn is_literal(expression: &str) -> bool {
    let is_number = |text: &str| {
        let digits = text.trim_start_matches(['+', '-', ' ']);
        digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && digits.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'))
    };
    let quoted = expression.strip_prefix(['x', 'X']).unwrap_or(expression);
    let is_text = quoted.len() > 1
        && quoted.starts_with('\'')
        && quoted.ends_with('\'')
        && !quoted[1..quoted.len() - 1].replace("''", "").contains('\'');
    is_number(expression)
        || is_text
        || ["null", "true", "false"].iter().any(|word| expression.eq_ignore_ascii_case(word))
}

/// A name, which is a text here, unless it is one of SQLite's words for the present time.
fn is_word(expression: &str) -> bool {
    let is_quoted = expression.len() > 1
        && expression.starts_with('"')
        && expression.ends_with('"')
        && !expression[1..expression.len() - 1].contains('"');
    let is_name = expression.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && expression.chars().all(|c| c.is_alphanumeric() || c == '_')
        && !expression.to_ascii_uppercase().starts_with("CURRENT_");
    is_quoted || is_name
}

/// The value of a default ([`Fill::Asked`]) for one row.
pub(super) fn evaluate(ty: Type, definition: &str) -> Result<Value, Error> {
    let memory = Connection::open_in_memory().map_err(map)?;
    memory.execute_batch(&format!("CREATE TABLE made (made {definition})")).map_err(map)?;
    memory.execute_batch("INSERT INTO made DEFAULT VALUES").map_err(map)?;
    let mut statement = memory.prepare("SELECT made FROM made").map_err(map)?;
    let mut rows = statement.query([]).map_err(map)?;
    let row = rows.next().map_err(map)?.expect("it was inserted");
    let stored = row.get_ref(0).map_err(map)?;
    let as_text = || match types::loose(stored)? {
        Value::Text(text) => from_text(ty.unbounded(), &text).ok(),
        _ => None,
    };
    types::typed(ty, stored)
        .or_else(as_text)
        .ok_or_else(|| Error::new(Kind::Type, format!("the default is no {ty}")))
}

/// The default of a column of this type that needs no database.
fn made_here(ty: Type, expression: &str) -> Option<Fill> {
    match (ty, expression) {
        (Type::Timestamp, NOW | NOW_EARLIER) => Some(Fill::Now),
        (Type::Timestamp, clock) if clock.eq_ignore_ascii_case("CURRENT_TIMESTAMP") => Some(Fill::Now),
        (Type::Uuid, UUID4) => Some(Fill::Uuid4),
        (Type::Uuid, UUID7) => Some(Fill::Uuid7),
        _ => None,
    }
}
