//! What a request waits for: a deadline on the worker's clock, a mark of the gate.

use crate::held_answers::Gate;
use crate::local::{Idle, WorkerState};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// The time on the worker's clock, in milliseconds.
pub(super) fn now_ms() -> u64 {
    WorkerState::with(|local| local.now_ms).unwrap_or(0)
}

/// Waits for `next` until `deadline_ms` on the worker's clock; `None`: the deadline has passed.
pub(super) async fn until<R>(
    deadline_ms: u64,
    mut next: impl FnMut(&mut Context<'_>) -> Poll<R>,
) -> Option<R> {
    let mut place = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = next(cx) {
            return Poll::Ready(Some(result));
        }
        let is_over = WorkerState::with(|local| {
            let place = place.get_or_insert_with(|| local.register(cx.waker().clone()));
            local.set_deadline(place.key(), deadline_ms, Idle::No);
            local.now_ms >= deadline_ms
        });
        if is_over == Some(false) { Poll::Pending } else { Poll::Ready(None) }
    })
    .await
}

/// Waits until the gate has passed `mark`; false: the gate has failed, or this thread is no longer a worker.
pub(super) async fn passed(gate: &Gate, mark: u64) -> bool {
    let mut place = None;
    poll_fn(|cx| {
        loop {
            if !gate.holds(mark) {
                return Poll::Ready(true);
            }
            if gate.has_failed() {
                return Poll::Ready(false);
            }
            let waits = WorkerState::with(|local| {
                let place = place.get_or_insert_with(|| local.register(cx.waker().clone()));
                local.wait_for(gate, mark, place.key())
            });
            match waits {
                Some(true) => return Poll::Pending,
                Some(false) => {}
                None => return Poll::Ready(false),
            }
        }
    })
    .await
}
