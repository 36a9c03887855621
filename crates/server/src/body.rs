//! JSON request bodies: extracts the requested fields in one pass, borrowed from the body.

use crate::problem::Problem;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Finds the fields `names` in a JSON object; `found[i]` becomes the JSON text of `names[i]`. A requested
/// field that occurs twice is an error, because parsers differ in which one they use. Of other fields only
/// the form is checked.
///
/// # Errors
/// 400, with a sentence that says what is wrong with the body.
pub fn extract<'body, N: AsRef<str>>(
    body: &'body [u8],
    names: &[N],
    found: &mut [Option<&'body str>],
) -> Result<(), Problem> {
    extract_telling(body, names, found, None)
}

/// The same; other fields are an error, too.
///
/// # Errors
/// As [`extract`], or 400 that names the first of the other fields.
pub fn extract_all<'body, N: AsRef<str>>(
    body: &'body [u8],
    names: &[N],
    found: &mut [Option<&'body str>],
) -> Result<(), Problem> {
    let mut other = None;
    extract_telling(body, names, found, Some(&mut other))?;
    let Some(other) = other else { return Ok(()) };
    let known: Vec<String> = names.iter().map(|name| format!("`{}`", name.as_ref())).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Problem::parameter(&other, format_args!("is no field of the body here (there are {known})")))
}

fn extract_telling<'body, N: AsRef<str>>(
    body: &'body [u8],
    names: &[N],
    found: &mut [Option<&'body str>],
    other: Option<&mut Option<String>>,
) -> Result<(), Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let mut twice = None;
    let visitor = Fields { names, found, twice: &mut twice, other };
    let read = deserializer.deserialize_map(visitor).and_then(|()| deserializer.end());
    let wrong = match (read, twice) {
        (Ok(()), None) => return Ok(()),
        (Ok(()), Some(name)) => format!("the body has the field `{}` more than once", names[name].as_ref()),
        (Err(error), _) if error.is_data() => "the body must be a JSON object".to_owned(),
        (Err(error), _) => format!("the body is not valid JSON: {error}"),
    };
    Err(Problem::new(400, wrong))
}

struct Fields<'a, 'body, N> {
    names: &'a [N],
    found: &'a mut [Option<&'body str>],
    /// The index of a name that occurs twice.
    twice: &'a mut Option<usize>,
    /// The first name that was not asked for, if somebody wants to know.
    other: Option<&'a mut Option<String>>,
}

impl<'body, N: AsRef<str>> Visitor<'body> for Fields<'_, 'body, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'body>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(index) =
            map.next_key_seed(NameIndex { names: self.names, other: self.other.as_deref_mut() })?
        {
            match index {
                Some(index) => {
                    if self.found[index].replace(map.next_value::<&'body RawValue>()?.get()).is_some() {
                        *self.twice = Some(index);
                    }
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

struct NameIndex<'a, N> {
    names: &'a [N],
    other: Option<&'a mut Option<String>>,
}

impl<'body, N: AsRef<str>> DeserializeSeed<'body> for NameIndex<'_, N> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'body>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<N: AsRef<str>> Visitor<'_> for NameIndex<'_, N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        if name.len() > NAME_BYTES_MAX {
            return Err(E::custom("a field name is too long"));
        }
        let index = self.names.iter().position(|candidate| candidate.as_ref() == name);
        if let (None, Some(other)) = (index, self.other) {
            other.get_or_insert_with(|| name.to_owned());
        }
        Ok(index)
    }
}

/// The longest field name that is accepted, in bytes; far above any column's.
const NAME_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: Result<[Option<&str>; 2], &str>) {
        let mut found = [None; 2];
        let got = extract(body.as_bytes(), &["a", "b"], &mut found).map(|()| found);
        match (got, expected) {
            (Err(problem), Err(part)) => assert!(problem.detail.contains(part), "{body}: {problem:?}"),
            (got, expected) => assert_eq!(got, expected.map_err(|part| Problem::new(400, part)), "{body}"),
        }
    }

    #[test]
    fn fields_of_bodies() {
        check(r#"{"a":1,"b":"x"}"#, Ok([Some("1"), Some("\"x\"")]));
        check(r#" { "b" : [1, {"a":2}] , "c":null } "#, Ok([None, Some("[1, {\"a\":2}]")]));
        check(r#"{"a":1,"a":2}"#, Err("the field `a` more than once"));
        check(r#"{"c":1,"c":2}"#, Ok([None, None]));
        check(r#"{"\u0061":1}"#, Ok([Some("1"), None]));
        check("{}", Ok([None, None]));
        check("", Err("not valid JSON"));
        check("[1]", Err("must be a JSON object"));
        check("\"a\"", Err("must be a JSON object"));
        check(r#"{"a":1"#, Err("not valid JSON"));
        check(r#"{"a":1}}"#, Err("not valid JSON"));
        check("{\"a\":\"\u{1}\"}", Err("not valid JSON"));
        check(r#"{"a":01}"#, Err("not valid JSON"));
    }

    #[test]
    fn a_strict_body_has_no_other_field() {
        let all = |body: &str| extract_all(body.as_bytes(), &["a", "b"], &mut [None; 2]);
        assert_eq!(all(r#"{"b":1,"a":{"c":2}}"#), Ok(()));
        let refused = all(r#"{"a":1,"c":[{"x":1}],"d":2}"#).expect_err("it has others");
        assert_eq!((refused.status, refused.parameter.as_deref()), (400, Some("c")));
        assert_eq!(refused.detail, "`c` is no field of the body here (there are `a`, `b`)");
        let of_none = extract_all::<&str>(b"{\"a\":1}", &[], &mut []).expect_err("none is known");
        assert_eq!(of_none.detail, "`a` is no field of the body here (there are none)");
    }
}
