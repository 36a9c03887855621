//! Deferred answers in progress: the futures that a service returned, polled by the task of their
//! connection.
//!
//! Promises that a future that panics costs only its own client. Leaves what happens to answers to
//! [`crate::connection`].

use crate::answer::Reply;
use crate::output::SlotId;
use crate::streamed::ServiceAnswer;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A deferred answer of a service; resolves to `None` when its future panicked.
pub(crate) enum Pending {
    Whole(Pin<Box<dyn Future<Output = Reply> + Send>>),
    Streamed(Pin<Box<dyn Future<Output = ServiceAnswer> + Send>>),
}

impl Future for Pending {
    type Output = Option<ServiceAnswer>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ServiceAnswer>> {
        let pending = self.get_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| match pending {
            Pending::Whole(future) => future.as_mut().poll(cx).map(ServiceAnswer::Whole),
            Pending::Streamed(future) => future.as_mut().poll(cx),
        }));
        // A future that panicked is not polled again.
        polled.map_or(Poll::Ready(None), |polled| polled.map(Some))
    }
}

/// A deferred answer with its place in the order of its connection.
struct Placed {
    id: SlotId,
    pending: Pending,
}

impl Future for Placed {
    type Output = (SlotId, Option<ServiceAnswer>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id;
        Pin::new(&mut self.pending).poll(cx).map(|given| (id, given))
    }
}

/// The deferred answers of one connection.
///
/// Most clients wait for an answer before they send the next request: the first future is polled whenever
/// its connection is polled. Further futures wake the connection by way of a list, so that the connection
/// polls only those that can make progress.
#[derive(Default)]
pub(crate) struct DeferredAnswers {
    first: Option<Placed>,
    others: FuturesUnordered<Placed>,
}

impl DeferredAnswers {
    /// Adds a deferred answer for the place `id`.
    pub(crate) fn push(&mut self, id: SlotId, pending: Pending) {
        let placed = Placed { id, pending };
        match &self.first {
            None => self.first = Some(placed),
            Some(_) => self.others.push(placed),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// The next finished answer, with its place; `None`: no future has finished, or there are none.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Option<(SlotId, Option<ServiceAnswer>)> {
        if let Some(first) = &mut self.first
            && let Poll::Ready(given) = Pin::new(first).poll(cx)
        {
            self.first = None;
            return Some(given);
        }
        if self.others.is_empty() {
            return None;
        }
        match self.others.poll_next_unpin(cx) {
            Poll::Ready(given) => given,
            Poll::Pending => None,
        }
    }
}
