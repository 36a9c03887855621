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
//! timestamp  TEXT, 2026-11-21T10:03:00.000000Z            TIMESTAMP TEXT
//! json       TEXT                                         JSON TEXT
//! bytes      BLOB                                         BLOB
//! ```
//! The words before TEXT are for people and for [`declared`]: SQLite gives such columns TEXT affinity and
//! stores the digits unchanged. One value changes: SQLite stores the double -0.0 as 0.0. Forms that others
//! write are read too: UUIDs as 16-byte blobs, times without an offset (UTC) or as Unix seconds, truth values
//! as words, numbers in a numeric column.

use forebay_value::{Timestamp, Type, Uuid, Value, ValueRef, from_text};
use rusqlite::types::ValueRef as Stored;

/// Binds one value to the parameter with this index, counted from 1.
pub(super) fn bind(
    statement: &mut rusqlite::Statement<'_>,
    index: usize,
    value: ValueRef<'_>,
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
        ValueRef::Timestamp(v) => {
            let mut text = Vec::with_capacity(TIMESTAMP_BYTES);
            v.write(&mut text);
            statement.raw_bind_parameter(index, std::str::from_utf8(&text).expect("digits and punctuation"))
        }
    }
}

const TIMESTAMP_BYTES: usize = "2026-11-21T10:03:00.000000Z".len();

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
        (Type::Text { .. }, Stored::Text(v)) => ValueRef::Text(std::str::from_utf8(v).ok()?),
        (Type::Uuid, Stored::Text(v)) if v.len() == UUID_BYTES => {
            ValueRef::Uuid(Uuid::try_parse_ascii(v).ok()?)
        }
        (Type::Uuid, Stored::Blob(v)) => ValueRef::Uuid(Uuid::from_slice(v).ok()?),
        (Type::Timestamp, Stored::Text(v)) => ValueRef::Timestamp(timestamp(v)?),
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
        (Type::Bytes, Stored::Blob(v)) => ValueRef::Bytes(v),
        _ => return None,
    })
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
        // "INTEGER as Unix Time" is one of the three forms that SQLite's own date functions take.
        (Type::Timestamp, Stored::Integer(v)) => Some(Value::Timestamp(Timestamp(v.checked_mul(1_000_000)?))),
        (Type::Json, Stored::Integer(v)) => Some(Value::Json(v.to_string().into())),
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

/// Reads a stored time; the form of [`Timestamp::write`] is read without the time library (a scan reads one a
/// row).
fn timestamp(text: &[u8]) -> Option<Timestamp> {
    own_timestamp(text).or_else(|| Timestamp::parse_stored(std::str::from_utf8(text).ok()?))
}

fn own_timestamp(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; TIMESTAMP_BYTES] = text.try_into().ok()?;
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (26, b'Z')];
    if marks.iter().any(|&(at, mark)| text[at] != mark) {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0i64, |number, &digit| {
            digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0'))
        })
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second, micros) = (number(11, 13)?, number(14, 16)?, number(17, 19)?, number(20, 26)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // The last day of the year 9999 is left to the library, which checks the limit of its range.
    if day < 1 || day > days_in_month || hour > 23 || minute > 59 || second > 59 || year > 9998 {
        return None;
    }
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp(seconds * 1_000_000 + micros))
}

/// Year, month, day to days since the epoch. Source: Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms".
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// How a column of this type is declared.
pub(super) fn declaration(ty: Type) -> String {
    match ty {
        Type::Bool => "BOOLEAN".into(),
        Type::Smallint | Type::Integer | Type::Bigint => "INTEGER".into(),
        Type::Double => "REAL".into(),
        Type::Numeric | Type::Decimal { .. } => "NUMERIC TEXT".into(),
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

/// The type of a declaration, ours or another program's; `None` when it names no type.
pub(super) fn declared(declaration: &str) -> Option<Type> {
    let upper = declaration.trim().to_ascii_uppercase();
    let (name, length) = match upper.split_once('(') {
        Some((name, rest)) => {
            (name.trim(), rest.split(')').next().and_then(|chars| chars.trim().parse().ok()))
        }
        None => (upper.as_str(), None),
    };
    let has = |word: &str| name.contains(word);
    Some(match () {
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
        () => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn own_timestamps_are_read_as_the_library_reads_them() {
        for text in [
            "1969-12-31T23:59:59.999999Z",
            "0000-01-01T00:00:00.000000Z",
            "2024-02-29T12:00:00.000001Z",
            "9998-12-31T23:59:59.999999Z",
        ] {
            assert_eq!(own_timestamp(text.as_bytes()), Timestamp::parse(text), "{text}");
            assert!(own_timestamp(text.as_bytes()).is_some(), "{text}");
        }
        for text in
            ["2023-02-29T12:00:00.000001Z", "2023-13-01T12:00:00.000001Z", "2023-1x-01T12:00:00.000001Z"]
        {
            assert_eq!(own_timestamp(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_timestamp_reads_back(micros in -62_167_219_200_000_000i64..253_370_764_800_000_000) {
            let text = Timestamp(micros).to_string();
            prop_assert_eq!(own_timestamp(text.as_bytes()), Some(Timestamp(micros)));
        }
    }

    #[test]
    fn declarations_read_back_and_those_of_others_are_understood() {
        for name in Type::NAMES {
            let ty =
                Type::parse(&name.replace("(n)", "(12)").replace("(p,s)", "(9,2)")).expect("a type name");
            // SQLite has no narrower numbers: a CHECK enforces the range.
            let read = if ty.unbounded() == Type::TEXT { ty } else { ty.unbounded() };
            assert_eq!(declared(&declaration(ty)), Some(read), "{name}");
        }
        for (text, expected) in [
            ("varchar(20)", Some(Type::Text { max_chars: Some(20) })),
            ("DECIMAL(10, 2)", Some(Type::Numeric)),
            ("bigint", Some(Type::Bigint)),
            ("DOUBLE PRECISION", Some(Type::Double)),
            ("datetime", Some(Type::Timestamp)),
            ("uuid", Some(Type::Uuid)),
            ("geometry", None),
            ("", None),
        ] {
            assert_eq!(declared(text), expected, "{text}");
        }
    }
}
