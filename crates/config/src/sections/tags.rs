//! Tags of kept answers: what `cache.tags` says that an answer depends on, and what `invalidates` drops.

use crate::syntax::expr::{self, Expr};
use crate::syntax::fields::{Cursor, text};

/// The most tags of an endpoint: each is looked at on every hit.
const TAGS_MAX: usize = 8;

/// An array of tags: texts with parameters in them.
pub(crate) fn read(key: &str, cursor: Cursor<'_>) -> Vec<Expr> {
    let items = cursor.items(&format!(
        "{key}: must be an array such as [\"item:{{$id}}\", \"items\"], not {}",
        cursor.node.kind()
    ));
    if items.len() > TAGS_MAX {
        cursor.wrong(format!("{key}: {TAGS_MAX} at most"));
    }
    items
        .into_iter()
        .filter_map(|item| item.read(key, |node| text(node).and_then(|text| tag(&text))))
        .collect()
}

fn tag(text: &str) -> Result<Expr, String> {
    if text.is_empty() {
        return Err("a tag must not be empty".into());
    }
    let expr = expr::parse(text)?;
    let mut calls = false;
    expr.each(&mut |expr| calls |= matches!(expr, Expr::Call { .. }));
    match calls {
        false => Ok(expr),
        true => Err(format!("`{text}`: a tag is made of text and parameters alone, such as item:{{$id}}")),
    }
}
