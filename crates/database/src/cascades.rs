//! What a delete does to rows of other tables: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! A drain wants to know two things of them: which deletes act on other rows of its tables, so that what was
//! written before them is in the database first; and which rows those are, so that memory reads them again.
//! The catalogue gives the foreign keys as edges between tables. Those between two tables of the drain, by
//! way of tables that are none of its, become one statement each: the keys of the rows that the delete of one
//! row acts on.
//! The rows themselves are looked for by `reached`. Of updates it is only told which have actions of that
//! kind: a drain of several queues cannot do justice to those.

use forebay_value::Schema;
use std::sync::Arc;

/// How many tables that are none of the drain's may lie between two that are.
const BETWEEN_MAX: usize = 8;

/// Which deletes of some tables act on rows of which others of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cascades {
    pub(crate) reaches: Vec<Reach>,
    updates: Vec<UpdateAction>,
}

/// An update of columns in one table acts on rows of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateAction {
    /// The table that is updated.
    pub from: String,
    /// Its columns that are referred to; not its key, which stays what it is.
    pub columns: Vec<String>,
    /// The table whose rows follow.
    pub to: String,
}

/// A delete in one table acts on rows of another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reach {
    pub from: String,
    pub to: Arc<Schema>,
    /// Gives the keys of `to` for the key of a row of `from`, which is its only parameter.
    pub sql: String,
}

/// A foreign key with an action. Everything is as it stands in SQL.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub child: String,
    pub child_columns: Vec<String>,
    pub parent: String,
    pub parent_columns: Vec<String>,
    /// Whether deletes act, and whether updates do.
    pub on: (bool, bool),
}

/// A table of the drain's.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub schema: Arc<Schema>,
    /// Its name and its key's as they stand in SQL.
    pub table: String,
    pub key: String,
}

impl Cascades {
    /// `parameter` is how the engine writes the first one, `lock` what stands behind a SELECT that locks.
    pub(crate) fn of(nodes: &[Node], edges: &[Edge], parameter: &str, lock: &str) -> Cascades {
        let mut reaches = Vec::new();
        for from in nodes {
            let rows = format!("{} = {parameter}", from.key);
            // Tables whose rows are acted on, the condition that those meet, and how far they are.
            let mut open = vec![(from.table.as_str(), rows, 0)];
            while let Some((table, rows, between)) = open.pop() {
                for edge in edges.iter().filter(|edge| edge.parent == table && edge.on.0) {
                    let (columns, of) = (edge.child_columns.join(", "), edge.parent_columns.join(", "));
                    let rows = format!("({columns}) IN (SELECT {of} FROM {table} WHERE {rows})");
                    match nodes.iter().find(|node| node.table == edge.child) {
                        Some(to) => {
                            let sql = format!("SELECT {} FROM {} WHERE {rows}{lock}", to.key, to.table);
                            let (from, to) = (from.schema.name.clone(), to.schema.clone());
                            reaches.push(Reach { from, to, sql });
                        }
                        None if between < BETWEEN_MAX => open.push((&edge.child, rows, between + 1)),
                        None => {}
                    }
                }
            }
        }
        Cascades { reaches, updates: updates(nodes, edges) }
    }

    /// Updates between the tables that act on other rows: ON UPDATE CASCADE, SET NULL or SET DEFAULT.
    pub fn updates(&self) -> &[UpdateAction] {
        &self.updates
    }

    /// Whether deletes of a table act on rows of one of the others, or on other rows of itself.
    pub fn has(&self, table: &str) -> bool {
        self.reaches.iter().any(|reach| reach.from == table)
    }
}

fn updates(nodes: &[Node], edges: &[Edge]) -> Vec<UpdateAction> {
    let node = |table: &str| nodes.iter().find(|node| node.table == table);
    let action = |edge: &Edge| {
        let (from, to) = (node(&edge.parent)?, node(&edge.child)?);
        let is_key = matches!(&edge.parent_columns[..], [column] if bare(column) == bare(&from.key));
        let (from, to) = (from.schema.name.clone(), to.schema.name.clone());
        let columns = edge.parent_columns.iter().map(|column| bare(column).to_owned()).collect();
        (edge.on.1 && !is_key).then_some(UpdateAction { from, columns, to })
    };
    edges.iter().filter_map(action).collect()
}

/// A name that may be quoted.
fn bare(name: &str) -> &str {
    name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name)
}
