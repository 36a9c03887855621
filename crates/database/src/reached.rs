//! Finds the rows that deletes act on through foreign keys, table by table, with the statements of
//! `cascades`.
//!
//! What must stay true: the search runs in the transaction of the delete, before the delete, and locks the
//! rows that it finds, so that no row is missed that is inserted in between.

use crate::cascades::{Cascades, Reach};
use crate::dead_letter::key_hash;
use crate::{Batch, Error, Kind, Op};
use forebay_value::{Schema, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// A search for the rows that deletes act on, table by table.
pub(crate) struct Search<'c> {
    cascades: &'c Cascades,
    schemas: &'c [Arc<Schema>],
    open: Vec<(&'c Reach, Value)>,
    seen: HashSet<i64>,
    /// The index of the table among the schemas, and the key.
    pub found: Vec<(usize, Value)>,
}

/// The rows that one delete acts on: the index of the table among the schemas, and the key.
pub(crate) type Reached = Vec<(usize, Value)>;

impl<'c> Search<'c> {
    pub fn new(cascades: &'c Cascades, schemas: &'c [Arc<Schema>]) -> Search<'c> {
        Search { cascades, schemas, open: Vec::new(), seen: HashSet::new(), found: Vec::new() }
    }

    /// A search that starts from the deletes of a batch; `None`: none of them acts on other rows.
    pub fn of(batch: &'c Batch) -> Option<Search<'c>> {
        let mut search = Search::new(batch.held.cascades.as_deref()?, &batch.schemas);
        for change in &batch.changes {
            if let Op::Delete(key) = &change.op {
                search.from(change.table, key);
            }
        }
        (!search.open.is_empty()).then_some(search)
    }

    /// The rows that the deletes of a batch act on; an error if the batch may not act on all of them.
    pub fn of_batch(self, batch: &Batch) -> Result<Reached, Error> {
        match &batch.held.reached {
            Some(known) if !self.seen.is_subset(known) => {
                let message = "a delete acts on a row that came while it was looked at";
                Err(Error::new(Kind::Fenced, message))
            }
            _ => Ok(self.found),
        }
    }

    /// Starts at this row.
    pub fn from(&mut self, table: usize, key: &Value) {
        let name = &self.schemas[table].name;
        let reaches = self.cascades.reaches.iter().filter(|reach| reach.from == *name);
        self.open.extend(reaches.map(|reach| (reach, key.clone())));
    }

    /// The statement to run next, and its key.
    pub fn next(&mut self) -> Option<(&'c Reach, Value)> {
        self.open.pop()
    }

    /// Takes the result of a statement.
    pub fn take(&mut self, reach: &Reach, keys: impl IntoIterator<Item = Value>) {
        let Some(table) = self.schemas.iter().position(|schema| schema.name == reach.to.name) else { return };
        for key in keys {
            let hash = key_hash(&reach.to, &Op::Delete(key.clone()));
            if self.seen.insert(hash) {
                self.from(table, &key);
                self.found.push((table, key));
            }
        }
    }
}
