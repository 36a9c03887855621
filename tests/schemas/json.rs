//! When the JSON of a served value and that of the database are the same: by the type, because a few
//! forms are documented as ours (instants in UTC with `Z`, trailing zeros of their fractions, bytes in
//! base64).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The members of an object, each as it was written.
pub type Members = BTreeMap<String, Box<RawValue>>;

/// Reads an object without interpreting its values.
pub fn members(text: &str) -> Result<Members, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}

/// A value of an SQL type as JSON, in one form for all that mean the same.
pub fn canonical(ty: &str, raw: &str) -> String {
    let raw = raw.trim();
    if let Some(element) = ty.strip_suffix("[]").filter(|_| raw.starts_with('[')) {
        let elements: Vec<Box<RawValue>> = serde_json::from_str(raw).unwrap_or_default();
        let forms = elements.iter().map(|one| {
            let is_nested = one.get().starts_with('[') && element != "json" && element != "jsonb";
            canonical(if is_nested { ty } else { element }, one.get())
        });
        return format!("[{}]", forms.collect::<Vec<_>>().join(","));
    }
    let text = serde_json::from_str::<String>(raw).ok();
    match (ty, text) {
        ("json" | "jsonb", _) => compact(raw),
        ("oid", Some(number)) => number,
        ("bytea", Some(text)) => bytes(&text),
        ("timestamp with time zone", Some(text)) => instant(&text.replace("+00:00", "Z")),
        ("timestamp without time zone", Some(text)) => instant(&text),
        (_, Some(text)) => format!("text {text}"),
        ("real" | "double precision", None) => {
            raw.parse::<f64>().map_or_else(|_| raw.to_owned(), |number| format!("{number:?}"))
        }
        (_, None) => compact(raw),
    }
}

/// Base64, or PostgreSQL's `\x…`, as hex digits.
fn bytes(text: &str) -> String {
    if let Some(hex) = text.strip_prefix("\\x") {
        return format!("bytes {hex}");
    }
    match STANDARD.decode(text) {
        Ok(bytes) => bytes.iter().fold("bytes ".to_owned(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("a String takes everything");
            hex
        }),
        Err(error) => format!("no base64: {error}"),
    }
}

/// Without the zeros at the end of a fraction of a second.
fn instant(text: &str) -> String {
    let Some(point) = text.find('.') else { return text.to_owned() };
    let end = text[point + 1..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |at| point + 1 + at);
    let digits = text[point + 1..end].trim_end_matches('0');
    let fraction = if digits.is_empty() { String::new() } else { format!(".{digits}") };
    format!("{}{fraction}{}", &text[..point], &text[end..])
}

/// Without white space between tokens, and with one way of escaping.
fn compact(json: &str) -> String {
    let (mut out, mut rest) = (String::new(), json);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = end_of_text(rest);
            let text: Option<String> = serde_json::from_str(&rest[..end]).ok();
            out += &text.map_or_else(|| rest[..end].to_owned(), |text| format!("{text:?}"));
            rest = &rest[end..];
            continue;
        }
        if !first.is_ascii_whitespace() {
            out.push(first);
        }
        rest = &rest[first.len_utf8()..];
    }
    out
}

/// The length of the text with which this begins.
fn end_of_text(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// A part of a path that names this key.
pub fn path(key: &str) -> String {
    key.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            path.push(char::from(byte));
        } else {
            write!(path, "%{byte:02X}").expect("a String takes everything");
        }
        path
    })
}

#[test]
fn one_form_for_what_means_the_same() {
    for (ty, ours, theirs, is_same) in [
        (
            "timestamp with time zone",
            r#""2026-01-01T00:00:00.500000Z""#,
            r#""2026-01-01T00:00:00.5+00:00""#,
            true,
        ),
        ("timestamp without time zone", r#""2026-01-01T00:00:00Z""#, r#""2026-01-01T00:00:00""#, false),
        (
            "timestamp with time zone[]",
            r#"["2026-01-01T00:00:00.000000Z",null]"#,
            r#"["2026-01-01T00:00:00+00:00",null]"#,
            true,
        ),
        ("bytea", r#""AP8=""#, r#""\\x00ff""#, true),
        ("double precision", "1e20", "1e+20", true),
        ("numeric", "1.5", "1.50", false),
        ("jsonb", r#"{"a":[1,"x y"]}"#, r#"{"a": [1, "x y"]}"#, true),
        ("jsonb", r#"{"a":1}"#, r#"{"a":1.0}"#, false),
        ("text", r#""\u00e4""#, r#""ä""#, true),
        ("integer[]", "[[1,2],[3,4]]", "[[1,2], [3,4]]", true),
    ] {
        assert_eq!(canonical(ty, ours) == canonical(ty, theirs), is_same, "{ty}: {ours} and {theirs}");
    }
}
