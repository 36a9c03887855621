//! `values = { column = value }`, keys and other values of actions, held against the columns that they are for.

use super::errors::{did_you_mean, list};
use super::expr;
use super::fields::Fields;
use super::model::{Expr, Literal, TableConfig};
use super::read::{At, Data, Mistakes, Node};
use forebay_value::{Column, KeyKind, Schema, Type, from_text};

/// A value as typed, as an expression.
pub(super) fn value(node: &Node) -> Result<Expr, String> {
    match &node.data {
        Data::Text(text) => expr::parse(text),
        _ => literal(node).map(Expr::Literal),
    }
}

/// A value that is not an expression.
pub(super) fn literal(node: &Node) -> Result<Literal, String> {
    match &node.data {
        Data::Text(text) => Ok(Literal::Text(text.clone())),
        Data::Int(number) => Ok(Literal::Int(*number)),
        Data::Float(number) => Ok(Literal::Float(*number)),
        Data::Bool(flag) => Ok(Literal::Bool(*flag)),
        Data::Array(_) | Data::Table(_) | Data::Broken => {
            Err(format!("must be a text, a number, true or false, not {}", node.kind()))
        }
    }
}

/// `{ column = value, … }`. `$name` is a parameter if `is_param` knows it, else a column that stands before it, else a
/// parameter of the request.
pub(super) fn values(
    node: &Node,
    what: &str,
    table: &TableConfig,
    is_param: &dyn Fn(&str) -> bool,
    mistakes: &Mistakes<'_>,
) -> Vec<(String, Expr)> {
    let mut values: Vec<(String, Expr)> = Vec::new();
    for entry in Fields::of(node, what, mistakes).entries() {
        if let Err(what) = column(table, &entry.key) {
            mistakes.add(entry.at, what);
        }
        let read = value(&entry.node).and_then(|mut value| {
            expr::to_columns(&mut value, &|name| {
                !is_param(name) && values.iter().any(|(column, _)| column == name)
            });
            fits(table, &entry.key, &value).map(|()| value)
        });
        let value = read.unwrap_or_else(|what| {
            if entry.node.data != Data::Broken {
                mistakes.add(entry.node.at, format!("{}: {what}", entry.key));
            }
            // Stands for what was meant, so that the column does not count as missing as well.
            Expr::Literal(Literal::Text(String::new()))
        });
        values.push((entry.key.clone(), value));
    }
    values
}

/// Whether the table has this column, as far as can be known.
pub(super) fn column<'t>(table: &'t TableConfig, name: &str) -> Result<Option<&'t Column>, String> {
    let Some(schema) = &table.columns else { return Ok(None) };
    match schema.position(name) {
        Some(index) => Ok(Some(&schema.columns[index])),
        None => {
            let columns = || schema.columns.iter().map(|column| column.name.as_str());
            Err(format!(
                "table {} has no column `{name}`{} (it has {})",
                table.name,
                did_you_mean(name, columns()),
                list(columns())
            ))
        }
    }
}

/// Whether a fixed value can be one of this column.
fn fits(table: &TableConfig, name: &str, value: &Expr) -> Result<(), String> {
    match (column(table, name), value) {
        (Ok(Some(column)), Expr::Literal(literal)) => literal_fits(literal, column.ty),
        _ => Ok(()),
    }
}

/// Whether a fixed value can be one of this type.
pub(super) fn literal_fits(literal: &Literal, ty: Type) -> Result<(), String> {
    match (literal, ty) {
        (Literal::Text(text), ty) => match from_text(ty, text) {
            Ok(_) => Ok(()),
            Err(invalid) => Err(format!("`{text}` {invalid}")),
        },
        (Literal::Int(_), Type::Bigint | Type::Double | Type::Numeric | Type::Json)
        | (Literal::Float(_), Type::Double | Type::Numeric | Type::Json)
        | (Literal::Bool(_), Type::Bool | Type::Json) => Ok(()),
        (Literal::Int(_), ty) => Err(format!("a whole number is no {ty}")),
        (Literal::Float(_), ty) => Err(format!("a number with a fraction is no {ty}")),
        (Literal::Bool(_), ty) => Err(format!("true or false is no {ty}")),
    }
}

/// A new row needs a value for every column that has no default and may not be null, and none for a serial key.
pub(super) fn check_complete(
    table: &TableConfig,
    given: &dyn Fn(&str) -> bool,
    at: At,
    mistakes: &Mistakes<'_>,
) {
    let Some(schema) = &table.columns else { return };
    let serial_key = schema.key_kind == KeyKind::Serial;
    let missing = schema.columns.iter().enumerate().filter(|(index, column)| {
        let handed_out = serial_key && *index == schema.key;
        !handed_out && column.fill.is_none() && !column.nullable && !given(&column.name)
    });
    let missing = list(missing.map(|(_, column)| column.name.as_str()));
    if !missing.is_empty() {
        mistakes.add(
            at,
            format!(
                "values: no value for {missing} of table {} (which has no default and is not null)",
                table.name
            ),
        );
    }
    refuse_serial(schema, given, at, mistakes);
}

fn refuse_serial(schema: &Schema, given: &dyn Fn(&str) -> bool, at: At, mistakes: &Mistakes<'_>) {
    let key = &schema.key_column().name;
    if schema.key_kind == KeyKind::Serial && given(key) {
        mistakes.add(at, format!("values: `{key}` is a serial key: it is handed out, and cannot be given"));
    }
}

/// A first row: its own values in the places that `values` has for them, what it does not say from `values`.
pub(super) fn complete(own: Vec<(String, Expr)>, values: &[(String, Expr)]) -> Vec<(String, Expr)> {
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
