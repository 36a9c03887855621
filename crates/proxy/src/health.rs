//! Chooses the upstream for a request: a healthy one, the least busy first.
//!
//! An upstream is suspended after [`FAILURES_MAX`] consecutive failures (of connecting, or of getting an
//! answer; an answer with any status is a success), and after [`SUSPENSION`] one request tries it again. When
//! all are suspended, they are used as if none was: otherwise failures of one URL would suspend all
//! upstreams, and a sole upstream has no substitute. With health checks, an upstream that fails its check is
//! not used until it passes one.

use crate::limits::{FAILURES_MAX, SUSPENSION};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The state of one upstream.
#[derive(Debug, Default)]
pub(crate) struct Health {
    pub(crate) in_flight: AtomicUsize,
    failures: AtomicU32,
    /// The end of its suspension, in milliseconds since the start; 0: not suspended.
    suspended_until_ms: AtomicU64,
    fails_checks: AtomicBool,
}

impl Health {
    /// Whether failures have suspended it.
    fn is_suspended(&self) -> bool {
        self.suspended_until_ms.load(Relaxed) > 0
    }

    /// Whether a request may use it now. After a suspension, one of several concurrent requests may.
    fn admits(&self, now_ms: u64) -> bool {
        let suspended_until_ms = self.suspended_until_ms.load(Relaxed);
        if suspended_until_ms == 0 {
            return true;
        }
        let again_ms = now_ms + SUSPENSION.as_millis() as u64;
        now_ms >= suspended_until_ms
            && self
                .suspended_until_ms
                .compare_exchange(suspended_until_ms, again_ms, Relaxed, Relaxed)
                .is_ok()
    }

    /// Records an answer.
    pub(crate) fn succeeded(&self) {
        // Stored only when it changes something: all workers share this cache line.
        if self.failures.load(Relaxed) > 0 {
            self.failures.store(0, Relaxed);
            self.suspended_until_ms.store(0, Relaxed);
        }
    }

    /// Records a failure.
    pub(crate) fn failed(&self, now_ms: u64) {
        if self.failures.fetch_add(1, Relaxed) + 1 >= FAILURES_MAX {
            self.suspended_until_ms.store(now_ms + SUSPENSION.as_millis() as u64, Relaxed);
        }
    }

    /// Records the result of a health check.
    pub(crate) fn checked(&self, is_well: bool) {
        self.fails_checks.store(!is_well, Relaxed);
        if is_well {
            self.succeeded();
        }
    }
}

/// All upstreams of a proxy.
#[derive(Debug)]
pub(crate) struct Balance {
    pub(crate) upstreams: Box<[Health]>,
    turn: AtomicUsize,
    began: Instant,
}

impl Balance {
    pub(crate) fn new(count: usize) -> Balance {
        Balance {
            upstreams: std::iter::repeat_with(Health::default).take(count).collect(),
            turn: AtomicUsize::new(0),
            began: Instant::now(),
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// [`Balance::now_ms`] when [`Balance::pick`] needs it, that is while an upstream is suspended; else 0.
    pub(crate) fn pick_ms(&self) -> u64 {
        if self.upstreams.iter().any(Health::is_suspended) { self.now_ms() } else { 0 }
    }

    /// The least busy healthy upstream that is not among `tried`; equals take turns. `None`: there is none.
    pub(crate) fn pick(&self, tried: &[usize], now_ms: u64) -> Option<usize> {
        let passes_checks = |upstream: &Health| !upstream.fails_checks.load(Relaxed);
        if let [sole] = &*self.upstreams {
            // Used even when suspended: there is no other.
            return (tried.is_empty() && passes_checks(sole)).then_some(0);
        }
        let count = self.upstreams.len();
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut order: Vec<usize> = (0..count).map(|offset| (turn + offset) % count).collect();
        order.retain(|index| !tried.contains(index));
        order.sort_by_key(|index| self.upstreams[*index].in_flight.load(Relaxed));
        order.retain(|index| passes_checks(&self.upstreams[*index]));
        match order.iter().find(|index| self.upstreams[**index].admits(now_ms)) {
            Some(index) => Some(*index),
            None if self.upstreams.iter().all(|one| one.is_suspended() || !passes_checks(one)) => {
                order.first().copied()
            }
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_busy_is_asked_and_equals_take_turns() {
        let balance = Balance::new(3);
        let mut picked: Vec<_> = (0..3).map(|_| balance.pick(&[], 0).expect("all are well")).collect();
        picked.sort_unstable();
        assert_eq!(picked, [0, 1, 2]);
        balance.upstreams[0].in_flight.store(2, Relaxed);
        balance.upstreams[1].in_flight.store(1, Relaxed);
        assert_eq!(balance.pick(&[], 0), Some(2));
        assert_eq!(balance.pick(&[2], 0), Some(1));
        assert_eq!(balance.pick(&[2, 1, 0], 0), None);
    }

    #[test]
    fn failures_put_out_and_one_request_tries_again() {
        let balance = Balance::new(2);
        // The other upstream is busy: the first admissible one is picked.
        balance.upstreams[1].in_flight.store(1, Relaxed);
        let health = &balance.upstreams[0];
        health.failed(1_000);
        health.failed(1_000);
        assert_eq!(balance.pick(&[], 1_000), Some(0), "twice may be chance");
        health.succeeded();
        (0..FAILURES_MAX).for_each(|_| health.failed(1_000));
        assert_eq!(balance.pick(&[], 5_999), Some(1));
        assert_eq!(balance.pick(&[1], 5_999), None, "the other one may be asked again");
        assert_eq!(balance.pick(&[], 6_000), Some(0));
        assert_eq!(balance.pick(&[], 6_000), Some(1), "only one tries");
        health.failed(6_100);
        assert_eq!(balance.pick(&[], 11_000), Some(1));
        assert_eq!(balance.pick(&[], 11_100), Some(0));
        health.succeeded();
        assert_eq!(balance.pick(&[], 11_100), Some(0));
        assert_eq!(balance.pick(&[], 11_100), Some(0));
    }

    #[test]
    fn with_all_out_all_are_asked() {
        for count in [1, 3] {
            let balance = Balance::new(count);
            for health in &balance.upstreams {
                (0..FAILURES_MAX).for_each(|_| health.failed(1_000));
            }
            let mut picked: Vec<_> = (0..count).filter_map(|_| balance.pick(&[], 1_001)).collect();
            picked.sort_unstable();
            assert_eq!(picked, (0..count).collect::<Vec<_>>());
            balance.upstreams[0].checked(false);
            assert_eq!(
                balance.pick(&[], 1_001).is_none(),
                count == 1,
                "one that fails its checks is not asked"
            );
        }
    }

    #[test]
    fn health_checks_decide_where_there_are_some() {
        let balance = Balance::new(2);
        balance.upstreams[0].checked(false);
        assert!((0..4).all(|_| balance.pick(&[], 0) == Some(1)));
        balance.upstreams[1].checked(false);
        assert_eq!(balance.pick(&[], 0), None);
        balance.upstreams[1].checked(true);
        balance.upstreams[0].checked(true);
        assert!(balance.pick(&[1], 0) == Some(0) && balance.pick(&[0], 0) == Some(1));
    }
}
