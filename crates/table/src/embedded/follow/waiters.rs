//! Requests that wait for a poll: for wanted keys, and until memory shows a write made by SQL.
//!
//! Polls are numbered. A request that waits notes the number of the poll that began last: a later poll finds
//! everything that was committed when the wait began. Several polls make a pass (the changes of one snapshot,
//! page by page); a pass that began after a commit contains it.

use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Polls, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Polls {
    pub begun: u64,
    pub ended: u64,
    /// The poll with which the pass under way began; `None`: the next poll begins one.
    pub pass: Option<u64>,
    /// The poll with which the last complete pass began.
    pub passed: u64,
    pub failed: Option<(u64, Arc<str>)>,
}

/// Wakes requests that wait for polls. All tables of a folder share one.
pub(crate) struct Waiters {
    pub polls: watch::Sender<Polls>,
    pub wake: Notify,
}

impl Default for Waiters {
    fn default() -> Waiters {
        Waiters { polls: watch::Sender::new(Polls::default()), wake: Notify::new() }
    }
}

impl Waiters {
    /// Resolves when a poll that began after this call has ended; the error says why it failed.
    pub async fn polled(&self, in_a_hurry: bool) -> Result<(), Arc<str>> {
        let mut polls = self.polls.subscribe();
        let after = polls.borrow().begun;
        if in_a_hurry {
            self.wake.notify_one();
        }
        let seen = polls.wait_for(|polls| polls.ended > after).await.expect("the sender is in `self`");
        match &seen.failed {
            Some((failed, why)) if *failed > after => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Resolves when any pass has ended, or any poll has failed.
    pub async fn looked(&self) {
        let looked = |polls: &Polls| polls.passed > 0 || polls.failed.is_some();
        // The wait fails only when the sender is dropped, and `self` holds the sender.
        let _ = self.polls.subscribe().wait_for(looked).await;
    }

    /// Resolves when a pass that began after this call has ended.
    pub async fn passed(&self) {
        let mut polls = self.polls.subscribe();
        let after = polls.borrow().begun;
        self.wake.notify_one();
        // The wait fails only when the sender is dropped, and `self` holds the sender.
        let _ = polls.wait_for(|polls| polls.passed > after).await;
    }
}
