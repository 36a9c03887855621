//! Column types, as a config file names them.

use std::fmt;

/// The type of a column or a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// `bool`
    Bool,
    /// `bigint`: 64-bit signed integer.
    Bigint,
    /// `double`: IEEE 754 binary64.
    Double,
    /// `numeric`: a decimal number of any length, kept as its digits.
    Numeric,
    /// `text` or `text(n)`: UTF-8, at most `n` characters (Unicode scalar values).
    Text {
        /// Longest permitted value in characters.
        max_chars: Option<u32>,
    },
    /// `uuid`
    Uuid,
    /// `timestamp`: microseconds since the Unix epoch, UTC.
    Timestamp,
    /// `json`: any JSON text, kept as it came.
    Json,
    /// `bytes`: raw bytes, base64 in JSON.
    Bytes,
}

impl Type {
    /// Text without a length limit.
    pub const TEXT: Type = Type::Text { max_chars: None };

    /// Every name that [`Type::parse`] knows, for error messages.
    pub const NAMES: &'static [&'static str] =
        &["bool", "bigint", "double", "numeric", "text", "text(n)", "uuid", "timestamp", "json", "bytes"];

    /// Reads a type as written in a config file. `None` when it is not one of [`Type::NAMES`].
    pub fn parse(text: &str) -> Option<Type> {
        Some(match text.trim() {
            "bool" | "boolean" => Type::Bool,
            "bigint" | "integer" | "int" => Type::Bigint,
            "double" | "float" => Type::Double,
            "numeric" | "decimal" => Type::Numeric,
            "text" => Type::TEXT,
            "uuid" => Type::Uuid,
            "timestamp" => Type::Timestamp,
            "json" => Type::Json,
            "bytes" => Type::Bytes,
            other => {
                let chars = other.strip_prefix("text(")?.strip_suffix(')')?.trim().parse().ok()?;
                Type::Text { max_chars: Some(chars) }
            }
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::Bool => "bool",
            Type::Bigint => "bigint",
            Type::Double => "double",
            Type::Numeric => "numeric",
            Type::Text { max_chars: None } => "text",
            Type::Text { max_chars: Some(chars) } => return write!(f, "text({chars})"),
            Type::Uuid => "uuid",
            Type::Timestamp => "timestamp",
            Type::Json => "json",
            Type::Bytes => "bytes",
        })
    }
}
