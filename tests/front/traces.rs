//! `[trace]`: spans as a collector receives them, and an unreachable collector.

use super::Front;
use super::upstream::Scripted;
use forebay_tests::wait_for;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";

/// The spans that a collector received.
fn collected(collector: &Scripted) -> Vec<ResourceSpans> {
    let decode = |body: Vec<u8>| ExportTraceServiceRequest::decode(&*body).expect("an export of spans");
    collector.seen().into_iter().flat_map(|seen| decode(seen.body).resource_spans).collect()
}

fn spans(collector: &Scripted) -> Vec<Span> {
    let scopes = collected(collector).into_iter().flat_map(|of| of.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn attributes(list: &[KeyValue]) -> BTreeMap<String, String> {
    let shown = |value: &Option<AnyValue>| match value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    list.iter().map(|pair| (pair.key.clone(), shown(&pair.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A counter of `/metrics`.
fn counter(front: &Front, name: &str) -> u64 {
    let text = front.server.admin("GET", "/metrics").text().to_owned();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    let value: Option<f64> = value;
    value.unwrap_or_else(|| panic!("{name} is in {text}")) as u64
}

fn config(collector: &Scripted, rest: &str) -> String {
    format!(
        "[trace]\notlp = 'http://{}'\nservice = 'shop'\n\
         [[endpoint]]\nroute = 'GET /items/{{id}}'\nconstant = {{ a = 1 }}\n{rest}",
        collector.address
    )
}

/// An application that fails at `/broken`.
fn app() -> Scripted {
    Scripted::new(|seen, stream| {
        let status = if seen.head.starts_with("GET /broken") { "500 Oh" } else { "200 OK" };
        stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok").as_bytes()).is_ok()
    })
}

#[test]
fn a_collector_gets_a_span_of_each_request() {
    let collector = Scripted::new(|_, stream| stream.write_all(TAKEN).is_ok());
    let app = app();
    let proxied = format!("[[endpoint]]\nroute = '* /{{path...}}'\nproxy = 'http://{}'\n", app.address);
    let front = Front::start(&config(&collector, &proxied));
    front.server.wait_healthy();
    let mut client = front.server.client();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let traced = [("traceparent", parent.as_str())];
    assert_eq!(client.call("GET", "/items/7?token=secret", &traced, None).expect("an answer").status, 200);
    assert_eq!(client.call("GET", "/shop", &traced, None).expect("an answer").status, 200);
    assert_eq!(client.get("/broken").status, 500);
    let spans = wait_for("the spans are sent", || Some(spans(&collector)).filter(|spans| spans.len() >= 3));
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["GET /items/{id}", "GET /{path...}", "GET /{path...}"]);
    let [item, shop, broken] = &spans[..] else { panic!("three: {spans:?}") };
    let expected = [
        ("client.address", "127.0.0.1"),
        ("http.request.method", "GET"),
        ("http.response.body.size", "7"),
        ("http.response.status_code", "200"),
        ("http.route", "/items/{id}"),
        ("url.path", "/items/7"),
        ("url.scheme", "http"),
    ];
    assert_eq!(attributes(&item.attributes), expected.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    assert!(item.start_time_unix_nano > 0 && item.end_time_unix_nano >= item.start_time_unix_nano);
    for span in [item, shop] {
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
        assert_eq!(span.kind(), SpanKind::Server);
        assert_eq!(span.status.clone().unwrap_or_default().code(), StatusCode::Unset);
    }
    // A new trace, and a failed span.
    assert_eq!((broken.parent_span_id.len(), hex(&broken.trace_id) == TRACE), (0, false));
    assert_eq!(broken.status.clone().unwrap_or_default().code(), StatusCode::Error);
    assert_eq!(attributes(&broken.attributes)["error.type"], "500");
    // The upstream's span is a child of the request's span.
    let below: Vec<_> =
        app.seen().iter().map(|seen| seen.header("traceparent").unwrap().to_owned()).collect();
    let expected = |span: &Span| format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id));
    assert_eq!(below, [expected(shop), expected(broken)]);
    let resource = collected(&collector)[0].resource.clone().expect("a resource");
    assert_eq!(attributes(&resource.attributes)["service.name"], "shop");
    let message = &collector.seen()[0];
    assert!(message.head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{}", message.head);
    assert_eq!(message.header("content-type"), Some("application/x-protobuf"));
    wait_for("the spans are counted", || {
        (counter(&front, "forebay_spans_exported_total") == 3).then_some(())
    });
    assert_eq!(counter(&front, "forebay_spans_dropped_total"), 0);
}

/// The sampling flag of a client outside `trusted_proxies` neither excludes nor selects its requests.
#[test]
fn a_trusted_proxy_decides_which_requests_are_traced() {
    for (trusted, share, flags, is_traced) in [
        ("[]", "1", "00", true),
        ("[]", "0", "01", false),
        ("['127.0.0.1']", "1", "00", false),
        ("['127.0.0.1']", "0", "01", true),
    ] {
        let collector = Scripted::new(|_, stream| stream.write_all(TAKEN).is_ok());
        let app = app();
        let front = Front::start(&format!(
            "[server]\ntrusted_proxies = {trusted}\n[trace]\notlp = 'http://{}'\nshare = {share}\n\
             [[endpoint]]\nroute = 'GET /{{path...}}'\nproxy = 'http://{}'\n",
            collector.address, app.address
        ));
        front.server.wait_healthy();
        let sent = format!("00-{TRACE}-{PARENT}-{flags}");
        let answer = front.server.client().call("GET", "/a", &[("traceparent", &sent)], None);
        assert_eq!(answer.expect("an answer").status, 200);
        // A stop sends the remaining spans.
        let Front { server, .. } = front;
        server.stop();
        let case = format!("trusted_proxies = {trusted}, share = {share}, flags {flags}");
        assert_eq!(spans(&collector).len(), usize::from(is_traced), "{case}");
        let passed = app.seen()[0].header("traceparent").expect("a trace").to_owned();
        assert_eq!((passed == sent, &passed[3..35]), (!is_traced, TRACE), "{case}");
    }
}

#[test]
fn a_collector_that_is_away_is_told_of_once_and_what_it_misses_is_counted() {
    let is_there = Arc::new(AtomicBool::new(false));
    let own = is_there.clone();
    let collector = Scripted::new(move |_, stream| {
        let answer =
            if own.load(SeqCst) { TAKEN } else { b"HTTP/1.1 503 Not now\r\nContent-Length: 0\r\n\r\n" };
        stream.write_all(answer).is_ok()
    });
    let front = Front::start(&config(&collector, ""));
    front.server.wait_healthy();
    let mut client = front.server.client();
    for dropped in 1..=3 {
        assert_eq!(client.get("/items/7").status, 200);
        wait_for("a span is dropped", || {
            (counter(&front, "forebay_spans_dropped_total") == dropped).then_some(())
        });
    }
    is_there.store(true, SeqCst);
    assert_eq!(client.get("/items/7").status, 200);
    wait_for("it is told that the collector is back", || {
        front.server.output().contains("/v1/traces takes spans again").then_some(())
    });
    let output = front.server.output();
    assert_eq!(output.matches("spans are dropped until").count(), 1, "{output}");
    assert!(output.contains("503"), "the line says why: {output}");
    assert_eq!(counter(&front, "forebay_spans_exported_total"), 1);
}

/// A collector that accepts a message and does not answer fills the queue; requests continue.
#[test]
fn a_collector_that_hangs_holds_up_no_request() {
    const REQUESTS: u64 = 4000;
    let collector = Scripted::holding();
    let front = Front::start(&config(&collector, ""));
    front.server.wait_healthy();
    let mut client = front.server.client();
    for _ in 0..REQUESTS {
        assert_eq!(client.get("/items/7").status, 200);
    }
    // 2048 wait in the queue, at most 512 are being sent.
    assert!(counter(&front, "forebay_spans_dropped_total") >= REQUESTS - 2048 - 512);
    let Front { server, .. } = front;
    assert!(server.stop().status.success());
}
