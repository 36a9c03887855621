//! How a new row is built: from values, random values, the next serial key and defaults.

use super::forms::{Forms, KnownForms};
use crate::endpoint::eval::{Eval, Scope};
use crate::functions;
use crate::problem::Problem;
use crate::start_error::StartError;
use forebay_database::{Error, Store};
use forebay_table::LiveRules;
use forebay_value::{Fill, Invalid, LocalTimestamp, Schema, Timestamp, Type, Value};
use parking_lot::RwLockReadGuard;
use smallvec::SmallVec;

/// Where the value of a column comes from.
pub enum ColumnSource {
    /// An expression, the name that errors use, and the column's default when the client gave nothing.
    Eval(Eval, String, Option<Fill>),
    /// The next serial key.
    Serial,
    /// The column's default.
    Fill(Fill),
    Null,
}

/// The values of a row.
pub type Values = SmallVec<[Value; 12]>;

/// How a new row is built.
pub struct RowPlan {
    /// Where the value of each column comes from.
    pub sources: Vec<ColumnSource>,
    /// The columns in the order in which they are computed: a value may refer to columns computed before it.
    pub order: Vec<usize>,
    /// Whether some value contains a random code, whose length depends on the number of rows.
    pub draws_codes: bool,
}

/// The defaults of a table for one row: those of the plan, unless they have changed since the start.
pub struct Defaults<'a> {
    changed: Option<RwLockReadGuard<'a, Vec<Option<Fill>>>>,
    asked: Option<&'a Asked>,
}

/// Defaults that the database has computed for one row, by column.
pub struct Asked(SmallVec<[(usize, Value); 2]>);

/// The columns whose defaults the database must compute for a row.
pub struct Asking(Vec<(usize, Type, Box<str>)>);

impl<'a> Defaults<'a> {
    /// The present defaults of a table.
    pub fn new(rules: &'a LiveRules, asked: Option<&'a Asked>) -> Defaults<'a> {
        Defaults { changed: rules.fills(), asked }
    }

    /// Those of the plan.
    pub const OF_PLAN: Defaults<'static> = Defaults { changed: None, asked: None };

    fn fill<'f>(&'f self, column: usize, of_plan: Option<&'f Fill>) -> Option<&'f Fill> {
        match &self.changed {
            Some(changed) => changed.get(column)?.as_ref(),
            None => of_plan,
        }
    }

    /// The default of a column; `Null` when it has none.
    fn value(&self, schema: &Schema, column: usize, of_plan: Option<&Fill>) -> Result<Value, Problem> {
        Ok(match self.fill(column, of_plan) {
            None => Value::Null,
            Some(Fill::Value(value)) => value.clone(),
            // For a column without a zone the column's rule makes it what the database's clock shows.
            Some(Fill::Now) => Value::Timestamp(Timestamp::now()),
            Some(Fill::UtcClock) => Value::Local(LocalTimestamp(Timestamp::now())),
            Some(Fill::Uuid4) => Value::Uuid(functions::uuid4()),
            Some(Fill::Uuid7) => Value::Uuid(functions::uuid7()),
            Some(Fill::Asked(_)) => {
                let asked = self.asked.and_then(|Asked(of)| of.iter().find(|(index, _)| *index == column));
                let Some((_, value)) = asked else {
                    let name = &schema.columns[column].name;
                    return Err(Problem::parameter(
                        name,
                        "has a default that only the database computes, and needs a value here",
                    ));
                };
                value.clone()
            }
        })
    }
}

impl Asking {
    /// Has the database compute the defaults.
    pub async fn ask(self, store: &Store, schema: &Schema) -> Result<Asked, Problem> {
        let (columns, asked): (Vec<usize>, Vec<_>) =
            self.0.into_iter().map(|(column, ty, expression)| (column, (ty, expression))).unzip();
        match store.defaults(asked).await {
            Ok(values) => Ok(Asked(columns.into_iter().zip(values).collect())),
            Err(error) => Err(refused(schema, &columns, &error)),
        }
    }
}

/// The problem when the database computes no default.
fn refused(schema: &Schema, columns: &[usize], error: &Error) -> Problem {
    if error.may_retry() {
        return Problem::unavailable("the database, which computes a default of the row, is unreachable");
    }
    let names: Vec<&str> = columns.iter().map(|column| schema.columns[*column].name.as_str()).collect();
    let names = names.join("`, `");
    Problem::new(422, format!("the database cannot compute the default of `{names}`: give a value"))
}

impl ColumnSource {
    fn fill(&self) -> Option<&Fill> {
        match self {
            ColumnSource::Eval(_, _, fill) => fill.as_ref(),
            ColumnSource::Fill(fill) => Some(fill),
            ColumnSource::Serial | ColumnSource::Null => None,
        }
    }
}

impl RowPlan {
    /// The columns whose defaults the database computes.
    pub fn asks(&self) -> impl Iterator<Item = usize> + '_ {
        let is_asked = |index: &usize| matches!(self.sources[*index].fill(), Some(Fill::Asked(_)));
        (0..self.sources.len()).filter(is_asked)
    }

    /// The plan, if no column needs a default that the database computes.
    pub fn without_asking(self, schema: &Schema) -> Result<RowPlan, StartError> {
        let asked = self.asks().next();
        let Some(column) = asked else { return Ok(self) };
        let name = &schema.columns[column].name;
        Err(format!("`values` gives nothing for column `{name}`, whose default only the database computes")
            .into())
    }

    /// The defaults that the database must compute for this row; `None`: none.
    pub fn asking(
        &self,
        schema: &Schema,
        rules: &LiveRules,
        scope: &Scope<'_>,
    ) -> Result<Option<Asking>, Problem> {
        let defaults = Defaults::new(rules, None);
        if defaults.changed.is_none() && self.asks().next().is_none() {
            return Ok(None);
        }
        let mut asking = Vec::new();
        let is_there = |(index, _): &(usize, &ColumnSource)| !schema.presence.is_open(*index);
        for (index, source) in self.sources.iter().enumerate().filter(is_there) {
            let Some(Fill::Asked(expression)) = defaults.fill(index, source.fill()) else { continue };
            let is_given = match source {
                ColumnSource::Eval(eval, ..) => !eval.evaluate(scope)?.is_null(),
                ColumnSource::Serial => true,
                ColumnSource::Fill(_) | ColumnSource::Null => false,
            };
            if !is_given {
                asking.push((index, schema.columns[index].ty, expression.clone()));
            }
        }
        Ok((!asking.is_empty()).then_some(Asking(asking)))
    }

    /// The values of a new row; `None` when a serial key is needed and `next_key` returns none.
    pub fn values(
        &self,
        schema: &Schema,
        scope: &Scope<'_>,
        defaults: &Defaults<'_>,
        next_key: &mut dyn FnMut() -> Option<i64>,
    ) -> Result<Option<Values>, Problem> {
        let mut values: Values = SmallVec::from_elem(Value::Null, schema.columns.len());
        // What is left to the database stays NULL.
        for &index in self.order.iter().filter(|index| !schema.presence.is_open(**index)) {
            let column = &schema.columns[index];
            let source = &self.sources[index];
            let value = match source {
                ColumnSource::Eval(eval, name, _) => {
                    eval.evaluate_as(column.ty, name, &scope.with_own(&values))?
                }
                ColumnSource::Serial => match next_key() {
                    Some(key) => Value::Bigint(key),
                    None => return Ok(None),
                },
                ColumnSource::Fill(_) | ColumnSource::Null => Value::Null,
            };
            values[index] = match value {
                Value::Null => defaults.value(schema, index, source.fill())?,
                value => value,
            };
            if values[index].is_null() && !column.nullable {
                return Err(self.problem(schema, index, &Invalid::null()));
            }
        }
        Ok(Some(values))
    }

    /// The texts whose form the database must be asked for; the known ones are put in that form. A constant
    /// default has it.
    pub fn forms(
        &self,
        schema: &Schema,
        rules: &LiveRules,
        known: &KnownForms,
        values: &mut Values,
    ) -> Option<Forms> {
        if !rules.has_forms() {
            return None;
        }
        let defaults = Defaults::new(rules, None);
        let is_unknown: SmallVec<[bool; 12]> = (0..schema.columns.len())
            .map(|index| {
                let fill = defaults.fill(index, self.sources[index].fill());
                let is_default = matches!(fill, Some(Fill::Value(value)) if *value == values[index]);
                !is_default && !known.apply(index, &mut values[index])
            })
            .collect();
        Forms::of(rules, values.iter().enumerate().filter(|(index, _)| is_unknown[*index]))
    }

    /// The problem for a value that the database would refuse, under the name that the client used.
    pub fn problem(&self, schema: &Schema, column: usize, invalid: &Invalid) -> Problem {
        match &self.sources[column] {
            ColumnSource::Eval(_, name, _) => Problem::invalid(name, invalid),
            _ => Problem::invalid(&schema.columns[column].name, invalid),
        }
    }
}
