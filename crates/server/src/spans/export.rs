//! Sends finished spans to the collector: a bounded queue, and a thread that sends its contents in batches as
//! OTLP in protobuf over HTTP.
//!
//! Promises that no request waits for the collector, and that every span is either accepted by the collector
//! or counted as dropped. The SDK's own batch processor works alike, but does not report how many spans it
//! dropped.

use crate::outgoing;
use crate::start_error::StartError;
use forebay_terminal::{say, warn};
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanExporter as _, SpanProcessor};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// How many finished spans may wait: those of a tenth of a second at 20,000 sampled requests a second.
const QUEUE_SPANS: usize = 2048;
/// The most spans in one message.
const BATCH_SPANS: usize = 512;
/// How long a span waits for others in its message.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// The timeout of one message.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most of the collector's answer that is read, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Counts of spans since the start.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// Spans that a collector accepted.
    pub exported: AtomicU64,
    /// Spans that were dropped: the queue was full, or the collector did not respond.
    pub dropped: AtomicU64,
}

/// The queue of finished spans.
#[derive(Debug, Clone)]
pub(super) struct SpanQueue {
    sender: SyncSender<QueuedSpan>,
    counts: Arc<SpanCounts>,
}

enum QueuedSpan {
    Span(Box<SpanData>),
    /// Sends everything before it at once, and is then dropped.
    Flush(SyncSender<()>),
}

impl SpanQueue {
    /// Starts the thread that sends the queue's spans, until all senders are dropped.
    pub(super) fn start(
        otlp: &str,
        resource: &Resource,
        counts: Arc<SpanCounts>,
    ) -> Result<SpanQueue, StartError> {
        let endpoint = format!("{otlp}/v1/traces");
        let trouble = LastSendError::default();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client { agent: outgoing::agent(TIMEOUT), trouble: trouble.clone() })
            .with_endpoint(&endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(TIMEOUT)
            // The next batch is the next attempt; a retry of this one would delay newer spans.
            .with_retry_policy(RetryPolicy::disabled())
            .build();
        let mut exporter = exporter.map_err(|error| format!("trace.otlp: {error}"))?;
        exporter.set_resource(resource);
        let (sender, receiver) = sync_channel(QUEUE_SPANS);
        let mut collector = Collector { endpoint, exporter, counts: counts.clone(), trouble, is_away: false };
        let thread = std::thread::Builder::new().name("spans".into());
        thread.spawn(move || collector.serve(&receiver)).map_err(|error| format!("trace: {error}"))?;
        Ok(SpanQueue { sender, counts })
    }

    pub(super) fn flush(&self, within: Duration) {
        let (done, waiting) = sync_channel(0);
        // The queue is full if the collector is unreachable; then there is nothing to wait for.
        if self.sender.try_send(QueuedSpan::Flush(done)).is_ok() {
            let _ended = waiting.recv_timeout(within);
        }
    }
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(QueuedSpan::Span(Box::new(span))).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.flush(TIMEOUT);
        Ok(())
    }

    /// Does nothing: the thread ends by itself, and a worker that drops the last span of an old config need
    /// not wait.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// The state of the sending thread.
struct Collector {
    endpoint: String,
    exporter: SpanExporter,
    counts: Arc<SpanCounts>,
    trouble: LastSendError,
    is_away: bool,
}

/// Why the last message failed: the exporter reports every error only as a network error.
type LastSendError = Arc<Mutex<Option<String>>>;

impl Collector {
    fn serve(&mut self, queue: &Receiver<QueuedSpan>) {
        let mut batch = Vec::new();
        let mut due = Instant::now();
        loop {
            // An empty batch has no deadline.
            let left =
                if batch.is_empty() { Duration::MAX } else { due.saturating_duration_since(Instant::now()) };
            match queue.recv_timeout(left) {
                Ok(QueuedSpan::Span(span)) => {
                    if batch.is_empty() {
                        due = Instant::now() + BATCH_WAIT;
                    }
                    batch.push(*span);
                    if batch.len() == BATCH_SPANS {
                        self.send(std::mem::take(&mut batch));
                    }
                }
                Ok(QueuedSpan::Flush(_done)) => self.send(std::mem::take(&mut batch)),
                Err(RecvTimeoutError::Timeout) => self.send(std::mem::take(&mut batch)),
                Err(RecvTimeoutError::Disconnected) => return self.send(batch),
            }
        }
    }

    fn send(&mut self, batch: Vec<SpanData>) {
        if batch.is_empty() {
            return;
        }
        let count = batch.len() as u64;
        let endpoint = &self.endpoint;
        match futures_executor::block_on(self.exporter.export(batch)) {
            Ok(()) => {
                self.counts.exported.fetch_add(count, Relaxed);
                if std::mem::take(&mut self.is_away) {
                    say!("trace: {endpoint} takes spans again");
                }
            }
            Err(error) => {
                self.counts.dropped.fetch_add(count, Relaxed);
                let error = self.trouble.lock().take().unwrap_or_else(|| error.to_string());
                if !std::mem::replace(&mut self.is_away, true) {
                    warn!("trace: {endpoint}: {error}; spans are dropped until it takes them");
                }
            }
        }
    }
}

/// The result of a message.
type Sent = Result<http::Response<Bytes>, HttpError>;

/// The same blocking HTTP client that fetches key sets; the thread has nothing else to do.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    trouble: LastSendError,
}

impl Client {
    fn send(&self, request: http::Request<Bytes>) -> Result<http::Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let (head, mut body) = self.agent.run(http::Request::from_parts(head, &*body))?.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(http::Response::from_parts(head, body.into()))
    }
}

impl HttpClient for Client {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: http::Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send + 'f>>
    where
        'c: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            self.send(request).map_err(|error| {
                *self.trouble.lock() = Some(error.to_string());
                HttpError::from(error)
            })
        })
    }
}
