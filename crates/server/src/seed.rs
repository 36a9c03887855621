//! Rows for `forebay seed`: built like the config's own endpoints build them, or else from the columns'
//! types.

use crate::action::row_plan::{ColumnSource, Defaults, RowPlan};
use crate::compile::{ParamTable, row_plan};
use crate::endpoint::eval::{Eval, Scope, Slots};
use crate::functions;
use crate::start_error::StartError;
use forebay_config::{Config, model};
use forebay_value::{KeyKind, Schema, Type, Value};
use std::sync::Arc;

/// The longest generated text, in characters, for a column of which only the type is known.
const TEXT_CHARS: u32 = 32;

/// Builds rows for one table.
pub struct RowMaker {
    schema: Arc<Schema>,
    plan: RowPlan,
}

impl RowMaker {
    /// A maker for `schema`: from the `values` of a `generate` or `insert` endpoint of this table that needs
    /// no request parameter, else from the types.
    pub fn new(config: &Config, schema: Arc<Schema>) -> Result<RowMaker, StartError> {
        let mut plan = match request_free_values(config, &schema.name) {
            Some(values) => row_plan(&mut ParamTable::empty(), &schema, values)?,
            None => plan_by_type(&schema),
        };
        for column in plan.asks().collect::<Vec<_>>() {
            let of = &schema.columns[column];
            plan.sources[column] = ColumnSource::Eval(eval_by_type(of.ty), of.name.clone(), None);
        }
        Ok(RowMaker { schema, plan })
    }

    /// The values of a new row; `serial` is its key if the table has serial keys.
    pub fn values(&self, serial: i64) -> Result<Vec<Value>, StartError> {
        let slots = Slots::default();
        let values = self
            .plan
            .values(&self.schema, &Scope::new(&slots), &Defaults::OF_PLAN, &mut || Some(serial))
            .map_err(|problem| problem.detail)?
            .ok_or("a row without a key")?;
        Ok(values.into_vec())
    }
}

/// The values of an endpoint that builds rows of this table without request parameters.
fn request_free_values<'c>(config: &'c Config, table: &str) -> Option<&'c [(String, model::Expr)]> {
    let values_of = |action: &'c model::Action| match action {
        model::Action::Generate(model::Generate { table: own, values, .. })
        | model::Action::Insert(model::Insert { table: own, values, .. })
            if own == table && values.iter().all(|(_, expr)| !needs_request(expr)) =>
        {
            Some(values.as_slice())
        }
        _ => None,
    };
    config.endpoints.iter().find_map(|endpoint| match &endpoint.action {
        model::Action::AnyOf(actions) => actions.iter().find_map(values_of),
        action => values_of(action),
    })
}

fn needs_request(expr: &model::Expr) -> bool {
    use model::Expr;
    match expr {
        Expr::Param(_) => true,
        Expr::Column(_) | Expr::Literal(_) => false,
        Expr::Call { function, args } => {
            matches!(function, model::Function::BaseUrl) || args.iter().any(needs_request)
        }
        Expr::Coalesce(first, second) => needs_request(first) || needs_request(second),
        Expr::Template(parts) => {
            parts.iter().any(|part| matches!(part, model::Part::Expr(expr) if needs_request(expr)))
        }
    }
}

fn plan_by_type(schema: &Schema) -> RowPlan {
    let sources = schema.columns.iter().enumerate().map(|(index, column)| match &column.fill {
        _ if index == schema.key && schema.key_kind == KeyKind::Serial => ColumnSource::Serial,
        Some(fill) => ColumnSource::Fill(fill.clone()),
        None => ColumnSource::Eval(eval_by_type(column.ty), column.name.clone(), None),
    });
    RowPlan { sources: sources.collect(), order: (0..schema.columns.len()).collect(), draws_codes: false }
}

fn eval_by_type(ty: Type) -> Eval {
    let number = |high: i64| {
        let bound = |value| Box::new(Eval::Const(Value::Bigint(value)));
        Eval::RandomInt(bound(0), bound(high), "random_int".into())
    };
    match ty {
        Type::Bool => Eval::OneOf(vec![Eval::Const(Value::Bool(false)), Eval::Const(Value::Bool(true))]),
        Type::Smallint => number(i16::MAX.into()),
        Type::Integer => number(i32::MAX.into()),
        Type::Bigint => number(i64::MAX),
        Type::Double | Type::Numeric => number(1_000_000),
        Type::Decimal { precision, scale } => number(10i64.pow(u32::from(precision - scale).min(6)) - 1),
        Type::Text { max_chars } => {
            Eval::RandomCode(max_chars.unwrap_or(TEXT_CHARS).min(TEXT_CHARS) as usize)
        }
        Type::Uuid => Eval::Uuid4,
        Type::Timestamp | Type::LocalTimestamp => Eval::Now,
        Type::AsText => Eval::RandomCode(TEXT_CHARS as usize),
        Type::Json => Eval::Const(Value::Json("{}".into())),
        Type::Bytes => Eval::Const(Value::Bytes(functions::uuid4().as_bytes()[..].into())),
    }
}
