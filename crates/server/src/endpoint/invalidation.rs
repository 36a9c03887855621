//! `invalidates`: a write drops cached answers of the older state before the write's answer is sent.
//!
//! Promises that every write that may have happened is followed by the drop, even if its client has
//! disconnected: the write runs in its own task.

use super::cached::Tags;
use super::eval::Slots;
use super::intake::Intake;
use super::matched_request::Matched;
use super::run::{finish, run_owned};
use super::waiting_requests::{WaitingPlace, WaitingRequests};
use crate::action::{Action, Pending};
use crate::problem::Problem;
use forebay_cache::{Cache, limits};
use forebay_http::{Answer, Method, Outcome, Reply, Request};
use forebay_terminal::warn;
use std::sync::Arc;

/// What a write drops from the cache.
pub struct Drops {
    /// The cache of this process.
    pub cache: Cache<Problem>,
    pub tags: Tags,
    /// The prefix of path tags, if the tag of the request's path is dropped too.
    pub path_tag: Option<String>,
    /// Whether safe requests (GET, HEAD, OPTIONS) drop nothing.
    pub spares_safe: bool,
    /// Whether some endpoint promises that no client sees a stale answer: then a write that other servers
    /// could not be told of is reported as failed.
    pub is_strict: bool,
}

impl Drops {
    /// Answers a request of this endpoint.
    pub fn call(
        &self,
        waiting: &Arc<WaitingRequests>,
        action: &Arc<Action>,
        request: &Request<'_>,
        slots: Arc<Slots>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let (tags, client) = (self.tags.of(&slots)?, request.client().network());
        if self.cache.has_shared() {
            let pending = run_owned(action, &slots)?;
            return self.wait(waiting.take(client)?, action, slots, pending, tags);
        }
        match action.run(&slots, answer)?.pending() {
            None => {
                self.cache.drop_here(&tags);
                Ok(Outcome::Done)
            }
            Some(pending) => self.wait(waiting.take(client)?, action, slots, pending, tags),
        }
    }

    /// The drop that a passed-on request is followed by; `None` for a request that cannot write.
    pub fn of_passed(
        &self,
        intake: &Intake,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<Option<Dropping>, Problem> {
        if self.spares_safe && matches!(request.method(), Method::Get | Method::Head | Method::Options) {
            return Ok(None);
        }
        let mut tags = self.tags.of(&intake.params.read(request, matched)?)?;
        if let Some(begin) = &self.path_tag {
            tags.push(path_tag(begin, request.path()));
        }
        Ok(Some(self.dropping(tags)))
    }

    fn dropping(&self, tags: Vec<String>) -> Dropping {
        Dropping { cache: self.cache.clone(), tags, is_strict: self.is_strict }
    }

    fn wait(
        &self,
        place: WaitingPlace,
        action: &Arc<Action>,
        slots: Arc<Slots>,
        pending: Pending,
        tags: Vec<String>,
    ) -> Result<Outcome, Problem> {
        // The write owns the place: the place is taken until the write has ended, even if its client has
        // disconnected.
        let place = Arc::new(place);
        let (writing_place, dropping, action) = (place.clone(), self.dropping(tags), action.clone());
        let writing = tokio::spawn(async move {
            let _place = writing_place;
            let result = finish(&action, &slots, pending).await;
            if !may_have_written(&result) {
                return result;
            }
            let told = dropping.run().await;
            // A failed write returns its own problem.
            result.and_then(|reply| told.map(|()| reply))
        });
        Ok(Outcome::Later(Box::pin(async move {
            let broken_off = |_| Err(Problem::outcome_unknown("the write was broken off"));
            place.reply(async { writing.await.unwrap_or_else(broken_off) }).await
        })))
    }
}

/// A drop to run after a write.
pub struct Dropping {
    cache: Cache<Problem>,
    tags: Vec<String>,
    is_strict: bool,
}

impl Dropping {
    /// Drops the tags. Fails if the drop must reach the other servers and could not.
    pub async fn run(self) -> Result<(), Problem> {
        let patience_ms = if self.is_strict { limits::STRICT_PATIENCE_MS } else { 0 };
        match self.cache.drop_tags_within(&self.tags, patience_ms).await {
            Err(error) if self.is_strict => {
                warn!("forebay: a write could not be told to other servers: {error}");
                // A write that was done is not to be repeated: no Retry-After.
                let detail = "it was written, but other servers may show what was there before for a while";
                Err(Problem::new(503, detail))
            }
            // The cache tells the other servers as soon as it can; until then `consistency = "eventual"`
            // allows them stale answers.
            _ => Ok(()),
        }
    }
}

/// The tag of everything that is cached of a path.
pub fn path_tag(begin: &str, path: &str) -> String {
    format!("{begin} {path}")
}

/// Whether the write may have changed something: not when the request itself was refused.
fn may_have_written(result: &Result<Reply, Problem>) -> bool {
    result.as_ref().err().is_none_or(|problem| problem.status >= 500)
}
