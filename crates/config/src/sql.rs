//! `sql`: a statement as typed, and what its words show about it. What it really does, the database says at start.

use super::fields::unknown;
use super::model::Statements;
use super::read::{Data, Mistakes, Node};

const DIALECTS: [&str; 2] = ["postgres", "sqlite"];

/// One statement for all, or one each. `None`: noted why not.
pub(super) fn statements(node: &Node, mistakes: &Mistakes<'_>) -> Option<Statements> {
    match &node.data {
        Data::Text(_) => statement("sql", node, mistakes).map(Statements::Any),
        Data::Table(entries) => {
            for entry in entries.iter().filter(|entry| !DIALECTS.contains(&entry.key.as_str())) {
                unknown(entry, "sql", DIALECTS.into_iter(), mistakes);
            }
            let [postgres, sqlite] = DIALECTS.map(|dialect| {
                node.get(dialect).and_then(|node| statement(&format!("sql.{dialect}"), node, mistakes))
            });
            Some(Statements::Each { postgres, sqlite })
        }
        _ => {
            mistakes.add(node.at, "sql: must be a text, or { postgres = \"…\", sqlite = \"…\" }");
            None
        }
    }
}

fn statement(name: &str, node: &Node, mistakes: &Mistakes<'_>) -> Option<String> {
    match &node.data {
        Data::Text(sql) if !sql.trim().is_empty() => return Some(sql.trim().to_owned()),
        Data::Text(_) => mistakes.add(node.at, format!("{name}: the statement is empty")),
        Data::Broken => {}
        _ => mistakes.add(node.at, format!("{name}: must be a text, not {}", node.kind())),
    }
    None
}

/// Whether a statement gives rows.
pub(super) fn gives_rows(sql: &str) -> bool {
    let first = words(sql).next().unwrap_or_default();
    ["select", "values", "pragma", "explain"].iter().any(|word| first.eq_ignore_ascii_case(word))
        || words(sql).any(|word| word.eq_ignore_ascii_case("returning"))
        || first.eq_ignore_ascii_case("with") && !writes(sql)
}

/// Whether a statement is one that writes, from its first word.
pub(super) fn begins_writing(sql: &str) -> bool {
    let first = words(sql).next().unwrap_or_default();
    ["insert", "update", "delete", "replace"].iter().any(|verb| first.eq_ignore_ascii_case(verb))
}

/// Whether a statement writes.
pub(super) fn writes(sql: &str) -> bool {
    words(sql).any(|word| {
        ["insert", "update", "delete", "replace"].iter().any(|verb| word.eq_ignore_ascii_case(verb))
    })
}

fn words(sql: &str) -> impl Iterator<Item = &str> {
    sql.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
