//! How far an action got, and running it again when what it needed is there.

use crate::endpoint::answer_sink::OwnedOut;
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::Future;
use std::pin::Pin;

/// A future that an endpoint waits for.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How far an action got.
pub enum Step {
    /// It has answered.
    Done,
    /// It needs something first; then it is to be run again with the same parameters.
    Wait(BoxFuture<Result<(), Problem>>),
    /// Another task works on it and will give the whole answer.
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
    /// What it waits for; `None`: it has answered.
    pub fn pending(self) -> Option<Pending> {
        match self {
            Step::Done => None,
            Step::Wait(needed) => Some(Pending::Wait(needed)),
            Step::Reply(reply) => Some(Pending::Reply(reply)),
        }
    }

    /// The whole answer, by a future.
    pub(super) fn reply(reply: impl Future<Output = Result<Reply, Problem>> + Send + 'static) -> Step {
        Step::Reply(Box::pin(reply))
    }
}

/// How often an action may need something first before it is given up: each time it was given what it asked
/// for.
const ROUNDS_MAX: u32 = 16;

/// Runs an action for a request that does not hold up its connection any more, again whenever what it needed
/// is there.
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
