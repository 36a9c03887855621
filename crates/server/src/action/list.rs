//! `list`: rows of a hot table in the order of their keys, page by page (key-set pages: `after` is the last key seen).

use super::{Answering, Step, source_problem, wait_loaded};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::Out;
use crate::problem::Problem;
use forebay_table::Table;
use forebay_value::{Row, Type, Value};
use std::sync::Arc;

/// The action.
pub struct List {
    /// The table.
    pub table: Arc<Table>,
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
    pub fn run(&self, slots: &Slots, out: &mut impl Out) -> Result<Step, Problem> {
        let scope = Scope::new(slots);
        let (after, ty, name) = &self.after;
        let after = after.evaluate_as(*ty, name, &scope)?;
        let limit = self.limit(&scope)?;
        if let Some(wait) = wait_loaded(&self.table) {
            return Ok(wait);
        }
        let mut rows = Vec::with_capacity(limit);
        let after = (!after.is_null()).then(|| after.as_ref());
        let list = self.table.list(after, limit, |row| rows.push(Row(row.0.into())));
        if !list.evicted.is_empty() {
            return Ok(self.wait_evicted(list.evicted));
        }
        out.hold_until(list.mark);
        let length_hint: usize = rows.iter().map(|row| row.0.len() + 100).sum();
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_rows(self.table.schema(), &rows, &scope, body);
            }
        };
        out.respond(&self.answering.head, |_| {}, length_hint, write);
        Ok(Step::Done)
    }

    fn limit(&self, scope: &Scope<'_>) -> Result<usize, Problem> {
        let (limit, name) = &self.limit;
        match limit.evaluate_as(Type::Bigint, name, scope)? {
            Value::Bigint(rows) if (1..=self.limit_max as i64).contains(&rows) => Ok(rows as usize),
            _ => Err(Problem::parameter(name, format!("must be between 1 and {}", self.limit_max))),
        }
    }

    fn wait_evicted(&self, keys: Vec<Value>) -> Step {
        let table = self.table.clone();
        Step::Wait(Box::pin(async move {
            for key in keys {
                table.fetch(key).await.map_err(|error| source_problem(&error))?;
            }
            Ok(())
        }))
    }
}
