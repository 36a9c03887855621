//! Answers that are not kept and still have a validator, or are compressed: `etag` and `compress` without `cache`.

use super::eval::Slots;
use super::out::OwnedOut;
use super::{Endpoint, WaitingPlace, problem_reply};
use crate::action::Step;
use crate::problem::Problem;
use forebay_cache::{Conditions, encode, etag};
use forebay_http::{Answer, Head, HeaderLines, Outcome, Reply, Request};
use std::sync::Arc;

impl Endpoint {
    /// Answers, and looks at what the client has and takes.
    pub(super) fn call_validated(
        self: &Arc<Self>,
        request: &Request<'_>,
        slots: Arc<Slots>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let conditions = Conditions::of(request);
        let mut out = OwnedOut::default();
        match self.action.run(&slots, &mut out)? {
            Step::Done => {
                answer.respond_reply(&self.dress(out.into_reply(), &conditions));
                Ok(Outcome::Done)
            }
            step => {
                let (place, conditions) = (WaitingPlace::take(self)?, conditions.into_owned());
                Ok(Outcome::Later(Box::pin(async move {
                    let endpoint = &place.0;
                    let finished =
                        tokio::time::timeout(endpoint.timeout, endpoint.finish(&slots, step)).await;
                    match finished {
                        Ok(Ok(reply)) => endpoint.dress(reply, &conditions),
                        Ok(Err(problem)) => problem_reply(&problem),
                        Err(_) => problem_reply(&Problem::new(504, "it took too long")),
                    }
                })))
            }
        }
    }

    /// Gives an answer its validator and its form.
    pub(super) fn dress(&self, mut reply: Reply, conditions: &Conditions<'_>) -> Reply {
        if reply.head.status() != 200 {
            return reply;
        }
        let etag = self.etag.then(|| etag(&reply.body));
        let mut lines = HeaderLines::new(&mut reply.extra);
        let mut add = |name: &str, value: &str| {
            lines.add(name, value).expect("fields of our own are well-formed");
        };
        if let Some(etag) = &etag {
            add("ETag", etag);
            add("Cache-Control", "no-cache");
        }
        if self.compress {
            add("Vary", "Accept-Encoding");
        }
        if etag.is_some_and(|etag| conditions.has(&etag)) {
            return Reply { head: Arc::new(Head::new(304)), body: Vec::new(), ..reply };
        }
        if let Some(coding) = conditions.coding().filter(|_| self.compress)
            && let Some(body) = encode(coding, &reply.body)
        {
            add_coding(&mut reply.extra, coding.name());
            reply.body = body;
        }
        reply
    }
}

fn add_coding(extra: &mut Vec<u8>, name: &str) {
    HeaderLines::new(extra).add("Content-Encoding", name).expect("a coding's name is well-formed");
}
