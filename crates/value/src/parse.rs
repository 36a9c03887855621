//! Values from outside: from text (paths, queries, headers, text stored in a database) and from JSON.

use crate::{Invalid, LocalTimestamp, Timestamp, Type, Uuid, Value, check_bounds};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::num::IntErrorKind::{NegOverflow, PosOverflow};
use std::num::ParseIntError;

/// Reads a value of type `ty` from plain text. Never returns [`Value::Null`].
pub fn from_text(ty: Type, text: &str) -> Result<Value, Invalid> {
    let value = match ty {
        Type::Bool => match text {
            "true" | "1" => Ok(Value::Bool(true)),
            "false" | "0" => Ok(Value::Bool(false)),
            _ => Err(Invalid::form("true or false")),
        },
        Type::Bigint => {
            text.parse().map(Value::Bigint).map_err(|_| Invalid::form("a whole number of at most 64 bits"))
        }
        Type::Smallint | Type::Integer => {
            let (min, max) = ty.range().expect("a type of whole numbers");
            text.parse().map(Value::Bigint).map_err(|error: ParseIntError| {
                let what = format!("a whole number from {min} to {max}");
                match error.kind() {
                    PosOverflow | NegOverflow => Invalid::beyond(what),
                    _ => Invalid::form(what),
                }
            })
        }
        Type::Double => match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Value::Double(number)),
            _ => match word(text) {
                Some("NaN") => Ok(Value::Double(f64::NAN)),
                Some("Infinity") => Ok(Value::Double(f64::INFINITY)),
                Some(_) => Ok(Value::Double(f64::NEG_INFINITY)),
                None => Err(Invalid::form("a number")),
            },
        },
        Type::Numeric | Type::Decimal { .. } if is_decimal(text) => {
            Ok(Value::Numeric(without_leading_zeros(text)))
        }
        Type::Numeric | Type::Decimal { .. } => match word(text) {
            Some(word) => Ok(Value::Numeric(word.into())),
            None => Err(Invalid::form("a decimal number")),
        },
        Type::Text { .. } | Type::AsText => text_value(text.into()),
        Type::Uuid => Uuid::try_parse(text)
            .ok()
            .filter(|_| text.len() == uuid::fmt::Hyphenated::LENGTH)
            .map(Value::Uuid)
            .ok_or_else(|| Invalid::form("a UUID such as 06f40771-6460-479a-a47c-177473e240b5")),
        Type::Timestamp => Timestamp::parse(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Invalid::form("a time such as 2016-11-01T14:11:51Z")),
        Type::LocalTimestamp => LocalTimestamp::parse(text)
            .map(Value::Local)
            .ok_or_else(|| Invalid::form("a time such as 2016-11-01T14:11:51")),
        Type::Json => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => Ok(Value::Json(text.into())),
            Err(_) => Err(Invalid::form("JSON")),
        },
        Type::Bytes => match STANDARD.decode(text) {
            Ok(bytes) => Ok(Value::Bytes(bytes.into())),
            Err(_) => Err(Invalid::form("base64")),
        },
    };
    value.and_then(|value| within(ty, value))
}

/// `NaN` or an infinity, in any case, as PostgreSQL writes it in JSON.
fn word(text: &str) -> Option<&'static str> {
    let words =
        [("nan", "NaN"), ("infinity", "Infinity"), ("+infinity", "Infinity"), ("-infinity", "-Infinity")];
    words.iter().find(|(given, _)| text.eq_ignore_ascii_case(given)).map(|(_, word)| *word)
}

/// Returns the value if it is within the bounds of its type.
fn within(ty: Type, value: Value) -> Result<Value, Invalid> {
    check_bounds(ty, value.as_ref()).map(|()| value)
}

/// Reads a value of type `ty` from one JSON value (its unmodified text from the body). JSON null is
/// [`Value::Null`]. A number may be a string of digits; a number is never converted to a string.
pub fn from_json(ty: Type, raw: &str) -> Result<Value, Invalid> {
    let raw = raw.trim();
    match (ty, raw.as_bytes().first()) {
        (_, Some(b'n')) if raw == "null" => Ok(Value::Null),
        (Type::Json, _) => Ok(Value::Json(raw.into())),
        (_, Some(b'"')) => {
            let text = unquote(raw)?;
            match ty {
                Type::Text { .. } | Type::AsText => {
                    text_value(text.into_owned().into_boxed_str()).and_then(|value| within(ty, value))
                }
                Type::Bool => Err(Invalid::form("true or false")),
                _ => from_text(ty, &text),
            }
        }
        (Type::Text { .. } | Type::AsText, _) => Err(Invalid::form("a string")),
        (Type::Bool, Some(b't' | b'f')) => from_text(ty, raw),
        (Type::Double, Some(b'-' | b'0'..=b'9')) => from_text(ty, raw),
        (Type::Smallint | Type::Integer | Type::Bigint, Some(b'-' | b'0'..=b'9')) => match whole(raw) {
            Some(number) => from_text(ty, &number.to_string()),
            None => from_text(ty, raw),
        },
        (Type::Numeric | Type::Decimal { .. }, Some(b'-' | b'0'..=b'9')) => {
            within(ty, Value::Numeric(raw.into()))
        }
        (Type::Bool, _) => Err(Invalid::form("true or false")),
        _ => Err(from_text(ty, "\u{0}").expect_err("a NUL is no value of these types")),
    }
}

/// Reads a JSON number with a point or an exponent whose value is whole, such as `1.0` and `1e3` (JSON
/// Schema 2020-12, section 6.1.1); `None` for others, and for values so large that doubles skip whole
/// numbers.
fn whole(raw: &str) -> Option<i64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if !raw.contains(['.', 'e', 'E']) {
        return None;
    }
    let number: f64 = raw.parse().ok()?;
    (number.fract() == 0.0 && number.abs() < EXACT_MAX).then_some(number as i64)
}

fn unquote(raw: &str) -> Result<std::borrow::Cow<'_, str>, Invalid> {
    let inner = &raw[1..raw.len().max(2) - 1];
    if raw.len() >= 2 && raw.ends_with('"') && !inner.bytes().any(|b| b == b'\\' || b == b'"' || b < 0x20) {
        return Ok(inner.into());
    }
    serde_json::from_str::<String>(raw).map(Into::into).map_err(|_| Invalid::form("a valid JSON string"))
}

fn text_value(text: Box<str>) -> Result<Value, Invalid> {
    // PostgreSQL cannot store NUL, and SQL in SQLite would see a truncated text.
    if text.contains('\0') {
        return Err(Invalid::beyond("a text without NUL characters"));
    }
    Ok(Value::Text(text))
}

/// A decimal without the leading zeros that JSON forbids: `007.50` is `7.50`.
fn without_leading_zeros(text: &str) -> Box<str> {
    let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
    let zeros = digits.bytes().take_while(|byte| *byte == b'0').count();
    match digits[zeros..].starts_with(|c: char| c.is_ascii_digit()) {
        _ if zeros == 0 => text.into(),
        true => format!("{sign}{}", &digits[zeros..]).into(),
        false => format!("{sign}{}", &digits[zeros - 1..]).into(),
    }
}

/// Digits with an optional sign, point and exponent: the grammar of a JSON number, leading zeros allowed.
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ty: &str, input: &str, expected: Result<Value, &str>) {
        let ty = Type::parse(ty).unwrap();
        let got = from_json(ty, input).map_err(|e| e.to_string());
        assert_eq!(got, expected.map_err(str::to_owned), "{ty} from {input}");
    }

    #[test]
    fn from_json_by_type() {
        check("bigint", "100", Ok(Value::Bigint(100)));
        check("bigint", "\"100\"", Ok(Value::Bigint(100)));
        check("bigint", "9223372036854775807", Ok(Value::Bigint(i64::MAX)));
        check("bigint", "9223372036854775808", Err("must be a whole number of at most 64 bits"));
        check("bigint", "1.5", Err("must be a whole number of at most 64 bits"));
        check("bigint", "897.0", Ok(Value::Bigint(897)));
        check("bigint", "-1.5e3", Ok(Value::Bigint(-1500)));
        check("bigint", "-0.0", Ok(Value::Bigint(0)));
        check("bigint", "9007199254740992.0", Err("must be a whole number of at most 64 bits"));
        check("bigint", "1e400", Err("must be a whole number of at most 64 bits"));
        check("bigint", "\"1.0\"", Err("must be a whole number of at most 64 bits"));
        check("smallint", "4e4", Err("must be a whole number from -32768 to 32767"));
        check("bigint", "\"x\"", Err("must be a whole number of at most 64 bits"));
        check("bigint", "{}", Err("must be a whole number of at most 64 bits"));
        check("bigint", "null", Ok(Value::Null));
        check("text", "\"a\\nb\"", Ok(Value::Text("a\nb".into())));
        check("text", "1", Err("must be a string"));
        check("text(2)", "\"äöü\"", Err("must be a text of at most 2 characters"));
        check("text(3)", "\"äöü\"", Ok(Value::Text("äöü".into())));
        check("text", "\"a\\u0000\"", Err("must be a text without NUL characters"));
        check("bool", "true", Ok(Value::Bool(true)));
        check("bool", "\"true\"", Err("must be true or false"));
        check("double", "1e3", Ok(Value::Double(1000.0)));
        check("double", "1e999", Err("must be a number"));
        check("double", "\"inf\"", Err("must be a number"));
        check("double", "\"-infinity\"", Ok(Value::Double(f64::NEG_INFINITY)));
        check("numeric", "\"nan\"", Ok(Value::Numeric("NaN".into())));
        check(
            "numeric(5,2)",
            "\"Infinity\"",
            Err("must be a decimal number of at most 3 digits before the point and 2 after it"),
        );
        check("numeric(5,2)", "\"NaN\"", Ok(Value::Numeric("NaN".into())));
        for (given, kept) in
            [("007.50", "7.50"), ("-00", "-0"), ("00.5", "0.5"), ("0e3", "0e3"), ("10", "10")]
        {
            check("numeric", &format!("\"{given}\""), Ok(Value::Numeric(kept.into())));
        }
        check("numeric", "12345678901234567890.123", Ok(Value::Numeric("12345678901234567890.123".into())));
        check("numeric", "\"1.\"", Err("must be a decimal number"));
        check("uuid", "\"06f40771\"", Err("must be a UUID such as 06f40771-6460-479a-a47c-177473e240b5"));
        check("uuid", "7", Err("must be a UUID such as 06f40771-6460-479a-a47c-177473e240b5"));
        check("timestamp", "\"1970-01-01T00:00:01Z\"", Ok(Value::Timestamp(Timestamp(1_000_000))));
        check("timestamp", "1", Err("must be a time such as 2016-11-01T14:11:51Z"));
        check("json", "{\"a\":[1]}", Ok(Value::Json("{\"a\":[1]}".into())));
        check("bytes", "\"YWI=\"", Ok(Value::Bytes((*b"ab").into())));
        check("bytes", "\"YWJ=\"", Err("must be base64"));
        check("bytes", "\"\"", Ok(Value::Bytes([].into())));
    }

    #[test]
    fn beyond_a_bound_is_told_from_no_value_of_the_type() {
        for (ty, input, is_beyond) in [
            ("smallint", "32768", true),
            ("smallint", "99999999999999999999", true),
            ("smallint", "\"x\"", false),
            ("integer", "1.5", false),
            ("bigint", "9223372036854775808", false),
            ("numeric(5,2)", "1000", true),
            ("numeric(5,2)", "\"1.\"", false),
            ("text(2)", "\"abc\"", true),
            ("text(2)", "1", false),
            ("text", "\"a\\u0000\"", true),
            ("uuid", "\"06f40771\"", false),
        ] {
            let invalid = from_json(Type::parse(ty).unwrap(), input).unwrap_err();
            assert_eq!(invalid.is_beyond, is_beyond, "{ty} from {input}: {invalid}");
        }
    }
}
