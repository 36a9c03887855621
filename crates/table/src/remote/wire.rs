//! Converts answers of scripts and commands, or reports that one has the wrong type.

use crate::error::HotError;
use forebay_redis::Value;

/// Names the form of the answer and not the answer, which may be a row.
pub(crate) fn wrong(what: &str, value: &Value) -> HotError {
    let form = match value {
        Value::Nil => "nothing",
        Value::Int(_) | Value::Double(_) => "a number",
        Value::BulkString(_) | Value::SimpleString(_) => "text",
        Value::Array(_) => "a list",
        _ => "a value of another form",
    };
    HotError::foreign(format!("the memory tier's server answered {what} with {form}"))
}

/// A number, as an integer, digits or a score; 0 for nil.
pub(crate) fn number(what: &str, value: &Value) -> Result<u64, HotError> {
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()),
        // A score.
        Value::Double(number) if *number >= 0.0 => Some(*number as u64),
        Value::Nil => Some(0),
        _ => None,
    };
    number.ok_or_else(|| wrong(what, value))
}

/// Bytes; `None` for nil.
pub(crate) fn optional_bytes(what: &str, value: Value) -> Result<Option<Vec<u8>>, HotError> {
    match value {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Nil => Ok(None),
        other => Err(wrong(what, &other)),
    }
}

pub(crate) fn bytes(what: &str, value: Value) -> Result<Vec<u8>, HotError> {
    optional_bytes(what, value)?.ok_or_else(|| wrong(what, &Value::Nil))
}

pub(crate) fn text(what: &str, value: Value) -> Result<String, HotError> {
    String::from_utf8(bytes(what, value)?)
        .map_err(|error| wrong(what, &Value::BulkString(error.into_bytes())))
}

pub(crate) fn array(what: &str, value: Value) -> Result<Vec<Value>, HotError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(wrong(what, &other)),
    }
}

/// An array of exactly `N` values.
pub(crate) fn tuple<const N: usize>(what: &str, value: Value) -> Result<[Value; N], HotError> {
    <[Value; N]>::try_from(array(what, value)?).map_err(|values| wrong(what, &Value::Array(values)))
}

/// A number as decimal digits, the form of arguments.
pub(crate) fn digits(number: impl Into<u64>) -> Vec<u8> {
    number.into().to_string().into_bytes()
}
