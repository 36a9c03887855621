//! Waiting requests: how many may wait for one endpoint, and how long.
//!
//! Promises that a place is released however the wait ends, and that every mode of an endpoint answers a
//! timeout alike.

use super::answer_sink::{OwnedOut, respond_problem};
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The waiting requests of one endpoint.
pub struct WaitingRequests {
    /// The longest time that a request may wait.
    pub timeout: Duration,
    /// The status of the answer to a request that waited that long.
    late_status: u16,
    places_max: usize,
    taken: AtomicUsize,
}

impl WaitingRequests {
    /// Starts with no waiting request.
    pub fn new(timeout: Duration, late_status: u16, places_max: usize) -> Arc<WaitingRequests> {
        Arc::new(WaitingRequests { timeout, late_status, places_max, taken: AtomicUsize::new(0) })
    }

    /// The number of waiting requests.
    pub fn count(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place; 503 when all are taken.
    pub fn take(self: &Arc<Self>) -> Result<WaitingPlace, Problem> {
        // Incremented first and compared afterwards, so that two requests cannot both take the last place.
        let place = WaitingPlace(self.clone());
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.places_max {
            Ok(place)
        } else {
            Err(Problem::unavailable("too many requests wait for this endpoint"))
        }
    }
}

/// The place of one waiting request; released when dropped.
pub struct WaitingPlace(Arc<WaitingRequests>);

impl WaitingPlace {
    /// The result of `work` as an answer; a timeout becomes a problem with the endpoint's late status.
    pub async fn reply(&self, work: impl Future<Output = Result<Reply, Problem>>) -> Reply {
        let late = |late: Problem| match self.0.late_status {
            503 => Problem::outcome_unknown("the answer was not ready in time"),
            status => Problem { status, ..late },
        };
        reply_of(within(self.0.timeout, work).await.map_err(late).flatten())
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Awaits `work`; 504 when it takes longer than `timeout`. Not 503, because that would say that nothing was
/// done, and a write may have been executed.
pub async fn within<T>(timeout: Duration, work: impl Future<Output = T>) -> Result<T, Problem> {
    tokio::time::timeout(timeout, work).await.map_err(|_| {
        Problem::new(504, "the answer was not ready in time; whether a write was done is unknown")
    })
}

/// The answer of a request that waited.
pub fn reply_of(result: Result<Reply, Problem>) -> Reply {
    result.unwrap_or_else(|problem| {
        let mut out = OwnedOut::default();
        respond_problem(&problem, &mut out);
        out.into_reply()
    })
}
