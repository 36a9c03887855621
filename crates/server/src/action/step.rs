//! The state of a running action, and running it again when what it needed is ready.

use crate::endpoint::answer_sink::OwnedOut;
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::Future;
use std::pin::Pin;

/// A future that an endpoint waits for.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The state of an action after it ran.
pub enum Step {
    /// It has answered.
    Done,
    /// It needs this first; then it must be run again with the same parameters.
    Wait(BoxFuture<Result<(), Problem>>),
    /// Another task works on it and will return the whole answer.
    Reply(BoxFuture<Result<Reply, Problem>>),
}

/// What an action that has not answered waits for.
pub enum Pending {
    /// As [`Step::Wait`].
    Wait(BoxFuture<Result<(), Problem>>),
    /// As [`Step::Reply`].
    Reply(BoxFuture<Result<Reply, Problem>>),
}

impl Step {
    /// What the action waits for; `None`: it has answered.
    pub fn pending(self) -> Option<Pending> {
        match self {
            Step::Done => None,
            Step::Wait(needed) => Some(Pending::Wait(needed)),
            Step::Reply(reply) => Some(Pending::Reply(reply)),
        }
    }

    /// The whole answer, from a future.
    pub(super) fn reply(reply: impl Future<Output = Result<Reply, Problem>> + Send + 'static) -> Step {
        Step::Reply(Box::pin(reply))
    }
}

/// How often an action may wait and be run again before it fails. Each wait ended with what the action had
/// asked for.
const ROUNDS_MAX: u32 = 16;

/// Runs an action for a request that no longer blocks its connection, again each time that what it needed is
/// ready.
pub async fn run_until_answered(
    run: impl Fn(&mut OwnedOut) -> Result<Step, Problem>,
) -> Result<Reply, Problem> {
    for _ in 0..ROUNDS_MAX {
        let mut out = OwnedOut::default();
        match run(&mut out)? {
            Step::Done => return Ok(out.into_reply()),
            Step::Wait(needed) => needed.await?,
            Step::Reply(reply) => return reply.await,
        }
    }
    Err(Problem::unavailable("the rows asked for do not stay in memory long enough"))
}
