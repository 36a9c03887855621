//! `get_many`: the rows with several keys, in the order of the keys.

use super::hot::{HotAction, hot_action};
use super::{Answering, Step};
use crate::endpoint::answer_sink::{Out, OwnedOut};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::problem::Problem;
use forebay_table::{Called, Counters, HotKind, HotTable, completed};
use forebay_value::{Invalid, Row, RowRef, Value, from_json, from_text};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use std::sync::Arc;

hot_action!(GetMany);

/// The action.
pub struct GetMany {
    pub table: HotTable,
    /// The keys, an array or a text with commas between them, and the name that errors use.
    pub keys: (Eval, String),
    /// The most keys that are accepted.
    pub keys_max: usize,
    /// Whether the answer shows a column that increments change.
    pub counters: Counters,
    pub answering: Answering,
}

impl GetMany {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let keys = self.keys(slots)?;
        let mut rows = Vec::with_capacity(keys.len());
        for key in &keys {
            match self.table.get(key.as_ref(), self.counters, copied) {
                Ok(Called::Now(row, mark)) => {
                    rows.push(row);
                    out.hold_until(mark);
                }
                Ok(Called::First(_) | Called::Later(_)) => return Ok(self.read_later(keys, slots)),
                Err(error) if error.kind() == HotKind::Missing => out.hold_until(error.mark()),
                Err(error) => return Err(self.problem(&error)),
            }
        }
        self.respond_rows(&rows, slots, out);
        Ok(Step::Done)
    }

    /// Reads all rows concurrently, wherever they are stored.
    fn read_later(self: &Arc<Self>, keys: Vec<Value>, slots: &Arc<Slots>) -> Step {
        let (me, slots) = (self.clone(), slots.clone());
        Step::reply(async move {
            let read = |key: Value| {
                let me = &me;
                async move { completed(|| me.table.get(key.as_ref(), me.counters, copied)).await }
            };
            let (mut rows, mut out) = (Vec::with_capacity(keys.len()), OwnedOut::default());
            for found in join_all(keys.into_iter().map(read)).await {
                match found {
                    Ok((row, mark)) => {
                        rows.push(row);
                        out.hold_until(mark);
                    }
                    Err(error) if error.kind() == HotKind::Missing => out.hold_until(error.mark()),
                    Err(error) => return Err(me.problem(&error)),
                }
            }
            me.respond_rows(&rows, &slots, &mut out);
            Ok(out.into_reply())
        })
    }

    fn keys(&self, slots: &Slots) -> Result<Vec<Value>, Problem> {
        let (keys, name) = &self.keys;
        let ty = self.table.schema().key_column().ty;
        let read = match keys.evaluate(&Scope::new(slots))? {
            Value::Json(array) => serde_json::from_str::<Vec<&RawValue>>(&array)
                .map_err(|_| Invalid::form("an array of keys"))
                .and_then(|keys| keys.into_iter().map(|key| not_null(from_json(ty, key.get())?)).collect()),
            Value::Text(list) => {
                list.split(',').filter(|key| !key.is_empty()).map(|key| from_text(ty, key)).collect()
            }
            _ => return Err(Problem::parameter(name, "is required")),
        };
        let keys: Vec<Value> = read.map_err(|invalid| Problem::invalid(name, &invalid))?;
        if keys.len() > self.keys_max {
            return Err(Problem::parameter(name, format!("must have at most {} keys", self.keys_max)));
        }
        Ok(keys)
    }
}

fn not_null(key: Value) -> Result<Value, Invalid> {
    if key.is_null() { Err(Invalid::null()) } else { Ok(key) }
}

fn copied(row: RowRef<'_>) -> Row {
    Row(row.0.into())
}
