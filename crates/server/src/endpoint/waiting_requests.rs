//! Requests that wait: how many may wait for one endpoint, and how long.
//!
//! Promises that a place is given back whatever ends the wait, and that every mode of an endpoint answers a
//! time-out alike.

use super::answer_sink::{OwnedOut, respond_problem};
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The waiting requests of one endpoint.
pub struct Waiting {
    /// The longest that one may wait.
    pub timeout: Duration,
    /// What a request is answered with that has waited so long.
    late_status: u16,
    places_max: usize,
    taken: AtomicUsize,
}

impl Waiting {
    /// None yet.
    pub fn new(timeout: Duration, late_status: u16, places_max: usize) -> Arc<Waiting> {
        Arc::new(Waiting { timeout, late_status, places_max, taken: AtomicUsize::new(0) })
    }

    /// How many wait now.
    pub fn count(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place; 503 when there is none.
    pub fn take(self: &Arc<Self>) -> Result<WaitingPlace, Problem> {
        // Counted first and compared then, so that two requests cannot take the last place.
        let place = WaitingPlace(self.clone());
        if self.taken.fetch_add(1, Ordering::Relaxed) < self.places_max {
            Ok(place)
        } else {
            Err(Problem::unavailable("too many requests wait for this endpoint"))
        }
    }
}

/// The place of one waiting request; given back when dropped.
pub struct WaitingPlace(Arc<Waiting>);

impl WaitingPlace {
    /// The answer that `work` gives, or a problem: its own, or that of the endpoint's time-out.
    pub async fn reply(&self, work: impl Future<Output = Result<Reply, Problem>>) -> Reply {
        let late = |problem| Problem { status: self.0.late_status, ..problem };
        reply_of(within(self.0.timeout, work).await.map_err(late).flatten())
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What `work` gives; 504 when it takes longer than `timeout`. A 503 would say that nothing was done, which
/// is not known here.
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
