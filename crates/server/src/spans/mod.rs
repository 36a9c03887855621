//! Spans: tracing of single requests for an OpenTelemetry collector, with the OpenTelemetry SDK.
//!
//! Promises that a span costs its request a few allocations and no wait: a finished span goes into a bounded
//! queue ([`export`]); when the queue is full or the collector is unreachable, the span is dropped and
//! counted. A server without `[trace]` has no spans.
//!
//! `request_log` chooses a request's fields, and `action::proxy` passes the trace on.

mod export;

pub use export::SpanCounts;

use crate::counters::RouteCounters;
use crate::limits::SPAN_TEXT_BYTES_MAX;
use crate::start_error::StartError;
use export::SpanQueue;
use forebay_config::model;
use forebay_http::{Method, Request};
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Starts the spans of requests.
pub struct Spans {
    tracer: SdkTracer,
    share: f64,
    queue: SpanQueue,
}

/// What a span records when its request ends.
pub struct Ended<'a> {
    /// The route that was found.
    pub route: Option<&'a RouteCounters>,
    /// `None`: the client disconnected before the answer.
    pub status: Option<u16>,
    /// Bytes of the body that were sent to the client.
    pub body_bytes: u64,
    /// How long the request took.
    pub took: Duration,
}

/// The span of a request that is being answered.
pub struct RequestSpan {
    span: opentelemetry_sdk::trace::Span,
    began: SystemTime,
    method: Method,
}

impl Spans {
    /// Starts the thread that sends spans to the collector. The thread ends when these spans are dropped.
    ///
    /// # Errors
    /// A sentence when the URL or an OpenTelemetry environment variable cannot be used.
    pub fn start(trace: &model::Trace, counts: &Arc<SpanCounts>) -> Result<Spans, StartError> {
        let resource = Resource::builder().with_service_name(trace.service.clone()).build();
        let queue = SpanQueue::start(&trace.otlp, &resource, counts.clone())?;
        let provider = SdkTracerProvider::builder()
            .with_span_processor(queue.clone())
            .with_resource(resource)
            // Only requests that were chosen start a span.
            .with_sampler(Sampler::AlwaysOn)
            .build();
        Ok(Spans { tracer: provider.tracer("forebay"), share: trace.share, queue })
    }

    /// Starts the span of a request, if it is chosen. Only a trusted proxy may decide whether its request is
    /// traced: otherwise any client could fill the queue.
    pub fn begin(&self, request: &Request<'_>) -> Option<RequestSpan> {
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &Fields(request));
        let decided = parent.has_active_span() && request.is_from_trusted_proxy();
        let is_chosen = match decided {
            true => parent.span().span_context().is_sampled(),
            false => chooses(self.share),
        };
        is_chosen.then(|| self.begin_below(&parent, request))
    }

    fn begin_below(&self, parent: &Context, request: &Request<'_>) -> RequestSpan {
        let (began, method) = (SystemTime::now(), request.method());
        let client = request.client();
        let scheme = if client.is_secure { "https" } else { "http" };
        let builder = self.tracer.span_builder("").with_kind(SpanKind::Server).with_start_time(began);
        let builder = builder.with_attributes([
            KeyValue::new("http.request.method", method_name(method).unwrap_or("_OTHER")),
            KeyValue::new("url.path", shortened(request.path())),
            KeyValue::new("url.scheme", scheme),
            KeyValue::new("client.address", client.address.to_string()),
        ]);
        RequestSpan { span: self.tracer.build_with_context(builder, parent), began, method }
    }

    /// Sends the spans that have ended, and waits up to `within` for it.
    pub fn flush(&self, within: Duration) {
        self.queue.flush(within);
    }
}

/// Whether a request belongs to this share; chosen at random.
pub fn chooses(share: f64) -> bool {
    share >= 1.0 || (share > 0.0 && rand::random::<f64>() < share)
}

/// The method's name in spans; `None`: an unknown method.
fn method_name(method: Method) -> Option<&'static str> {
    (method != Method::Other).then(|| method.as_str())
}

impl RequestSpan {
    /// The `traceparent` for an upstream (W3C Trace Context, section 3.2).
    pub fn traceparent(&self) -> Box<str> {
        let context = self.span.span_context();
        format!("00-{}-{}-01", context.trace_id(), context.span_id()).into()
    }

    /// The id of the trace that the span belongs to.
    pub fn trace(&self) -> Box<str> {
        self.span.span_context().trace_id().to_string().into()
    }

    /// Ends the span, named by OpenTelemetry's conventions for HTTP servers.
    pub fn end(mut self, ended: &Ended<'_>) {
        let method = method_name(self.method).unwrap_or("HTTP");
        let route = ended.route.and_then(|counters| Some(counters.route.split_once(' ')?.1));
        match route {
            Some(route) => {
                self.span.update_name(format!("{method} {route}"));
                self.span.set_attribute(KeyValue::new("http.route", route.to_owned()));
            }
            None => self.span.update_name(method),
        }
        if let Some(status) = ended.status {
            self.span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            self.span.set_attribute(KeyValue::new("http.response.body.size", ended.body_bytes as i64));
            if status >= 500 {
                self.span.set_attribute(KeyValue::new("error.type", status.to_string()));
                self.span.set_status(Status::error(""));
            }
        }
        // The wall clock may have been set meanwhile.
        self.span.end_with_timestamp(self.began + ended.took);
    }
}

/// The beginning of a client's text.
fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(SPAN_TEXT_BYTES_MAX)].to_owned()
}

/// The request's header fields, for the propagator.
struct Fields<'a, 'r>(&'a Request<'r>);

impl Extractor for Fields<'_, '_> {
    fn get(&self, key: &str) -> Option<&str> {
        std::str::from_utf8(self.0.header(key)?).ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.headers().map(|(name, _)| name).collect()
    }
}
