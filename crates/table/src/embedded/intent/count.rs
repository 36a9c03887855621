//! How many intents are under way, in all tables of a folder.

use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Counts intents without an outcome.
#[derive(Default)]
pub(crate) struct IntentCount {
    count: Mutex<usize>,
    arrived: Condvar,
}

impl IntentCount {
    pub fn begin(&self) {
        let mut count = self.count.lock();
        *count += 1;
        if *count == 1 {
            self.arrived.notify_all();
        }
    }

    pub fn end(&self, ended: usize) {
        *self.count.lock() -= ended;
    }

    /// Blocks until an intent is under way, at most for `time`.
    pub fn wait(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut count = self.count.lock();
        while *count == 0 && !self.arrived.wait_until(&mut count, until).timed_out() {}
    }
}
