//! Actions that run without a connection: started, and driven from what they wait for to the answer.

use super::answer_sink::OwnedOut;
use super::eval::Slots;
use crate::action::{Action, Pending, run_until_answered};
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::ready;
use std::sync::Arc;

/// Starts an action now. An answer that is ready at once is returned as a pending one too.
pub fn run_owned(action: &Action, slots: &Arc<Slots>) -> Result<Pending, Problem> {
    let mut out = OwnedOut::default();
    let pending = action.run(slots, &mut out)?.pending();
    Ok(pending.unwrap_or_else(|| Pending::Reply(Box::pin(ready(Ok(out.into_reply()))))))
}

/// Drives an action from what it waits for to its answer.
pub async fn finish(action: &Action, slots: &Arc<Slots>, pending: Pending) -> Result<Reply, Problem> {
    match pending {
        Pending::Wait(needed) => needed.await?,
        Pending::Reply(reply) => return reply.await,
    }
    run_until_answered(|out| action.run(slots, out)).await
}
