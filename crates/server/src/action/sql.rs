//! `sql`: a statement on the database, with its parameters bound, never pasted into the text.

use super::{Answering, Step};
use crate::endpoint::answer_sink::{Out, OwnedOut};
use crate::endpoint::eval::{Eval, Scope, Slots, coerce};
use crate::endpoint::shape::RowValues;
use crate::problem::Problem;
use crate::query_plans::StatementTiming;
use crate::read_your_writes::WriteVisibility;
use crate::statement_counters::StatementCounters;
use forebay_database::{Error, Kind, Rows, Statement, Store};
use forebay_http::Reply;
use forebay_terminal::error;
use forebay_value::{Type, Value, ValueRef};
use std::sync::Arc;
use std::time::Instant;

/// How many rows the answer shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// The first, as an object; 404 when there is none.
    One,
    /// All, as an array.
    All,
    /// No rows; the number of changed rows.
    None,
}

pub struct SqlAction {
    /// The database.
    pub store: Store,
    /// The statement, prepared.
    pub statement: Statement,
    /// One for each of the statement's parameters, in its order: value, type, the name that errors use.
    pub bind: Vec<(Eval, Option<Type>, String)>,
    /// How many rows the answer shows.
    pub shows: Shows,
    pub answering: Answering,
    /// Waits until the followed tables show what the statement wrote.
    pub seen: WriteVisibility,
    /// The durations of its calls.
    pub timed: Arc<StatementTiming>,
    pub counters: Arc<StatementCounters>,
}

impl SqlAction {
    /// Starts the statement; the answer follows when it is done.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>) -> Step {
        let (me, slots) = (self.clone(), slots.clone());
        let running = self.bound(&slots).map(|values| {
            let run = self.counters.begin(&values);
            (run, self.store.run(&self.statement, values))
        });
        Step::Reply(Box::pin(async move {
            let started = Instant::now();
            let (run, rows) = running?;
            let rows = rows.await;
            drop(run);
            me.timed.add(started.elapsed());
            let rows = rows.map_err(|error| sql_problem(&error))?;
            me.seen.wait_after(&me.store, &me.statement).await;
            me.answer(&rows, &slots)
        }))
    }

    fn bound(&self, slots: &Slots) -> Result<Vec<Value>, Problem> {
        let scope = Scope::new(slots);
        self.bind
            .iter()
            .map(|(eval, ty, name)| {
                let value = eval.evaluate(&scope)?;
                match ty {
                    Some(ty) => coerce(value, *ty).map_err(|invalid| Problem::invalid(name, &invalid)),
                    None => Ok(value),
                }
            })
            .collect()
    }

    fn answer(&self, rows: &Rows, slots: &Slots) -> Result<Reply, Problem> {
        let scope = Scope::new(slots);
        let mut out = OwnedOut::default();
        let head = &self.answering.head;
        let Some(shape) = &self.answering.shape else {
            out.respond(head, |_| {}, 0, |_| {});
            return Ok(out.into_reply());
        };
        match self.shows {
            Shows::One => {
                let row = rows.iter().next().ok_or_else(|| self.answering.not_found())?;
                out.respond(head, |_| {}, 256, |body| shape.write_values(&borrowed(row), &scope, body));
            }
            Shows::All => {
                let all = rows.iter().map(borrowed);
                out.respond(head, |_| {}, 256, |body| shape.write_all(all, &scope, body));
            }
            Shows::None => {
                let changed = [ValueRef::Bigint(rows.changed as i64)];
                out.respond(head, |_| {}, 32, |body| shape.write_values(&changed, &scope, body));
            }
        }
        Ok(out.into_reply())
    }
}

fn borrowed(row: &[Value]) -> RowValues<'_> {
    row.iter().map(Value::as_ref).collect()
}

/// The problem that a client sees for a failed statement: it never shows the statement. What the application
/// raised is for its clients.
pub fn sql_problem(error: &Error) -> Problem {
    let problem = kind_problem(error);
    match error.raised() {
        Some(raised) if error.is_data() => Problem {
            status: raised.status.unwrap_or(problem.status),
            detail: raised.message.to_string(),
            ..problem
        },
        _ => problem,
    }
}

fn kind_problem(error: &Error) -> Problem {
    let at = |status: u16, column: Option<&String>, detail: String| Problem {
        parameter: column.cloned(),
        constraint: error.constraint().map(str::to_owned),
        ..Problem::new(status, detail)
    };
    let column = error.column().map(str::to_owned);
    match error.kind() {
        Kind::Conflict { column } => match column {
            Some(name) => at(409, Some(name), format!("another row has this `{name}`")),
            None => at(409, None, "another row has the same value where no two may".into()),
        },
        Kind::NotNull { column } => match column {
            Some(name) => at(400, Some(name), format!("`{name}` is required")),
            None => at(400, None, "a value that is required is missing".into()),
        },
        Kind::Check => at(422, column.as_ref(), "the database refuses these values".into()),
        Kind::Type => match &column {
            Some(name) => at(400, Some(name), format!("`{name}` has the wrong type")),
            None => at(400, None, "a value has the wrong type".into()),
        },
        Kind::Unfit => at(500, column.as_ref(), error.message().to_owned()),
        Kind::Timeout => at(504, None, "the statement took too long".into()),
        Kind::UnknownOutcome => {
            error!("forebay: {error}");
            Problem::outcome_unknown("the connection broke at commit")
        }
        Kind::Busy => Problem::unavailable("the database is busy"),
        Kind::Unavailable => Problem::unavailable("the database is unreachable"),
        Kind::Full | Kind::ReadOnly => Problem::unavailable("the database takes no writes"),
        _ => {
            error!("forebay: statement failed: {error}");
            at(500, None, "the statement failed".into())
        }
    }
}
