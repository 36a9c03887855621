//! An answer of a server behind that is kept for all clients: what is asked, and what of the answer is kept.
//!
//! Promises that nothing of a client reaches the server that is not part of the question; that nothing is
//! kept but whole answers, of which the server did not say that they are for one client, and no longer than
//! it said; and that what is not kept is served to no client but, where it is only too long, to the client
//! that asked first, as it comes.

use super::proxy::ProxyAction;
use crate::endpoint::waiting_requests::{WaitingPlace, within};
use crate::problem::Problem;
use forebay_cache::{Clock, Filled, Policy, PrivateAnswers, Rules, Storable};
use forebay_http::{Head, HeaderLines};
use forebay_proxy::{Answer, AnswerBody, Error, Fields};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A fill from a server behind.
pub struct ProxyFill {
    /// Where from.
    pub action: Arc<ProxyAction>,
    /// On whose connections.
    pub worker: usize,
    /// What is asked.
    pub request: forebay_proxy::Request,
    /// The question, as the cache knows it.
    pub key: Box<[u8]>,
    /// Which answers are kept.
    pub policy: Arc<Policy>,
    /// For how long.
    pub rules: Arc<Rules>,
    /// The longest body that is kept.
    pub bytes_max: usize,
    /// Questions whose answers are not.
    pub private_answers: Arc<PrivateAnswers>,
    /// The cache's time, in milliseconds.
    pub clock: Clock,
    /// How long it may take.
    pub timeout: Duration,
    /// What is being asked counts among those who wait.
    pub _place: Arc<WaitingPlace>,
}

/// An answer that is too long to be kept, and what has been read of it: for who asked first.
pub struct TooLong {
    /// The answer, with the rest of its body.
    pub answer: Answer,
    /// The beginning of its body.
    pub begun: Vec<u8>,
}

/// How far a body was read.
enum Gathered {
    Whole(Vec<u8>),
    TooLong(Vec<u8>),
}

impl ProxyFill {
    /// Asks. A long answer goes to `handing`, if a client waits there.
    pub async fn run(mut self, handing: Option<oneshot::Sender<TooLong>>) -> Result<Filled, Problem> {
        within(self.timeout, self.fill(handing)).await.flatten()
    }

    async fn fill(&mut self, handing: Option<oneshot::Sender<TooLong>>) -> Result<Filled, Problem> {
        let sent = self.action.send(self.worker, &mut self.request).await;
        let mut answer = sent.map_err(|error| self.action.failed(&error))?;
        if answer.status >= 500 || answer.status == 429 {
            return Err(refusal(&answer));
        }
        let Some(storable) = self.policy.judge(&self.rules, answer.status, answer.headers.iter()) else {
            self.private_answers.note(&self.key, self.clock.now_ms());
            return Ok(Filled::nothing());
        };
        // What ends with its connection may be short without anybody's seeing it.
        let bytes_max = if answer.is_delimited { self.bytes_max } else { 0 };
        let gathered = gather(&mut answer.body, answer.length, bytes_max).await;
        match gathered.map_err(|error| self.action.failed(&error))? {
            Gathered::Whole(body) => Ok(filled(&answer, body, storable, &self.policy)),
            Gathered::TooLong(begun) => {
                self.private_answers.note(&self.key, self.clock.now_ms());
                // Who asked may be gone.
                if let Some(handing) = handing {
                    let _sent = handing.send(TooLong { answer, begun });
                }
                Ok(Filled::nothing())
            }
        }
    }
}

/// The answer as it is kept.
fn filled(answer: &Answer, body: Vec<u8>, storable: Storable, policy: &Policy) -> Filled {
    let extra = lines(&answer.headers, policy);
    let head = Arc::new(Head::new(answer.status));
    Filled { head, extra, body, mark: 0, keep: storable.keep, age_ms: storable.age_ms }
}

/// The fields that are kept.
fn lines(headers: &Fields, policy: &Policy) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut writer = HeaderLines::new(&mut lines);
    for (name, value) in headers.iter().filter(|(name, _)| *name != "date" && policy.replays(name)) {
        // One that the engine does not take would break the message: it is left out.
        let _written = writer.add(name, value);
    }
    lines
}

/// Reads a body up to its end, or until it is longer than what is kept.
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

/// What clients are told when the server behind says that it cannot: its own page may be meant for one of
/// them.
fn refusal(answer: &Answer) -> Problem {
    let retry_after = answer.headers.get("retry-after").and_then(|value| std::str::from_utf8(value).ok());
    let headers = retry_after.map(|value| ("Retry-After", value.to_owned())).into_iter().collect();
    let detail = "the server behind this route could not answer";
    Problem { headers, ..Problem::new(answer.status, detail) }
}
