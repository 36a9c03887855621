//! The parameters of an endpoint as far as its config and the tables say, without a database at hand: what is
//! only known of a prepared statement is missing.
//!
//! Promises the types and the order that compiling the endpoint gives.

use super::actions::row_plan;
use super::params::{Columns, ParamTable, Wanted};
use super::{sql_claims, sql_types};
use crate::endpoint::params::Params;
use forebay_config::model::{self, Action, Expr};
use forebay_value::{Schema, Type};
use std::collections::HashMap;
use std::sync::Arc;

/// What endpoints are described by.
#[derive(Clone, Copy)]
pub struct Described<'a> {
    /// The tables whose columns are known, by name.
    pub schemas: &'a HashMap<String, Arc<Schema>>,
    /// Which SQL the database understands.
    pub dialect: model::Dialect,
}

impl Described<'_> {
    /// The parameters of an endpoint.
    ///
    /// # Errors
    /// A sentence for the config's author.
    pub fn params(&self, endpoint: &model::Endpoint) -> Result<Params, String> {
        let mut params = ParamTable::new(endpoint, None)?;
        for action in endpoint.action.each() {
            self.action(action, &mut params)?;
        }
        if let Some(fields) = &endpoint.reply.fields {
            let columns = self.columns(endpoint, fields);
            for (_, value) in fields {
                params.compile(value, Wanted::ANY.or_null(), Columns::Answer(&columns))?;
            }
        }
        for name in endpoint.path_params() {
            params.slot(name, Wanted::ANY);
        }
        let mut params = params.finish();
        params.skips_body = matches!(endpoint.action, Action::Proxy(_));
        Ok(params)
    }

    fn action(&self, action: &Action, params: &mut ParamTable) -> Result<(), String> {
        match action {
            Action::Sql(sql) => self.sql(sql, params),
            Action::Get(model::Get { table, key })
            | Action::Redirect(model::Redirect { table, key, .. })
            | Action::Delete(model::Delete { table, pick: model::Pick::Key(key) }) => {
                self.key(table, key, params)
            }
            Action::Insert(model::Insert { table, values, .. }) => self.row(table, values, params),
            Action::Upsert(model::Upsert { table, key, values }) => {
                let Some(schema) = self.schemas.get(table) else { return Ok(()) };
                let mut all = vec![(schema.key_column().name.clone(), key.clone())];
                all.extend(values.iter().cloned());
                self.row(table, &all, params)
            }
            Action::Update(model::Update { table, key, values }) => {
                self.key(table, key, params)?;
                for (column, value) in values {
                    let wanted = Wanted { ty: self.column(table, column), may_be_null: true };
                    params.compile(value, wanted, Columns::None)?;
                }
                Ok(())
            }
            Action::Increment(model::Increment { table, key, by, .. }) => {
                self.key(table, key, params)?;
                params.compile(by, Wanted::typed(Type::Bigint), Columns::None).map(drop)
            }
            Action::Count(model::Count { table, by: Some((column, value)) }) => {
                let wanted = Wanted { ty: self.column(table, column), may_be_null: false };
                params.compile(value, wanted, Columns::None).map(drop)
            }
            Action::List(model::List { table, after, limit }) => {
                let key = self.schemas.get(table).map(|schema| schema.key_column().ty);
                params.compile(after, Wanted { ty: key, may_be_null: true }, Columns::None)?;
                params.compile(limit, Wanted::typed(Type::Bigint), Columns::None).map(drop)
            }
            Action::Generate(model::Generate { table, count, values, .. }) => {
                params.compile(count, Wanted::typed(Type::Bigint), Columns::None)?;
                self.row(table, values, params)
            }
            _ => Ok(()),
        }
    }

    fn key(&self, table: &str, key: &Expr, params: &mut ParamTable) -> Result<(), String> {
        let ty = self.schemas.get(table).map(|schema| schema.key_column().ty);
        params.compile(key, Wanted { ty, may_be_null: false }, Columns::None).map(drop)
    }

    fn row(&self, table: &str, values: &[(String, Expr)], params: &mut ParamTable) -> Result<(), String> {
        self.schemas.get(table).map_or(Ok(()), |schema| row_plan(params, schema, values).map(drop))
    }

    fn sql(&self, sql: &model::Sql, params: &mut ParamTable) -> Result<(), String> {
        let sql = sql_claims::plain(sql.statements.in_dialect(self.dialect).unwrap_or_default());
        for name in sql_types::params(&sql) {
            let ty = sql_types::infer(&sql, name, self.schemas.values().map(Arc::as_ref));
            params.slot(&sql_claims::name(name), Wanted { ty, may_be_null: false });
        }
        Ok(())
    }

    fn column(&self, table: &str, column: &str) -> Option<Type> {
        let schema = self.schemas.get(table)?;
        schema.position(column).map(|index| schema.columns[index].ty)
    }

    /// The columns of the answer's row. Where they are not known, what `fields` names is taken for one.
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

/// The table whose rows an action answers.
pub fn table_of(action: &Action) -> Option<&str> {
    match action {
        Action::Get(model::Get { table, .. })
        | Action::Random(model::Random { table })
        | Action::List(model::List { table, .. })
        | Action::Insert(model::Insert { table, .. })
        | Action::Upsert(model::Upsert { table, .. })
        | Action::Update(model::Update { table, .. })
        | Action::Increment(model::Increment { table, .. })
        | Action::Delete(model::Delete { table, .. }) => Some(table),
        _ => None,
    }
}
