//! A time-out that begins anew with each request and is nearly never reached.
//!
//! Promises that a connection has one timer in its runtime, whatever is asked on it: one that rings before
//! the deadline of the present request is set again then. Leaves what a deadline is to those who wait.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::{Instant, Sleep, sleep_until};

/// The timer of a connection; made when something is first waited for.
#[derive(Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Waits until `deadline`, which may move while it is waited for.
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
        // Rung already, and set for later.
        let began = Instant::now();
        poll_fn(|cx| timer.poll(cx, || began + SHORT)).await;
        assert!(began.elapsed() >= SHORT);
        // Set for much later, and then for sooner.
        let late = Duration::from_secs(3600);
        let polled = poll_fn(|cx| Poll::Ready(timer.poll(cx, || began + late))).await;
        assert!(polled.is_pending());
        poll_fn(|cx| timer.poll(cx, || began + SHORT)).await;
    }
}
