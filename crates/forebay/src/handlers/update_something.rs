//! `PATCH /update-something/{id}/{name}`: real work for every request, 32 KB back, nothing stored.
//!
//! The common parts of the hundred objects of `history` are rendered once for each request, and then
//! copied around each object's number: the answer costs about as much as copying it.

use forebay_http::{Answer, Head};
use forebay_server::{Call, Handler, Problem, extract_fields};
use forebay_value::{Timestamp, json};
use std::borrow::Cow;
use std::sync::LazyLock;

static HEAD: LazyLock<Head> = LazyLock::new(|| Head::new(200).content_type("application/json"));

/// How many events the history has.
const EVENTS: i64 = 100;

/// Initial capacity of an answer, so that it is allocated once: [`EVENTS`] objects of about 320
/// bytes.
const LENGTH_HINT_BYTES: usize = 32 * 1024;

const FIELDS: [&str; 10] = ["foo1", "foo2", "foo3", "foo4", "foo5", "foo6", "foo7", "foo8", "foo9", "foo10"];

const METADATA: &str =
    "This event was recorded by the update endpoint while it was working on one request under full load. ";

/// The handler.
pub struct UpdateSomething;

impl Handler for UpdateSomething {
    fn call(&self, call: &Call<'_>, answer: &mut Answer<'_>) -> Result<(), Problem> {
        let id = event_base(&call.path("id")?)?;
        let name = call.path("name")?;
        if name.chars().count() < 3 {
            return Err(Problem::parameter("name", "must have at least 3 characters"));
        }
        let total_foo = total_foo(call.body())?;
        let (value1, value2) = (call.query("value1")?, call.query("value2")?);
        answer.respond_with(&HEAD, LENGTH_HINT_BYTES, |out| {
            out.extend_from_slice(b"{\"id\":");
            json::write_integer(id, out);
            write_text_field(",\"name\":", Some(&name), out);
            write_text_field(",\"value1\":", value1.as_deref(), out);
            write_text_field(",\"value2\":", value2.as_deref(), out);
            write_text_field(",\"total_foo\":", Some(&total_foo), out);
            write_history(id, &name, Timestamp::now(), out);
            out.push(b'}');
        });
        Ok(())
    }
}

/// The id as a number, with room for the events counted up from it.
fn event_base(text: &str) -> Result<i64, Problem> {
    let id: i64 = text.parse().map_err(|_| Problem::parameter("id", "must be a number"))?;
    id.checked_add(EVENTS).map(|_| id).ok_or_else(|| Problem::parameter("id", "is too large"))
}

/// foo1…foo10 in order, upper-cased, each followed by a full stop and a space; missing ones add nothing.
fn total_foo(body: &[u8]) -> Result<String, Problem> {
    let mut found = [None; FIELDS.len()];
    extract_fields(body, &FIELDS, &mut found)?;
    let mut total = String::with_capacity(body.len());
    for (name, raw) in FIELDS.iter().zip(found) {
        let Some(raw) = raw else { continue };
        let text = match raw.as_bytes()[0] {
            b'"' => json_string(raw, name)?,
            b'n' => continue,
            b'{' | b'[' => return Err(Problem::parameter(name, "must be a string, a number or a boolean")),
            _ => Cow::Borrowed(raw),
        };
        push_upper(&text, &mut total);
        total.push_str(". ");
    }
    Ok(total)
}

/// The characters between the quotes; borrowed when none of them is escaped.
fn json_string<'a>(raw: &'a str, name: &str) -> Result<Cow<'a, str>, Problem> {
    if !raw.contains('\\') {
        return Ok(Cow::Borrowed(&raw[1..raw.len() - 1]));
    }
    let text: String =
        serde_json::from_str(raw).map_err(|_| Problem::parameter(name, "must be a valid JSON string"))?;
    Ok(Cow::Owned(text))
}

fn push_upper(text: &str, out: &mut String) {
    if text.is_ascii() {
        let start = out.len();
        out.push_str(text);
        out[start..].make_ascii_uppercase();
    } else {
        out.push_str(&text.to_uppercase());
    }
}

fn write_text_field(key: &str, text: Option<&str>, out: &mut Vec<u8>) {
    if let Some(text) = text {
        out.extend_from_slice(key.as_bytes());
        json::write_string(text, out);
    }
}

fn write_history(id: i64, name: &str, now: Timestamp, out: &mut Vec<u8>) {
    let after_id = [after_event_id(name, now, "success"), after_event_id(name, now, "pending")];
    out.extend_from_slice(b",\"history\":[");
    for event in 0..EVENTS {
        out.extend_from_slice(if event == 0 { b"{\"event_id\":" } else { b",{\"event_id\":" });
        json::write_integer(id + event, out);
        out.extend_from_slice(&after_id[(event % 2) as usize]);
    }
    out.push(b']');
}

/// The bytes after the number of an event, to the end of its object.
fn after_event_id(name: &str, now: Timestamp, status: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(512);
    text.extend_from_slice(b",\"timestamp\":\"");
    now.write_millis(&mut text);
    text.push(b'"');
    write_text_field(",\"action\":", Some(&format!("Action performed by {name}")), &mut text);
    text.extend_from_slice(b",\"metadata\":\"");
    text.extend_from_slice(METADATA.as_bytes());
    text.extend_from_slice(METADATA.trim_end().as_bytes());
    text.push(b'"');
    write_text_field(",\"status\":", Some(status), &mut text);
    text.push(b'}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals() {
        for (body, expected) in [
            (r#"{"foo1":"a","foo2":"bé"}"#, Ok("A. BÉ. ")),
            (r#"{"foo10":"z","foo2":1.5,"foo3":true,"foo4":null}"#, Ok("1.5. TRUE. Z. ")),
            (r#"{"foo1":"a\"\u0062"}"#, Ok("A\"B. ")),
            ("{}", Ok("")),
            (r#"{"foo1":[1]}"#, Err("`foo1` must be a string, a number or a boolean")),
            ("[]", Err("the body must be a JSON object")),
        ] {
            let got = total_foo(body.as_bytes()).map_err(|problem| problem.detail);
            assert_eq!(got.as_deref().map_err(String::as_str), expected, "{body}");
        }
    }

    #[test]
    fn history_is_a_hundred_objects() {
        let mut out = b"{\"x\":0".to_vec();
        write_history(7, "Ann \"A\"", Timestamp(0), &mut out);
        out.push(b'}');
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let history = value["history"].as_array().unwrap();
        assert_eq!(history.len(), 100);
        assert_eq!(history[99]["event_id"], 106);
        assert_eq!(history[1]["status"], "pending");
        assert_eq!(history[0]["action"], "Action performed by Ann \"A\"");
        assert_eq!(history[0]["timestamp"], "1970-01-01T00:00:00.000Z");
        assert!((30_000..34_000).contains(&out.len()), "{}", out.len());
    }
}
