//! `[log]`: the lines on standard error and their format.

use crate::syntax::fields::{Cursor, check_header_name, choice, milliseconds, name};
use crate::syntax::keys::{Section, keys};
use crate::syntax::mistakes::Mistake;
use crate::syntax::tree::{Data, Node};

pub(crate) const LOG: Section = Section {
    name: "[log]",
    keys: keys! {
        "format" | "\"text\" or \"json\"" | "\"text\"" |
            "the format of log lines: text for people, or one JSON object each"
        "level" | "\"error\", \"warn\" or \"info\"" | "\"info\"" |
            "which events are logged: failures only, failures and warnings, or all"
        "access" | "number from 0 to 1" | "0" |
            "the share of requests that are logged, chosen at random; 1: all"
        "slow" | "time" | "(none)" | "a request that takes longer is always logged"
        "request_id" | "header name" | "(no ids)" |
            "the header field of a request's id: from a trusted proxy, else generated; sent with every \
            answer and to upstreams"
    },
};

/// `[log]`: the lines on standard error and their format.
#[derive(Debug, Clone, PartialEq)]
pub struct Log {
    /// The format of the lines.
    pub format: LogFormat,
    /// Which events of the server are written.
    pub level: LogLevel,
    /// The share of requests that are logged, 0 to 1.
    pub access: f64,
    /// Requests that take longer than this are always logged, in milliseconds.
    pub slow_ms: Option<u64>,
    /// The header field with the id of a request; `None`: requests have no id.
    pub request_id: Option<String>,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `format = "text"`: for people.
    Text,
    /// `format = "json"`: one object per line.
    Json,
}

/// Which events of the server are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// `level = "error"`: failures only.
    Error,
    /// `level = "warn"`: warnings too.
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

/// A number from 0 to 1; also as text, because a variable's value is text.
pub(crate) fn share(node: &Node) -> Result<f64, Mistake> {
    let number = match &node.data {
        Data::Int(number) => Some(*number as f64),
        Data::Float(number) => Some(*number),
        Data::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    let share = number.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "must be a number from 0 to 1, such as 0.01 for one request in a hundred".into())
}

/// The name of a header field that has no other meaning for proxies and servers.
fn id_field(node: &Node) -> Result<String, Mistake> {
    let field = name(node)?;
    check_header_name(&field)?;
    match field.to_ascii_lowercase().starts_with("x-") || field.to_ascii_lowercase().ends_with("-id") {
        true => Ok(field),
        false => {
            Err(format!("`{field}` may mean something else: the field begins with X- or ends with -Id")
                .into())
        }
    }
}
