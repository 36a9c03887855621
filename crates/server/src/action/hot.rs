//! What every action on a hot table shares: turning a call's result into an answer, and a failure into a
//! problem document.
//!
//! An action is written once for both tiers. In the embedded tier a call has passed its row to the action
//! when it returns; on Redis or Valkey the result arrives later, in a future that the request waits for.

use super::sql::sql_problem;
use super::{Answering, Step};
use crate::endpoint::answer_sink::{Out, OwnedOut};
use crate::endpoint::eval::{Scope, Slots};
use crate::problem::Problem;
use forebay_table::{BoxFuture, Called, HotError, HotKind, HotResult, HotTable, SourceError};
use forebay_terminal::warn;
use forebay_value::{Invalid, Row, RowRef, Schema};
use std::sync::Arc;

/// The allowance for keys and punctuation, added to the length of a row to estimate an answer's length.
pub(super) const PUNCTUATION_BYTES: usize = 100;

/// An action on a hot table.
pub trait HotAction: Sized + Send + Sync + 'static {
    /// The table that it reads or writes.
    fn table(&self) -> &HotTable;

    /// How it answers.
    fn answering(&self) -> &Answering;

    /// Answers with one row.
    fn respond_row(&self, row: RowRef<'_>, slots: &Slots, out: &mut impl Out) {
        let Answering { head, shape, .. } = self.answering();
        let Some(shape) = shape else {
            return out.respond(head, |_| {}, 0, |_| {});
        };
        let write =
            |body: &mut Vec<u8>| shape.write_row(self.table().schema(), row, &Scope::new(slots), body);
        out.respond(head, |_| {}, row.0.len() + PUNCTUATION_BYTES, write);
    }

    /// Answers with an array of rows.
    fn respond_rows(&self, rows: &[Row], slots: &Slots, out: &mut impl Out) {
        let Answering { head, shape, .. } = self.answering();
        let length_hint: usize = rows.iter().map(|row| row.0.len() + PUNCTUATION_BYTES).sum();
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = shape {
                shape.write_rows(self.table().schema(), rows, &Scope::new(slots), body);
            }
        };
        out.respond(head, |_| {}, length_hint, write);
    }

    /// Finishes a call whose answer is its row.
    fn finish_row(
        self: &Arc<Self>,
        called: HotResult<(), Row>,
        slots: &Arc<Slots>,
        out: &mut impl Out,
    ) -> Result<Step, Problem> {
        self.finish(called, slots, out, |me, row, slots, out| {
            me.respond_row(row.as_ref(), slots, out);
            Ok(())
        })
    }

    /// Finishes a call: holds a written answer until what it depends on is durable, or lets `respond` write
    /// it when the call's result arrives.
    fn finish<L: Send + 'static>(
        self: &Arc<Self>,
        called: HotResult<(), L>,
        slots: &Arc<Slots>,
        out: &mut impl Out,
        respond: impl FnOnce(&Self, L, &Slots, &mut OwnedOut) -> Result<(), Problem> + Send + 'static,
    ) -> Result<Step, Problem> {
        match called {
            Ok(Called::Now((), mark)) => {
                out.hold_until(mark);
                Ok(Step::Done)
            }
            Ok(Called::First(needed)) => Ok(self.wait(needed)),
            Ok(Called::Later(result)) => {
                let (me, slots) = (self.clone(), slots.clone());
                Ok(Step::reply(async move {
                    let found = result.await.map_err(|error| me.problem(&error))?;
                    let mut out = OwnedOut::default();
                    respond(&me, found, &slots, &mut out)?;
                    Ok(out.into_reply())
                }))
            }
            Err(error) => Err(self.problem(&error)),
        }
    }

    /// Waits for what the call needs before it can run.
    fn wait(self: &Arc<Self>, needed: BoxFuture<'static, Result<(), HotError>>) -> Step {
        let me = self.clone();
        Step::Wait(Box::pin(async move { needed.await.map_err(|error| me.problem(&error)) }))
    }

    /// The problem that the client sees for a failure, held until the state that it reveals is durable.
    fn problem(&self, error: &HotError) -> Problem {
        let problem = match error.kind() {
            HotKind::Conflict { rule } => conflict(self.table().schema(), rule),
            HotKind::Missing => self.answering().not_found(),
            HotKind::MemoryFull => Problem::unavailable("the memory limit is reached until rows are drained"),
            HotKind::LogFull => Problem::unavailable("the log is full until rows are drained"),
            HotKind::Busy => {
                Problem::unavailable("the log's disk is behind, or the row waits to be read again")
            }
            HotKind::Poisoned => Problem::new(503, "the log failed; nothing more is written until a restart"),
            HotKind::Overflow { column } => {
                let name = &self.table().schema().columns[column].name;
                Problem::invalid(name, &Invalid::beyond("a sum within the column's range"))
            }
            HotKind::TooLarge => Problem::new(413, error.to_string()),
            HotKind::Refused => refused(error),
            HotKind::Source if error.may_retry() => Problem::unavailable(error.to_string()),
            // The row is too large for memory: a retry does not help.
            HotKind::Source => Problem::new(500, error.to_string()),
            HotKind::Unavailable => Problem::unavailable("the memory tier is unavailable"),
            #[cfg(feature = "planted")]
            HotKind::UnknownOutcome if forebay_database::planted_bugs::is("unknown-told-as-undone") => {
                Problem::unavailable("planted: it was not done")
            }
            HotKind::UnknownOutcome => match error.cause::<SourceError>() {
                Some(stopped) => Problem::outcome_unknown(format_args!("the write is logged, and {stopped}")),
                None => Problem::outcome_unknown("whether it was done is unknown"),
            },
            _ => {
                warn!("forebay: the memory tier: {error}");
                Problem::new(500, "the memory tier failed")
            }
        };
        problem.held_until(error.mark().0)
    }
}

/// The problem for a write that the database refused.
fn refused(error: &HotError) -> Problem {
    let Some(reason) = error.cause::<forebay_database::Error>() else {
        return Problem::new(422, error.to_string());
    };
    let problem = sql_problem(reason);
    let is_asked_for = reason.raised().is_some_and(|raised| raised.status.is_some());
    // The parameters already have the right types, so the values are at fault, not the form of the request.
    if problem.status == 400 && !is_asked_for { Problem { status: 422, ..problem } } else { problem }
}

/// The problem when another row has the same values in the columns of this unique rule.
fn conflict(schema: &Schema, rule: usize) -> Problem {
    let columns = schema.unique_rule(rule);
    let names: Vec<&str> = columns.iter().map(|column| schema.columns[*column].name.as_str()).collect();
    let detail = match names.as_slice() {
        [name] => format!("another row has this `{name}`"),
        names => format!("another row has these `{}` together", names.join("`, `")),
    };
    Problem { parameter: names.first().map(|name| (*name).to_owned()), ..Problem::new(409, detail) }
}

/// Implements [`HotAction`] with the fields `table` and `answering`.
macro_rules! hot_action {
    ($($action:ty),+) => {$(
        impl $crate::action::hot::HotAction for $action {
            fn table(&self) -> &forebay_table::HotTable {
                &self.table
            }

            fn answering(&self) -> &$crate::action::Answering {
                &self.answering
            }
        }
    )+};
}
pub(super) use hot_action;
