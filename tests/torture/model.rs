//! The clients' writes and answers, and the states that they allow.
//!
//! A row has one owner, which changes it one step at a time, so the order of its steps is known. After a
//! step of unknown outcome (no answer, or one that says so) the owner leaves the row alone: at most the
//! last step of a row is unknown. A step that was acknowledged is *settled*, unless the database may still
//! refuse it; a read that shows an unknown step settles it too, because no read may show a state that a
//! crash undoes. All clients change counters: acknowledged and unknown amounts are summed separately.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Columns and their values.
pub type Fields = BTreeMap<String, Value>;

/// The change that a client requested.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Insert or upsert: the whole row.
    Whole(Fields),
    /// These columns.
    Some(Fields),
    /// An amount added to `views`.
    Views(i64),
    Delete,
}

/// The outcome, as far as the client knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Acknowledged,
    Unknown,
}

/// One change of one row. A refused request is not a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub deed: Change,
    /// The row's `note` after the step; `None` for a step that does not change it.
    pub token: Option<String>,
    pub outcome: Outcome,
    /// Whether the database may still refuse the step, whatever its answer was.
    pub may_be_refused: bool,
    /// Whether the database refuses the step for its own values.
    pub is_bad: bool,
    /// Whether a read has shown the step.
    pub is_seen: bool,
    /// By [`History::tick`]: when it was sent, and when it was answered.
    pub began: u64,
    pub ended: u64,
}

impl Step {
    fn is_settled(&self) -> bool {
        (self.outcome == Outcome::Acknowledged || self.is_seen) && !self.may_be_refused
    }
}

/// The life of one row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    /// The row at the start.
    pub first: Option<Fields>,
    pub steps: Vec<Step>,
    /// Whether all clients change `views` and `stock`, which are then in [`History::counters`].
    pub is_counted: bool,
}

/// A row after one step.
pub fn after(row: Option<Fields>, deed: &Change) -> Option<Fields> {
    match (row, deed) {
        (_, Change::Delete) => None,
        (_, Change::Whole(fields)) => Some(fields.clone()),
        (None, _) => None,
        (Some(mut row), Change::Some(fields)) => {
            row.extend(fields.clone());
            Some(row)
        }
        (Some(mut row), Change::Views(by)) => {
            let views = row.get("views").and_then(Value::as_i64).unwrap_or(0);
            row.insert("views".into(), (views + by).into());
            Some(row)
        }
    }
}

/// The states that a row may be in after a step, from those before it. `is_out` says whether the step was
/// refused, if that is certain.
pub fn next_states(
    mut states: Vec<Option<Fields>>,
    step: &Step,
    is_out: Option<bool>,
) -> Vec<Option<Fields>> {
    let done: Vec<_> = states.iter().map(|state| after(state.clone(), &step.deed)).collect();
    match is_out {
        Some(true) => states,
        Some(false) if step.outcome == Outcome::Acknowledged || step.is_seen => done,
        None if step.is_settled() => done,
        _ => {
            let new = done.into_iter().filter(|state| !states.contains(state)).collect::<Vec<_>>();
            states.extend(new);
            states
        }
    }
}

impl Row {
    /// Every state that the row may be in now, given that steps may have been refused or lost. `is_out`
    /// says whether a step was certainly refused or certainly not.
    pub fn states(&self, is_out: impl Fn(&Step) -> Option<bool>) -> Vec<Option<Fields>> {
        let first = vec![self.first.clone()];
        self.steps.iter().fold(first, |states, step| next_states(states, step, is_out(step)))
    }

    /// A read showed a row with this note, or no row. Returns false if that is impossible.
    pub fn shown(&mut self, note: Option<&str>) -> bool {
        let of = |state: &Option<Fields>| {
            state.as_ref().map(|row| row.get("note").and_then(Value::as_str).unwrap_or("").to_owned())
        };
        if !self.states(|_| None).iter().any(|state| of(state).as_deref() == note) {
            return false;
        }
        if let Some(last) =
            self.steps.last_mut().filter(|last| last.outcome == Outcome::Unknown && !last.may_be_refused)
        {
            let shows_it = match &last.deed {
                Change::Delete => note.is_none(),
                _ => last.token.is_some() && last.token.as_deref() == note,
            };
            last.is_seen |= shows_it;
        }
        true
    }
}

/// A number that all clients add to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counter {
    /// The upper bound of what was added so far.
    pub sent: i64,
    pub acknowledged: i64,
    pub unknown: i64,
}

/// A table and a key, as text.
pub type RowKey = (&'static str, String);

/// The record of a round. Locks are held for one entry at a time, never over I/O.
#[derive(Default)]
pub struct History {
    clock: AtomicU64,
    pub rows: Mutex<BTreeMap<RowKey, Row>>,
    /// `views` and `stock` of the rows that exist from the start, counted from zero.
    pub counters: Mutex<BTreeMap<(String, &'static str), Counter>>,
    /// Inserts whose answer, and therefore key, is unknown.
    pub nameless: Mutex<Vec<Step>>,
    /// Unique values that others held at some time.
    pub taken_by_others: Mutex<Vec<String>>,
    /// Impossible results of reads.
    pub wrong_reads: Mutex<Vec<String>>,
}

impl History {
    /// The next moment.
    pub fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Adds a step to its row.
    pub fn add(&self, place: RowKey, step: Step) {
        self.rows.lock().expect("no thread panics").entry(place).or_default().steps.push(step);
    }

    /// An amount is about to be added to a counter.
    pub fn sends(&self, key: &str, column: &'static str, by: i64) {
        let mut counters = self.counters.lock().expect("no thread panics");
        counters.entry((key.to_owned(), column)).or_default().sent += by;
    }

    /// The acknowledged views of a row that exists from the start.
    pub fn acknowledged(&self, key: &str) -> i64 {
        self.views(key).acknowledged
    }

    fn views(&self, key: &str) -> Counter {
        let counters = self.counters.lock().expect("no thread panics");
        counters.get(&(key.to_owned(), "views")).copied().unwrap_or_default()
    }

    /// A read that began when `acknowledged` views were acknowledged showed `shown` views of a row that
    /// exists from the start.
    pub fn sum_shown(&self, key: &str, acknowledged: i64, shown: i64) {
        let sent = self.views(key).sent;
        if !(acknowledged..=sent).contains(&shown) {
            let what = format!(
                "things {key}: a read showed {shown} views; {acknowledged} were acknowledged, {sent} sent"
            );
            self.wrong_reads.lock().expect("no thread panics").push(what);
        }
    }

    /// Adds to a counter.
    pub fn count(&self, key: &str, column: &'static str, by: i64, outcome: Outcome) {
        let mut counters = self.counters.lock().expect("no thread panics");
        let counter = counters.entry((key.to_owned(), column)).or_default();
        match outcome {
            Outcome::Acknowledged => counter.acknowledged += by,
            Outcome::Unknown => counter.unknown += by,
        }
    }

    /// A read showed this row.
    pub fn shown(&self, place: &RowKey, note: Option<&str>) {
        let mut rows = self.rows.lock().expect("no thread panics");
        let Some(row) = rows.get_mut(place) else { return };
        if !row.shown(note) {
            let what = format!("{} {}: a read showed {note:?} after {:#?}", place.0, place.1, row.steps);
            self.wrong_reads.lock().expect("no thread panics").push(what);
        }
    }
}
