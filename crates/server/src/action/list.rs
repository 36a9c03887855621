//! `list`: rows of a hot table in the order of their keys, page by page (key-set pages: `after` is the last key seen).

use super::{Answering, Step, source_problem, wait_loaded};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::Out;
use crate::hot::Hot;
use crate::problem::Problem;
use forebay_table::Table;
use forebay_value::{Row, Type, Value};
use std::sync::Arc;

/// The action.
pub struct List {
    /// The table.
    pub table: Hot,
    /// The last key of the page before, its type, and the name that errors use.
    pub after: (Eval, Type, String),
    /// The most rows to answer with, and the name that errors use.
    pub limit: (Eval, String),
    /// More than this is refused.
    pub limit_max: usize,
    /// The answer.
    pub answering: Answering,
}

impl List {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let scope = Scope::new(slots);
        let (after, ty, name) = &self.after;
        let after = after.evaluate_as(*ty, name, &scope)?;
        let limit = self.limit(&scope)?;
        let after = Some(after).filter(|after| !after.is_null());
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), after, limit)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let mut rows = Vec::with_capacity(limit);
        let list = table.list(after.as_ref().map(Value::as_ref), limit, |row| rows.push(Row(row.0.into())));
        if !list.evicted.is_empty() {
            return Ok(wait_evicted(table, list.evicted));
        }
        out.hold_until(list.mark);
        self.respond(&rows, slots, out);
        Ok(Step::Done)
    }

    /// Answers with these rows.
    pub(super) fn respond(&self, rows: &[Row], slots: &Slots, out: &mut impl Out) {
        let length_hint: usize = rows.iter().map(|row| row.0.len() + 100).sum();
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_rows(self.table.schema(), rows, &Scope::new(slots), body);
            }
        };
        out.respond(&self.answering.head, |_| {}, length_hint, write);
    }

    fn limit(&self, scope: &Scope<'_>) -> Result<usize, Problem> {
        let (limit, name) = &self.limit;
        match limit.evaluate_as(Type::Bigint, name, scope)? {
            Value::Bigint(rows) if (1..=self.limit_max as i64).contains(&rows) => Ok(rows as usize),
            _ => Err(Problem::parameter(name, format!("must be between 1 and {}", self.limit_max))),
        }
    }
}

fn wait_evicted(table: &Arc<Table>, keys: Vec<Value>) -> Step {
    let table = table.clone();
    Step::Wait(Box::pin(async move {
        for key in keys {
            table.fetch(key).await.map_err(|error| source_problem(&error))?;
        }
        Ok(())
    }))
}
