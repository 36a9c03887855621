//! The input of an action's reader: its own key, the keys beside it, the tables and parameters that it can
//! refer to.

use crate::sections::table::TableConfig;
use crate::sections::values::{self, literal_fits};
use crate::syntax::expr::Expr;
use crate::syntax::fields::{Cursor, Field, Fields, name, value};
use crate::syntax::mistakes::At;
use crate::syntax::words::{did_you_mean, list};
use forebay_value::Type;

/// What an action can refer to.
pub(crate) struct Scope<'a> {
    pub tables: &'a [TableConfig],
    /// Parameters of the route.
    pub path: Vec<String>,
    /// Declared parameters, and parameters from headers.
    pub declared: Vec<String>,
}

/// An action as typed.
#[derive(Clone, Copy)]
pub(crate) struct Typed<'a> {
    /// The endpoint, or the item of `any_of`.
    pub fields: Fields<'a>,
    /// The action's own key.
    pub own: Field<'a>,
    pub scope: &'a Scope<'a>,
}

impl<'a> Typed<'a> {
    /// Reads a value that may be an expression.
    pub fn value(self, key: &str) -> Option<Expr> {
        self.fields.read(key, value)
    }

    /// A required key.
    pub fn required(self, key: &str) -> Option<Cursor<'a>> {
        self.fields.required(self.own.key, key)
    }

    /// The table that the action names.
    pub fn table(self) -> Option<&'a TableConfig> {
        let wanted = self.own.value.read(self.own.key, name)?;
        let tables = self.scope.tables;
        let found = tables.iter().find(|table| table.name == wanted);
        if found.is_none() {
            let names = || tables.iter().map(|table| table.name.as_str());
            self.own.value.wrong(match tables {
                [] => format!("there is no table `{wanted}`; declare it as [table.{wanted}]"),
                _ => format!(
                    "there is no table `{wanted}`{} (declared: {})",
                    did_you_mean(&wanted, names()),
                    list(names())
                ),
            });
        }
        found
    }

    /// The table that the action names, which must be a hot table.
    pub fn hot_table(self) -> Option<&'a TableConfig> {
        let table = self.table()?;
        if !table.hot {
            let (name, action) = (&table.name, self.own.key);
            self.own.value.wrong(format!(
                "table {name} is not kept in memory (hot = false), so {action} cannot use it; write sql"
            ));
        }
        Some(table)
    }

    /// `key`; without it, the parameter of the route that must be the key.
    pub fn key(self, table: &TableConfig) -> Option<Expr> {
        let key_column = table.columns.as_ref().map(|schema| schema.key_column());
        if let Some(cursor) = self.fields.get("key") {
            let read = self.value("key");
            if let (Some(Expr::Literal(literal)), Some(column)) = (&read, key_column)
                && let Err(what) = literal_fits(literal, column.ty)
            {
                cursor.wrong(format!("key: {what} (the key {} of table {})", column.name, table.name));
            }
            return read;
        }
        let path = &self.scope.path;
        let by_name = key_column.filter(|column| path.contains(&column.name)).map(|column| &column.name);
        let implied = match path.as_slice() {
            [only] => by_name.or(Some(only)),
            [] => by_name.or(key_column.map(|column| &column.name)),
            _ => by_name,
        };
        if implied.is_none() {
            self.fields.wrong(format!(
                "{} needs `key`: the route does not show which parameter is the key, e.g. key = \"$id\"",
                self.own.key
            ));
        }
        implied.map(|name| Expr::Param(name.clone()))
    }

    /// Reads the values of columns under this key.
    pub fn values_of(self, key: &str, cursor: Cursor<'_>, table: &TableConfig) -> Vec<(String, Expr)> {
        let is_param =
            |name: &str| self.scope.path.iter().chain(&self.scope.declared).any(|known| known == name);
        values::read(key, cursor, table, &is_param)
    }

    /// `values`, and the place to report for missing columns.
    pub fn values(self, table: &TableConfig) -> (Vec<(String, Expr)>, At) {
        match self.fields.field("values") {
            Some(field) => (self.values_of("values", field.value, table), field.at),
            None => (Vec::new(), self.own.at),
        }
    }

    /// `values` of a new row, in which no required column may be missing.
    pub fn complete_values(self, table: &TableConfig) -> Vec<(String, Expr)> {
        let (values, at) = self.values(table);
        let given = |name: &str| values.iter().any(|(column, _)| column == name);
        values::check_complete(table, &given, at, self.fields.mistakes);
        values
    }

    /// The name of a column under this key, whose type must fit; `what` names the permitted types.
    pub fn column(
        self,
        key: &str,
        table: &TableConfig,
        fits: impl Fn(Type) -> bool,
        what: &str,
    ) -> Option<String> {
        let cursor = self.fields.get(key)?;
        let column = cursor.read(key, name)?;
        match values::column(table, &column) {
            Err(what) => cursor.wrong(format!("{key}: {what}")),
            Ok(Some(found)) if !fits(found.ty) => {
                cursor.wrong(format!("{key}: column {column} must be a {what}, not {}", found.ty));
            }
            Ok(_) => {}
        }
        Some(column)
    }

    /// The name of a bigint column that is incremented; it cannot be the key.
    pub fn counter(self, key: &str, table: &TableConfig) -> Option<String> {
        let column = self.column(key, table, |ty| ty == Type::Bigint, "bigint")?;
        if table.columns.as_ref().is_some_and(|schema| schema.key_column().name == column) {
            let what = format!("column {column} is the key of table {}, which never changes", table.name);
            self.fields.wrong_at(key, what);
        }
        Some(column)
    }
}
