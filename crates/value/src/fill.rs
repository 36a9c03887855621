//! Defaults: how a column is filled when an insert gives no value for it.

use crate::{Type, Value, from_text, json};
use serde::{Deserialize, Serialize};

/// How a column is filled when an insert gives no value for it.
#[derive(Debug, Clone, PartialEq)]
pub enum Fill {
    /// A fixed value (`bigint = 0`).
    Value(Value),
    /// The time of the insert (`timestamp = now()`).
    Now,
    /// What a clock in UTC shows at the insert (`now() AT TIME ZONE 'UTC'`).
    UtcClock,
    /// A random (version 4) UUID.
    Uuid4,
    /// A time-ordered (version 7) UUID.
    Uuid7,
    /// What the database computes for each row. The text is the database's own, and only it reads it.
    Asked(Box<str>),
}

/// A default in a form that is stored as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredFill {
    /// As text; `None`: NULL.
    Value(Option<String>),
    /// The time of the insert.
    Now,
    /// What a clock in UTC shows then.
    UtcClock,
    /// A random UUID.
    Uuid4,
    /// A time-ordered UUID.
    Uuid7,
    /// What the database computes, in its own words.
    Asked(Box<str>),
}

impl StoredFill {
    /// The stored form of a default.
    pub fn of(fill: &Fill) -> StoredFill {
        match fill {
            Fill::Value(value) => StoredFill::Value(text_of(value)),
            Fill::Now => StoredFill::Now,
            Fill::UtcClock => StoredFill::UtcClock,
            Fill::Uuid4 => StoredFill::Uuid4,
            Fill::Uuid7 => StoredFill::Uuid7,
            Fill::Asked(expression) => StoredFill::Asked(expression.clone()),
        }
    }

    /// The default of a column of this type; `None`: the text is no value of the type.
    pub fn fill(&self, ty: Type) -> Option<Fill> {
        Some(match self {
            StoredFill::Value(None) => Fill::Value(Value::Null),
            StoredFill::Value(Some(text)) => Fill::Value(from_text(ty.unbounded(), text).ok()?),
            StoredFill::Now => Fill::Now,
            StoredFill::UtcClock => Fill::UtcClock,
            StoredFill::Uuid4 => Fill::Uuid4,
            StoredFill::Uuid7 => Fill::Uuid7,
            StoredFill::Asked(expression) => Fill::Asked(expression.clone()),
        })
    }
}

/// A value as text that its type can parse; `None`: NULL.
fn text_of(value: &Value) -> Option<String> {
    let mut shown = Vec::new();
    json::write_value(value.as_ref(), &mut shown);
    match value {
        Value::Null => None,
        Value::Json(_) => String::from_utf8(shown).ok(),
        _ => serde_json::from_slice::<String>(&shown).ok().or_else(|| String::from_utf8(shown).ok()),
    }
}
