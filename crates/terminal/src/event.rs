//! Events: messages of a program about itself, one per line, as text or as JSON.
//!
//! Promises that an event is one line of JSON whatever its content, and that each field of a text line can
//! be distinguished from the next. Leaves the destination of lines to [`crate::queue`] and to the macros.

use std::fmt::{Arguments, Write};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// How severe an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed permanently.
    Error,
    /// Something is not as it should be, and the program continues.
    Warn,
    /// Something happened.
    Info,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
        }
    }
}

/// The format of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The message, then `name=value` for each field.
    Text,
    /// An object with `time`, `level`, `message` and the fields.
    Json,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A text, quoted if it could be mistaken for several fields.
    Text(&'a str),
    /// A whole number without a unit.
    Count(u64),
    /// Milliseconds, written with three decimals.
    Milliseconds(f64),
}

/// A message with its severity and fields.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// How severe the event is.
    pub level: Level,
    /// One sentence.
    pub message: Arguments<'a>,
    /// Further facts, by name.
    pub fields: &'a [(&'static str, Value<'a>)],
}

static FORMAT: AtomicU8 = AtomicU8::new(Format::Text as u8);
static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Sets the format of events from now on, and the lowest severity that the macros write.
pub fn configure(format: Format, level: Level) {
    FORMAT.store(format as u8, Relaxed);
    LEVEL.store(level as u8, Relaxed);
}

/// Whether the macros write events of this level.
pub(crate) fn is_written(level: Level) -> bool {
    level as u8 <= LEVEL.load(Relaxed)
}

/// Renders the event as a line, with its line end, in the configured format.
pub(crate) fn line(event: &Event<'_>) -> String {
    match FORMAT.load(Relaxed) == Format::Json as u8 {
        true => json(event),
        false => text(event),
    }
}

fn text(event: &Event<'_>) -> String {
    let mut line = event.message.to_string();
    for (name, value) in event.fields {
        line.push(' ');
        line.push_str(name);
        line.push('=');
        match value {
            Value::Text(text) if is_plain(text) => line.push_str(text),
            value => write_json(*value, &mut line),
        }
    }
    line.push('\n');
    line
}

/// Whether a text can be distinguished from what follows it without quotes.
fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'=')
}

fn json(event: &Event<'_>) -> String {
    let mut line = format!(
        "{{\"time\":\"{:.3}\",\"level\":\"{}\",\"message\":",
        jiff::Timestamp::now(),
        event.level.name()
    );
    write_json(Value::Text(&event.message.to_string()), &mut line);
    for (name, value) in event.fields {
        write!(line, ",\"{name}\":").expect("writing to a string cannot fail");
        write_json(*value, &mut line);
    }
    line.push_str("}\n");
    line
}

fn write_json(value: Value<'_>, line: &mut String) {
    match value {
        Value::Text(text) => line.push_str(&serde_json::Value::from(text).to_string()),
        Value::Count(count) => line.push_str(&count.to_string()),
        Value::Milliseconds(time_ms) => {
            write!(line, "{time_ms:.3}").expect("writing to a string cannot fail")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, Value<'_>); 5] = [
        ("path", Value::Text("/a/b")),
        ("name", Value::Text("Ann \"A\"\nerror: forged=1")),
        ("empty", Value::Text("")),
        ("bytes", Value::Count(7)),
        ("duration_ms", Value::Milliseconds(1.23456)),
    ];

    fn event<'a>(message: Arguments<'a>) -> Event<'a> {
        Event { level: Level::Warn, message, fields: &FIELDS }
    }

    #[test]
    fn a_text_line_has_fields_that_cannot_be_forged() {
        assert_eq!(
            text(&event(format_args!("request"))),
            "request path=/a/b name=\"Ann \\\"A\\\"\\nerror: forged=1\" empty=\"\" bytes=7 duration_ms=1.235\n"
        );
    }

    #[test]
    fn json_is_one_object_a_line() {
        let line = json(&event(format_args!("two\nlines")));
        assert_eq!(line.matches('\n').count(), 1);
        let read: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(read["message"], "two\nlines");
        assert_eq!(
            (&read["level"], &read["bytes"], &read["duration_ms"]),
            (&"warn".into(), &7.into(), &1.235.into())
        );
        assert_eq!(read["name"], "Ann \"A\"\nerror: forged=1");
        let time = read["time"].as_str().expect("a text");
        assert!(time.ends_with('Z') && time.len() == "2026-11-22T12:00:00.000Z".len(), "{time}");
    }

    #[test]
    fn levels_are_in_order() {
        assert!(Level::Error < Level::Warn && Level::Warn < Level::Info);
        assert!([Level::Error, Level::Warn, Level::Info].into_iter().all(is_written), "all until it is set");
    }
}
