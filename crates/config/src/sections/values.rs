//! `values = { column = value }`, keys and other values of actions, checked against the columns that they
//! are for.

use super::table::TableConfig;
use crate::syntax::expr::{Expr, Literal};
use crate::syntax::fields::{Cursor, value};
use crate::syntax::mistakes::{At, Mistake, Mistakes};
use crate::syntax::words::{did_you_mean, list};
use forebay_value::{Column, KeyKind, Type, from_text};

/// `{ column = value, … }`. `$name` is a parameter if `is_param` returns true, else a column that precedes
/// it, else a parameter of the request.
pub(crate) fn read(
    name: &str,
    cursor: Cursor<'_>,
    table: &TableConfig,
    is_param: &dyn Fn(&str) -> bool,
) -> Vec<(String, Expr)> {
    let mut values: Vec<(String, Expr)> = Vec::new();
    for field in cursor.table(name).iter() {
        if let Err(what) = column(table, field.key) {
            field.wrong(what);
        }
        let value = field.value.read(field.key, |node| {
            let mut value = value(node)?;
            value.make_columns(&|name| !is_param(name) && values.iter().any(|(column, _)| column == name));
            fits(table, field.key, &value).map(|()| value)
        });
        // A wrong value is replaced by an empty text, so that its column is not reported as missing too.
        let value = value.unwrap_or_else(|| Expr::Literal(Literal::Text(String::new())));
        values.push((field.key.to_owned(), value));
    }
    values
}

/// The column of this name, or an error when the table has none; `None`: the table's columns are not known.
pub(crate) fn column<'t>(table: &'t TableConfig, name: &str) -> Result<Option<&'t Column>, Mistake> {
    let Some(schema) = &table.columns else { return Ok(None) };
    match schema.position(name) {
        Some(index) => Ok(Some(&schema.columns[index])),
        None => {
            let columns = || schema.columns.iter().map(|column| column.name.as_str());
            Err(Mistake::from(format!(
                "table {} has no column `{name}`{} (it has {})",
                table.name,
                did_you_mean(name, columns()),
                list(columns())
            )))
        }
    }
}

/// Whether a column can store a fixed value.
fn fits(table: &TableConfig, name: &str, value: &Expr) -> Result<(), Mistake> {
    match (column(table, name), value) {
        (Ok(Some(column)), Expr::Literal(literal)) => literal_fits(literal, column.ty),
        _ => Ok(()),
    }
}

/// Whether a type can represent a fixed value.
pub(crate) fn literal_fits(literal: &Literal, ty: Type) -> Result<(), Mistake> {
    let within = |ty: Type, text: String| {
        from_text(ty, &text).map(drop).map_err(|invalid| format!("`{text}` {invalid}").into())
    };
    match (literal, ty) {
        (Literal::Text(text), ty) => within(ty, text.clone()),
        (Literal::Int(number), ty) if ty.range().is_some() || ty.unbounded() == Type::Numeric => {
            within(ty, number.to_string())
        }
        (Literal::Float(number), ty) if ty.unbounded() == Type::Numeric => within(ty, number.to_string()),
        (Literal::Int(_) | Literal::Float(_), Type::Double | Type::Json)
        | (Literal::Bool(_), Type::Bool | Type::Json) => Ok(()),
        (Literal::Int(_), ty) => Err(format!("a whole number is no {ty}").into()),
        (Literal::Float(_), ty) => Err(format!("a number with a fraction is no {ty}").into()),
        (Literal::Bool(_), ty) => Err(format!("true or false is no {ty}").into()),
    }
}

/// A new row needs a value for every column that has no default and is not nullable, and none for a serial
/// key.
pub(crate) fn check_complete(
    table: &TableConfig,
    given: &dyn Fn(&str) -> bool,
    at: At,
    mistakes: &Mistakes<'_>,
) {
    let Some(schema) = &table.columns else { return };
    let serial_key = (schema.key_kind == KeyKind::Serial).then(|| schema.key_column().name.as_str());
    let missing = schema.columns.iter().filter(|column| {
        let is_filled = column.fill.is_some() || column.nullable || serial_key == Some(&column.name);
        !is_filled && !given(&column.name)
    });
    let missing = list(missing.map(|column| column.name.as_str()));
    if !missing.is_empty() {
        let table = &table.name;
        mistakes.add(
            at,
            format!("values: no value for {missing} of table {table} (which has no default and is not null)"),
        );
    }
    if let Some(key) = serial_key.filter(|key| given(key)) {
        mistakes.add(at, format!("values: `{key}` is a serial key: it is handed out, and cannot be given"));
    }
}

/// A first row: the columns in the order of `values`, with the row's own value if it has one.
pub(crate) fn complete(own: Vec<(String, Expr)>, values: &[(String, Expr)]) -> Vec<(String, Expr)> {
    let (mut own, mut row): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|(column, _)| values.iter().any(|(known, _)| known == column));
    for (column, value) in values {
        match own.iter().position(|(known, _)| known == column) {
            Some(index) => row.push(own.swap_remove(index)),
            None => row.push((column.clone(), value.clone())),
        }
    }
    row
}
