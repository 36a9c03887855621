//! Timeouts that count only while this process runs.
//!
//! A process that was stopped, or whose machine was (a virtual machine that is moved, a closed laptop), finds
//! every deadline expired when it continues, and no answer yet: but the database was not late. Here such a
//! pause counts as one slice, so that a healthy server is not treated as unresponsive, and a write does not
//! get an unknown outcome.

use crate::limits::PATIENCE_SLICE_MS;
use std::time::Duration;
use tokio::time::sleep;

/// Ends when the process has run for `patience`.
pub(super) async fn lasts(patience: Duration) {
    let mut left = patience;
    while !left.is_zero() {
        let slice = left.min(Duration::from_millis(PATIENCE_SLICE_MS));
        sleep(slice).await;
        left -= slice;
    }
}

/// The result of `work`, if it completes within `patience`.
pub(super) async fn within<T>(patience: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        result = work => Some(result),
        () = lasts(patience) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_stood_still_has_not_waited() {
        let work = async {
            sleep(Duration::from_millis(50)).await;
            // No thread of this process runs meanwhile.
            std::thread::sleep(Duration::from_millis(PATIENCE_SLICE_MS * 8));
            sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(within(Duration::from_millis(PATIENCE_SLICE_MS * 4), work).await, Some(()));
    }

    #[tokio::test]
    async fn patience_ends() {
        assert_eq!(
            within(Duration::from_millis(PATIENCE_SLICE_MS * 3 / 2), std::future::pending::<()>()).await,
            None
        );
    }
}
