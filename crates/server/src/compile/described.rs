//! The parameters of an endpoint as the config and the tables declare them, without a database: types that
//! only a prepared statement shows are missing.
//!
//! Promises the same types and order as compiling the endpoint.

use super::actions::row_plan;
use super::params::{Columns, ExpectedValue, ParamTable};
use super::{sql_claims, sql_types};
use crate::endpoint::params::Params;
use crate::start_error::StartError;
use forebay_config::model::{self, Action, ActionFacts, Expr, Shows, ValueRole};
use forebay_value::{Schema, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// What parameters are derived from.
#[derive(Clone, Copy)]
pub struct Described<'a> {
    /// The tables with known columns, by name.
    pub schemas: &'a HashMap<String, Arc<Schema>>,
    /// The SQL dialect of the database.
    pub dialect: model::Dialect,
}

impl Described<'_> {
    /// The parameters of an endpoint.
    ///
    /// # Errors
    /// A sentence for the config's author.
    pub fn params(&self, endpoint: &model::Endpoint) -> Result<Params, StartError> {
        let mut params = ParamTable::new(endpoint, None)?;
        for action in endpoint.action.each() {
            self.action(action, &mut params)?;
        }
        if let Some(fields) = &endpoint.reply.fields {
            let columns = self.columns(endpoint, fields);
            for (_, value) in fields {
                params.compile(value, ExpectedValue::ANY.or_null(), Columns::Answer(&columns))?;
            }
        }
        for name in endpoint.path_params() {
            params.slot(name, ExpectedValue::ANY);
        }
        let mut params = params.finish();
        params.skips_body = matches!(endpoint.action, Action::Proxy(_));
        Ok(params)
    }

    fn action(&self, action: &Action, params: &mut ParamTable) -> Result<(), StartError> {
        match action {
            Action::Sql(sql) => self.sql(sql, params),
            Action::Redirect(model::Redirect { table, key, .. }) => self.key(table, key, params),
            Action::Generate(model::Generate { table, count, values, .. }) => {
                params.compile(count, ExpectedValue::typed(Type::Bigint), Columns::None)?;
                self.row(table, values, params)
            }
            action => action.facts().map_or(Ok(()), |facts| self.hot(&facts, params)),
        }
    }

    fn hot(&self, facts: &ActionFacts<'_>, params: &mut ParamTable) -> Result<(), StartError> {
        let key = self.schemas.get(facts.table).map(|schema| schema.key_column());
        let mut row = Vec::new();
        for &(wants, value) in &facts.values {
            let (ty, may_be_null) = match wants {
                ValueRole::Key => (key.map(|key| key.ty), false),
                ValueRole::KeyOrNull => (key.map(|key| key.ty), true),
                ValueRole::Column(column) => (self.column(facts.table, column), false),
                ValueRole::Change(column) => (self.column(facts.table, column), true),
                ValueRole::Whole => (Some(Type::Bigint), false),
                ValueRole::Text => (Some(Type::Text { max_chars: None }), false),
                ValueRole::NewRow(column) => {
                    row.push((column.to_owned(), value.clone()));
                    continue;
                }
                ValueRole::NewKey => {
                    row.extend(key.map(|key| (key.name.clone(), value.clone())));
                    continue;
                }
            };
            params.compile(value, ExpectedValue { ty, may_be_null }, Columns::None)?;
        }
        match facts.shows {
            Shows::NewRow => self.row(facts.table, &row, params),
            _ => Ok(()),
        }
    }

    fn key(&self, table: &str, key: &Expr, params: &mut ParamTable) -> Result<(), StartError> {
        let ty = self.schemas.get(table).map(|schema| schema.key_column().ty);
        params.compile(key, ExpectedValue { ty, may_be_null: false }, Columns::None).map(drop)
    }

    fn row(&self, table: &str, values: &[(String, Expr)], params: &mut ParamTable) -> Result<(), StartError> {
        self.schemas.get(table).map_or(Ok(()), |schema| row_plan(params, schema, values).map(drop))
    }

    fn sql(&self, sql: &model::Sql, params: &mut ParamTable) -> Result<(), StartError> {
        let sql = sql_claims::plain(sql.statements.in_dialect(self.dialect).unwrap_or_default());
        for name in sql_types::params(&sql) {
            let ty = sql_types::infer(&sql, name, self.schemas.values().map(Arc::as_ref));
            params.slot(&sql_claims::name(name), ExpectedValue { ty, may_be_null: false });
        }
        Ok(())
    }

    fn column(&self, table: &str, column: &str) -> Option<Type> {
        let schema = self.schemas.get(table)?;
        schema.position(column).map(|index| schema.columns[index].ty)
    }

    /// The columns of the answer's row. If they are unknown, every name in `fields` is taken for a column.
    fn columns(&self, endpoint: &model::Endpoint, fields: &[(String, Expr)]) -> Vec<String> {
        let table = endpoint.action.each().first().and_then(table_of);
        match table.and_then(|table| self.schemas.get(table)) {
            Some(schema) => schema.columns.iter().map(|column| column.name.clone()).collect(),
            None => fields
                .iter()
                .filter_map(
                    |(_, value)| if let Expr::Param(name) = value { Some(name.clone()) } else { None },
                )
                .collect(),
        }
    }
}

/// The table whose rows an action returns.
pub fn table_of(action: &Action) -> Option<&str> {
    action.facts().filter(|facts| !matches!(facts.shows, Shows::Count(_))).map(|facts| facts.table)
}
