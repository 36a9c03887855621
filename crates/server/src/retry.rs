//! Calls to a database that may be unreachable while a server starts or a table is loaded.
//!
//! A call that fails because the database is unreachable, restarting or busy is repeated after a growing
//! pause until it succeeds. Each new reason is one log line. Any other failure is returned at once: a wrong
//! password, an unknown database or a missing table must be corrected by a person.

use forebay_table::{HotError, HotKind};
use forebay_terminal::warn;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The first and the longest pause before a retry.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// See [`PAUSE_FIRST`]. Short, so that a database that returns is found soon.
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// An error that knows whether a retry may help.
pub(crate) trait Transient: Display {
    fn is_waited_for(&self) -> bool;
}

impl Transient for forebay_database::Error {
    fn is_waited_for(&self) -> bool {
        self.may_retry()
    }
}

impl Transient for forebay_drain::Error {
    fn is_waited_for(&self) -> bool {
        self.may_retry()
    }
}

impl Transient for HotError {
    /// Only the database is waited for: a memory tier that is unreachable at the start ends the start.
    fn is_waited_for(&self) -> bool {
        self.kind() == HotKind::Source && self.may_retry()
    }
}

/// Why a call has not succeeded yet. Clones share the reason.
#[derive(Clone)]
pub(crate) struct RetryReason(Arc<watch::Sender<Option<String>>>);

impl Default for RetryReason {
    fn default() -> RetryReason {
        RetryReason(Arc::new(watch::Sender::new(None)))
    }
}

impl RetryReason {
    /// The reason, while a call fails.
    pub fn why(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Resolves when there is a reason.
    pub async fn arises(&self) {
        // This fails only if the sender is dropped, but `self` owns the sender.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// Stores the reason, and logs it if it is new.
    fn set(&self, reason: String) {
        if self.why().as_ref() != Some(&reason) {
            warn!("{reason}; trying again");
            self.0.send_replace(Some(reason));
        }
    }

    fn clear(&self) {
        if self.why().is_some() {
            self.0.send_replace(None);
        }
    }
}

/// Repeats a call until it succeeds or fails in a way that a retry does not help. `doing` names the work that
/// waits, for messages.
pub(crate) async fn retry_while_unavailable<T, E: Transient, F: Future<Output = Result<T, E>>>(
    trouble: &RetryReason,
    doing: &str,
    mut ask: impl FnMut() -> F,
) -> Result<T, E> {
    let mut pause = PAUSE_FIRST;
    loop {
        match ask().await {
            Err(error) if error.is_waited_for() => {
                trouble.set(format!("{doing}: {error}"));
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LAST);
            }
            answered => {
                trouble.clear();
                return answered;
            }
        }
    }
}
