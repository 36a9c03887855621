//! Waiting requests: how many may wait for one endpoint, and how long. Those that wait for the fill of
//! another request are not counted.
//!
//! Promises that a place is released however the wait ends, and that every mode of an endpoint answers a
//! timeout alike.

use super::answer_sink::{OwnedOut, respond_problem};
use super::places::{Multiple, Place, Places};
use crate::problem::Problem;
use forebay_http::Reply;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// The waiting requests of one endpoint.
pub struct WaitingRequests {
    /// The longest time that a request may wait.
    pub timeout: Duration,
    /// The status of the answer to a request that waited that long.
    late_status: u16,
    places: Arc<Places>,
}

/// One client has at most about sixteen seventeenths of the places.
const PER_FREE: Multiple = Multiple { times: 16, of: 1 };

impl WaitingRequests {
    /// Starts with no waiting request.
    pub fn new(timeout: Duration, late_status: u16, places_max: usize) -> Arc<WaitingRequests> {
        Arc::new(WaitingRequests { timeout, late_status, places: Places::new(places_max, PER_FREE) })
    }

    /// The number of waiting requests.
    pub fn count(&self) -> usize {
        self.places.count()
    }

    /// Takes a place for a client of this network; 503 when all are taken, or the client has its part.
    pub fn take(self: &Arc<Self>, client: u64) -> Result<WaitingPlace, Problem> {
        let taken = self.places.take(client);
        let place = taken.ok_or_else(|| Problem::unavailable("too many requests wait for this endpoint"))?;
        Ok(WaitingPlace { waiting: self.clone(), _place: place })
    }
}

/// The place of one waiting request; released when dropped.
pub struct WaitingPlace {
    waiting: Arc<WaitingRequests>,
    _place: Place,
}

impl WaitingPlace {
    /// The result of `work` as an answer; a timeout becomes a problem with the endpoint's late status.
    pub async fn reply(&self, work: impl Future<Output = Result<Reply, Problem>>) -> Reply {
        let late = |late: Problem| match self.waiting.late_status {
            503 => Problem::outcome_unknown("the answer was not ready in time"),
            status => Problem { status, ..late },
        };
        reply_of(within(self.waiting.timeout, work).await.map_err(late).flatten())
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
