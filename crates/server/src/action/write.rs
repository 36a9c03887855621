//! `insert`, `upsert`, `update`, `increment` and `delete` on a hot table.
//!
//! An insert draws again when a value that it drew itself (a code, a UUID) is taken; a conflict over what the client gave is a 409.

use super::read::{respond_own, respond_row};
use super::{Answering, BoxFuture, KeyOf, Step, source_problem, wait_fetched, wait_loaded};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::endpoint::out::Out;
use crate::functions;
use crate::hot::Hot;
use crate::problem::Problem;
use forebay_log::Position;
use forebay_table::{Read, Table, WriteError};
use forebay_value::{Fill, RowRef, Schema, Timestamp, Value, ValueRef, encode_row};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Where the value of a column comes from.
pub enum ColumnSource {
    /// An expression, the name that errors use, and what fills the column when the client gave nothing.
    Eval(Eval, String, Option<Fill>),
    /// The next serial key.
    Serial,
    /// What the column says.
    Fill(Fill),
    /// Null.
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
    /// The table.
    pub table: Hot,
    /// How the row is made.
    pub row: RowPlan,
    /// What happens when the key is there.
    pub on_conflict: OnConflict,
    /// The answer.
    pub answering: Answering,
}

thread_local! {
    static ROW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub type Values = SmallVec<[Value; 12]>;

impl Insert {
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
        let draws_again = self.draws_again();
        for draw in 0.. {
            let rows = if self.row.draws_codes { table.count().0 } else { 0 };
            let scope = Scope::beside_rows(slots, rows);
            let mut next_key = || table.next_key();
            let Some(values) = self.row.values(table.schema(), &scope, &mut next_key)? else {
                return Ok(Step::Wait(wait_keys(table)));
            };
            match self.write(table, &values, slots, out) {
                Ok(position) => {
                    out.hold_until(position);
                    return Ok(Step::Done);
                }
                Err(WriteError::Conflict { column, .. })
                    if draw < draws_again && self.is_drawn(column, slots) => {}
                Err(error) => return write_failed(table, error, &self.answering),
            }
        }
        unreachable!("the last draw returns")
    }

    /// How often what was drawn here is drawn again when it is taken.
    pub(super) fn draws_again(&self) -> u32 {
        match self.on_conflict {
            OnConflict::Refuse { draws_again } => draws_again,
            OnConflict::Replace => 0,
        }
    }

    fn write(
        &self,
        table: &Table,
        values: &Values,
        slots: &Slots,
        out: &mut impl Out,
    ) -> Result<Position, WriteError> {
        ROW.with_borrow_mut(|row| {
            row.clear();
            encode_row(table.schema(), values.iter().map(Value::as_ref), row);
            let row = RowRef(row);
            let position = match self.on_conflict {
                OnConflict::Refuse { .. } => table.insert(row)?,
                OnConflict::Replace => table.upsert(row)?,
            };
            respond_own(&self.answering, values, row.0.len(), slots, out);
            Ok(position)
        })
    }

    /// Whether the value of this column was drawn here.
    pub(super) fn is_drawn(&self, column: usize, slots: &Slots) -> bool {
        match &self.row.sources[column] {
            ColumnSource::Eval(eval, _, _) => eval.is_drawn(&Scope::new(slots)),
            ColumnSource::Fill(fill) => matches!(fill, Fill::Uuid4 | Fill::Uuid7),
            ColumnSource::Serial | ColumnSource::Null => false,
        }
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
                            return Err(Problem::parameter(name, "is required"));
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

/// What a column is filled with.
fn filled(fill: &Fill) -> Value {
    match fill {
        Fill::Value(value) => value.clone(),
        Fill::Now => Value::Timestamp(Timestamp::now()),
        Fill::Uuid4 => Value::Uuid(functions::uuid4()),
        Fill::Uuid7 => Value::Uuid(functions::uuid7()),
    }
}

fn wait_keys(table: &Arc<Table>) -> BoxFuture<Result<(), Problem>> {
    let keys = table.wait_keys();
    Box::pin(async move { keys.await.map_err(|error| source_problem(&error)) })
}

/// Turns a failed write into what the client sees, or into what has to be waited for.
fn write_failed(table: &Arc<Table>, error: WriteError, answering: &Answering) -> Result<Step, Problem> {
    Err(match error {
        WriteError::Fetch(key) => return Ok(wait_fetched(table, key, answering.not_found())),
        WriteError::Conflict { column, mark } => conflict(table.schema(), column).held_until(mark.0),
        WriteError::Missing { mark } => answering.not_found().held_until(mark.0),
        WriteError::MemoryFull => Problem::unavailable("the memory limit is reached until rows are drained"),
        WriteError::LogFull => Problem::unavailable("the log is full until rows are drained"),
        WriteError::Busy => Problem::unavailable("the log's disk is behind"),
        WriteError::Poisoned => Problem::new(503, "the log failed; nothing more is written until a restart"),
        WriteError::Overflow => Problem::new(422, "the number would not fit in 64 bits"),
    })
}

/// Another row has the value of this column.
pub(super) fn conflict(schema: &Schema, column: usize) -> Problem {
    let name = &schema.columns[column].name;
    let problem = Problem::new(409, format!("another row has this `{name}`"));
    Problem { parameter: Some(name.clone()), ..problem }
}

/// `update`: changes columns of one row.
pub struct Update {
    /// The table.
    pub table: Hot,
    /// Which row.
    pub key: KeyOf,
    /// The columns to change: index, value, the name that errors use.
    pub changes: Vec<(usize, Eval, String)>,
    /// The answer.
    pub answering: Answering,
}

impl Update {
    /// Runs it. A column whose parameter is not in the request stays as it is.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let values = self.values(slots)?;
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), key, values)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let changes: SmallVec<[(usize, ValueRef<'_>); 12]> =
            values.iter().map(|(column, value)| (*column, value.as_ref())).collect();
        let show = |row: RowRef<'_>| respond_row(table.schema(), &self.answering, row, slots, out);
        match table.update(key.as_ref(), &changes, show) {
            Ok(((), position)) => {
                out.hold_until(position);
                Ok(Step::Done)
            }
            Err(error) => write_failed(table, error, &self.answering),
        }
    }

    fn values(&self, slots: &Slots) -> Result<SmallVec<[(usize, Value); 12]>, Problem> {
        let mut values = SmallVec::new();
        for (column, eval, name) in &self.changes {
            if matches!(eval, Eval::Slot(slot) if !slots.is_given(*slot) && slots.values[*slot].is_null()) {
                continue;
            }
            let of = &self.table.schema().columns[*column];
            match eval.evaluate_as(of.ty, name, &Scope::new(slots))? {
                Value::Null if !of.nullable => return Err(Problem::parameter(name, "must not be null")),
                value => values.push((*column, value)),
            }
        }
        Ok(values)
    }
}

/// `increment`: adds to a bigint column of one row.
pub struct Increment {
    /// The table.
    pub table: Hot,
    /// Which row.
    pub key: KeyOf,
    /// The column.
    pub column: usize,
    /// How much, and the name that errors use.
    pub by: (Eval, String),
    /// The answer.
    pub answering: Answering,
}

impl Increment {
    /// Runs it. The answer is held until the increment itself is durable, whatever it shows: it says that it was done.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let key = self.key.of(slots)?;
        let (by, name) = &self.by;
        let Value::Bigint(delta) = by.evaluate_as(forebay_value::Type::Bigint, name, &Scope::new(slots))?
        else {
            return Err(Problem::parameter(name, "is required"));
        };
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), key, delta)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let show = |row: RowRef<'_>| respond_row(table.schema(), &self.answering, row, slots, out);
        match table.increment(key.as_ref(), self.column, delta, show) {
            Ok(incremented) => {
                out.hold_until(incremented.mark);
                Ok(Step::Done)
            }
            Err(error) => write_failed(table, error, &self.answering),
        }
    }
}

/// `delete`: removes one row, which is what the answer shows if it shows anything.
pub struct Delete {
    /// The table.
    pub table: Hot,
    /// Which row; `None`: a random one.
    pub key: Option<KeyOf>,
    /// Rows that a random choice never takes.
    pub except: Vec<Value>,
    /// The answer.
    pub answering: Answering,
}

/// How often a random choice that fell on an excepted row is made again.
pub(super) const CHOICES_MAX: u32 = 64;

impl Delete {
    /// Runs it.
    pub fn run(self: &Arc<Self>, slots: &Arc<Slots>, out: &mut impl Out) -> Result<Step, Problem> {
        let given = self.key.as_ref().map(|key| key.of(slots)).transpose()?;
        let table = match &self.table {
            Hot::Embedded(table) => table,
            Hot::Remote(table) => {
                return Ok(Step::reply(self.clone().run_remote(table.clone(), slots.clone(), given)));
            }
        };
        if let Some(wait) = wait_loaded(table) {
            return Ok(wait);
        }
        let key = match given {
            Some(key) => key,
            None => match self.choose(table) {
                Choice::Row(key) => key,
                Choice::Wait(wait) => return Ok(wait),
                Choice::NoneLeft(mark) => {
                    self.respond_none(slots, out);
                    out.hold_until(mark);
                    return Ok(Step::Done);
                }
            },
        };
        let show = |row: RowRef<'_>| respond_row(table.schema(), &self.answering, row, slots, out);
        match table.delete(key.as_ref(), show) {
            Ok(((), position)) => {
                out.hold_until(position);
                Ok(Step::Done)
            }
            Err(error) => write_failed(table, error, &self.answering),
        }
    }

    fn choose(&self, table: &Arc<Table>) -> Choice {
        for _ in 0..CHOICES_MAX {
            let schema = table.schema();
            let key = match table.random(|row| row.key(schema).to_owned()) {
                Read::Found(key, _) => Ok(key),
                Read::Fetch(key) => Err(key),
                Read::Missing(mark) => return Choice::NoneLeft(mark),
            };
            match key {
                Ok(key) | Err(key) if self.except.contains(&key) => {}
                Ok(key) => return Choice::Row(key),
                Err(key) => {
                    return Choice::Wait(wait_fetched(table, key, self.answering.not_found()));
                }
            }
        }
        Choice::NoneLeft(Position(0))
    }

    /// Nothing may go: the answer is that of a row of nulls, so that whoever deletes at random need not know.
    pub(super) fn respond_none(&self, slots: &Slots, out: &mut impl Out) {
        let nulls = vec![ValueRef::Null; self.table.schema().columns.len()];
        out.respond(
            &self.answering.head,
            |_| {},
            64,
            |body| {
                if let Some(shape) = &self.answering.shape {
                    shape.write_values(&nulls, &Scope::new(slots), body);
                }
            },
        );
    }
}

/// A random choice.
enum Choice {
    Row(Value),
    Wait(Step),
    NoneLeft(Position),
}
