//! Time that counts only while this process runs.
//!
//! A process that was stopped, or whose machine was (a virtual machine that is moved, a laptop that was
//! closed), finds every deadline past when it goes on, and what it waited for not yet there: the database
//! was not late. Here such a pause counts as one slice, so that a healthy server is not taken for a deaf
//! one, and a write not for one whose outcome is unknown.

use crate::limits::PATIENCE_SLICE_MS;
use std::time::Duration;
use tokio::time::sleep;

/// Ends when the process has run for so long.
pub(super) async fn lasts(patience: Duration) {
    let mut left = patience;
    while !left.is_zero() {
        let slice = left.min(Duration::from_millis(PATIENCE_SLICE_MS));
        sleep(slice).await;
        left -= slice;
    }
}

/// What `work` gives, if it does while patience lasts.
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
            // Nothing of this process runs meanwhile.
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
