//! Requests whose guard needs time: held until the client's identity is known, and then answered as any
//! other.

use super::answer_sink::respond_problem;
use super::guard::{Checked, Guard, Judged};
use super::intake::Intake;
use super::matched_request::Matched;
use super::waiting_requests::{reply_of, within};
use crate::auth::{Auth, Identity, Judging};
use crate::problem::Problem;
use forebay_http::{Answer, Outcome, OwnedRequest, Reply, Request, ServiceAnswer, detached};
use std::sync::Arc;

/// The guards that a request must satisfy: the guard of its endpoint, and those of the endpoints that an
/// upstream application may resolve its path to.
pub struct Guards<E> {
    /// The endpoint that the request matched.
    pub endpoint: Arc<E>,
    /// The endpoints that the upstream application may resolve the path to.
    pub others: Vec<Arc<E>>,
}

/// An endpoint behind a guard.
pub trait Enter: Send + Sync + 'static {
    /// The guard; `None`: every request may pass.
    fn guard(&self) -> Option<&Guard>;

    /// The endpoint's intake of requests.
    fn intake(&self) -> &Intake;

    /// Answers a request that passed the guard, or returns the future that will.
    fn enter(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem>;
}

/// Records the client's identity for the request log.
pub fn note_subject(request: &Request<'_>, identity: Option<&Identity>) {
    if let (Some(identity), Some(label)) = (identity, request.label()) {
        label.subject.get_or_init(|| identity.subject.clone());
    }
}

impl<E: Enter> Guards<E> {
    /// Checks a request against the guards.
    pub fn check(&self, request: &Request<'_>, judged: &Judged) -> Checked {
        let check = |guarded: &Arc<E>| match guarded.guard() {
            Some(guard) => guard.check(request, judged),
            None => Checked::Passed(None),
        };
        let undecided = self.others.iter().map(check).find(|checked| !matches!(checked, Checked::Passed(_)));
        undecided.unwrap_or_else(|| check(&self.endpoint))
    }

    /// Awaits a verdict, checks the guards again, and answers.
    pub fn wait(
        self,
        request: &Request<'_>,
        path: &[(&str, &str)],
        first: (Arc<Auth>, Judging),
    ) -> Result<Outcome, Problem> {
        let waiting = &self.endpoint.intake().waiting;
        let (place, timeout) = (waiting.take(request.client().network())?, waiting.timeout);
        let path: Vec<(String, String)> =
            path.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = OwnedRequest::new(request);
        Ok(Outcome::Streamed(Box::pin(async move {
            // Nothing was executed: the client may retry.
            let late = |_| Problem::unavailable("the credentials could not be verified in time");
            match within(timeout, self.judge(request, first)).await.map_err(late).flatten() {
                Ok((request, identity)) => {
                    // The answer takes a place of its own.
                    drop(place);
                    let answering = self.answer(&request, &path, identity.as_deref());
                    drop(request);
                    answering.await
                }
                Err(problem) => reply_of(Err(problem)).into(),
            }
        })))
    }

    async fn judge(
        &self,
        request: OwnedRequest,
        first: (Arc<Auth>, Judging),
    ) -> Result<(OwnedRequest, Option<Arc<Identity>>), Problem> {
        let (mut judged, mut next) = (Judged::default(), first);
        loop {
            let verdict = next.1.await;
            judged.note(next.0, verdict);
            match request.with(|request| self.check(request, &judged)) {
                Checked::Passed(identity) => return Ok((request, identity)),
                Checked::Refused(problem) => return Err(problem),
                Checked::Wait(auth, judging) => next = (auth, judging),
            }
        }
    }

    /// The endpoint's answer to a request that passed.
    fn answer(
        &self,
        request: &OwnedRequest,
        path: &[(String, String)],
        identity: Option<&Identity>,
    ) -> impl Future<Output = ServiceAnswer> + Send + use<E> {
        let path: Vec<_> = path.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let matched = Matched { path: &path, identity };
        let (outcome, written) = detached(|answer| {
            request.with(|request| {
                note_subject(request, identity);
                let entered = self.endpoint.enter(request, matched, answer);
                written_or(entered, answer)
            })
        });
        settled(outcome, written)
    }
}

/// The outcome of a request that was held. A problem is written as an answer, so that it gets the answer's
/// header lines.
pub fn written_or(result: Result<Outcome, Problem>, answer: &mut Answer<'_>) -> Outcome {
    result.unwrap_or_else(|problem| {
        respond_problem(&problem, answer);
        Outcome::Done
    })
}

/// The answer to a request that was held: the written one, or the one that comes later.
pub async fn settled(outcome: Outcome, written: Option<Reply>) -> ServiceAnswer {
    match (outcome, written) {
        (Outcome::Done, Some(reply)) => reply.into(),
        (Outcome::Done, None) => reply_of(Err(Problem::new(500, "the handler gave no answer"))).into(),
        (Outcome::Later(reply), _) => reply.await.into(),
        (Outcome::Streamed(given), _) => given.await,
    }
}
