//! What is counted of each statement that endpoints run: runs, their time, and how many are in flight.
//!
//! Statements with one text share their numbers, whichever endpoints run them. A statement is counted from
//! when it is queued until its answer is there or its request is given up.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A statement's name in metrics is its text up to here.
const NAME_CHARS: usize = 200;

/// The numbers of one statement.
#[derive(Debug, Default)]
pub(crate) struct StatementCounters {
    /// Its text on one line.
    pub name: String,
    begun: AtomicU64,
    ended: AtomicU64,
    ended_ns: AtomicU64,
}

/// The statements that some endpoint runs.
#[derive(Debug, Clone, Default)]
pub struct Statements(Arc<Mutex<Vec<Weak<StatementCounters>>>>);

impl Statements {
    /// The counters of a statement. Equal statements share them.
    pub(crate) fn of(&self, sql: &str) -> Arc<StatementCounters> {
        let name = one_line(sql);
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|known| known.name == name) {
            return known;
        }
        let counters = Arc::new(StatementCounters { name, ..StatementCounters::default() });
        all.push(Arc::downgrade(&counters));
        counters
    }

    /// The counters of every statement that is in use.
    pub(crate) fn all(&self) -> Vec<Arc<StatementCounters>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

fn one_line(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(NAME_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl StatementCounters {
    /// A run begins; it ends when what is returned is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Run {
        self.begun.fetch_add(1, Relaxed);
        Run { counters: self.clone(), began: Instant::now() }
    }

    /// Runs that have ended, and the time of all of them.
    pub(crate) fn ended(&self) -> (u64, Duration) {
        (self.ended.load(Relaxed), Duration::from_nanos(self.ended_ns.load(Relaxed)))
    }

    /// Runs that have begun and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        // In this order, so that a run which ends between the two does not make it negative.
        let ended = self.ended.load(Relaxed);
        self.begun.load(Relaxed).saturating_sub(ended)
    }
}

/// One run of a statement.
#[derive(Debug)]
pub(crate) struct Run {
    counters: Arc<StatementCounters>,
    began: Instant,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.counters.ended_ns.fetch_add(self.began.elapsed().as_nanos() as u64, Relaxed);
        self.counters.ended.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_statements_are_counted_together_while_some_endpoint_runs_them() {
        let statements = Statements::default();
        let (one, other) = (statements.of("SELECT 1\n  FROM t"), statements.of("SELECT 1 FROM t"));
        assert!(Arc::ptr_eq(&one, &other) && !Arc::ptr_eq(&one, &statements.of("SELECT 2")));
        let run = one.begin();
        assert_eq!((other.in_flight(), other.ended().0), (1, 0));
        drop(run);
        assert_eq!((other.in_flight(), other.ended().0), (0, 1));
        assert_eq!(statements.all().len(), 1, "nothing runs the other statement any more");
    }

    #[test]
    fn a_long_statement_is_cut() {
        assert_eq!(one_line(&"é ".repeat(300)).chars().count(), NAME_CHARS + 1);
    }
}
