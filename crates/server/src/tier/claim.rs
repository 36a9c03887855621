//! Waiting for tables that another server has claimed: until it gives a sign of life, or its claim is over.

use crate::start_error::StartError;
use forebay_database::limits::CLAIM_MS;
use forebay_drain::{BEAT, Error};
use forebay_terminal::warn;
use std::time::{Duration, Instant};

/// How often it is looked whether the other server has given a sign of life.
const LOOK: Duration = Duration::from_secs(1);

/// Tries until it is not another server that stands in the way, or that server shows that it lives.
pub(super) async fn wait_for<T>(mut attempt: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, StartError> {
    // Its time is by the database's clock, and a batch of it may be under way.
    let deadline = Instant::now() + Duration::from_millis(CLAIM_MS) + BEAT;
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
