//! Waiting for tables that another server has claimed: until that server renews its claim, or the claim
//! expires.

use crate::start_error::StartError;
use forebay_database::limits::CLAIM_MS;
use forebay_drain::{Error, HEARTBEAT};
use forebay_terminal::warn;
use std::time::{Duration, Instant};

/// How long a stop may take to tell the database what it leaves.
pub(super) const GIVE_BACK: Duration = Duration::from_secs(1);

/// How often the claim is tried again.
const LOOK: Duration = Duration::from_secs(1);

/// Retries while another server holds the claim; fails when that server renews it or does not release it in
/// time.
pub(super) async fn wait_for<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, StartError> {
    // The claim's time is the database's clock, and a batch of the other server may be running.
    let deadline = Instant::now() + Duration::from_millis(CLAIM_MS) + HEARTBEAT;
    let mut first = None;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let Some(holder) = error.holder() else { return Err(StartError::from(error)) };
        let first = first.get_or_insert_with(|| {
            let seconds = CLAIM_MS / 1_000;
            warn!("waiting up to {seconds} s for another server's claim to end: {error}");
            holder.seen_at
        });
        if holder.seen_at > *first || Instant::now() > deadline {
            return Err(StartError::from(error));
        }
        tokio::time::sleep(LOOK).await;
    }
}
