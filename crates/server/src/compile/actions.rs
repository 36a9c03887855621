//! Compiles actions from the config's model.

use super::context::Context;
use super::params::{Columns, ExpectedValue, ParamTable, literal_value, no_column};
use super::{sql_claims, sql_types};
use crate::action::generate::{Generate, GenerateInto};
use crate::action::get_many::GetMany;
use crate::action::list::List;
use crate::action::read::{Count, Get, Random, counters_of};
use crate::action::redirect::Redirect;
use crate::action::row_plan::{ColumnSource, RowPlan};
use crate::action::sql::{Shows, SqlAction};
use crate::action::write::{Delete, Increment, Insert, OnConflict, Update};
use crate::action::{Action, Answering, KeyOf};
use crate::endpoint::shape::Shape;
use crate::start_error::StartError;
use forebay_config::model::{self, Expr, Literal};
use forebay_http::Head;
use forebay_table::HotTable;
use forebay_value::{KeyKind, Presence, Schema, Type};
use std::sync::Arc;

/// The most rows of one page of a list, and the most keys of `get_many`.
const LIST_ROWS_MAX: usize = 1_000;
/// The most rows that one job generates.
const GENERATE_ROWS_MAX: i64 = 1_000_000_000;

/// Compiles the action of an endpoint whose action is neither a handler nor a proxy.
pub async fn compile(
    action: &model::Action,
    endpoint: &model::Endpoint,
    params: &mut ParamTable,
    context: &Context<'_>,
) -> Result<Action, StartError> {
    let mut compiler = Compiler { endpoint, params, context };
    match action {
        model::Action::AnyOf(actions) => {
            let mut compiled = Vec::new();
            for action in actions {
                compiled.push(compiler.action(action).await?);
            }
            Ok(Action::AnyOf(compiled))
        }
        action => compiler.action(action).await,
    }
}

struct Compiler<'a, 'c> {
    endpoint: &'a model::Endpoint,
    params: &'a mut ParamTable,
    context: &'a Context<'c>,
}

impl Compiler<'_, '_> {
    async fn action(&mut self, action: &model::Action) -> Result<Action, StartError> {
        use model::Action as From;
        Ok(match action {
            From::Constant(body) => {
                Action::Constant { head: self.head(200)?, body: body.clone().into_bytes() }
            }
            From::Sql(model::Sql { statements, returns }) => self.sql(statements, *returns).await?,
            From::Get(model::Get { table, key }) => self.get(table, key)?,
            From::GetMany(model::GetMany { table, keys }) => self.get_many(table, keys)?,
            From::Random(model::Random { table }) => {
                let table = self.table(table)?;
                Action::Random(Arc::new(Random { answering: self.row_answer(&table, 200)?, table }))
            }
            From::Count(model::Count { table, by }) => self.count(table, by.as_ref())?,
            From::List(model::List { table, after, limit }) => self.list(table, after, limit)?,
            From::Insert(model::Insert { table, values, retry }) => {
                self.insert(table, values, OnConflict::Refuse { draws_again: *retry }, 201)?
            }
            From::Upsert(model::Upsert { table, key, values }) => {
                let schema = self.table(table)?.schema().clone();
                for (column, _) in values {
                    self.check_fixed(&schema, column)?;
                }
                let mut all = vec![(schema.key_column().name.clone(), key.clone())];
                all.extend(values.iter().cloned());
                self.insert(table, &all, OnConflict::Replace, 200)?
            }
            From::Update(model::Update { table, key, values }) => self.update(table, key, values)?,
            From::Increment(model::Increment { table, key, column, by }) => {
                self.increment(table, key, column, by)?
            }
            From::Delete(model::Delete { table, pick }) => self.delete(table, pick)?,
            From::Redirect(model::Redirect { table, key, location, status, increment, expires }) => {
                let columns = (location, increment.as_ref(), expires.as_ref());
                self.redirect(table, key, columns, *status)?
            }
            From::Generate(model::Generate { table, count, values, first }) => {
                self.generate(table, count, values, first)?
            }
            From::AnyOf(_) | From::Handler(_) | From::Proxy(_) | From::Files(_) | From::OpenApi => {
                return Err("any_of holds actions on data, no any_of, handler or proxy".into());
            }
        })
    }

    fn get(&mut self, table: &str, key: &Expr) -> Result<Action, StartError> {
        let table = self.table(table)?;
        let key = self.key(&table, key)?;
        let answering = self.row_answer(&table, 200)?;
        let counters = counters_of(answering.shape.as_ref(), self.incremented(&table));
        Ok(Action::Get(Arc::new(Get { table, key, counters, answering })))
    }

    fn get_many(&mut self, table: &str, keys: &Expr) -> Result<Action, StartError> {
        let table = self.table(table)?;
        let text = ExpectedValue::typed(Type::Text { max_chars: None });
        let keys = (self.params.compile(keys, text, Columns::None)?, name_of(keys, "keys"));
        let answering = self.row_answer(&table, 200)?;
        let counters = counters_of(answering.shape.as_ref(), self.incremented(&table));
        Ok(Action::GetMany(Arc::new(GetMany { table, keys, keys_max: LIST_ROWS_MAX, counters, answering })))
    }

    fn update(&mut self, table: &str, key: &Expr, values: &[(String, Expr)]) -> Result<Action, StartError> {
        let table = self.written(table)?;
        let key = self.key(&table, key)?;
        let changes = values
            .iter()
            .map(|(column, expr)| {
                let index = column_index(table.schema(), column)?;
                if index == table.schema().key {
                    return Err(format!("`{column}` is the key, which an update cannot change").into());
                }
                self.check_fixed(table.schema(), column)?;
                let wanted = ExpectedValue::typed(table.schema().columns[index].ty).or_null();
                let eval = self.params.compile(expr, wanted, Columns::None)?;
                Ok((index, eval, name_of(expr, column)))
            })
            .collect::<Result<_, StartError>>()?;
        let (answering, forms) = (self.row_answer(&table, 200)?, self.context.forms.clone());
        Ok(Action::Update(Arc::new(Update { table, key, changes, answering, forms })))
    }

    fn increment(&mut self, table: &str, key: &Expr, column: &str, by: &Expr) -> Result<Action, StartError> {
        let table = self.written(table)?;
        let key = self.key(&table, key)?;
        let index = counter_index(table.schema(), column)?;
        let eval = self.params.compile(by, ExpectedValue::typed(Type::Bigint), Columns::None)?;
        let by = (eval, name_of(by, column));
        let answering = self.row_answer(&table, 200)?;
        Ok(Action::Increment(Arc::new(Increment { table, key, column: index, by, answering })))
    }

    /// `columns`: the column of the location, the column that counts visits, and the column of the expiry
    /// time.
    fn redirect(
        &mut self,
        table: &str,
        key: &Expr,
        columns: (&String, Option<&String>, Option<&String>),
        status: u16,
    ) -> Result<Action, StartError> {
        let table = self.table(table)?;
        let schema = table.schema();
        let location = typed_index(schema, columns.0, |ty| matches!(ty, Type::Text { .. }), "a text")?;
        let increment = columns.1.map(|name| counter_index(schema, name)).transpose()?;
        let is_time = |ty| ty == Type::Timestamp;
        let expires = columns.2.map(|name| typed_index(schema, name, is_time, "a timestamp")).transpose()?;
        let answering = Answering { head: Arc::new(Head::new(status)), shape: None, missing: self.missing() };
        let key = self.key(&table, key)?;
        let uncounted = self.context.uncounted.clone();
        Ok(Action::Redirect(Arc::new(Redirect {
            table,
            key,
            location,
            increment,
            expires,
            answering,
            uncounted,
        })))
    }

    async fn sql(
        &mut self,
        statements: &model::Statements,
        returns: model::Returns,
    ) -> Result<Action, StartError> {
        let dialect = self.context.dialect;
        let sql =
            statements.in_dialect(dialect).ok_or_else(|| format!("has no SQL for {}", dialect.key()))?;
        let sql = &sql_claims::plain(sql);
        let mut statement = self.context.known.statement(self.context.store, sql).await?;
        statement.alone = !self.endpoint.batch;
        let bind = statement
            .params
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let known = statement.param_types.get(index).copied().flatten();
                let schemas = self.context.schemas.values().map(Arc::as_ref);
                let ty = known.or_else(|| sql_types::infer(sql, name, schemas));
                let name = sql_claims::name(name);
                let expr = Expr::Param(name.clone());
                let eval =
                    self.params.compile(&expr, ExpectedValue { ty, may_be_null: false }, Columns::None)?;
                Ok((eval, ty, name))
            })
            .collect::<Result<Vec<_>, StartError>>()?;
        let columns: Vec<String> = statement.columns.iter().map(|column| column.name.clone()).collect();
        if returns != model::Returns::None {
            sql_types::check_names(columns.iter().map(String::as_str))?;
        }
        let (shows, columns) = match returns {
            model::Returns::One => (Shows::One, columns),
            model::Returns::Many => (Shows::All, columns),
            model::Returns::None => (Shows::None, vec!["changed".to_owned()]),
        };
        let answering = self.answering(&columns, &columns.clone(), 200, Presence::default())?;
        let store = self.context.store.clone();
        let seen = crate::read_your_writes::WriteVisibility(self.context.following.clone());
        let name = format!("{} {}", self.endpoint.method.name(), self.endpoint.route);
        let timed = self.context.plans.add_timed(name, sql);
        let counters = self.context.statements.of(sql);
        Ok(Action::Sql(Arc::new(SqlAction {
            store,
            statement,
            bind,
            shows,
            answering,
            seen,
            timed,
            counters,
        })))
    }

    fn count(&mut self, table: &str, by: Option<&(String, Expr)>) -> Result<Action, StartError> {
        let table = self.table(table)?;
        let mut columns = vec!["by".to_owned(), "count".to_owned()];
        let mut shown = vec!["count".to_owned()];
        let by = match by {
            Some((column, expr)) => {
                let index = column_index(table.schema(), column)?;
                if !table.schema().columns[index].indexed {
                    return Err(format!(
                        "rows are counted by indexed columns only; `{column}` is not indexed"
                    )
                    .into());
                }
                columns[0].clone_from(column);
                shown.insert(0, column.clone());
                let ty = table.schema().columns[index].ty;
                let eval = self.params.compile(expr, ExpectedValue::typed(ty), Columns::None)?;
                Some((index, ty, eval, name_of(expr, column)))
            }
            None => None,
        };
        let answering = self.answering(&columns, &shown, 200, Presence::default())?;
        Ok(Action::Count(Arc::new(Count { table, by, answering })))
    }

    fn list(&mut self, table: &str, after: &Expr, limit: &Expr) -> Result<Action, StartError> {
        let table = self.table(table)?;
        let ty = table.schema().key_column().ty;
        let after_eval = self.params.compile(after, ExpectedValue::typed(ty).or_null(), Columns::None)?;
        let limit_eval = self.params.compile(limit, ExpectedValue::typed(Type::Bigint), Columns::None)?;
        Ok(Action::List(Arc::new(List {
            answering: self.row_answer(&table, 200)?,
            table,
            after: (after_eval, ty, name_of(after, "after")),
            limit: (limit_eval, name_of(limit, "limit")),
            limit_max: LIST_ROWS_MAX,
        })))
    }

    fn insert(
        &mut self,
        table: &str,
        values: &[(String, Expr)],
        on_conflict: OnConflict,
        status: u16,
    ) -> Result<Action, StartError> {
        let table = self.written(table)?;
        let row = row_plan(self.params, table.schema(), values)?;
        let answering = self.row_answer(&table, status)?;
        let (store, forms) = (self.context.store.clone(), self.context.forms.clone());
        Ok(Action::Insert(Arc::new(Insert { table, row, on_conflict, answering, store, forms })))
    }

    fn delete(&mut self, table: &str, pick: &model::Pick) -> Result<Action, StartError> {
        let table = self.written(table)?;
        let (key, except) = match pick {
            model::Pick::Key(key) => (Some(self.key(&table, key)?), Vec::new()),
            model::Pick::Random { except } => {
                let ty = table.schema().key_column().ty;
                let except = except.iter().map(|literal| literal_value(literal, Some(ty)));
                (None, except.collect::<Result<_, _>>()?)
            }
        };
        Ok(Action::Delete(Arc::new(Delete { answering: self.row_answer(&table, 200)?, table, key, except })))
    }

    fn generate(
        &mut self,
        table: &str,
        rows: &Expr,
        values: &[(String, Expr)],
        first: &[Vec<(String, Expr)>],
    ) -> Result<Action, StartError> {
        let schema = self.context.schemas.get(table).ok_or_else(|| format!("there is no table `{table}`"))?;
        let target = match self.context.tables.get(table) {
            Some(table) => GenerateInto::Hot(table),
            None => GenerateInto::Database(self.context.store.clone(), schema.clone()),
        };
        let rows_eval = self.params.compile(rows, ExpectedValue::typed(Type::Bigint), Columns::None)?;
        let row = row_without_asking(self.params, schema, values)?;
        let first = first
            .iter()
            .map(|fixed| {
                // The columns that the row fixes come before those from `values`, which may refer to them.
                let rest = values.iter().filter(|(name, _)| !fixed.iter().any(|(own, _)| own == name));
                let all: Vec<_> = fixed.iter().chain(rest).cloned().collect();
                row_without_asking(self.params, schema, &all)
            })
            .collect::<Result<_, _>>()?;
        let columns = ["job".to_owned(), "rows".to_owned()];
        let answering = self.answering(&columns, &columns, 202, Presence::default())?;
        Ok(Action::Generate(Arc::new(Generate {
            target,
            rows: (rows_eval, GENERATE_ROWS_MAX, name_of(rows, "count")),
            row,
            first,
            jobs: self.context.jobs.clone(),
            runtime: self.context.runtime.clone(),
            answering,
        })))
    }

    /// A table that the endpoint writes to.
    fn written(&self, name: &str) -> Result<HotTable, StartError> {
        let table = self.table(name)?;
        let waits = self.context.config.waits_for_database(self.endpoint, name);
        Ok(if waits { table.strict() } else { table })
    }

    fn table(&self, name: &str) -> Result<HotTable, StartError> {
        self.context.tables.get(name).ok_or_else(|| match self.context.schemas.contains_key(name) {
            true => format!("table `{name}` is not kept in memory (hot = false)").into(),
            false => format!("there is no table `{name}`").into(),
        })
    }

    /// Fails for a column that the database lets no client set in an existing row.
    fn check_fixed(&self, schema: &Schema, column: &str) -> Result<(), StartError> {
        let index = column_index(schema, column)?;
        match self.context.enforced.fixed(&schema.name).contains(&index) {
            true => {
                Err(format!("column `{column}` is GENERATED ALWAYS: the database lets no statement set it")
                    .into())
            }
            false => Ok(()),
        }
    }

    fn key(&mut self, table: &HotTable, expr: &Expr) -> Result<KeyOf, StartError> {
        let column = table.schema().key_column();
        let eval = self.params.compile(expr, ExpectedValue::typed(column.ty), Columns::None)?;
        Ok(KeyOf { eval, ty: column.ty, name: name_of(expr, &column.name) })
    }

    fn incremented(&self, table: &HotTable) -> &[usize] {
        self.context.incremented.get(&table.schema().name).map_or(&[], Vec::as_slice)
    }

    fn row_answer(&mut self, table: &HotTable, status: u16) -> Result<Answering, StartError> {
        let columns: Vec<_> = table.schema().columns.iter().map(|column| column.name.clone()).collect();
        self.answering(&columns, &columns, status, table.schema().presence.clone())
    }

    /// The answer built from rows with these columns; the fields are `shown` when the config names none,
    /// except what `presence` hides.
    fn answering(
        &mut self,
        columns: &[String],
        shown: &[String],
        status: u16,
        presence: Presence,
    ) -> Result<Answering, StartError> {
        let reply = &self.endpoint.reply;
        let given: Vec<(String, Expr)> = match &reply.fields {
            Some(fields) => fields.clone(),
            None => shown.iter().map(|name| (name.clone(), Expr::Param(name.clone()))).collect(),
        };
        let fields = given
            .iter()
            .map(|(name, expr)| {
                let wanted = ExpectedValue::ANY.or_null();
                Ok((name.clone(), self.params.compile(expr, wanted, Columns::Answer(columns))?))
            })
            .collect::<Result<Vec<_>, StartError>>()?;
        let head = self.head(status)?;
        let shape = (head.status() != 204)
            .then(|| Shape::new(reply.wrap.as_deref(), fields, columns.len(), presence));
        Ok(Answering { head, shape, missing: self.missing() })
    }

    fn missing(&self) -> String {
        self.endpoint.reply.not_found.clone().unwrap_or_else(|| "there is no such row".into())
    }

    fn head(&self, default: u16) -> Result<Arc<Head>, StartError> {
        let status = self.endpoint.reply.status.unwrap_or(default);
        Ok(Arc::new(match status {
            204 => Head::new(status),
            _ => Head::new(status).content_type("application/json"),
        }))
    }
}

/// How a new row is built from `values` and the column definitions.
pub fn row_plan(
    params: &mut ParamTable,
    schema: &Schema,
    values: &[(String, Expr)],
) -> Result<RowPlan, StartError> {
    let mut sources: Vec<ColumnSource> = schema
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| match &column.fill {
            _ if index == schema.key && schema.key_kind == KeyKind::Serial => Ok(ColumnSource::Serial),
            Some(fill) => Ok(ColumnSource::Fill(fill.clone())),
            None if column.nullable || schema.presence.is_gone(index) => Ok(ColumnSource::Null),
            None if values.iter().any(|(name, _)| *name == column.name) => Ok(ColumnSource::Null),
            None => {
                Err(format!("`values` gives nothing for column `{}`, which must not be null", column.name))
            }
        })
        .collect::<Result<_, _>>()?;
    let mut order = Vec::new();
    for (name, expr) in values {
        let index = column_index(schema, name)?;
        let column = &schema.columns[index];
        let may_be_null = column.nullable || column.fill.is_some();
        let wanted = ExpectedValue { ty: Some(column.ty), may_be_null };
        let eval = params.compile(expr, wanted, Columns::Own(schema))?;
        sources[index] = ColumnSource::Eval(eval, name_of(expr, name), column.fill.clone());
        order.push(index);
    }
    let rest = (0..schema.columns.len()).filter(|index| !order.contains(index)).collect::<Vec<_>>();
    // Filled columns come first, so that a value may refer to them.
    order.splice(0..0, rest);
    let draws_codes =
        sources.iter().any(|source| matches!(source, ColumnSource::Eval(eval, ..) if eval.draws_code()));
    Ok(RowPlan { sources, order, draws_codes })
}

/// [`row_plan`] for rows that do not wait for the database.
fn row_without_asking(
    params: &mut ParamTable,
    schema: &Schema,
    values: &[(String, Expr)],
) -> Result<RowPlan, StartError> {
    row_plan(params, schema, values)?.without_asking(schema)
}

fn column_index(schema: &Schema, name: &str) -> Result<usize, StartError> {
    schema.position(name).ok_or_else(|| no_column(schema, name))
}

/// The index of a column, which must have the type that its use needs.
fn typed_index(
    schema: &Schema,
    name: &str,
    is_right: impl Fn(Type) -> bool,
    wanted: &str,
) -> Result<usize, StartError> {
    let index = column_index(schema, name)?;
    let ty = schema.columns[index].ty;
    if is_right(ty) {
        Ok(index)
    } else {
        Err(format!("column `{name}` must be {wanted} for this; it is {ty}").into())
    }
}

/// The index of a column that can be incremented.
fn counter_index(schema: &Schema, name: &str) -> Result<usize, StartError> {
    let index = typed_index(schema, name, |ty| ty == Type::Bigint, "a bigint")?;
    if index == schema.key {
        Err(format!("`{name}` is the key, which cannot be counted up").into())
    } else {
        Ok(index)
    }
}

/// The name that an error about this value uses: the parameter's if the value is a parameter, else the
/// column's.
fn name_of(expr: &Expr, column: &str) -> String {
    match expr {
        Expr::Param(name) => name.clone(),
        Expr::Coalesce(first, _) => name_of(first, column),
        Expr::Literal(Literal::Text(_) | Literal::Int(_) | Literal::Float(_) | Literal::Bool(_))
        | Expr::Column(_)
        | Expr::Call { .. }
        | Expr::Template(_) => column.to_owned(),
    }
}
