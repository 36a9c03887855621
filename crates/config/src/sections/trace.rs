//! `[trace]`: spans of requests for an OpenTelemetry collector.

use super::log::share;
use crate::syntax::fields::{Cursor, base_url, name};
use crate::syntax::keys::{Section, keys};

pub(crate) const TRACE: Section = Section {
    name: "[trace]",
    keys: keys! {
        "otlp" | "URL" | "(no spans)" |
            "the collector, such as `http://127.0.0.1:4318`: spans of requests are sent to its `/v1/traces` \
            (OTLP over HTTP)"
        "share" | "number from 0 to 1" | "1" |
            "the share of requests that get a span, unless a trusted proxy decides it by `traceparent`"
        "service" | "text" | "\"forebay\"" | "the name of the service in traces"
    },
};

/// `[trace]`: the collector of spans and what it receives.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The base URL of the collector, without a slash at its end.
    pub otlp: String,
    /// The share of requests that get a span, 0 to 1.
    pub share: f64,
    /// The name of the service.
    pub service: String,
    /// The line of the section.
    pub line: usize,
}

/// `[trace]`; `None` without a collector.
pub(crate) fn read(cursor: Option<Cursor<'_>>) -> Option<Trace> {
    let cursor = cursor?;
    let fields = cursor.section(&TRACE);
    let mut trace = Trace { otlp: String::new(), share: 1.0, service: "forebay".into(), line: cursor.line() };
    fields.set("share", &mut trace.share, share);
    fields.set("service", &mut trace.service, name);
    trace.otlp = fields.required("[trace]", "otlp")?.read("otlp", base_url)?;
    Some(trace)
}
