//! `redirect`: answers with the place that a row names, and counts the visit without waiting for it.

use super::{Answering, KeyOf, Step, wait_fetched, wait_loaded};
use crate::endpoint::eval::Slots;
use crate::endpoint::out::Out;
use crate::hot::Hot;
use crate::problem::Problem;
use forebay_table::{Counters, Read, Table};
use forebay_value::{RowRef, Timestamp, Value, ValueRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The action.
pub struct Redirect {
    /// The table.
    pub table: Hot,
    /// Which row.
    pub key: KeyOf,
    /// The column that holds the place.
    pub location: usize,
    /// The column that counts visits.
    pub increment: Option<usize>,
    /// The column that says when the row expires (410 from then on).
    pub expires: Option<usize>,
    /// Status of the answer; its shape is not used.
    pub answering: Answering,
    /// Visits that could not be counted, because the log took no more: a redirect answers all the same.
    pub uncounted: Arc<AtomicU64>,
}

/// What came of a row.
pub(super) enum Shown {
    /// The answer, with its place.
    Sent,
    /// It has expired.
    Expired,
    /// It holds no place.
    NoPlace,
}

impl Redirect {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Slots, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => return Ok(Step::reply(self.clone().run_remote(table.clone(), key))),
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        match table.get(key.as_ref(), Counters::Hidden, |row| self.show(row, out)) {
            Read::Found(Shown::Sent, position) => {
                out.hold_until(position);
                self.count_visit(table, &key);
                Ok(Step::Done)
            }
            Read::Found(Shown::Expired, position) => Err(expired().held_until(position.0)),
            Read::Found(Shown::NoPlace, _) => Err(no_place()),
            Read::Missing(position) => Err(self.answering.not_found().held_until(position.0)),
            Read::Fetch(key) => Ok(wait_fetched(table, key, self.answering.not_found())),
        }
    }

    pub(super) fn show(&self, row: RowRef<'_>, out: &mut impl Out) -> Shown {
        let schema = self.table.schema();
        if let Some(expires) = self.expires
            && let ValueRef::Timestamp(end) = row.get(schema, expires)
            && end <= Timestamp::now()
        {
            return Shown::Expired;
        }
        let ValueRef::Text(place) = row.get(schema, self.location) else {
            return Shown::NoPlace;
        };
        let mut is_sound = true;
        out.respond(&self.answering.head, |lines| is_sound = lines.add("Location", place).is_ok(), 0, |_| {});
        if is_sound { Shown::Sent } else { Shown::NoPlace }
    }

    fn count_visit(&self, table: &Table, key: &Value) {
        if let Some(column) = self.increment
            && table.increment_later(key.as_ref(), column, 1).is_err()
        {
            self.uncounted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The answer when a row has expired.
pub(super) fn expired() -> Problem {
    Problem::new(410, "it has expired")
}

/// The answer when a row holds no place, or one that cannot stand in a header field.
pub(super) fn no_place() -> Problem {
    Problem::new(500, "the row names no place to go to")
}
