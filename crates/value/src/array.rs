//! Arrays of a database, as JSON: judged by the type and the bound of their elements, and written as they are
//! read back.
//!
//! A client gives a JSON array, nested for each further dimension, or a JSON string in PostgreSQL's own form
//! (`"{1,2}"`). Rows of a dimension have one length; an empty array has no dimensions.

use crate::{Invalid, Type, Value, from_json, from_text, json};
use serde_json::value::RawValue;

/// PostgreSQL's own limit (MAXDIM).
const DIMENSIONS_MAX: usize = 6;

/// An array of elements of a type as the database stores it and returns it, in JSON. `judge`: an element as
/// the database stores it.
///
/// # Errors
/// When the database would refuse it.
pub fn as_stored(
    text: &str,
    ty: Type,
    judge: impl Fn(Value) -> Result<Value, Invalid>,
) -> Result<String, Invalid> {
    let mut elements = Vec::new();
    let mut element = |value: Result<Value, Invalid>| {
        let value = value.and_then(&judge).map_err(Invalid::of_each_element)?;
        // It would read back as a row of the array.
        if matches!(&value, Value::Json(json) if json.trim_start().starts_with('[')) {
            return Err(Invalid::beyond("an array whose elements are no JSON arrays"));
        }
        elements.push(value);
        Ok(())
    };
    let lengths = match text.trim_start().starts_with('"') {
        true => of_literal(text, ty, &mut element)?,
        false => flatten(text, |raw| -> Result<(), Invalid> { element(from_json(ty, raw)) })?,
    };
    let mut out = Vec::new();
    write(&lengths, &mut elements.iter(), &mut out);
    Ok(String::from_utf8(out).expect("values write themselves as UTF-8"))
}

/// Passes each element of an array in PostgreSQL's form to the callback; returns the length of each
/// dimension.
fn of_literal(
    json: &str,
    ty: Type,
    element: &mut impl FnMut(Result<Value, Invalid>) -> Result<(), Invalid>,
) -> Result<Vec<usize>, Invalid> {
    if ty == Type::Bytes {
        return Err(Invalid::form("a JSON array"));
    }
    let literal: String = serde_json::from_str(json).map_err(|_| Invalid::form("a JSON array"))?;
    let mut reader = Literal { rest: literal.trim(), lengths: Vec::new(), is_deepest_known: false };
    let mut count = 0;
    reader.array(0, &mut |text| {
        count += 1;
        element(text.map_or(Ok(Value::Null), |text| from_text(ty, text)))
    })?;
    if !reader.rest.is_empty() {
        return Err(malformed());
    }
    Ok(settled(reader.lengths, count))
}

/// Passes each element of a JSON array, in order, to the callback; returns the length of each dimension.
///
/// # Errors
/// When it is no array that a database can store, and those of the callback.
pub fn flatten<E: From<Invalid>>(
    json: &str,
    mut element: impl FnMut(&str) -> Result<(), E>,
) -> Result<Vec<usize>, E> {
    let (mut lengths, mut count) = (Vec::new(), 0);
    flatten_row(json, 0, &mut lengths, &mut |raw| {
        count += 1;
        element(raw)
    })?;
    Ok(settled(lengths, count))
}

/// An array without elements has no dimensions.
fn settled(lengths: Vec<usize>, count: usize) -> Vec<usize> {
    if count == 0 { Vec::new() } else { lengths }
}

fn uneven() -> Invalid {
    Invalid::beyond("an array whose rows are of one length")
}

fn too_deep() -> Invalid {
    Invalid::beyond(format!("an array of at most {DIMENSIONS_MAX} dimensions"))
}

fn malformed() -> Invalid {
    Invalid::form("a JSON array, or an array such as {a,b} as text")
}

fn flatten_row<E: From<Invalid>>(
    json: &str,
    depth: usize,
    lengths: &mut Vec<usize>,
    element: &mut impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let parts: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| Invalid::form("a JSON array"))?;
    match lengths.get(depth) {
        Some(&length) if length != parts.len() => return Err(uneven().into()),
        Some(_) => {}
        None if depth == DIMENSIONS_MAX => return Err(too_deep().into()),
        None => lengths.push(parts.len()),
    }
    for (index, part) in parts.iter().enumerate() {
        let raw = part.get();
        let is_row = raw.starts_with('[');
        // Only the very first row may add a dimension; from then on the depth is fixed.
        let is_new = index == 0 && lengths.len() == depth + 1;
        if is_row != (lengths.len() > depth + 1) && !is_new {
            return Err(uneven().into());
        }
        if is_row {
            flatten_row(raw, depth + 1, lengths, element)?;
        } else {
            element(raw)?;
        }
    }
    Ok(())
}

fn write(lengths: &[usize], elements: &mut std::slice::Iter<'_, Value>, out: &mut Vec<u8>) {
    out.push(b'[');
    for index in 0..lengths.first().copied().unwrap_or_default() {
        if index > 0 {
            out.push(b',');
        }
        match lengths {
            [_] => json::write_value(elements.next().expect("as many as the lengths say").into(), out),
            _ => write(&lengths[1..], elements, out),
        }
    }
    out.push(b']');
}

/// Reads an array in PostgreSQL's form (`array_in` in its `src/backend/utils/adt/arrayfuncs.c`), without
/// bounds: JSON has none.
struct Literal<'a> {
    rest: &'a str,
    lengths: Vec<usize>,
    /// Whether an element was read: then all elements are at its depth.
    is_deepest_known: bool,
}

impl Literal<'_> {
    fn array(
        &mut self,
        depth: usize,
        element: &mut impl FnMut(Option<&str>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        if self.rest.starts_with('[') {
            return Err(Invalid::beyond("an array whose subscripts begin with 1, without bounds"));
        }
        self.rest = self.rest.strip_prefix('{').ok_or_else(malformed)?.trim_start();
        if depth == DIMENSIONS_MAX {
            return Err(too_deep());
        }
        if self.lengths.len() == depth {
            if self.is_deepest_known {
                return Err(uneven());
            }
            self.lengths.push(usize::MAX);
        }
        let mut count = 0;
        while !self.rest.starts_with('}') || count > 0 {
            match self.rest.starts_with('{') {
                true => self.array(depth + 1, element)?,
                false => {
                    if self.lengths.len() != depth + 1 {
                        return Err(uneven());
                    }
                    self.is_deepest_known = true;
                    self.element(element)?;
                }
            }
            count += 1;
            self.rest = self.rest.trim_start();
            if self.rest.starts_with('}') {
                break;
            }
            self.rest = self.rest.strip_prefix(',').ok_or_else(malformed)?.trim_start();
        }
        self.rest = self.rest.strip_prefix('}').ok_or_else(malformed)?.trim_start();
        let length = &mut self.lengths[depth];
        match *length {
            usize::MAX => *length = count,
            known if known == count => {}
            _ => return Err(uneven()),
        }
        Ok(())
    }

    fn element(
        &mut self,
        element: &mut impl FnMut(Option<&str>) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let (mut text, mut chars) = (String::new(), self.rest.char_indices());
        let is_quoted = self.rest.starts_with('"');
        if is_quoted {
            chars.next();
        }
        let (mut end, mut is_escaped) = (None, false);
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => {
                    text.push(chars.next().ok_or_else(malformed)?.1);
                    is_escaped = true;
                }
                '"' if is_quoted => {
                    end = Some(at + 1);
                    break;
                }
                ',' | '}' if !is_quoted => {
                    end = Some(at);
                    break;
                }
                '"' | '{' if !is_quoted => return Err(malformed()),
                c => text.push(c),
            }
        }
        self.rest = &self.rest[end.ok_or_else(malformed)?..];
        if is_quoted {
            return element(Some(&text));
        }
        match text.trim_end() {
            "" => Err(malformed()),
            null if null.eq_ignore_ascii_case("null") && !is_escaped => element(None),
            text => element(Some(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bound, Elements};

    #[track_caller]
    fn check(ty: &str, bound: Option<Bound>, given: &str, expected: Result<&str, &str>) {
        let bound = Bound::Array(Elements::new(Type::parse(ty).unwrap(), bound));
        let got = bound.as_stored(Value::Json(given.into())).map_err(|invalid| invalid.to_string());
        let got = got.map(|stored| match stored {
            Value::Json(text) => String::from(text),
            other => panic!("{other:?}"),
        });
        match (got, expected) {
            (Err(what), Err(part)) => assert!(what.contains(part), "{ty} {given}: {what}"),
            (got, expected) => {
                assert_eq!(got, expected.map(str::to_owned).map_err(str::to_owned), "{ty} {given}");
            }
        }
    }

    #[test]
    fn arrays_are_judged_and_shown_as_the_database_returns_them() {
        let small = || Some(Bound::Range { min: -32_768, max: 32_767 });
        check("text", None, "[]", Ok("[]"));
        check("text", None, " [ \"a\" , null ] ", Ok(r#"["a",null]"#));
        check("text", None, "[[],[]]", Ok("[]"));
        check("text", None, "{}", Err("must be a JSON array"));
        check("text", None, "7", Err("must be a JSON array"));
        check("text", None, "[1]", Err("each element must be a string"));
        check("bigint", small(), "[1,\"2\",null]", Ok("[1,2,null]"));
        check("bigint", small(), "[40000]", Err("each element must be a whole number from -32768"));
        check("bigint", None, "[[1,2],[3,4]]", Ok("[[1,2],[3,4]]"));
        check("bigint", None, "[[1,2],[3]]", Err("rows are of one length"));
        check("bigint", None, "[1,[2]]", Err("rows are of one length"));
        check("bigint", None, "[[[[[[[1]]]]]]]", Err("at most 6 dimensions"));
        let money = || Some(Bound::Decimal { precision: 5, scale: 2 });
        check("numeric", money(), "[1,\"2.345\"]", Ok("[1.00,2.35]"));
        check("text", Some(Bound::Labels(Box::new(["a".into()]))), "[\"b\"]", Err("one of a"));
        check("json", Some(Bound::Jsonb), r#"[{"b":1,"a":2}]"#, Ok(r#"[{"a":2,"b":1}]"#));
    }

    #[test]
    fn arrays_as_postgresql_writes_them_are_read() {
        for (given, expected) in [
            ("{}", Ok("[]")),
            ("{a,b}", Ok(r#"["a","b"]"#)),
            (" { a b , null , \"null\" } ", Ok(r#"["a b",null,"null"]"#)),
            (r#"{"a,\"b","\\",\a}"#, Ok(r#"["a,\"b","\\","a"]"#)),
            ("{{a,b},{c,d}}", Ok(r#"[["a","b"],["c","d"]]"#)),
            ("{{a,b},{c}}", Err("rows are of one length")),
            ("{a,{b}}", Err("rows are of one length")),
            ("{{a},b}", Err("rows are of one length")),
            ("[0:1]={a,b}", Err("subscripts begin with 1")),
            ("{a", Err("must be")),
            ("{a,}", Err("must be")),
            ("{,a}", Err("must be")),
            ("{a}b", Err("must be")),
            ("a", Err("must be")),
            ("", Err("must be")),
        ] {
            check("text", None, &serde_json::to_string(given).unwrap(), expected);
        }
        check("integer", None, "\"{1,-2}\"", Ok("[1,-2]"));
        check("integer", None, "\"{x}\"", Err("each element must be a whole number"));
        check("json", None, r#""{\"{}\",1}""#, Ok("[{},1]"));
        check("json", None, "\"{1,[2]}\"", Err("no JSON arrays"));
    }
}
