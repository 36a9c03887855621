//! A time-out that restarts with each request and rarely expires.
//!
//! Promises that a connection has one timer in its runtime for all of its requests: if the timer fires
//! before the deadline of the present request, it is set again. Leaves the deadlines to the callers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// The timer of a connection, created at the first wait.
#[derive(Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Waits until `deadline`, which may move during the wait.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: impl Fn() -> Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(deadline())));
        let ends = deadline();
        if ends < sleep.deadline() {
            sleep.as_mut().reset(ends);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            let ends = deadline();
            if ends <= sleep.deadline() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_deadline_that_moves_is_waited_for() {
        let mut timer = Timer::default();
        let began = Instant::now();
        poll_fn(|cx| timer.poll(cx, || began + SHORT)).await;
        assert!(began.elapsed() >= SHORT);
        // The timer has already fired and is set for later.
        let began = Instant::now();
        poll_fn(|cx| timer.poll(cx, || began + SHORT)).await;
        assert!(began.elapsed() >= SHORT);
        // The timer is set for much later, and then for earlier.
        let late = Duration::from_secs(3600);
        let polled = poll_fn(|cx| Poll::Ready(timer.poll(cx, || began + late))).await;
        assert!(polled.is_pending());
        poll_fn(|cx| timer.poll(cx, || began + SHORT)).await;
    }
}
