//! An upstream's answer that is cached for all clients: which request is sent, and what of the answer is
//! cached.
//!
//! Promises that nothing from a client's request reaches the upstream that is not part of the cache key; that
//! only complete answers are cached that the upstream did not mark as private, and no longer than the
//! upstream allows; and that an answer that is not cached goes to no client, except that one which is only
//! too long is streamed to the client whose request started the fill.

use super::proxy::ProxyAction;
use crate::endpoint::waiting_requests::{WaitingPlace, within};
use crate::problem::Problem;
use forebay_cache::{Clock, Filled, Policy, PrivateAnswers, Rules, Storable};
use forebay_http::{Head, HeaderLines};
use forebay_proxy::{Answer, AnswerBody, Error, Fields};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A fill from an upstream.
pub struct ProxyFill {
    /// The proxy to send the request with.
    pub action: Arc<ProxyAction>,
    /// The worker whose connections are used.
    pub worker: usize,
    /// The request to send.
    pub request: forebay_proxy::Request,
    /// The cache key.
    pub key: Box<[u8]>,
    /// Which answers may be cached.
    pub policy: Arc<Policy>,
    /// How long answers are cached.
    pub rules: Arc<Rules>,
    /// The longest body that is cached, in bytes.
    pub bytes_max: usize,
    /// Remembers the keys whose answers must not be shared.
    pub private_answers: Arc<PrivateAnswers>,
    /// The cache's clock, in milliseconds.
    pub clock: Clock,
    /// The longest time that the fill may take.
    pub timeout: Duration,
}

/// An answer that is too long to be cached, for the client whose request started the fill.
pub struct TooLong {
    /// The answer, with the rest of its body.
    pub answer: Answer,
    /// The beginning of its body.
    pub begun: Vec<u8>,
    /// The place of the fill.
    pub place: WaitingPlace,
}

/// The result of reading a body.
enum Gathered {
    Whole(Vec<u8>),
    TooLong(Vec<u8>),
}

impl ProxyFill {
    /// Runs the fill, which counts as a waiting request. A too long answer is sent to `handing`, if a client
    /// waits there.
    pub async fn run(
        mut self,
        handing: Option<oneshot::Sender<TooLong>>,
        place: WaitingPlace,
    ) -> Result<Filled, Problem> {
        within(self.timeout, self.fill(handing, place)).await.flatten()
    }

    async fn fill(
        &mut self,
        handing: Option<oneshot::Sender<TooLong>>,
        place: WaitingPlace,
    ) -> Result<Filled, Problem> {
        let sent = self.action.send(self.worker, &mut self.request).await;
        let mut answer = sent.map_err(|error| self.action.failed(&error))?;
        if answer.status >= 500 || answer.status == 429 {
            return Err(refusal(&answer));
        }
        let Some(storable) = self.policy.judge(&self.rules, answer.status, answer.headers.iter()) else {
            self.private_answers.note(&self.key, self.clock.now_ms());
            return Ok(Filled::nothing());
        };
        // A body that ends with its connection may be truncated without notice.
        let bytes_max = if answer.is_delimited { self.bytes_max } else { 0 };
        let gathered = gather(&mut answer.body, answer.length, bytes_max).await;
        match gathered.map_err(|error| self.action.failed(&error))? {
            Gathered::Whole(body) => Ok(filled(&answer, body, storable, &self.policy)),
            Gathered::TooLong(begun) => {
                self.private_answers.note(&self.key, self.clock.now_ms());
                // The client may have disconnected.
                if let Some(handing) = handing {
                    let _sent = handing.send(TooLong { answer, begun, place });
                }
                Ok(Filled::nothing())
            }
        }
    }
}

/// The answer in the form that is cached.
fn filled(answer: &Answer, body: Vec<u8>, storable: Storable, policy: &Policy) -> Filled {
    let extra = lines(&answer.headers, policy);
    let head = Arc::new(Head::new(answer.status));
    Filled { head, extra, body, mark: 0, keep: storable.keep, age_ms: storable.age_ms }
}

/// The header fields that are cached.
fn lines(headers: &Fields, policy: &Policy) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut writer = HeaderLines::new(&mut lines);
    for (name, value) in headers.iter().filter(|(name, _)| *name != "date" && policy.replays(name)) {
        // A field that the engine does not accept would break the message: it is omitted.
        let _written = writer.add(name, value);
    }
    lines
}

/// Reads a body to its end, or until it is longer than what may be cached.
async fn gather(body: &mut AnswerBody, length: Option<u64>, bytes_max: usize) -> Result<Gathered, Error> {
    if body.is_empty() {
        return Ok(Gathered::Whole(Vec::new()));
    }
    if bytes_max == 0 || length.is_some_and(|length| length > bytes_max as u64) {
        return Ok(Gathered::TooLong(Vec::new()));
    }
    let mut gathered = Vec::with_capacity(length.unwrap_or(0) as usize);
    while let Some(filled) = body.fill(&mut gathered).await {
        filled?;
        if gathered.len() > bytes_max {
            return Ok(Gathered::TooLong(gathered));
        }
    }
    Ok(Gathered::Whole(gathered))
}

/// The problem for a 429 or 5xx of the upstream: its own error page may contain one client's data.
fn refusal(answer: &Answer) -> Problem {
    let retry_after = answer.headers.get("retry-after").and_then(|value| std::str::from_utf8(value).ok());
    let headers = retry_after.map(|value| ("Retry-After", value.to_owned())).into_iter().collect();
    let detail = "the upstream of this route could not answer";
    Problem { headers, ..Problem::new(answer.status, detail) }
}
