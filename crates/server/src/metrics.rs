//! `GET /metrics` of the admin listener, for Prometheus: the counters of the workers by route
//! ([`crate::counters`]) and by statement, and the state of drain, tier, cache and process at the time of the
//! scrape.
//!
//! Promises names and units as Prometheus recommends them (`_total`, seconds, bytes), and that a scrape takes
//! no lock that a request waits for. docs/operations.md explains each metric.

use crate::conditions::Conditions;
use crate::counters::{BOUNDS_S, Durations};
use crate::problem::Problem;
use crate::service::Routes;
use crate::spans::SpanCounts;
use crate::statement_counters::Statements;
use crate::tier::Tier;
use forebay_host::Sampler;
use forebay_http::Stats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where the numbers come from.
pub(crate) struct Sources {
    pub routes: Arc<Routes>,
    pub statements: Statements,
    /// The counters of the listener that serves the routes.
    pub stats: Stats,
    pub tier: Arc<Tier>,
    pub conditions: Arc<Conditions>,
    pub spans: Arc<SpanCounts>,
    /// The cache's counters, as `GET /cache` shows them.
    pub cache: Value,
}

/// The Content-Type of the text that [`render`] returns.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// The values of one metric.
#[derive(Debug)]
enum Family {
    Counter(Vec<(Labels, f64)>),
    Gauge(Vec<(Labels, f64)>),
    /// Sum, and counts by bucket.
    Histogram(Vec<(Labels, Durations)>),
}

#[derive(Debug)]
struct Metric {
    name: &'static str,
    help: &'static str,
    family: Family,
}

/// All metrics at a moment.
#[derive(Debug, Default)]
struct Numbers(Vec<Metric>);

impl Numbers {
    fn counters(&mut self, name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) {
        self.0.push(Metric { name, help, family: Family::Counter(values) });
    }

    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.counters(name, help, vec![(Labels::new(), value as f64)]);
    }

    fn gauges(&mut self, name: &'static str, help: &'static str, values: Vec<(Labels, f64)>) {
        self.0.push(Metric { name, help, family: Family::Gauge(values) });
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.gauges(name, help, vec![(Labels::new(), value)]);
    }
}

impl Collector for Numbers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, family } in &self.0 {
            let kind = match family {
                Family::Counter(_) => MetricType::Counter,
                Family::Gauge(_) => MetricType::Gauge,
                Family::Histogram(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match family {
                Family::Counter(values) => each(&mut metric, values, |encoder, value| {
                    encoder.encode_counter::<NoLabelSet, _, f64>(value, None)
                })?,
                Family::Gauge(values) => {
                    each(&mut metric, values, |encoder, value| encoder.encode_gauge(value))?
                }
                Family::Histogram(values) => each(&mut metric, values, |encoder, durations| {
                    let buckets: Vec<_> = BOUNDS_S.into_iter().zip(durations.buckets).collect();
                    let count = durations.buckets.iter().sum();
                    encoder.encode_histogram::<NoLabelSet>(durations.sum_s, count, &buckets, None)
                })?,
            }
        }
        Ok(())
    }
}

/// Encodes each value under its labels.
fn each<T>(
    metric: &mut MetricEncoder<'_>,
    values: &[(Labels, T)],
    encode: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (labels, value) in values {
        match labels.is_empty() {
            true => encode(metric, value)?,
            false => encode(&mut metric.encode_family(labels)?, value)?,
        }
    }
    Ok(())
}

/// The text of a scrape.
pub(crate) async fn render(from: Sources) -> Result<String, Problem> {
    let mut numbers = Numbers::default();
    of_routes(&from.routes, &mut numbers);
    of_statements(&from.statements, &mut numbers);
    of_listener(&from, &mut numbers);
    of_tier(&from, &mut numbers).await;
    of_cache(&from.cache, &mut numbers);
    of_spans(&from.spans, &mut numbers);
    of_process(&mut numbers);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(numbers));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Problem::new(500, error.to_string()))?;
    Ok(text)
}

fn of_routes(routes: &Routes, numbers: &mut Numbers) {
    let (mut answers, mut durations) = (Vec::new(), Vec::new());
    for (method, route, counters) in routes.counters() {
        let labels = || vec![("method", method.to_owned()), ("route", route.to_owned())];
        for (status, count) in counters.answers() {
            let mut labels = labels();
            labels.push(("status", status.to_string()));
            answers.push((labels, count as f64));
        }
        durations.push((labels(), counters.durations()));
    }
    numbers.counters("forebay_http_requests", "Answers by route; without a route: none was found.", answers);
    numbers.0.push(Metric {
        name: "forebay_http_request_duration_seconds",
        help: "From a request to its answer, before the answer waits for the log and the client.",
        family: Family::Histogram(durations),
    });
}

fn of_statements(statements: &Statements, numbers: &mut Numbers) {
    let (mut runs, mut seconds, mut in_flight, mut identical) = <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    for statement in statements.all() {
        let labels = || vec![("statement", statement.name.clone())];
        let (ended, time) = statement.ended();
        runs.push((labels(), ended as f64));
        seconds.push((labels(), time.as_secs_f64()));
        in_flight.push((labels(), statement.in_flight() as f64));
        identical.push((labels(), statement.identical() as f64));
    }
    numbers.counters("forebay_statements", "Statements of endpoints that have ended.", runs);
    numbers.counters("forebay_statement_seconds", "Their time, from when they were queued.", seconds);
    numbers.gauges("forebay_statements_in_flight", "Those that are queued or run.", in_flight);
    numbers.gauges(
        "forebay_statements_identical_in_flight",
        "Those of them that have the parameters of one that began before.",
        identical,
    );
}

fn of_listener(from: &Sources, numbers: &mut Numbers) {
    let stats = from.stats.total();
    numbers.counter(
        "forebay_http_requests_received",
        "Requests, with those that the HTTP engine refused.",
        stats.requests,
    );
    numbers.gauge("forebay_http_connections", "Open connections of clients.", stats.connections as f64);
    numbers.counter("forebay_http_connections_accepted", "Connections of clients.", stats.accepted);
    numbers.counter(
        "forebay_http_connections_refused",
        "Connections beyond the limit.",
        from.stats.refused(),
    );
    numbers.counter("forebay_http_received_bytes", "Bytes from clients.", stats.read_bytes);
    numbers.counter("forebay_http_sent_bytes", "Bytes to clients.", stats.written_bytes);
    numbers.gauge(
        "forebay_http_requests_waiting",
        "Requests that wait for the database or the tier.",
        from.routes.waiting() as f64,
    );
}

async fn of_tier(from: &Sources, numbers: &mut Numbers) {
    let gauges = from.tier.gauges();
    if let Some(rows) = gauges.backlog_rows {
        numbers.gauge("forebay_drain_backlog_rows", "Changes that are not in the database.", rows as f64);
    }
    numbers.gauge(
        "forebay_drain_backlog_bytes",
        "Bytes of these changes in the log.",
        gauges.backlog_bytes as f64,
    );
    numbers.gauge(
        "forebay_log_set_aside_bytes",
        "Bytes of changes of stopped tables that are set aside.",
        gauges.set_aside_bytes as f64,
    );
    if let Some(lag) = gauges.lag {
        numbers.gauge(
            "forebay_drain_lag_seconds",
            "Age of the oldest change that is not in the database.",
            lag.as_secs_f64(),
        );
    }
    if let Some((lag, rows)) = gauges.follow {
        let help = "For how long other writers' changes may have been missing from memory.";
        numbers.gauge("forebay_follow_lag_seconds", help, lag.as_secs_f64());
        numbers.counter(
            "forebay_follow_rows",
            "Rows that others changed, or that were wanted, and read.",
            rows,
        );
    }
    if let Some(waits) = gauges.waits {
        numbers.gauge("forebay_drain_waiting", "1 while the drain waits for its window.", f64::from(waits));
    }
    numbers.counter("forebay_drain_rows", "Changes that reached the database.", from.tier.drained_rows());
    numbers.counter(
        "forebay_dead_letters",
        "Changes that the database refused since the start.",
        from.tier.dead_letters(),
    );
    numbers.gauge(
        "forebay_memory_used_bytes",
        "Bytes of hot tables in this process.",
        gauges.used_bytes as f64,
    );
    numbers.gauge("forebay_memory_limit_bytes", "The limit of hot tables.", gauges.limit_bytes as f64);
    let conditions = from.conditions.words().await;
    let conditions = conditions
        .into_iter()
        .map(|(state, table)| (vec![("state", state.to_owned()), ("table", table.unwrap_or_default())], 1.0));
    numbers.gauges("forebay_condition", "What `/ready` shows, by state and table.", conditions.collect());
    // An unreachable tier is reported as a condition; the metrics of its tables are missing then.
    if let Ok(described) = from.tier.describe().await {
        let tables = described["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
        let of_each = |what: &str| {
            let of = |table: &Value| {
                Some((vec![("table", table["table"].as_str()?.to_owned())], table[what].as_f64()?))
            };
            tables.iter().filter_map(of).collect()
        };
        numbers.gauges("forebay_table_rows", "Rows of hot tables, evicted ones counted.", of_each("rows"));
        numbers.gauges(
            "forebay_table_used_bytes",
            "Bytes of each hot table in this process.",
            of_each("used_bytes"),
        );
    }
}

fn of_cache(counts: &Value, numbers: &mut Numbers) {
    let count = |name: &str| counts[name].as_u64().unwrap_or_default();
    numbers.gauge("forebay_cache_entries", "Answers in the cache of this process.", count("entries") as f64);
    numbers.gauge("forebay_cache_bytes", "Bytes of the answers in this process.", count("bytes") as f64);
    numbers.counter("forebay_cache_hits", "Answers from the cache of this process.", count("hits"));
    numbers.counter(
        "forebay_cache_misses",
        "Lookups that found no answer in the cache of this process.",
        count("misses"),
    );
    numbers.counter("forebay_cache_fills", "Answers that were made for the cache.", count("fills"));
    numbers.counter("forebay_cache_fill_failures", "Fills that failed.", count("failures"));
    numbers.counter("forebay_cache_shared_hits", "Answers from the shared cache.", count("shared_hits"));
    numbers.counter(
        "forebay_cache_shared_failures",
        "Calls to the shared cache that failed.",
        count("shared_failures"),
    );
    numbers.gauge(
        "forebay_cache_pending_invalidations",
        "Dropped tags that other servers have not received yet.",
        count("pending_invalidations") as f64,
    );
}

fn of_spans(spans: &SpanCounts, numbers: &mut Numbers) {
    let (exported, dropped) = (spans.exported.load(Relaxed), spans.dropped.load(Relaxed));
    numbers.counter("forebay_spans_exported", "Spans of requests that a collector took.", exported);
    numbers.counter("forebay_spans_dropped", "Spans of requests that no collector took.", dropped);
}

/// Named as Prometheus' client libraries name them. A figure that the kernel does not report is missing.
fn of_process(numbers: &mut Numbers) {
    if let Ok(sample) = Sampler::new().sample() {
        let cpu_s = sample.process.cpu_ms / 1000.0;
        numbers.counters("process_cpu_seconds", "CPU time of all threads.", vec![(Labels::new(), cpu_s)]);
        let resident = sample.process.resident_bytes as f64;
        numbers.gauge("process_resident_memory_bytes", "Resident memory.", resident);
    }
}
