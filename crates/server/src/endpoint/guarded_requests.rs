//! Requests whose guard needs time: kept until it is known who is asking, and then answered as any other.

use super::answer_sink::respond_problem;
use super::guard::{Checked, Guard, Judged};
use super::intake::Intake;
use super::matched_request::Matched;
use super::waiting_requests::{reply_of, within};
use crate::auth::{Auth, Identity, Judging};
use crate::problem::Problem;
use forebay_http::{Answer, Given, Outcome, OwnedRequest, Reply, Request, detached};
use std::sync::Arc;

/// The guards that a request must satisfy: that of its endpoint, and that of the endpoint which an
/// application behind may take its path for.
pub struct Guards<E> {
    /// What is asked.
    pub endpoint: Arc<E>,
    /// What the application may take it for.
    pub other: Option<Arc<E>>,
}

/// What stands behind a guard.
pub trait Enter: Send + Sync + 'static {
    /// Which requests may pass, if not all.
    fn guard(&self) -> Option<&Guard>;

    /// What it takes requests with.
    fn intake(&self) -> &Intake;

    /// Answers a request that its guard lets pass, or gives the future that will.
    fn enter(
        self: &Arc<Self>,
        request: &Request<'_>,
        matched: Matched<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem>;
}

/// Lets the log of requests know who is asking.
pub fn note_subject(request: &Request<'_>, identity: Option<&Identity>) {
    if let (Some(identity), Some(label)) = (identity, request.label()) {
        label.subject.get_or_init(|| identity.subject.clone());
    }
}

impl<E: Enter> Guards<E> {
    /// What they say of a request.
    pub fn check(&self, request: &Request<'_>, judged: &Judged) -> Checked {
        let check = |guarded: &Arc<E>| match guarded.guard() {
            Some(guard) => guard.check(request, judged),
            None => Checked::Passed(None),
        };
        match self.other.as_ref().map(check) {
            None | Some(Checked::Passed(_)) => check(&self.endpoint),
            Some(undecided) => undecided,
        }
    }

    /// Waits for a verdict, asks again, and answers.
    pub fn wait(
        self,
        request: &Request<'_>,
        path: &[(&str, &str)],
        first: (Arc<Auth>, Judging),
    ) -> Result<Outcome, Problem> {
        let waiting = &self.endpoint.intake().waiting;
        let (place, timeout) = (waiting.take()?, waiting.timeout);
        let path: Vec<(String, String)> =
            path.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = OwnedRequest::new(request);
        Ok(Outcome::Streamed(Box::pin(async move {
            let _place = place;
            // Nothing was done: it may be asked again.
            let late = |_| Problem::unavailable("who is asking was not found out in time");
            match within(timeout, self.judge(request, first)).await.map_err(late).flatten() {
                Ok((request, identity)) => {
                    let answering = self.answer(&request, &path, identity.as_deref());
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

    /// What the endpoint answers to a request that may pass.
    fn answer(
        &self,
        request: &OwnedRequest,
        path: &[(String, String)],
        identity: Option<&Identity>,
    ) -> impl Future<Output = Given> + Send + use<E> {
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

/// What comes of a request that was kept. A problem is written, so that it has the lines of its answer.
pub fn written_or(result: Result<Outcome, Problem>, answer: &mut Answer<'_>) -> Outcome {
    result.unwrap_or_else(|problem| {
        respond_problem(&problem, answer);
        Outcome::Done
    })
}

/// The answer to a request that was kept: what was written, or what comes later.
pub async fn settled(outcome: Outcome, written: Option<Reply>) -> Given {
    match (outcome, written) {
        (Outcome::Done, Some(reply)) => reply.into(),
        (Outcome::Done, None) => reply_of(Err(Problem::new(500, "the handler gave no answer"))).into(),
        (Outcome::Later(reply), _) => reply.await.into(),
        (Outcome::Streamed(given), _) => given.await,
    }
}
