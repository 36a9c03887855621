//! Why the rows of a table cannot be served: a column is gone from the database, or the table is.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The reason, if there is one: a table without costs one load and one branch.
#[derive(Default)]
pub(super) struct Misfit {
    is_there: AtomicBool,
    why: Mutex<Option<Arc<str>>>,
}

impl Misfit {
    pub fn set(&self, why: Option<Arc<str>>) {
        let mut current = self.why.lock();
        self.is_there.store(why.is_some(), Ordering::Relaxed);
        *current = why;
    }

    pub fn why(&self) -> Option<Arc<str>> {
        self.is_there.load(Ordering::Relaxed).then(|| self.why.lock().clone()).flatten()
    }
}
