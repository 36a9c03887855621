//! Questions to a database that may be away while a server starts or a table is loaded.
//!
//! A question that fails because the database is away, restarting or busy is asked again, after a growing
//! pause, until it is answered. Each new reason is one line on the terminal. Any other failure is returned at
//! once: a wrong password, an unknown database or a missing table is put right by a person.

use forebay_table::{HotError, HotKind};
use forebay_terminal::warn;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The first and the longest pause before a question is asked again.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// See [`PAUSE_FIRST`]. A database that is back is found soon after.
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// A failure of which it is known whether asking again may help.
pub(crate) trait Transient: Display {
    fn is_transient(&self) -> bool;
}

impl Transient for forebay_database::Error {
    fn is_transient(&self) -> bool {
        self.may_retry()
    }
}

impl Transient for forebay_drain::Error {
    fn is_transient(&self) -> bool {
        forebay_drain::Error::is_transient(self)
    }
}

impl Transient for HotError {
    /// Only the database is waited for: a memory tier that is away at start ends it.
    fn is_transient(&self) -> bool {
        self.kind() == HotKind::Source && self.may_retry()
    }
}

/// Why a question is not answered yet. Clones are the same.
#[derive(Clone)]
pub(crate) struct Trouble(Arc<watch::Sender<Option<String>>>);

impl Default for Trouble {
    fn default() -> Trouble {
        Trouble(Arc::new(watch::Sender::new(None)))
    }
}

impl Trouble {
    /// The reason, while there is one.
    pub fn why(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Resolves once there is a reason.
    pub async fn arises(&self) {
        // It fails when the sender is gone, and that is in `self`.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// One line for each new reason.
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

/// Asks until there is an answer, or a failure that asking again does not mend. `doing` is what waits for it,
/// in a message.
pub(crate) async fn until_answered<T, E: Transient, F: Future<Output = Result<T, E>>>(
    trouble: &Trouble,
    doing: &str,
    mut ask: impl FnMut() -> F,
) -> Result<T, E> {
    let mut pause = PAUSE_FIRST;
    loop {
        match ask().await {
            Err(error) if error.is_transient() => {
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
