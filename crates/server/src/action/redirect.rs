//! `redirect`: redirects to the location that a row contains, and counts the visit without waiting for the
//! count.

use super::hot::{HotAction, hot_action};
use super::{Answering, KeyOf, Step};
use crate::endpoint::answer_sink::Out;
use crate::endpoint::eval::Slots;
use crate::problem::Problem;
use forebay_table::{Called, Counters, HotTable};
use forebay_value::{RowRef, Timestamp, ValueRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

hot_action!(Redirect);

/// The action.
pub struct Redirect {
    pub table: HotTable,
    /// Which row.
    pub key: KeyOf,
    /// The column that contains the location.
    pub location: usize,
    /// The column that counts visits.
    pub increment: Option<usize>,
    /// The column with the time at which the row expires (410 from then on).
    pub expires: Option<usize>,
    /// Status of the answer; its shape is not used.
    pub answering: Answering,
    /// Visits that could not be counted because the tier accepted no write; the redirect is answered
    /// nevertheless.
    pub uncounted: Arc<AtomicU64>,
}

impl Redirect {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let called = match self.table.get(key.as_ref(), Counters::Hidden, |row| self.show(row, out)) {
            Ok(Called::Now(shown, mark)) => {
                shown.map_err(|problem| problem.held_until(mark.0))?;
                // Counted only now, because the row's shard is locked while the row is read.
                self.count_visit(key.as_ref());
                Ok(Called::Now((), mark))
            }
            other => other.map(|called| called.map(drop)),
        };
        self.finish(called, slots, out, move |me, row, _, out| {
            me.show(row.as_ref(), out)?;
            me.count_visit(key.as_ref());
            Ok(())
        })
    }

    fn show(&self, row: RowRef<'_>, out: &mut impl Out) -> Result<(), Problem> {
        let schema = self.table.schema();
        if let Some(expires) = self.expires
            && let ValueRef::Timestamp(end) = row.get(schema, expires)
            && end <= Timestamp::now()
        {
            return Err(Problem::new(410, "it has expired"));
        }
        let ValueRef::Text(place) = row.get(schema, self.location) else {
            return Err(no_place());
        };
        let mut is_sound = true;
        out.respond(&self.answering.head, |lines| is_sound = lines.add("Location", place).is_ok(), 0, |_| {});
        if is_sound { Ok(()) } else { Err(no_place()) }
    }

    /// Counts a visit in the background: the answer does not wait for it.
    fn count_visit(&self, key: ValueRef<'_>) {
        let Some(column) = self.increment else { return };
        match self.table.increment_later(key, column, 1) {
            Ok(Called::Now((), _)) => {}
            Ok(Called::Later(counted)) => {
                let uncounted = self.uncounted.clone();
                tokio::spawn(async move {
                    if counted.await.is_err() {
                        uncounted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            Ok(Called::First(_)) | Err(_) => {
                self.uncounted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The answer when a row has no location, or one that is not valid in a header field.
fn no_place() -> Problem {
    Problem::new(500, "the row names no place to go to")
}
