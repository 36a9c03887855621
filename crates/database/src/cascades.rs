//! What a delete does to rows of other tables: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! A drain needs to know two things about them: which deletes act on other rows of its tables, so that what
//! was written before them is in the database first; and which rows those are, so that memory reads them
//! again. The catalogue gives the foreign keys as edges between tables. Each connection between two tables of
//! the drain, through tables that are not the drain's, becomes one statement: it returns the keys of the rows
//! that the delete of one row acts on. `reached` runs these statements. For updates the drain only learns
//! which ones have such actions: a drain of several queues cannot keep their order.

use forebay_value::Schema;
use std::sync::Arc;

/// The largest number of tables outside the drain between two of its tables.
const BETWEEN_MAX: usize = 8;

/// Which deletes in a set of tables act on rows of which tables of that set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cascades {
    pub(crate) reaches: Vec<Reach>,
    updates: Vec<UpdateAction>,
}

/// An update of columns in one table that acts on rows of another table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdateAction {
    /// The table that is updated.
    pub from: String,
    /// Its referenced columns, without its key, which never changes.
    pub columns: Vec<String>,
    /// The table whose rows follow the update.
    pub to: String,
}

/// A delete in one table that acts on rows of another table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reach {
    pub from: String,
    pub to: Arc<Schema>,
    /// Selects the keys of `to` for the key of a row of `from`, which is its only parameter.
    pub sql: String,
}

/// A foreign key with an action. All names are in the form used in SQL.
#[derive(Debug, Clone)]
pub(crate) struct Edge {
    pub child: String,
    pub child_columns: Vec<String>,
    pub parent: String,
    pub parent_columns: Vec<String>,
    /// Whether deletes act, and whether updates do.
    pub on: (bool, bool),
}

/// A table of the drain.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub schema: Arc<Schema>,
    /// The names of the table and of its key, as used in SQL.
    pub table: String,
    pub key: String,
}

impl Cascades {
    /// `parameter` is the engine's notation of the first parameter, `lock` the suffix of a SELECT that locks.
    pub(crate) fn of(nodes: &[Node], edges: &[Edge], parameter: &str, lock: &str) -> Cascades {
        let mut reaches = Vec::new();
        for from in nodes {
            let rows = format!("{} = {parameter}", from.key);
            // Tables whose rows are acted on, the condition for those rows, and their distance.
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

    /// Whether deletes in a table act on rows of another of the tables, or on other rows of the same table.
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

/// A name without its quotes, if it has any.
fn bare(name: &str) -> &str {
    let within = |quote| name.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('`')).unwrap_or(name)
}
