//! The answer of an action, and the key of the row that it works on.

use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::shape::Shape;
use crate::problem::Problem;
use forebay_http::Head;
use forebay_value::{Type, Value};
use std::sync::Arc;

/// The answer of a successful action.
pub struct Answering {
    /// Status and content type.
    pub head: Arc<Head>,
    /// The body; `None`: the answer has no body (204).
    pub shape: Option<Shape>,
    /// The detail of a 404.
    pub missing: String,
}

impl Answering {
    /// The 404 of this endpoint.
    pub fn not_found(&self) -> Problem {
        Problem::not_found(&self.missing)
    }
}

/// A key, compiled: its expression and the column that gives its type and name.
pub struct KeyOf {
    /// The expression.
    pub eval: Eval,
    /// The key column's type.
    pub ty: Type,
    /// The name that errors use.
    pub name: String,
}

impl KeyOf {
    /// The key of this request; 400 when it is missing or malformed.
    pub fn of(&self, slots: &Slots) -> Result<Value, Problem> {
        match self.eval.evaluate_as(self.ty, &self.name, &Scope::new(slots))? {
            Value::Null => Err(Problem::parameter(&self.name, "is required")),
            key => Ok(key),
        }
    }
}
