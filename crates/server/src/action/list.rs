//! `list`: rows of a hot table in key order, page by page (keyset pagination: `after` is the last key of the
//! previous page).

use super::hot::{HotAction, hot_action};
use super::{Answering, Step};
use crate::endpoint::answer_sink::Out;
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::problem::Problem;
use forebay_table::HotTable;
use forebay_value::{Type, Value};
use std::sync::Arc;

hot_action!(List);

/// The action.
pub struct List {
    pub table: HotTable,
    /// The last key of the previous page, its type, and the name that errors use.
    pub after: (Eval, Type, String),
    /// The most rows to answer with, and the name that errors use.
    pub limit: (Eval, String),
    /// The largest limit that is accepted.
    pub limit_max: usize,
    pub answering: Answering,
}

impl List {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let scope = Scope::new(slots);
        let (after, ty, name) = &self.after;
        let after = Some(after.evaluate_as(*ty, name, &scope)?).filter(|after| !after.is_null());
        let limit = self.limit(&scope)?;
        let called = self.table.list(after.as_ref().map(Value::as_ref), limit);
        let called = called.map(|called| called.map(|rows| self.respond_rows(&rows, slots, out)));
        self.finish(called, slots, out, |me, rows, slots, out| {
            me.respond_rows(&rows, slots, out);
            Ok(())
        })
    }

    fn limit(&self, scope: &Scope<'_>) -> Result<usize, Problem> {
        let (limit, name) = &self.limit;
        match limit.evaluate_as(Type::Bigint, name, scope)? {
            Value::Bigint(rows) if (1..=self.limit_max as i64).contains(&rows) => Ok(rows as usize),
            _ => Err(Problem::parameter(name, format!("must be between 1 and {}", self.limit_max))),
        }
    }
}
