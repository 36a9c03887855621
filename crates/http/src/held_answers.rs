//! The gate: an answer with a mark leaves only when the gate has passed that mark.
//!
//! The owner of the gate defines what a mark means (a position in a log, for example). Promises that
//! no held answer leaves before [`Gate::advance`] reached its mark, that each worker is woken at most
//! once per advance and only if one of its own answers can leave, and that no held answer leaves
//! after [`Gate::fail`].
//!
//! Each worker lists its waiting connections itself ([`crate::local`]); the gate stores only the lowest mark
//! that each worker waits for. A waiter lowers that mark and then reads `passed`; `advance` raises `passed`
//! and then reads the marks. Both orders are sequentially consistent, so one of the two sees the other and
//! no wake-up is lost.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// No connection waits.
const NONE: u64 = u64::MAX;

/// The gate of one server. See the module documentation.
#[derive(Debug)]
pub struct Gate {
    passed: AtomicU64,
    failed: AtomicBool,
    workers: Box<[WorkerGate]>,
}

/// One worker's side, on a separate cache line: the worker writes it, `advance` reads it.
#[derive(Debug)]
#[repr(align(64))]
struct WorkerGate {
    lowest: AtomicU64,
    waker: AtomicWaker,
}

impl Gate {
    /// A gate for this number of workers that has passed no mark; mark 0 never waits.
    pub fn new(workers: usize) -> Arc<Gate> {
        let worker = || WorkerGate { lowest: AtomicU64::new(NONE), waker: AtomicWaker::new() };
        Arc::new(Gate {
            passed: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            workers: std::iter::repeat_with(worker).take(workers).collect(),
        })
    }

    /// Releases every answer with a mark up to and including `mark`. A lower mark than before, or any mark
    /// after [`Gate::fail`], changes nothing.
    pub fn advance(&self, mark: u64) {
        if self.has_failed() {
            return;
        }
        self.passed.fetch_max(mark, SeqCst);
        for worker in &self.workers {
            let lowest = worker.lowest.load(SeqCst);
            // Of several concurrent advances, the one whose exchange succeeds wakes the worker.
            if lowest <= mark
                && lowest != NONE
                && worker.lowest.compare_exchange(lowest, NONE, SeqCst, SeqCst).is_ok()
            {
                worker.waker.wake();
            }
        }
    }

    /// Drops all held answers and closes their connections.
    pub fn fail(&self) {
        self.failed.store(true, SeqCst);
        for worker in &self.workers {
            worker.waker.wake();
        }
    }

    /// The highest mark that has been passed.
    pub fn passed(&self) -> u64 {
        self.passed.load(SeqCst)
    }

    /// Whether [`Gate::fail`] was called.
    pub fn has_failed(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// The number of workers that this gate was created for.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Whether an answer with this mark has to wait.
    pub(crate) fn holds(&self, mark: u64) -> bool {
        mark > 0 && mark > self.passed()
    }

    /// Records that `worker` waits for `mark`. The caller must check [`Gate::holds`] once more afterwards.
    pub(crate) fn wait(&self, worker: usize, mark: u64) {
        self.workers[worker].lowest.fetch_min(mark, SeqCst);
    }

    /// The waker of the task that releases a worker's waiting connections.
    pub(crate) fn waker(&self, worker: usize) -> &AtomicWaker {
        &self.workers[worker].waker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn each_worker_is_woken_once_and_only_for_its_own_marks() {
        let gate = Gate::new(2);
        let counts = [Arc::new(Count::default()), Arc::new(Count::default())];
        let register = || {
            for (worker, count) in counts.iter().enumerate() {
                gate.waker(worker).register(&Waker::from(count.clone()));
            }
        };
        let woken = || counts.each_ref().map(|count| count.0.load(SeqCst));
        register();
        assert!(!gate.holds(0) && gate.holds(1));
        gate.wait(0, 10);
        gate.wait(0, 20);
        gate.wait(1, 15);
        gate.advance(9);
        assert_eq!(woken(), [0, 0]);
        gate.advance(12);
        assert_eq!(woken(), [1, 0]);
        register();
        gate.advance(14);
        assert_eq!(woken(), [1, 0], "the released worker has not asked again");
        gate.advance(30);
        assert_eq!(woken(), [1, 1]);
        gate.advance(5);
        assert_eq!(gate.passed(), 30);
        assert!(!gate.holds(30) && gate.holds(31));
        register();
        gate.fail();
        assert_eq!(woken(), [2, 2]);
    }
}
