//! Read your writes: rows written by SQL are in memory before the writer gets its answer.

use forebay_database::{Statement, Store};
use forebay_table::Following;
use std::time::Duration;

/// The longest that an answer waits for that. The write is committed by then; only the next read on this
/// server may not show it yet.
const WAIT: Duration = Duration::from_secs(1);

/// What to wait for after a statement: the followed tables, if there are any.
#[derive(Clone)]
pub struct WriteVisibility(pub Option<Following>);

impl WriteVisibility {
    /// Resolves when everything committed so far is in memory, or after a second; at once after a statement
    /// that only reads.
    pub async fn wait_after(&self, store: &Store, statement: &Statement) {
        if let Some(following) = self.0.as_ref().filter(|_| store.writes(statement)) {
            // The write is committed in either case.
            let _ = tokio::time::timeout(WAIT, following.passed()).await;
        }
    }
}
