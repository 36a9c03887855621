//! `invalidates`: a write drops what was kept of the older state before its answer leaves.
//!
//! Promises that a write that may have happened is followed by the drop whether its client waits for it or not: it runs in a task of its
//! own.

use super::cached::Tags;
use super::eval::Slots;
use super::out::OwnedOut;
use super::{Endpoint, WaitingPlace, problem_reply};
use crate::action::Step;
use crate::problem::Problem;
use forebay_cache::{Cache, limits};
use forebay_http::{Answer, Outcome, Reply};
use std::sync::Arc;

/// What a write drops.
pub struct Drops {
    /// The cache of this process.
    pub cache: Cache<Problem>,
    /// The tags.
    pub tags: Tags,
    /// Whether some endpoint promises that nobody sees what is older: then a write of which others could not be told has not succeeded.
    pub is_strict: bool,
}

impl Drops {
    /// Answers a request of this endpoint.
    pub fn call(
        &self,
        endpoint: &Arc<Endpoint>,
        slots: Arc<Slots>,
        answer: &mut Answer<'_>,
    ) -> Result<Outcome, Problem> {
        let tags = self.tags.of(&slots)?;
        if self.cache.has_shared() {
            let mut out = OwnedOut::default();
            let step = match endpoint.action.run(&slots, &mut out)? {
                Step::Done => {
                    let reply = out.into_reply();
                    Step::Reply(Box::pin(async { Ok(reply) }))
                }
                step => step,
            };
            return self.wait(endpoint, slots, step, tags);
        }
        match endpoint.action.run(&slots, answer)? {
            Step::Done => {
                self.cache.drop_here(&tags);
                Ok(Outcome::Done)
            }
            step => self.wait(endpoint, slots, step, tags),
        }
    }

    fn wait(
        &self,
        endpoint: &Arc<Endpoint>,
        slots: Arc<Slots>,
        step: Step,
        tags: Vec<String>,
    ) -> Result<Outcome, Problem> {
        let place = WaitingPlace::take(endpoint)?;
        let (cache, is_strict, timeout) = (self.cache.clone(), self.is_strict, endpoint.timeout);
        let writing = tokio::spawn(async move {
            let result = place.0.finish(&slots, step).await;
            if !may_have_written(&result) {
                return result;
            }
            let patience_ms = if is_strict { limits::STRICT_PATIENCE_MS } else { 0 };
            match cache.drop_tags_within(&tags, patience_ms).await {
                Err(error) if is_strict && result.is_ok() => {
                    eprintln!("forebay: a write could not be told to other servers: {error}");
                    Err(Problem::unavailable(
                        "it was written, but other servers may show what was there before for a while",
                    ))
                }
                // Told as soon as it can be; until then `promise = "eventual"` says what others may show.
                _ => result,
            }
        });
        Ok(Outcome::Later(Box::pin(async move {
            let problem = match tokio::time::timeout(timeout, writing).await {
                Ok(Ok(Ok(reply))) => return reply,
                Ok(Ok(Err(problem))) => problem,
                Ok(Err(_)) => Problem::unavailable("the write was broken off: outcome unknown"),
                Err(_) => Problem::new(504, "it took too long; whether it was done is unknown"),
            };
            problem_reply(&problem)
        })))
    }
}

/// Whether something may be different now: not when the request itself was refused.
fn may_have_written(result: &Result<Reply, Problem>) -> bool {
    result.as_ref().err().is_none_or(|problem| problem.status >= 500)
}
