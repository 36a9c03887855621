//! `get`, `random` and `count` on a hot table.

use super::{Answering, KeyOf, Step, source_problem, wait_fetched, wait_loaded};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::Out;
use crate::endpoint::shape::Shape;
use crate::hot::Hot;
use crate::problem::Problem;
use forebay_table::{Counters, Read};
use forebay_value::{RowRef, Schema, Type, Value, ValueRef};
use std::sync::Arc;

/// Room for keys and punctuation beside the bytes of a row, for the guess at an answer's length.
const PUNCTUATION_BYTES: usize = 100;

/// Answers with one row.
pub(super) fn respond_row(
    schema: &Schema,
    answering: &Answering,
    row: RowRef<'_>,
    slots: &Slots,
    out: &mut impl Out,
) {
    let Some(shape) = &answering.shape else {
        return out.respond(&answering.head, |_| {}, 0, |_| {});
    };
    let write = |body: &mut Vec<u8>| shape.write_row(schema, row, &Scope::new(slots), body);
    out.respond(&answering.head, |_| {}, row.0.len() + PUNCTUATION_BYTES, write);
}

/// Answers with a row that was just made of these values, so long in the row format: text that is known to be text is not checked again.
pub(super) fn respond_own(
    answering: &Answering,
    values: &[Value],
    row_bytes: usize,
    slots: &Slots,
    out: &mut impl Out,
) {
    let Some(shape) = &answering.shape else {
        return out.respond(&answering.head, |_| {}, 0, |_| {});
    };
    let write = |body: &mut Vec<u8>| shape.write_own(values, &Scope::new(slots), body);
    out.respond(&answering.head, |_| {}, row_bytes + PUNCTUATION_BYTES, write);
}

/// Whether a shape shows a column that increments change.
pub fn counters_of(shape: Option<&Shape>, incremented: &[usize]) -> Counters {
    match shape {
        Some(shape) if incremented.iter().any(|&column| shape.shows(column)) => Counters::Shown,
        _ => Counters::Hidden,
    }
}

/// `get`: the row with this key.
pub struct Get {
    /// The table.
    pub table: Hot,
    /// Which row.
    pub key: KeyOf,
    /// Whether the answer shows what increments change.
    pub counters: Counters,
    /// The answer.
    pub answering: Answering,
}

impl Get {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), key)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let show = |row: RowRef<'_>| respond_row(table.schema(), &self.answering, row, slots, out);
        match table.get(key.as_ref(), self.counters, show) {
            Read::Found((), position) => {
                out.hold_until(position);
                Ok(Step::Done)
            }
            Read::Missing(position) => Err(self.answering.not_found().held_until(position.0)),
            Read::Fetch(key) => Ok(wait_fetched(table, key, self.answering.not_found())),
        }
    }
}

/// `random`: any row, each as likely as the others.
pub struct Random {
    /// The table.
    pub table: Hot,
    /// The answer.
    pub answering: Answering,
}

impl Random {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone())));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let show = |row: RowRef<'_>| respond_row(table.schema(), &self.answering, row, slots, out);
        match table.random(show) {
            Read::Found((), position) => {
                out.hold_until(position);
                Ok(Step::Done)
            }
            Read::Missing(position) => Err(self.answering.not_found().held_until(position.0)),
            Read::Fetch(key) => {
                let fetch = table.fetch(key);
                // Should the row be gone by then, another one is drawn.
                Ok(Step::Wait(Box::pin(async move {
                    fetch.await.map(drop).map_err(|error| source_problem(&error))
                })))
            }
        }
    }
}

/// `count`: how many rows there are, or how many have a value in an indexed column.
pub struct Count {
    /// The table.
    pub table: Hot,
    /// The column (its index and type), the value looked for and the name that errors use.
    pub by: Option<(usize, Type, Eval, String)>,
    /// The answer; its rows have two columns: the value looked for and the count.
    pub answering: Answering,
}

impl Count {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let scope = Scope::new(slots);
        let value = match &self.by {
            Some((column, ty, eval, name)) => Some((*column, eval.evaluate_as(*ty, name, &scope)?)),
            None => None,
        };
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), value)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let (count, position) = match &value {
            Some((column, value)) => table.count_by(*column, value.as_ref()),
            None => table.count(),
        };
        out.hold_until(position);
        self.respond(value.as_ref().map(|(_, value)| value.as_ref()), count, slots, out);
        Ok(Step::Done)
    }

    /// Answers with the value looked for and the count.
    pub(super) fn respond(&self, by: Option<ValueRef<'_>>, count: u64, slots: &Slots, out: &mut impl Out) {
        let columns =
            [by.unwrap_or(ValueRef::Null), ValueRef::Bigint(i64::try_from(count).unwrap_or(i64::MAX))];
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_values(&columns, &Scope::new(slots), body);
            }
        };
        out.respond(&self.answering.head, |_| {}, 64, write);
    }
}
