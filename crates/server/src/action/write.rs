//! `insert`, `upsert`, `update`, `increment` and `delete` on a hot table.
//!
//! An insert draws again when a value that it drew itself (a code, a UUID) is taken; a conflict over what the
//! client gave is a 409.

use super::hot::{HotAction, PUNCTUATION_BYTES, hot_action};
use super::{Answering, KeyOf, Step, run_until_answered};
use crate::endpoint::answer_sink::{Out, OwnedOut};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::functions;
use crate::problem::Problem;
use forebay_http::Reply;
use forebay_table::{BoxFuture, Called, HotError, HotKind, HotResult, HotTable, completed};
use forebay_value::{Fill, Invalid, Row, RowRef, Schema, Timestamp, Value, ValueRef, encode_row};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

hot_action!(Insert, Update, Increment, Delete);

/// Where the value of a column comes from.
pub enum ColumnSource {
    /// An expression, the name that errors use, and what fills the column when the client gave nothing.
    Eval(Eval, String, Option<Fill>),
    /// The next serial key.
    Serial,
    /// What the column says.
    Fill(Fill),
    Null,
}

/// How an insert treats a row whose key is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// 409, unless what is taken was drawn here: then it is drawn again so many times.
    Refuse {
        /// How many times.
        draws_again: u32,
    },
    /// The new row takes its place.
    Replace,
}

/// `insert` and `upsert`.
pub struct Insert {
    pub table: HotTable,
    /// How the row is made.
    pub row: RowPlan,
    /// What happens when the key is there.
    pub on_conflict: OnConflict,
    pub answering: Answering,
}

thread_local! {
    static ROW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub type Values = SmallVec<[Value; 12]>;

impl Insert {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let draws_left = match self.on_conflict {
            OnConflict::Refuse { draws_again } => draws_again,
            OnConflict::Replace => 0,
        };
        self.draw(draws_left, slots, out)
    }

    /// Makes a row and writes it; once more as long as what was drawn for it is taken.
    fn draw(
        self: &Arc<Self>,
        mut draws_left: u32,
        slots: &Arc<Slots>,
        out: &mut impl Out,
    ) -> Result<Step, Problem> {
        loop {
            // Before keys are taken: which of them are free is not known until then.
            if !self.table.is_loaded() {
                return Ok(self.wait(self.table.wait_loaded()));
            }
            let rows = match self.row.draws_codes {
                true => self.table.count_recent(),
                false => Some(0),
            };
            let Some(rows) = rows else {
                return Ok(self.wait(self.table.wait_counted()));
            };
            let scope = Scope::beside_rows(slots, rows);
            let mut next_key = || self.table.next_key();
            let Some(mut values) = self.row.values(self.table.schema(), &scope, &mut next_key)? else {
                return Ok(self.wait(self.table.wait_keys()));
            };
            let judged = self.table.rules().judge_row(&mut values);
            judged.map_err(|(column, invalid)| self.row.problem(self.table.schema(), column, &invalid))?;
            match self.write(&values) {
                (Ok(Called::Now((), mark)), row_bytes) => {
                    self.respond_own(&values, row_bytes, slots, out);
                    out.hold_until(mark);
                    return Ok(Step::Done);
                }
                (Ok(Called::First(needed)), _) => return Ok(self.wait(needed)),
                (Ok(Called::Later(written)), row_bytes) => {
                    return Ok(self.finish_later(written, (values, row_bytes), draws_left, slots));
                }
                (Err(error), _) if draws_left > 0 && self.is_drawn(&error, slots) => draws_left -= 1,
                (Err(error), _) => return Err(self.problem(&error)),
            }
        }
    }

    /// Answers when a row is written, or draws again. `made`: its values, and its length in bytes.
    fn finish_later(
        self: &Arc<Self>,
        written: BoxFuture<'static, Result<(), HotError>>,
        made: (Values, usize),
        draws_left: u32,
        slots: &Arc<Slots>,
    ) -> Step {
        let (me, slots) = (self.clone(), slots.clone());
        Step::reply(async move {
            match written.await {
                Ok(()) => {
                    let mut out = OwnedOut::default();
                    me.respond_own(&made.0, made.1, &slots, &mut out);
                    Ok(out.into_reply())
                }
                Err(error) if draws_left > 0 && me.is_drawn(&error, &slots) => {
                    run_until_answered(|out| me.draw(draws_left - 1, &slots, out)).await
                }
                Err(error) => Err(me.problem(&error)),
            }
        })
    }

    /// Writes a row of these values; how many bytes it has.
    fn write(&self, values: &Values) -> (HotResult<()>, usize) {
        ROW.with_borrow_mut(|row| {
            row.clear();
            encode_row(self.table.schema(), values.iter().map(Value::as_ref), row);
            let row = RowRef(row);
            let written = match self.on_conflict {
                OnConflict::Refuse { .. } => self.table.insert(row),
                OnConflict::Replace => self.table.upsert(row),
            };
            (written, row.0.len())
        })
    }

    /// Answers with a row that was just made of these values, so long in the row format: text that is known
    /// to be text is not checked again.
    fn respond_own(&self, values: &[Value], row_bytes: usize, slots: &Slots, out: &mut impl Out) {
        let Answering { head, shape, .. } = &self.answering;
        let Some(shape) = shape else {
            return out.respond(head, |_| {}, 0, |_| {});
        };
        let write = |body: &mut Vec<u8>| shape.write_own(values, &Scope::new(slots), body);
        out.respond(head, |_| {}, row_bytes + PUNCTUATION_BYTES, write);
    }

    /// Whether a write failed because a value is taken that was drawn here.
    fn is_drawn(&self, error: &HotError, slots: &Slots) -> bool {
        let HotKind::Conflict { rule } = error.kind() else { return false };
        self.table.schema().unique_rule(rule).into_iter().any(|column| match &self.row.sources[column] {
            ColumnSource::Eval(eval, _, _) => eval.is_drawn(&Scope::new(slots)),
            ColumnSource::Fill(fill) => matches!(fill, Fill::Uuid4 | Fill::Uuid7),
            ColumnSource::Serial | ColumnSource::Null => false,
        })
    }
}

/// How a new row is made.
pub struct RowPlan {
    /// Where the value of each column comes from.
    pub sources: Vec<ColumnSource>,
    /// The columns in the order in which they are made: a value may refer to columns made before it.
    pub order: Vec<usize>,
    /// Whether some value is a drawn code, whose length depends on how many rows there are.
    pub draws_codes: bool,
}

impl RowPlan {
    /// The values of a new row; `None` when a serial key is wanted and `next_key` has none at hand.
    pub fn values(
        &self,
        schema: &Schema,
        scope: &Scope<'_>,
        next_key: &mut dyn FnMut() -> Option<i64>,
    ) -> Result<Option<Values>, Problem> {
        let mut values: Values = SmallVec::from_elem(Value::Null, schema.columns.len());
        for &index in &self.order {
            let column = &schema.columns[index];
            values[index] = match &self.sources[index] {
                ColumnSource::Eval(eval, name, fill) => {
                    match (eval.evaluate_as(column.ty, name, &scope.with_own(&values))?, fill) {
                        (Value::Null, Some(fill)) => filled(fill),
                        (Value::Null, None) if !column.nullable => {
                            return Err(Problem::invalid(name, &Invalid::null()));
                        }
                        (value, _) => value,
                    }
                }
                ColumnSource::Serial => match next_key() {
                    Some(key) => Value::Bigint(key),
                    None => return Ok(None),
                },
                ColumnSource::Fill(fill) => filled(fill),
                ColumnSource::Null => Value::Null,
            };
        }
        Ok(Some(values))
    }
}

impl RowPlan {
    /// What the client sees of a value that the database would refuse, by the name that it knows.
    pub fn problem(&self, schema: &Schema, column: usize, invalid: &Invalid) -> Problem {
        match &self.sources[column] {
            ColumnSource::Eval(_, name, _) => Problem::invalid(name, invalid),
            _ => Problem::invalid(&schema.columns[column].name, invalid),
        }
    }
}

/// What a column is filled with.
fn filled(fill: &Fill) -> Value {
    match fill {
        Fill::Value(value) => value.clone(),
        Fill::Now => Value::Timestamp(Timestamp::now()),
        Fill::Uuid4 => Value::Uuid(functions::uuid4()),
        Fill::Uuid7 => Value::Uuid(functions::uuid7()),
    }
}

/// `update`: changes columns of one row.
pub struct Update {
    pub table: HotTable,
    /// Which row.
    pub key: KeyOf,
    /// The columns to change: index, value, the name that errors use.
    pub changes: Vec<(usize, Eval, String)>,
    pub answering: Answering,
}

impl Update {
    /// Runs it. A column whose parameter is not in the request stays as it is.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let values = self.values(slots)?;
        let changes: SmallVec<[(usize, ValueRef<'_>); 12]> =
            values.iter().map(|(column, value)| (*column, value.as_ref())).collect();
        let show = |row: RowRef<'_>| self.respond_row(row, slots, out);
        let called = self.table.update(key.as_ref(), &changes, show);
        self.finish_row(called, slots, out)
    }

    fn values(&self, slots: &Slots) -> Result<SmallVec<[(usize, Value); 12]>, Problem> {
        let mut values: SmallVec<[(usize, Value); 12]> = SmallVec::new();
        for (column, eval, name) in &self.changes {
            if matches!(eval, Eval::Slot(slot) if !slots.is_given(*slot) && slots.values[*slot].is_null()) {
                continue;
            }
            let of = &self.table.schema().columns[*column];
            match eval.evaluate_as(of.ty, name, &Scope::new(slots))? {
                Value::Null if !of.nullable => return Err(Problem::invalid(name, &Invalid::null())),
                value => values.push((*column, value)),
            }
        }
        self.table.rules().judge_changes(&mut values).map_err(|(column, invalid)| {
            let changed = self.changes.iter().find(|(changed, ..)| *changed == column);
            Problem::invalid(changed.map_or("value", |(_, _, name)| name), &invalid)
        })?;
        Ok(values)
    }
}

/// `increment`: adds to a bigint column of one row.
pub struct Increment {
    pub table: HotTable,
    /// Which row.
    pub key: KeyOf,
    pub column: usize,
    /// How much, and the name that errors use.
    pub by: (Eval, String),
    pub answering: Answering,
}

impl Increment {
    /// Runs it. The answer is held until the increment itself is durable, whatever it shows: it says that it
    /// was done.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let (by, name) = &self.by;
        let Value::Bigint(delta) = by.evaluate_as(forebay_value::Type::Bigint, name, &Scope::new(slots))?
        else {
            return Err(Problem::parameter(name, "is required"));
        };
        let show = |row: RowRef<'_>| self.respond_row(row, slots, out);
        let called = self.table.increment(key.as_ref(), self.column, delta, show);
        self.finish_row(called, slots, out)
    }
}

/// `delete`: removes one row, which is what the answer shows if it shows anything.
pub struct Delete {
    pub table: HotTable,
    /// Which row; `None`: a random one.
    pub key: Option<KeyOf>,
    /// Rows that a random choice never takes.
    pub except: Vec<Value>,
    pub answering: Answering,
}

/// How often a random choice that fell on an excepted row is made again.
const CHOICES_MAX: u32 = 64;

impl Delete {
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        match &self.key {
            Some(key) => {
                let key = key.of(slots)?;
                let called = self.table.delete(key.as_ref(), |row| self.respond_row(row, slots, out));
                self.finish_row(called, slots, out)
            }
            None => Ok(Step::reply(self.clone().delete_random(slots.clone()))),
        }
    }

    /// Deletes a random row that is not excepted.
    async fn delete_random(self: Arc<Self>, slots: Arc<Slots>) -> Result<Reply, Problem> {
        let mut out = OwnedOut::default();
        let copy = |row: RowRef<'_>| Row(row.0.into());
        for _ in 0..CHOICES_MAX {
            let key = match completed(|| self.table.random(copy)).await {
                Ok((row, _)) => row.as_ref().key(self.table.schema()).to_owned(),
                Err(error) if error.kind() == HotKind::Missing => {
                    out.hold_until(error.mark());
                    break;
                }
                Err(error) => return Err(self.problem(&error)),
            };
            if self.except.contains(&key) {
                continue;
            }
            match completed(|| self.table.delete(key.as_ref(), copy)).await {
                Ok((row, mark)) => {
                    self.respond_row(row.as_ref(), &slots, &mut out);
                    out.hold_until(mark);
                    return Ok(out.into_reply());
                }
                // Another request deleted it first: another row is chosen.
                Err(error) if error.kind() == HotKind::Missing => {}
                Err(error) => return Err(self.problem(&error)),
            }
        }
        self.respond_none(&slots, &mut out);
        Ok(out.into_reply())
    }

    /// No row may go: the answer is that of a row of nulls, so that a client that deletes at random need not
    /// know.
    fn respond_none(&self, slots: &Slots, out: &mut impl Out) {
        let nulls = vec![ValueRef::Null; self.table.schema().columns.len()];
        let write = |body: &mut Vec<u8>| {
            if let Some(shape) = &self.answering.shape {
                shape.write_values(&nulls, &Scope::new(slots), body);
            }
        };
        out.respond(&self.answering.head, |_| {}, 64, write);
    }
}
