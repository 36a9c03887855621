//! JSON as PostgreSQL's `jsonb` stores it, written compactly: keys ordered by length and then by bytes, the
//! last of equal keys, numbers without an exponent, strings with only the necessary escapes.
//!
//! Source: `jsonb.c` and `jsonb_util.c` (`lengthCompareJsonbStringValue`) in PostgreSQL's
//! `src/backend/utils/adt`.

use crate::{Invalid, decimal};
use std::borrow::Cow;

/// How deep arrays and objects may be nested: far below the limit of PostgreSQL's stack.
pub const JSON_DEPTH_MAX: usize = 128;

/// The longest normalized JSON: a short number such as `1e100000` has 100,000 digits in this form.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Refuses JSON that is nested more deeply than [`JSON_DEPTH_MAX`].
pub fn check_depth(text: &str) -> Result<(), Invalid> {
    let (mut depth, mut deepest) = (0usize, 0);
    each_outside_strings(text, |byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    });
    match deepest > JSON_DEPTH_MAX {
        true => Err(Invalid::beyond(format!("JSON that is nested at most {JSON_DEPTH_MAX} deep"))),
        false => Ok(()),
    }
}

/// The same JSON without white space between its parts.
pub fn compact(text: &str) -> Cow<'_, str> {
    let is_space = |byte: u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    if !text.bytes().any(is_space) {
        return text.into();
    }
    let mut as_jsonb = Vec::with_capacity(text.len());
    let mut in_string = false;
    let mut is_escaped = false;
    for byte in text.bytes() {
        if in_string || !is_space(byte) {
            as_jsonb.push(byte);
        }
        match byte {
            b'"' if !is_escaped => in_string = !in_string,
            _ => {}
        }
        is_escaped = in_string && byte == b'\\' && !is_escaped;
    }
    String::from_utf8(as_jsonb).expect("only ASCII was left out").into()
}

fn each_outside_strings(text: &str, mut see: impl FnMut(u8)) {
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            b'"' if !is_escaped => in_string = !in_string,
            byte if !in_string => see(byte),
            _ => {}
        }
        is_escaped = in_string && byte == b'\\' && !is_escaped;
    }
}

/// Valid JSON in the form in which `jsonb` stores it.
///
/// # Errors
/// When `jsonb` cannot store it: a NUL or half a surrogate pair in a string, a number with too many digits.
pub fn as_jsonb(text: &str) -> Result<String, Invalid> {
    check_depth(text)?;
    let mut reader = Reader { text, at: 0 };
    let mut out = String::with_capacity(text.len());
    reader.value(&mut out)?;
    Ok(out)
}

/// Reads JSON that is valid and not nested too deeply.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next byte that is no white space; it is not consumed.
    fn peek(&mut self) -> u8 {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied().unwrap_or_default()
    }

    fn value(&mut self, out: &mut String) -> Result<(), Invalid> {
        match self.peek() {
            b'{' => self.object(out)?,
            b'[' => self.array(out)?,
            b'"' => write_string(&self.string()?, out),
            b'-' | b'0'..=b'9' => {
                let number = self.word();
                let plain = decimal::plain(number).ok_or_else(|| {
                    Invalid::beyond("JSON whose numbers have no more digits than jsonb holds")
                })?;
                out.push_str(&plain);
            }
            _ => out.push_str(self.word()),
        }
        match out.len() > KEPT_BYTES_MAX {
            true => Err(Invalid::beyond(format!("JSON of at most {KEPT_BYTES_MAX} bytes as jsonb keeps it"))),
            false => Ok(()),
        }
    }

    /// A number, true, false or null.
    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | ']' | '}');
        let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += word.len();
        word
    }

    fn string(&mut self) -> Result<String, Invalid> {
        let rest = &self.text[self.at..];
        let mut is_escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let raw = &rest[..end.map_or(rest.len(), |end| end + 2)];
        self.at += raw.len();
        let text: String = serde_json::from_str(raw)
            .map_err(|_| Invalid::beyond("JSON whose strings are text, without half a surrogate pair"))?;
        match text.contains('\0') {
            true => Err(Invalid::beyond("JSON whose strings have no NUL characters")),
            false => Ok(text),
        }
    }

    fn array(&mut self, out: &mut String) -> Result<(), Invalid> {
        let mut separator = '[';
        self.at += 1;
        while self.peek() != b']' {
            self.at += usize::from(self.peek() == b',');
            out.push(separator);
            separator = ',';
            self.value(out)?;
        }
        self.at += 1;
        out.push_str(if separator == '[' { "[]" } else { "]" });
        Ok(())
    }

    fn object(&mut self, out: &mut String) -> Result<(), Invalid> {
        let mut members: Vec<(String, String)> = Vec::new();
        self.at += 1;
        while self.peek() != b'}' {
            self.at += usize::from(self.peek() == b',');
            self.peek();
            let name = self.string()?;
            self.at += usize::from(self.peek() == b':');
            let mut value = String::new();
            self.value(&mut value)?;
            members.push((name, value));
        }
        self.at += 1;
        members.sort_by(|(one, _), (other, _)| (one.len(), one).cmp(&(other.len(), other)));
        let mut members = members.into_iter().peekable();
        let mut separator = '{';
        while let Some((name, value)) = members.next() {
            // The sort is stable, so that equal names keep their order.
            if members.peek().is_some_and(|(next, _)| *next == name) {
                continue;
            }
            out.push(separator);
            separator = ',';
            write_string(&name, out);
            out.push(':');
            out.push_str(&value);
        }
        out.push_str(if separator == '{' { "{}" } else { "}" });
        Ok(())
    }
}

/// Appends a string with PostgreSQL's escapes (`escape_json`).
fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, &str>) {
        let got = as_jsonb(text).map_err(|invalid| invalid.to_string());
        match (got, expected) {
            (Err(what), Err(part)) => assert!(what.contains(part), "{text}: {what}"),
            (got, expected) => assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{text}"),
        }
    }

    #[test]
    fn json_as_jsonb_keeps_it() {
        check("null", Ok("null"));
        check(" [ 1 , null, true ,\"a\" ] ", Ok("[1,null,true,\"a\"]"));
        check("{}", Ok("{}"));
        check("[[],{}]", Ok("[[],{}]"));
        check(
            r#"{"bb": 1, "a": [1, {"c": 2, "b": 3}], "B": 4}"#,
            Ok(r#"{"B":4,"a":[1,{"b":3,"c":2}],"bb":1}"#),
        );
        check(r#"{"a":1,"a":{"x":2},"a":3}"#, Ok(r#"{"a":3}"#));
        check("[1e2, 1.50, -0, 1E-3]", Ok("[100,1.50,0,0.001]"));
        check(r#""\u0041\/\u001f\b\"\\ü""#, Ok("\"A/\\u001f\\b\\\"\\\\ü\""));
        check(r#"{"a , b":"c : d"}"#, Ok(r#"{"a , b":"c : d"}"#));
        check(r#""a\u0000""#, Err("NUL"));
        check(r#"["\ud800"]"#, Err("surrogate"));
        check("[1e999999]", Err("digits"));
        check(
            &format!("{}{}", "[".repeat(128), "]".repeat(128)),
            Ok(&format!("{}{}", "[".repeat(128), "]".repeat(128))),
        );
        check(&format!("{}{}", "[".repeat(129), "]".repeat(129)), Err("nested at most 128 deep"));
        let large = format!("[{}1]", "1e100000,".repeat(200));
        check(&large, Err("bytes as jsonb keeps it"));
    }

    #[test]
    fn space_between_parts_goes_and_in_strings_stays() {
        for (text, expected) in [
            (r#"{"a": [1, null], "b c": "d \" e"}"#, r#"{"a":[1,null],"b c":"d \" e"}"#),
            (r#"["\\", 1]"#, r#"["\\",1]"#),
            ("[1,2]", "[1,2]"),
        ] {
            assert_eq!(compact(text), expected);
        }
    }

    #[test]
    fn brackets_in_strings_are_no_depth() {
        assert_eq!(check_depth(&format!("\"{}\"", "[".repeat(500))), Ok(()));
    }
}
