//! Logging of single requests: an id for each, a log line or a span for a share of them, and a line for slow
//! ones.
//!
//! Promises that lines and spans contain no secret: no query (a line has a hash that shows whether two
//! queries are equal), no header field except the id and the trace, no body. A server without `log.access`,
//! `log.slow`, `log.request_id` and `trace` does none of this, and its requests cost one branch.
//!
//! `forebay_terminal` writes the lines and [`crate::spans`] sends the spans; no request waits for either.

use crate::counters::RouteCounters;
use crate::endpoint::waiting_requests::reply_of;
use crate::functions::uuid7;
use crate::problem::Problem;
use crate::spans::{Ended, RequestSpan, Spans, chooses};
use forebay_config::model::{self, LogFormat, LogLevel};
use forebay_http::{
    Answer, BodySource, Filled, HeaderLines, Label, Method, Outcome, Refused, Reply, Request, ServiceAnswer,
};
use forebay_terminal::{Event, Format, Level, Value, enqueue};
use futures_util::FutureExt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The longest id that is accepted from a proxy in front, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Hashes queries. The keys are random at each start and stay in the process, so that a query cannot be
/// guessed from its hash.
static QUERIES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Sets the format and level of this process' log lines.
pub fn configure(log: &model::Log) {
    let format = match log.format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    };
    let level = match log.level {
        LogLevel::Error => Level::Error,
        LogLevel::Warn => Level::Warn,
        LogLevel::Info => Level::Info,
    };
    forebay_terminal::configure(format, level);
}

/// What is logged of requests.
pub struct RequestLog {
    /// The share of requests that get a line.
    share: f64,
    /// Requests that take at least this long get a line.
    slow: Option<Duration>,
    /// The header field of the id.
    id_field: Option<String>,
    spans: Option<Spans>,
}

/// A request that is being answered.
pub struct Logged {
    /// The label that accompanies the request.
    pub label: Arc<Label>,
    /// Header lines for its answer.
    pub lines: Vec<u8>,
    entry: Option<RequestRecord>,
}

impl RequestLog {
    /// `None`: nothing is logged of requests.
    pub fn new(log: &model::Log, spans: Option<Spans>) -> Option<RequestLog> {
        let wants = log.access > 0.0 || log.slow_ms.is_some() || log.request_id.is_some() || spans.is_some();
        wants.then(|| RequestLog {
            share: log.access,
            slow: log.slow_ms.map(Duration::from_millis),
            id_field: log.request_id.clone(),
            spans,
        })
    }

    /// Sends the spans that have ended, and waits up to `within` for it.
    pub fn flush_spans(&self, within: Duration) {
        if let Some(spans) = &self.spans {
            spans.flush(within);
        }
    }

    /// Gives a new request its id, and decides whether it gets a line and a span.
    pub fn begin(&self, request: &Request<'_>) -> Logged {
        let mut lines = Vec::new();
        let id = self.id_field.as_ref().map(|field| {
            let id = id_of(request, field).unwrap_or_else(new_id);
            HeaderLines::new(&mut lines).add(field, &*id).expect("name and id were checked");
            id
        });
        let span = self.spans.as_ref().and_then(|spans| spans.begin(request));
        let traceparent = span.as_ref().map(RequestSpan::traceparent);
        let label = Arc::new(Label { id, traceparent, ..Label::default() });
        let above = if chooses(self.share) { Some(Duration::ZERO) } else { self.slow };
        let has_entry = above.is_some() || span.is_some();
        let entry = has_entry.then(|| RequestRecord::begin(request, label.clone(), above, span));
        Logged { label, lines, entry }
    }

    /// Gives a request that the engine refuses an id, and a line if it is chosen. The request may not have
    /// been parsed: it may have no method and no path.
    pub fn refused(&self, refused: &Refused, answer: &mut Answer<'_>) {
        let id = self.id_field.as_ref().map(|field| {
            let (id, mut lines) = (new_id(), Vec::new());
            HeaderLines::new(&mut lines).add(field, &*id).expect("name and id were checked");
            answer.add_lines(&lines);
            id
        });
        if !chooses(self.share) {
            return;
        }
        let client = refused.origin.peer.ip().to_string();
        let mut fields = vec![
            ("status", Value::Count(refused.status.into())),
            ("refused", Value::Text(refused.detail)),
            ("client", Value::Text(&client)),
        ];
        fields.extend(id.as_deref().map(|id| ("request_id", Value::Text(id))));
        enqueue(&Event { level: Level::Info, message: format_args!("request"), fields: &fields });
    }
}

fn new_id() -> Box<str> {
    uuid7().to_string().into()
}

/// The id that a trusted proxy gave a request.
fn id_of(request: &Request<'_>, field: &str) -> Option<Box<str>> {
    let id = request.is_from_trusted_proxy().then(|| request.header(field)).flatten()?;
    let id = std::str::from_utf8(id).ok()?;
    let is_good = (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    is_good.then(|| id.into())
}

/// The trace that a request belongs to (W3C Trace Context, section 3.2).
fn trace_of(request: &Request<'_>) -> Option<Box<str>> {
    let value = std::str::from_utf8(request.header("traceparent")?).ok()?;
    let trace = value.split('-').nth(1)?;
    let is_good = trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_good.then(|| trace.into())
}

impl Logged {
    /// The outcome, with the header lines of this request added to its answer. The log line is written when
    /// the answer is complete.
    pub fn answered(self, route: &Arc<RouteCounters>, outcome: Outcome, answer: &Answer<'_>) -> Outcome {
        let Logged { lines, mut entry, .. } = self;
        if let Some(entry) = &mut entry {
            entry.route = Some(route.clone());
        }
        match outcome {
            Outcome::Done => {
                if let Some(entry) = &mut entry {
                    (entry.status, entry.body_bytes) = (answer.status(), answer.body_bytes() as u64);
                }
                Outcome::Done
            }
            Outcome::Later(work) => Outcome::Later(Box::pin(async move {
                let mut reply = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| broken_off());
                reply.extra.extend_from_slice(&lines);
                if let Some(entry) = &mut entry {
                    entry.note_whole(reply.head.status(), reply.body.len());
                }
                reply
            })),
            Outcome::Streamed(work) => Outcome::Streamed(Box::pin(async move {
                let given = AssertUnwindSafe(work).catch_unwind().await;
                let mut given = given.unwrap_or_else(|_| broken_off().into());
                match &mut given {
                    ServiceAnswer::Whole(reply) => {
                        reply.extra.extend_from_slice(&lines);
                        if let Some(entry) = &mut entry {
                            entry.note_whole(reply.head.status(), reply.body.len());
                        }
                    }
                    ServiceAnswer::Streamed(streamed) => {
                        streamed.lines.extend_from_slice(&lines);
                        if let Some(mut entry) = entry {
                            entry.status = Some(streamed.status);
                            let counted =
                                |body| Box::pin(CountedBody { body, entry }) as Pin<Box<dyn BodySource>>;
                            streamed.body = streamed.body.take().map(counted);
                        }
                    }
                    ServiceAnswer::Upgraded(upgraded) => {
                        upgraded.lines.extend_from_slice(&lines);
                        if let Some(mut entry) = entry {
                            entry.status = Some(101);
                            upgraded.ends.push(Box::new(move |bytes| entry.end(bytes)));
                        }
                    }
                }
                given
            })),
        }
    }
}

/// The answer when a handler's future panicked: it has the request's id, like any other.
fn broken_off() -> Reply {
    reply_of(Err(Problem::new(500, "the handler failed")))
}

/// The line and the span of one request. Both end when this is dropped, even if the client disconnects before
/// the answer.
struct RequestRecord {
    /// Requests that took less get no line; `None`: no line is written.
    above: Option<Duration>,
    span: Option<RequestSpan>,
    label: Arc<Label>,
    began: Instant,
    method: String,
    path: String,
    /// The hash of its query, if it has one.
    query: Option<String>,
    client: IpAddr,
    is_head: bool,
    trace: Option<Box<str>>,
    route: Option<Arc<RouteCounters>>,
    /// `None`: the client disconnected before the answer.
    status: Option<u16>,
    body_bytes: u64,
}

impl RequestRecord {
    fn begin(
        request: &Request<'_>,
        label: Arc<Label>,
        above: Option<Duration>,
        span: Option<RequestSpan>,
    ) -> RequestRecord {
        let trace = span.as_ref().map(RequestSpan::trace).or_else(|| trace_of(request));
        RequestRecord {
            above,
            span,
            label,
            began: Instant::now(),
            method: request.method_name().to_owned(),
            path: request.path().to_owned(),
            query: request.query().map(|query| format!("{:016x}", QUERIES.hash_one(query))),
            client: request.client().address,
            is_head: request.method() == Method::Head,
            trace,
            route: None,
            status: None,
            body_bytes: 0,
        }
    }

    /// Writes the line of a tunnel that has ended.
    fn end(mut self, sent_bytes: u64) {
        self.body_bytes = sent_bytes;
    }

    fn note_whole(&mut self, status: u16, body_bytes: usize) {
        self.status = Some(status);
        self.body_bytes = if self.is_head { 0 } else { body_bytes as u64 };
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        if let Some(span) = self.span.take() {
            let (status, body_bytes) = (self.status, self.body_bytes);
            span.end(&Ended { route: self.route.as_deref(), status, body_bytes, took });
        }
        // The duration of a tunnel is not a sign of a slow server.
        let is_tunnel = self.status == Some(101);
        if self.above.is_some_and(|above| took >= above && (above.is_zero() || !is_tunnel)) {
            self.write_line(took);
        }
    }
}

impl RequestRecord {
    fn write_line(&self, took: Duration) {
        let client = self.client.to_string();
        let route = self.route.as_ref().map(|counters| counters.route.as_str());
        let mut fields = vec![("method", Value::Text(&self.method))];
        fields.extend(route.filter(|route| !route.is_empty()).map(|route| ("route", Value::Text(route))));
        fields.push(("path", Value::Text(&self.path)));
        fields.extend(self.status.map(|status| ("status", Value::Count(status.into()))));
        fields.push(("bytes", Value::Count(self.body_bytes)));
        fields.push(("duration_ms", Value::Milliseconds(took.as_secs_f64() * 1000.0)));
        fields.push(("client", Value::Text(&client)));
        let given = [
            ("query", self.query.as_deref()),
            ("identity", self.label.subject.get().map(|subject| &**subject)),
            ("request_id", self.label.id.as_deref()),
            ("trace_id", self.trace.as_deref()),
        ];
        fields.extend(given.into_iter().filter_map(|(name, value)| Some((name, Value::Text(value?)))));
        enqueue(&Event { level: Level::Info, message: format_args!("request"), fields: &fields });
    }
}

/// A body whose bytes are counted as they are sent.
struct CountedBody {
    body: Pin<Box<dyn BodySource>>,
    entry: RequestRecord,
}

impl BodySource for CountedBody {
    fn poll_fill(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Filled> {
        let before = out.len();
        let filled = ready!(self.body.as_mut().poll_fill(cx, out));
        self.entry.body_bytes += (out.len() - before) as u64;
        Poll::Ready(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_http::detached;

    /// Such answers used to lack the id of their request, and had no log line.
    #[test]
    fn an_answer_whose_future_panics_has_the_id_of_its_request() {
        let works: [fn() -> Outcome; 2] = [
            || Outcome::Later(Box::pin(async { panic!("a test") })),
            || Outcome::Streamed(Box::pin(async { panic!("a test") })),
        ];
        let route = Arc::new(RouteCounters::new("GET /a".into(), 1));
        for work in works {
            let lines = b"X-Request-Id: 7\r\n".to_vec();
            let logged = Logged { label: Arc::default(), lines, entry: None };
            let reply = match detached(|answer| logged.answered(&route, work(), answer)).0 {
                Outcome::Later(reply) => futures_executor::block_on(reply),
                Outcome::Streamed(given) => match futures_executor::block_on(given) {
                    ServiceAnswer::Whole(reply) => reply,
                    _ => panic!("it is whole"),
                },
                Outcome::Done => panic!("it is deferred"),
            };
            assert_eq!(reply.head.status(), 500);
            assert!(reply.extra.ends_with(b"X-Request-Id: 7\r\n"), "{:?}", reply.extra.escape_ascii());
        }
    }
}
