//! Answers that are not cached but have an ETag or are compressed: `etag` and `compress` without `cache`.

use super::answer_sink::OwnedOut;
use super::eval::Slots;
use super::run::finish;
use super::waiting_requests::WaitingRequests;
use crate::action::Action;
use crate::problem::Problem;
use forebay_cache::{Conditions, encode, etag};
use forebay_http::{Answer, Head, HeaderLines, Outcome, Reply, Request};
use std::sync::Arc;

/// The form of answers.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Whether they have an ETag.
    pub etag: bool,
    /// Whether they are compressed.
    pub compress: bool,
}

impl Form {
    /// Answers a request with an action, in this form.
    pub(super) fn call(
        self,
        waiting: &Arc<WaitingRequests>,
        action: &Arc<Action>,
        request: &Request<'_>,
        slots: Arc<Slots>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let conditions = Conditions::of(request);
        let mut out = OwnedOut::default();
        let Some(pending) = action.run(&slots, &mut out)?.pending() else {
            answer.respond_reply(&self.answer_headers(out.into_reply(), &conditions));
            return Ok(Outcome::Done);
        };
        let place = waiting.take(request.client().network())?;
        let (action, conditions) = (action.clone(), conditions.into_owned());
        Ok(Outcome::Later(Box::pin(async move {
            self.answer_headers(place.reply(finish(&action, &slots, pending)).await, &conditions)
        })))
    }

    /// Adds the ETag and compresses the body; any status but 200 stays unchanged.
    pub(super) fn answer_headers(self, mut reply: Reply, conditions: &Conditions<'_>) -> Reply {
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
