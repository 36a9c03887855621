//! Read your writes: what was written by SQL is in memory before its writer is answered.

use forebay_table::Following;
use std::time::Duration;

/// How long an answer waits for that at most. The write is committed by then; all that is missing is that
/// the next read on this server shows it.
const WAIT: Duration = Duration::from_secs(1);

/// What to wait for after a write by SQL: the followed tables, if there are any.
#[derive(Clone)]
pub struct Seen(pub Option<Following>);

impl Seen {
    /// Resolves when what is committed now is in memory, or after a second.
    pub async fn wait(&self) {
        if let Some(following) = &self.0 {
            // The write is done either way.
            let _ = tokio::time::timeout(WAIT, following.passed()).await;
        }
    }
}
