//! `reply = { … }`: the shape of the answer.

use crate::sections::action::Action;
use crate::syntax::expr::Expr;
use crate::syntax::fields::{Cursor, integer, name, value};
use crate::syntax::keys::{Section, keys};
use crate::syntax::tree::Data;

pub(crate) const REPLY: Section = Section {
    name: "reply",
    keys: keys! {
        "status" | "number" | "(201 for insert, 202 for generate, 302 for redirect, else 200)" |
            "the status of a successful answer"
        "wrap" | "name" | "(none)" | "puts the answer into an object under this key"
        "fields" | "array of columns, or table: JSON name = value" | "(all columns)" |
            "the columns or values that the answer contains"
        "not_found" | "text" | "(a plain sentence)" | "the message of a 404"
    },
};

/// The shape of an endpoint's answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The status; `None`: the action's default (201 for `insert`, 202 for `generate`, else 200).
    pub status: Option<u16>,
    /// The key of an object that wraps the answer.
    pub wrap: Option<String>,
    /// (JSON name, value), in order; `None`: all columns of the answer's row.
    pub fields: Option<Vec<(String, Expr)>>,
    /// The message of a 404.
    pub not_found: Option<String>,
}

/// `reply = { … }`
pub(crate) fn read(cursor: Option<Cursor<'_>>, action: Option<&Action>) -> Reply {
    let Some(cursor) = cursor else { return Reply::default() };
    let fields = cursor.section(&REPLY);
    let is_redirect = matches!(action, Some(Action::Redirect(_)));
    let status = fields.read("status", |node| match (integer(100, 599)(node), is_redirect) {
        (Ok(status @ (301 | 302 | 303 | 307 | 308)), true) | (Ok(status @ 200..=299), false) => {
            Ok(status as u16)
        }
        (_, true) => Err("must be 301, 302, 303, 307 or 308 for a redirect".into()),
        (_, false) => Err("must be a status of success, from 200 to 299".into()),
    });
    let own_shape: (_, &[&str]) = match action {
        Some(Action::Redirect(_)) => ("redirect", &["fields", "wrap"]),
        Some(Action::Handler(_)) => ("handler", &["fields", "wrap"]),
        Some(Action::Constant(_)) => ("constant", &["fields", "wrap"]),
        Some(Action::OpenApi) => ("openapi", &["fields", "wrap", "status", "not_found"]),
        Some(Action::Generate(_)) => ("generate", &["fields", "wrap"]),
        Some(Action::Files(_)) => ("files", &["fields", "wrap", "status", "not_found"]),
        Some(Action::Proxy(_)) => ("proxy", &["fields", "wrap", "status", "not_found"]),
        _ => ("", &[]),
    };
    for field in own_shape.1.iter().filter_map(|key| fields.field(key)) {
        let (key, action) = (field.key, own_shape.0);
        field.wrong(format!("reply: {key} does not go with {action}, whose answer has its own shape"));
    }
    Reply {
        status,
        wrap: fields.read("wrap", name),
        fields: fields.get("fields").and_then(read_fields),
        not_found: fields.read("not_found", name),
    }
}

/// Reads `["id", "name"]`, or `{ id = "$id", createdAt = "$created_at" }`.
fn read_fields(cursor: Cursor<'_>) -> Option<Vec<(String, Expr)>> {
    let column = |item: Cursor<'_>| match &item.node.data {
        Data::Text(column) => {
            let column = column.strip_prefix('$').unwrap_or(column).to_owned();
            Some((column.clone(), Expr::Param(column)))
        }
        Data::Broken => None,
        _ => {
            item.wrong(format!("fields: must be the name of a column, not {}", item.node.kind()));
            None
        }
    };
    if let Data::Table(_) = cursor.node.data {
        let fields = cursor.table("fields");
        let read = fields.iter().filter_map(|field| {
            let value = field.value.read(&format!("fields.{}", field.key), value)?;
            Some((field.key.to_owned(), value))
        });
        return Some(read.collect());
    }
    let items = cursor.items("fields: must be [\"column\", …] or { name = \"$column\", … }");
    matches!(cursor.node.data, Data::Array(_)).then(|| items.into_iter().filter_map(column).collect())
}
