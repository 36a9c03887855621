//! Tags of cached answers: `cache.tags` lists what an answer depends on, and `invalidates` what a write
//! changes.

use crate::syntax::expr::{self, Expr};
use crate::syntax::fields::{Cursor, text};
use crate::syntax::mistakes::Mistake;

/// The most tags of an endpoint: every hit checks each of them.
const TAGS_MAX: usize = 8;

/// Reads an array of tags: texts that may contain parameters.
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

fn tag(text: &str) -> Result<Expr, Mistake> {
    if text.is_empty() {
        return Err("a tag must not be empty".into());
    }
    let expr = expr::parse(text)?;
    match expr.calls() {
        false => Ok(expr),
        true => {
            Err(format!("`{text}`: a tag is made of text and parameters alone, such as item:{{$id}}").into())
        }
    }
}
