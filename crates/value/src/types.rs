//! Column types, as a config file names them.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// The most digits that a decimal may be declared with: PostgreSQL's limit.
const DECIMAL_DIGITS_MAX: u32 = 1000;

/// The type of a column or a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// True or false; `boolean` in SQL.
    Bool,
    /// `smallint`: 16-bit signed integer.
    Smallint,
    /// `integer`: 32-bit signed integer.
    Integer,
    /// `bigint`: 64-bit signed integer.
    Bigint,
    /// `double`: IEEE 754 binary64.
    Double,
    /// `numeric`: a decimal number of any length, stored as its digits.
    Numeric,
    /// `numeric(p,s)`: a decimal number of at most `p` digits, `s` of them after the point.
    Decimal {
        /// Most digits in total.
        precision: u16,
        /// Most digits after the point.
        scale: u16,
    },
    /// `text` or `text(n)`: UTF-8, at most `n` characters (Unicode scalar values).
    Text {
        /// Longest permitted value in characters.
        max_chars: Option<u32>,
    },
    /// 128 bits, 36 characters in JSON.
    Uuid,
    /// `timestamp`: microseconds since the Unix epoch, UTC.
    Timestamp,
    /// `local_timestamp`: date and time of a clock whose zone is unknown, PostgreSQL's `timestamp` without
    /// time zone. Only tables of others have it.
    LocalTimestamp,
    /// `json`: any JSON text, stored unchanged.
    Json,
    /// `bytes`: raw bytes, base64 in JSON.
    Bytes,
    /// `as_text`: a type that only the database knows, as the text in which the database writes its values
    /// and reads them. Values are equal here when their texts are. Only tables of others have it.
    AsText,
}

impl Type {
    /// Text without a length limit.
    pub const TEXT: Type = Type::Text { max_chars: None };

    /// Every name that [`Type::parse`] knows for columns that a config declares, except [`Type::SQL_NAMES`].
    pub const NAMES: &'static [&'static str] = &[
        "bool",
        "smallint",
        "integer",
        "bigint",
        "double",
        "numeric",
        "numeric(p,s)",
        "text",
        "text(n)",
        "uuid",
        "timestamp",
        "json",
        "bytes",
    ];

    /// SQL's names for some types, with or without parentheses: (SQL's name, the name here).
    pub const SQL_NAMES: &'static [(&'static str, &'static str)] = &[
        ("boolean", "bool"),
        ("int2", "smallint"),
        ("int4", "integer"),
        ("int", "integer"),
        ("int8", "bigint"),
        ("float8", "double"),
        ("float", "double"),
        ("decimal", "numeric"),
        ("varchar", "text"),
        ("timestamptz", "timestamp"),
        ("jsonb", "json"),
    ];

    /// Reads a type as written in a config file. `None` when it is none of [`Type::NAMES`] and
    /// [`Type::SQL_NAMES`].
    pub fn parse(text: &str) -> Option<Type> {
        let (word, args) = match text.trim().split_once('(') {
            Some((word, rest)) => {
                let args = rest.strip_suffix(')')?.split(',').map(|arg| arg.trim().parse().ok());
                (word.trim_end(), args.collect::<Option<Vec<u32>>>()?)
            }
            None => (text.trim(), Vec::new()),
        };
        let ours = Type::SQL_NAMES.iter().find(|(sql, _)| *sql == word).map_or(word, |(_, ours)| ours);
        Some(match (ours, args.as_slice()) {
            ("bool", []) => Type::Bool,
            ("smallint", []) => Type::Smallint,
            ("integer", []) => Type::Integer,
            ("bigint", []) => Type::Bigint,
            ("double", []) => Type::Double,
            ("numeric", []) => Type::Numeric,
            ("numeric", &[precision]) => Type::decimal(precision, 0)?,
            ("numeric", &[precision, scale]) => Type::decimal(precision, scale)?,
            ("text", []) => Type::TEXT,
            ("text", &[chars]) => Type::Text { max_chars: Some(chars) },
            ("uuid", []) => Type::Uuid,
            ("timestamp", []) => Type::Timestamp,
            ("local_timestamp", []) => Type::LocalTimestamp,
            ("json", []) => Type::Json,
            ("bytes", []) => Type::Bytes,
            ("as_text", []) => Type::AsText,
            _ => return None,
        })
    }

    fn decimal(precision: u32, scale: u32) -> Option<Type> {
        ((1..=DECIMAL_DIGITS_MAX).contains(&precision) && scale <= precision)
            .then_some(Type::Decimal { precision: precision as u16, scale: scale as u16 })
    }

    /// The type of the same values without a bound: `bigint` for `smallint`, `text` for `text(n)`.
    pub fn unbounded(self) -> Type {
        match self {
            Type::Smallint | Type::Integer => Type::Bigint,
            Type::Decimal { .. } => Type::Numeric,
            Type::Text { .. } => Type::TEXT,
            ty => ty,
        }
    }

    /// The minimum and the maximum of this type; `None` when its values are no whole numbers.
    pub fn range(self) -> Option<(i64, i64)> {
        match self {
            Type::Smallint => Some((i16::MIN.into(), i16::MAX.into())),
            Type::Integer => Some((i32::MIN.into(), i32::MAX.into())),
            Type::Bigint => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }
}

/// By its name.
impl Serialize for Type {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Type {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Type, D::Error> {
        let name = String::deserialize(deserializer)?;
        Type::parse(&name).ok_or_else(|| D::Error::custom(format!("`{name}` is no type")))
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::Smallint => "smallint",
            Type::Integer => "integer",
            Type::Bigint => "bigint",
            Type::Double => "double",
            Type::Numeric => "numeric",
            Type::Decimal { precision, scale } => return write!(f, "numeric({precision},{scale})"),
            Type::Text { max_chars: None } => "text",
            Type::Text { max_chars: Some(chars) } => return write!(f, "text({chars})"),
            Type::Uuid => "uuid",
            Type::Timestamp => "timestamp",
            Type::LocalTimestamp => "local_timestamp",
            Type::Json => "json",
            Type::Bytes => "bytes",
            Type::AsText => "as_text",
        })
    }
}
