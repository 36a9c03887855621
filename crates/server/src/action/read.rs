//! `get`, `random` and `count` on a hot table.

use super::hot::{HotAction, hot_action};
use super::{Answering, KeyOf, Step};
use crate::endpoint::answer_sink::Out;
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::shape::Shape;
use crate::problem::Problem;
use forebay_table::{Counters, HotTable};
use forebay_value::{RowRef, Type, Value, ValueRef};
use std::sync::Arc;

hot_action!(Get, Random, Count);

/// Whether a shape shows a column that increments change.
pub fn counters_of(shape: Option<&Shape>, incremented: &[usize]) -> Counters {
    match shape {
        Some(shape) if incremented.iter().any(|&column| shape.shows(column)) => Counters::Shown,
        _ => Counters::Hidden,
    }
}

/// `get`: the row with this key.
pub struct Get {
    pub table: HotTable,
    /// Which row.
    pub key: KeyOf,
    /// Whether the answer shows a column that increments change.
    pub counters: Counters,
    pub answering: Answering,
}

impl Get {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let show = |row: RowRef<'_>| self.respond_row(row, slots, out);
        let called = self.table.get(key.as_ref(), self.counters, show);
        self.finish_row(called, slots, out)
    }
}

/// `random`: a row chosen at random with equal probability.
pub struct Random {
    pub table: HotTable,
    pub answering: Answering,
}

impl Random {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let called = self.table.random(|row| self.respond_row(row, slots, out));
        self.finish_row(called, slots, out)
    }
}

/// `count`: how many rows there are, or how many have a value in an indexed column.
pub struct Count {
    pub table: HotTable,
    /// The column (its index and type), the value to count and the name that errors use.
    pub by: Option<(usize, Type, Eval, String)>,
    /// The answer; its rows have two columns: the counted value and the count.
    pub answering: Answering,
}

impl Count {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let (value, called) = match &self.by {
            Some((column, ty, eval, name)) => {
                let value = eval.evaluate_as(*ty, name, &Scope::new(slots))?;
                let called = self.table.count_by(*column, value.as_ref());
                (value, called)
            }
            None => (Value::Null, self.table.count()),
        };
        let called = called.map(|called| called.map(|count| self.respond(value.as_ref(), count, slots, out)));
        self.finish(called, slots, out, move |me, count, slots, out| {
            me.respond(value.as_ref(), count, slots, out);
            Ok(())
        })
    }

    /// Answers with the counted value and the count.
    fn respond(&self, value: ValueRef<'_>, count: u64, slots: &Slots, out: &mut impl Out) {
        let columns = [value, ValueRef::Bigint(i64::try_from(count).unwrap_or(i64::MAX))];
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_values(&columns, &Scope::new(slots), body);
            }
        };
        out.respond(&self.answering.head, |_| {}, 64, write);
    }
}
