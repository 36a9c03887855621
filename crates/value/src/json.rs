//! Writes values as JSON text, directly into an output buffer.

use crate::{Type, ValueRef};
use base64::{Engine, engine::general_purpose::STANDARD};

/// Appends a value as JSON.
pub fn write_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.extend_from_slice(b"null"),
        ValueRef::Bool(v) => out.extend_from_slice(if v { b"true" } else { b"false" }),
        ValueRef::Bigint(v) => write_integer(v, out),
        ValueRef::Double(v) if v.is_finite() => write_double(v, out),
        ValueRef::Double(v) => write_string(not_finite(v), out),
        ValueRef::Numeric(v) if !v.ends_with(|last: char| last.is_ascii_digit()) => write_string(v, out),
        ValueRef::Numeric(v) | ValueRef::Json(v) => out.extend_from_slice(v.as_bytes()),
        ValueRef::Text(v) => write_string(v, out),
        ValueRef::Uuid(v) => {
            let mut text = [0; uuid::fmt::Hyphenated::LENGTH];
            out.push(b'"');
            out.extend_from_slice(v.as_hyphenated().encode_lower(&mut text).as_bytes());
            out.push(b'"');
        }
        ValueRef::Timestamp(v) => {
            out.push(b'"');
            v.write(out);
            out.push(b'"');
        }
        ValueRef::Local(v) => {
            out.push(b'"');
            v.write(out);
            out.push(b'"');
        }
        ValueRef::Bytes(v) => {
            out.push(b'"');
            write_base64(v, out);
            out.push(b'"');
        }
    }
}

/// Appends an integer with all its digits.
pub fn write_integer(number: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a finite double in the shortest form that reads back as the same value; whole ones
/// without `.0`, as JavaScript and PostgreSQL write them.
fn write_double(number: f64, out: &mut Vec<u8>) {
    let mut buffer = ryu::Buffer::new();
    let text = buffer.format_finite(number);
    out.extend_from_slice(text.strip_suffix(".0").unwrap_or(text).as_bytes());
}

/// The word for a double that JSON has no number for, as PostgreSQL writes it in JSON.
fn not_finite(number: f64) -> &'static str {
    match number {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

/// Appends a string with its quotes, escaping what RFC 8259 section 7 demands.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    write_escaped(text.as_bytes(), out);
    out.push(b'"');
}

/// How many bytes are checked together: two SSE registers, by automatic vectorization.
const LANE_BYTES: usize = 32;
/// How many bytes are copied together when none of them needs an escape.
const BLOCK_BYTES: usize = 32 * LANE_BYTES;

fn write_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    for block in bytes.chunks(BLOCK_BYTES) {
        if is_clean(block) {
            out.extend_from_slice(block);
            continue;
        }
        for lane in block.chunks(LANE_BYTES) {
            if is_clean(lane) {
                out.extend_from_slice(lane);
            } else {
                escape_bytes(lane, out);
            }
        }
    }
}

/// Whether no byte needs an escape. Without a short circuit and with a flag for each position of a lane:
/// plain loops, which the compiler turns into vector instructions.
fn is_clean(bytes: &[u8]) -> bool {
    let (lanes, rest) = bytes.as_chunks::<LANE_BYTES>();
    let mut found = [false; LANE_BYTES];
    for lane in lanes {
        for (found, &byte) in found.iter_mut().zip(lane) {
            *found |= needs_escape(byte);
        }
    }
    // The bytes after the last full lane are checked together with bytes before them, if there are enough.
    match bytes.last_chunk::<LANE_BYTES>() {
        Some(last) => {
            for (found, &byte) in found.iter_mut().zip(last) {
                *found |= needs_escape(byte);
            }
            !found.contains(&true)
        }
        None => !rest.iter().any(|&byte| needs_escape(byte)),
    }
}

fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn escape_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let mut clean_from = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if needs_escape(byte) {
            out.extend_from_slice(&bytes[clean_from..index]);
            clean_from = index + 1;
            escape_byte(byte, out);
        }
    }
    out.extend_from_slice(&bytes[clean_from..]);
}

fn escape_byte(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        control => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(control >> 4)]);
            out.push(HEX[usize::from(control & 15)]);
        }
    }
}

/// Appends standard base64 with padding (RFC 4648 section 4).
pub fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    STANDARD.encode_slice(bytes, &mut out[start..]).expect("the room was made for exactly this");
}

/// Whether a value of this type is a string in JSON.
pub fn is_string(ty: Type) -> bool {
    matches!(
        ty,
        Type::Text { .. } | Type::AsText | Type::Uuid | Type::Timestamp | Type::LocalTimestamp | Type::Bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_as_json() {
        for (value, expected) in [
            (ValueRef::Null, "null"),
            (ValueRef::Bool(true), "true"),
            (ValueRef::Bigint(i64::MIN), "-9223372036854775808"),
            (ValueRef::Bigint(9_007_199_254_740_993), "9007199254740993"),
            (ValueRef::Double(1.5), "1.5"),
            (ValueRef::Double(2.0), "2"),
            (ValueRef::Double(f64::NAN), "\"NaN\""),
            (ValueRef::Double(f64::NEG_INFINITY), "\"-Infinity\""),
            (ValueRef::Numeric("Infinity"), "\"Infinity\""),
            (ValueRef::Numeric("12345678901234567890.10"), "12345678901234567890.10"),
            (ValueRef::Text("a\"b\\c\n\u{1}é"), "\"a\\\"b\\\\c\\n\\u0001é\""),
            (ValueRef::Uuid(uuid::Uuid::from_u128(1)), "\"00000000-0000-0000-0000-000000000001\""),
            (ValueRef::Json("{\"a\":1}"), "{\"a\":1}"),
            (ValueRef::Bytes(b"ab"), "\"YWI=\""),
            (ValueRef::Bytes(b"abc"), "\"YWJj\""),
        ] {
            let mut out = Vec::new();
            write_value(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    proptest! {
        #[test]
        fn strings_read_back(text in "(?s).{0,200}") {
            let mut out = Vec::new();
            write_string(&text, &mut out);
            prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }

        #[test]
        fn doubles_read_back(number in proptest::num::f64::NORMAL) {
            let mut out = Vec::new();
            write_double(number, &mut out);
            let text = String::from_utf8(out).unwrap();
            prop_assert_eq!(text.parse::<f64>().unwrap(), number);
            serde_json::from_str::<serde_json::Value>(&text).unwrap();
        }
    }
}
