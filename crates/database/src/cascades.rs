//! What a delete does to rows of other tables: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! A drain wants to know two things of them: which deletes act on other rows of its tables, so that what was
//! written before them is in the database first; and which rows those are, so that memory reads them again.
//! The catalogue gives the foreign keys as edges between tables. Those between two tables of the drain, by
//! way of tables that are none of its, become one statement each: the keys of the rows that the delete of one
//! row acts on.
//!
//! What must stay true: [`Search`] is asked in the transaction of the delete, before it, with the rows that
//! it finds locked, so that no row is missed that comes in between.

use crate::{Batch, Op};
use forebay_value::{Schema, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// How many tables that are none of the drain's may lie between two that are.
const BETWEEN_MAX: usize = 8;

/// Which deletes of some tables act on rows of which others of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cascades {
    reaches: Vec<Reach>,
}

/// A delete in one table acts on rows of another one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reach {
    from: String,
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
                for edge in edges.iter().filter(|edge| edge.parent == table) {
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
        Cascades { reaches }
    }

    /// Whether deletes of a table act on rows of one of the others, or on other rows of itself.
    pub fn has(&self, table: &str) -> bool {
        self.reaches.iter().any(|reach| reach.from == table)
    }
}

/// The rows that deletes act on, table by table.
pub(crate) struct Search<'c> {
    cascades: &'c Cascades,
    schemas: &'c [Arc<Schema>],
    open: Vec<(&'c Reach, Value)>,
    seen: HashSet<i64>,
    /// The index of the table among the schemas, and the key.
    pub found: Vec<(usize, Value)>,
}

impl<'c> Search<'c> {
    pub fn new(cascades: &'c Cascades, schemas: &'c [Arc<Schema>]) -> Search<'c> {
        Search { cascades, schemas, open: Vec::new(), seen: HashSet::new(), found: Vec::new() }
    }

    /// From the deletes of a batch; `None`: none of them acts on other rows.
    pub fn of(batch: &'c Batch) -> Option<Search<'c>> {
        let mut search = Search::new(batch.held.cascades.as_deref()?, &batch.schemas);
        for change in &batch.changes {
            if let Op::Delete(key) = &change.op {
                search.from(change.table, key);
            }
        }
        (!search.open.is_empty()).then_some(search)
    }

    /// Begins at this row.
    pub fn from(&mut self, table: usize, key: &Value) {
        let name = &self.schemas[table].name;
        let reaches = self.cascades.reaches.iter().filter(|reach| reach.from == *name);
        self.open.extend(reaches.map(|reach| (reach, key.clone())));
    }

    /// What is to be asked next, and with which key.
    pub fn next(&mut self) -> Option<(&'c Reach, Value)> {
        self.open.pop()
    }

    /// The answer to what was asked.
    pub fn take(&mut self, reach: &Reach, keys: impl IntoIterator<Item = Value>) {
        let Some(table) = self.schemas.iter().position(|schema| schema.name == reach.to.name) else { return };
        for key in keys {
            let hash = crate::dead_letter::key_hash(&reach.to, &Op::Delete(key.clone()));
            if self.seen.insert(hash) {
                self.from(table, &key);
                self.found.push((table, key));
            }
        }
    }
}
