//! Values to SQLite and back.
//!
//! ```text
//! type       stored as                                    declared as
//! bool       INTEGER 0 or 1                               BOOLEAN
//! bigint     INTEGER                                      INTEGER
//! double     REAL                                         REAL
//! numeric    TEXT, its digits                             NUMERIC TEXT
//! text       TEXT                                         TEXT, TEXT(n)
//! uuid       TEXT, lower case with dashes                 UUID TEXT
//! timestamp  TEXT, 2026-11-21 10:03:00 (see `time_form`)  TIMESTAMP TEXT
//! json       TEXT                                         JSON TEXT
//! bytes      BLOB                                         BLOB
//! as_text    TEXT; only in tables of others               any other
//! ```
//! The words before TEXT are for people and for [`declared`]: SQLite gives such columns TEXT affinity and
//! stores the digits unchanged. One value changes: SQLite stores the double -0.0 as 0.0. Forms that others
//! write are read too: UUIDs as 16-byte blobs, times without an offset (UTC), as Unix seconds or milliseconds
//! or as Julian days, truth values as words, numbers in a numeric column.

use super::time_form::TimeForm;
use forebay_value::{Timestamp, Type, Uuid, Value, ValueRef, from_text, json, real_text};
use rusqlite::types::ValueRef as Stored;

/// Binds a key to the parameter with this index, counted from 1.
pub(super) fn bind(
    statement: &mut rusqlite::Statement<'_>,
    index: usize,
    key: ValueRef<'_>,
) -> rusqlite::Result<()> {
    bind_as(statement, index, key, TimeForm::default())
}

/// Binds one value, a time in this form.
pub(super) fn bind_as(
    statement: &mut rusqlite::Statement<'_>,
    index: usize,
    value: ValueRef<'_>,
    form: TimeForm,
) -> rusqlite::Result<()> {
    match value {
        ValueRef::Null => statement.raw_bind_parameter(index, rusqlite::types::Null),
        ValueRef::Bool(v) => statement.raw_bind_parameter(index, i64::from(v)),
        ValueRef::Bigint(v) => statement.raw_bind_parameter(index, v),
        ValueRef::Double(v) => statement.raw_bind_parameter(index, v),
        ValueRef::Numeric(v) | ValueRef::Text(v) | ValueRef::Json(v) => {
            statement.raw_bind_parameter(index, v)
        }
        ValueRef::Bytes(v) => statement.raw_bind_parameter(index, v),
        ValueRef::Uuid(v) => {
            let mut text = [0; UUID_BYTES];
            statement.raw_bind_parameter(index, &*v.as_hyphenated().encode_lower(&mut text))
        }
        ValueRef::Local(v) => statement.raw_bind_parameter(index, v.to_string()),
        ValueRef::Timestamp(v) => statement.raw_bind_parameter(index, form.write(v)),
    }
}

/// The length of a UUID's text.
const UUID_BYTES: usize = "06f40771-6460-479a-a47c-177473e240b5".len();

/// A stored value as one of type `ty`, without copying; `None` when it has another type or must be converted
/// first ([`typed`]).
pub(super) fn typed_ref(ty: Type, value: Stored<'_>) -> Option<ValueRef<'_>> {
    Some(match (ty.unbounded(), value) {
        (_, Stored::Null) => ValueRef::Null,
        (Type::Bool, Stored::Integer(v @ (0 | 1))) => ValueRef::Bool(v == 1),
        (Type::Bigint, Stored::Integer(v)) => ValueRef::Bigint(v),
        (Type::Double, Stored::Real(v)) => ValueRef::Double(v),
        (Type::Text { .. } | Type::AsText, Stored::Text(v)) => ValueRef::Text(std::str::from_utf8(v).ok()?),
        (Type::Uuid, Stored::Text(v)) if v.len() == UUID_BYTES => {
            ValueRef::Uuid(Uuid::try_parse_ascii(v).ok()?)
        }
        (Type::Uuid, Stored::Blob(v)) => ValueRef::Uuid(Uuid::from_slice(v).ok()?),
        (Type::Timestamp, Stored::Text(v)) => {
            ValueRef::Timestamp(Timestamp::parse_stored(std::str::from_utf8(v).ok()?)?)
        }
        (Type::Numeric, Stored::Text(v)) => {
            let text = std::str::from_utf8(v).ok()?;
            // Leading zeros, which others may write, are not valid JSON.
            let Value::Numeric(own) = from_text(Type::Numeric, text).ok()? else { return None };
            (*own == *text).then_some(ValueRef::Numeric(text))?
        }
        (Type::Json, Stored::Text(v)) => {
            let text = std::str::from_utf8(v).ok()?;
            from_text(Type::Json, text).ok()?;
            ValueRef::Json(text)
        }
        (Type::Json, Stored::Blob(v)) if is_json_text(v) => ValueRef::Json(std::str::from_utf8(v).ok()?),
        (Type::Bytes, Stored::Blob(v)) => ValueRef::Bytes(v),
        _ => return None,
    })
}

/// Whether a blob holds an object or array as text, as drivers write what they are given as bytes; SQLite's
/// own functions take it for that, too. One whose first byte may be the header of SQLite's binary form, with
/// the length that the header says, is not taken for text.
fn is_json_text(blob: &[u8]) -> bool {
    let is_binary = |header: u8| usize::from(header >> 4) + 1 == blob.len();
    let (Some(&first @ (b'{' | b'[')), Ok(text)) = (blob.first(), std::str::from_utf8(blob)) else {
        return false;
    };
    !is_binary(first) && from_text(Type::Json, text).is_ok()
}

/// A stored value as one of type `ty`; `None` when it cannot be read as that type.
pub(super) fn typed(ty: Type, value: Stored<'_>) -> Option<Value> {
    if let Some(value) = typed_ref(ty, value) {
        return Some(value.to_owned());
    }
    // Values that others stored beyond a bound are read all the same.
    let ty = ty.unbounded();
    match (ty, value) {
        (Type::Bool, Stored::Text(v)) => {
            from_text(ty, &std::str::from_utf8(v).ok()?.to_ascii_lowercase()).ok()
        }
        (Type::Double, Stored::Integer(v)) => Some(Value::Double(v as f64)),
        (Type::Numeric, Stored::Text(v)) => from_text(ty, std::str::from_utf8(v).ok()?).ok(),
        (Type::Numeric, Stored::Integer(v)) => Some(Value::Numeric(v.to_string().into())),
        (Type::Numeric, Stored::Real(v)) if v.is_finite() => Some(Value::Numeric(v.to_string().into())),
        (Type::Timestamp, Stored::Integer(v)) => instant_of(v as f64).map(Value::Timestamp),
        (Type::Timestamp, Stored::Real(v)) => instant_of(v).map(Value::Timestamp),
        (Type::AsText, Stored::Integer(v)) => Some(Value::Text(v.to_string().into())),
        (Type::AsText, Stored::Real(v)) => Some(Value::Text(real_text(v).into())),
        (Type::AsText, Stored::Blob(v)) => {
            let mut text = Vec::new();
            json::write_base64(v, &mut text);
            Some(Value::Text(String::from_utf8(text).ok()?.into()))
        }
        (Type::Json, Stored::Integer(v)) => Some(Value::Json(v.to_string().into())),
        (Type::Json, Stored::Real(v)) if v.is_finite() => Some(Value::Json(v.to_string().into())),
        (Type::Bytes, Stored::Text(v)) => Some(Value::Bytes(v.into())),
        _ => None,
    }
}

/// A stored value by its storage class; `None` when it is text that is not UTF-8.
pub(super) fn loose(value: Stored<'_>) -> Option<Value> {
    Some(match value {
        Stored::Null => Value::Null,
        Stored::Integer(v) => Value::Bigint(v),
        Stored::Real(v) => Value::Double(v),
        Stored::Text(v) => Value::Text(std::str::from_utf8(v).ok()?.into()),
        Stored::Blob(v) => Value::Bytes(v.into()),
    })
}

/// The instant of a number in a column of times: of one of the three forms that SQLite's date functions take
/// (seconds since 1970, Julian days), or of milliseconds since 1970, which object mappers write. `None` for a
/// number that is not clearly one of them.
fn instant_of(number: f64) -> Option<Timestamp> {
    /// From -4713 to the end of 9999 (<https://www.sqlite.org/lang_datefunc.html>, section 2).
    const JULIAN_DAY_1970: f64 = 2_440_587.5;
    /// Seconds of the years 1811 to 2128; as milliseconds, two months around 1970.
    const SECONDS_MAX: f64 = 5e9;
    /// The first second of the year 10000; as milliseconds, a time in 1978.
    const MILLIS_MIN: f64 = 253_402_300_800.0;
    let is_whole = number.fract() == 0.0;
    let millis = match number.abs() {
        _ if !is_whole && (1_721_425.5..5_373_484.5).contains(&number) => {
            ((number - JULIAN_DAY_1970) * 86_400_000.0).round()
        }
        // A small number with a fraction may be either.
        0.0..5_373_484.5 if !is_whole => return None,
        0.0..SECONDS_MAX => return Some(Timestamp((number * 1e6).round() as i64)),
        MILLIS_MIN.. => number,
        _ => return None,
    };
    let at = Timestamp((millis * 1e3).round() as i64);
    (at.is_usual() && millis.abs() < MILLIS_MIN * 1e3).then_some(at)
}

/// Whether a column of this type can be the key of a hot table.
pub(super) fn may_be_key(ty: Type) -> bool {
    matches!(ty.unbounded(), Type::Bigint | Type::Uuid | Type::Text { .. })
}

/// How a column of this type is declared.
pub(super) fn declaration(ty: Type) -> String {
    match ty {
        Type::Bool => "BOOLEAN".into(),
        Type::Smallint | Type::Integer | Type::Bigint => "INTEGER".into(),
        Type::Double => "REAL".into(),
        Type::Numeric | Type::Decimal { .. } => "NUMERIC TEXT".into(),
        // No table is made with these.
        Type::LocalTimestamp | Type::AsText => "TEXT".into(),
        Type::Text { max_chars: None } => "TEXT".into(),
        Type::Text { max_chars: Some(chars) } => format!("TEXT({chars})"),
        Type::Uuid => "UUID TEXT".into(),
        Type::Timestamp => "TIMESTAMP TEXT".into(),
        Type::Json => "JSON TEXT".into(),
        Type::Bytes => "BLOB".into(),
    }
}

/// Whether a column with this declaration has NUMERIC affinity: such a column converts a text of digits to a
/// number (<https://www.sqlite.org/datatype3.html>, section 3.1).
pub(super) fn is_numeric(declaration: &str) -> bool {
    let upper = declaration.to_ascii_uppercase();
    let others = ["INT", "CHAR", "CLOB", "TEXT", "BLOB", "REAL", "FLOA", "DOUB"];
    !upper.is_empty() && !others.iter().any(|word| upper.contains(word))
}

/// The type of a declaration, ours or another program's.
pub(super) fn declared(declaration: &str) -> Type {
    let upper = declaration.trim().to_ascii_uppercase();
    let (name, length) = match upper.split_once('(') {
        Some((name, rest)) => {
            (name.trim(), rest.split(')').next().and_then(|chars| chars.trim().parse().ok()))
        }
        None => (upper.as_str(), None),
    };
    let has = |word: &str| name.contains(word);
    match () {
        () if has("BOOL") => Type::Bool,
        () if has("UUID") || has("GUID") => Type::Uuid,
        () if has("TIMESTAMP") || has("DATETIME") => Type::Timestamp,
        () if has("JSON") => Type::Json,
        () if has("NUMERIC") || has("DECIMAL") => Type::Numeric,
        () if has("INT") => Type::Bigint,
        () if has("CHAR") => Type::Text { max_chars: length },
        () if has("TEXT") || has("CLOB") => Type::Text { max_chars: length },
        () if has("BLOB") || has("BYTEA") => Type::Bytes,
        () if has("REAL") || has("FLOA") || has("DOUB") => Type::Double,
        () => Type::AsText,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_instants_that_their_writers_meant() {
        for (number, expected) in [
            (0.0, Some("1970-01-01T00:00:00.000000Z")),
            (1_764_164_361.0, Some("2025-11-26T13:39:21.000000Z")),
            (1_764_164_361.25, Some("2025-11-26T13:39:21.250000Z")),
            (1_764_164_361_123.0, Some("2025-11-26T13:39:21.123000Z")),
            (-1_000_000_000_000.0, Some("1938-04-24T22:13:20.000000Z")),
            (2_440_587.5, Some("1970-01-01T00:00:00.000000Z")),
            (2_461_371.25, Some("2026-11-26T18:00:00.000000Z")),
            // Seconds of the year 6969 or milliseconds of 1975.
            (157_766_400_000.0, None),
            (0.5, None),
            (1e18, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(instant_of(number).map(|at| at.to_string()).as_deref(), expected, "{number}");
        }
    }

    #[test]
    fn declarations_read_back_and_those_of_others_are_understood() {
        for name in Type::NAMES {
            let ty =
                Type::parse(&name.replace("(n)", "(12)").replace("(p,s)", "(9,2)")).expect("a type name");
            // SQLite has no narrower numbers: a CHECK enforces the range.
            let read = if ty.unbounded() == Type::TEXT { ty } else { ty.unbounded() };
            assert_eq!(declared(&declaration(ty)), read, "{name}");
        }
        for (text, expected) in [
            ("varchar(20)", Type::Text { max_chars: Some(20) }),
            ("DECIMAL(10, 2)", Type::Numeric),
            ("bigint", Type::Bigint),
            ("DOUBLE PRECISION", Type::Double),
            ("datetime", Type::Timestamp),
            ("uuid", Type::Uuid),
            ("date", Type::AsText),
            ("geometry", Type::AsText),
            ("", Type::AsText),
        ] {
            assert_eq!(declared(text), expected, "{text}");
        }
    }
}
