//! `[log]`: what is written to standard error, and how.

use crate::syntax::fields::{Cursor, choice, milliseconds, name};
use crate::syntax::keys::{Section, keys};
use crate::syntax::tree::{Data, Node};
use crate::syntax::words::check_header_name;

pub(crate) const LOG: Section = Section {
    name: "[log]",
    keys: keys! {
        "format" | "\"text\" or \"json\"" | "\"text\"" | "how lines are written: as they are read, or one JSON object each"
        "level" | "\"error\", \"warn\" or \"info\"" | "\"info\"" |
            "what the server says of itself: failures, what is not as it should be as well, or everything"
        "access" | "number from 0 to 1" | "0" | "the share of requests that get a line, chosen at random; 1 is all"
        "slow" | "time" | "(none)" | "each request that takes longer gets a line as well"
        "request_id" | "header name" | "(no ids)" |
            "the field with a request's id: taken from trusted proxies, else made; on every answer and upstream"
    },
};

/// `[log]`: what is written to standard error.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// How lines are written.
    pub format: LogFormat,
    /// What the server says of itself.
    pub level: LogLevel,
    /// The share of requests that get a line, 0 to 1.
    pub access: f64,
    /// Requests that take longer get a line as well.
    pub slow_ms: Option<u64>,
    /// The header field with the id of a request; `None`: requests have none.
    pub request_id: Option<String>,
}

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `format = "text"`: as people read it.
    Text,
    /// `format = "json"`: an object a line.
    Json,
}

/// What the server says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// `level = "error"`: what failed.
    Error,
    /// `level = "warn"`: what is not as it should be as well.
    Warn,
    /// `level = "info"`: everything.
    Info,
}

/// `[log]`
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Log {
    let mut log =
        Log { format: LogFormat::Text, level: LogLevel::Info, access: 0.0, slow_ms: None, request_id: None };
    let Some(cursor) = cursor else { return log };
    let fields = cursor.section(&LOG);
    fields.set("format", &mut log.format, choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]));
    let levels = [("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info)];
    fields.set("level", &mut log.level, choice(&levels));
    fields.set("access", &mut log.access, share);
    log.slow_ms = fields.read("slow", milliseconds);
    log.request_id = fields.read("request_id", id_field);
    log
}

/// A number from 0 to 1; as a text too, which is what a variable gives.
pub(crate) fn share(node: &Node) -> Result<f64, String> {
    let number = match &node.data {
        Data::Int(number) => Some(*number as f64),
        Data::Float(number) => Some(*number),
        Data::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let share = number.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be a number from 0 to 1, such as 0.01 for one request in a hundred".into())
}

/// The name of a header field that means nothing else to anybody on the way.
fn id_field(node: &Node) -> Result<String, String> {
    let field = name(node)?;
    check_header_name(&field)?;
    match field.to_ascii_lowercase().starts_with("x-") || field.to_ascii_lowercase().ends_with("-id") {
        true => Ok(field),
        false => Err(format!("`{field}` may mean something else: the field begins with X- or ends with -Id")),
    }
}
