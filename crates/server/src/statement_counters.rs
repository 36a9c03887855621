//! Counters of each statement that endpoints run: runs, their time, how many are in flight, and how many of
//! those duplicate another one in flight.
//!
//! Statements with the same text share their counters, whichever endpoints run them. A run is counted from
//! when it is queued until its answer is ready or its request is abandoned.

use forebay_value::Value;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::mem::discriminant;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The most characters of a statement's text in its metric name.
const NAME_CHARS: usize = 200;

/// The counters of one statement.
#[derive(Debug, Default)]
pub(crate) struct StatementCounters {
    /// Its text on one line.
    pub name: String,
    begun: AtomicU64,
    ended: AtomicU64,
    ended_ns: AtomicU64,
    /// The number of runs in flight, by a hash of their parameters.
    same: Mutex<HashMap<u64, u64>>,
    hasher: RandomState,
    identical: AtomicU64,
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
    /// Counts a run with these parameters; the run ends when the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, values: &[Value]) -> RunningStatement {
        self.begun.fetch_add(1, Relaxed);
        let mut hasher = self.hasher.build_hasher();
        values.iter().for_each(|value| hash(value, &mut hasher));
        let parameters = hasher.finish();
        let mut same = self.same.lock();
        let runs = same.entry(parameters).or_default();
        *runs += 1;
        if *runs > 1 {
            self.identical.fetch_add(1, Relaxed);
        }
        RunningStatement { counters: self.clone(), began: Instant::now(), parameters }
    }

    /// Runs in flight with the same parameters as an earlier run that is in flight too.
    pub(crate) fn identical(&self) -> u64 {
        self.identical.load(Relaxed)
    }

    /// Runs that have ended, and the time of all of them.
    pub(crate) fn ended(&self) -> (u64, Duration) {
        (self.ended.load(Relaxed), Duration::from_nanos(self.ended_ns.load(Relaxed)))
    }

    /// Runs that have begun and not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        // Read first, so that a run that ends between the two reads does not make the result negative.
        let ended = self.ended.load(Relaxed);
        self.begun.load(Relaxed).saturating_sub(ended)
    }
}

/// One run of a statement.
#[derive(Debug)]
pub(crate) struct RunningStatement {
    counters: Arc<StatementCounters>,
    began: Instant,
    parameters: u64,
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        self.counters.ended_ns.fetch_add(self.began.elapsed().as_nanos() as u64, Relaxed);
        self.counters.ended.fetch_add(1, Relaxed);
        if let Entry::Occupied(mut runs) = self.counters.same.lock().entry(self.parameters) {
            *runs.get_mut() -= 1;
            match runs.get() {
                0 => drop(runs.remove()),
                _ => drop(self.counters.identical.fetch_sub(1, Relaxed)),
            }
        }
    }
}

fn hash(value: &Value, hasher: &mut impl Hasher) {
    discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(hasher),
        Value::Bigint(value) => value.hash(hasher),
        Value::Double(value) => value.to_bits().hash(hasher),
        Value::Numeric(text) | Value::Text(text) | Value::Json(text) => text.hash(hasher),
        Value::Uuid(value) => value.hash(hasher),
        Value::Timestamp(value) => value.hash(hasher),
        Value::Local(value) => value.hash(hasher),
        Value::Bytes(bytes) => bytes.hash(hasher),
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
        let run = one.begin(&[]);
        assert_eq!((other.in_flight(), other.ended().0), (1, 0));
        drop(run);
        assert_eq!((other.in_flight(), other.ended().0), (0, 1));
        assert_eq!(statements.all().len(), 1, "nothing runs the other statement any more");
    }

    #[test]
    fn runs_that_do_what_another_is_doing() {
        let counters = Statements::default().of("SELECT $1");
        let text = |text: &str| [Value::Text(text.into()), Value::Null];
        let (first, other) = (counters.begin(&text("a")), counters.begin(&text("b")));
        assert_eq!(counters.identical(), 0);
        let (second, third) = (counters.begin(&text("a")), counters.begin(&text("a")));
        assert_eq!((counters.identical(), counters.in_flight()), (2, 4));
        drop(first);
        assert_eq!(counters.identical(), 1);
        drop((second, other));
        assert_eq!(counters.identical(), 0);
        drop(third);
        assert!(counters.same.lock().is_empty());
    }

    #[test]
    fn a_long_statement_is_cut() {
        assert_eq!(one_line(&"é ".repeat(300)).chars().count(), NAME_CHARS + 1);
    }
}
