//! Deletes that act on other rows: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! Such a delete is never refused, so it must not come too early: a row that was moved to another parent
//! before the old one was deleted would go with that one, and a row that was inserted below it would be
//! refused. It is held without being tried (`queue`), and applied here, behind everything that lies before
//! the cut: whatever was acknowledged before the delete is in the database by then, or held. Of what is held
//! the rest is tried first, and a delete that acts on a row with held changes waits for those as long as any
//! other delete can be applied.
//!
//! What was acknowledged *after* the delete may be in the database as well by then. That cannot be told from
//! what came before it, because queues keep no order between them; so the delete counts as the last of all of
//! it. A row that is deleted and made again, when both are known, is changed in place instead: its new
//! children keep it, and so do old ones. Rows that a delete has acted on are found in its transaction, and
//! memory reads them again.

use super::{Entry, Settler};
use crate::Error;
use crate::coalesce::coalesce;
use forebay_database::{Cascades, Change, Kind, OnError, Op};
use forebay_value::Schema;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A row's held changes from its first delete on that acts on others.
pub(super) type Acting = Vec<Entry>;

/// Takes those out.
pub(super) fn split(
    cascades: &Cascades,
    schemas: &[Arc<Schema>],
    entries: Vec<Entry>,
) -> (Vec<Entry>, Vec<Acting>) {
    let (mut others, mut acting) = (Vec::new(), BTreeMap::<i64, Acting>::new());
    for entry in entries {
        let acts =
            matches!(entry.change.op, Op::Delete(_)) && cascades.has(&schemas[entry.change.table].name);
        if acts || acting.contains_key(&entry.key_hash) {
            acting.entry(entry.key_hash).or_default().push(entry);
        } else {
            others.push(entry);
        }
    }
    (others, acting.into_values().collect())
}

impl Settler {
    /// Applies these deletes, but for those of rows with earlier changes that wait; and, unless `is_last`,
    /// those that act on such rows. The ones that are left.
    pub(super) async fn act(
        &mut self,
        schemas: &[Arc<Schema>],
        rows: Vec<Acting>,
        waiting: &[Entry],
        is_last: bool,
    ) -> Result<Vec<Acting>, Error> {
        let waiting: HashSet<i64> = waiting.iter().map(|entry| entry.key_hash).collect();
        let (mut left, mut single, mut remade) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let is_behind = waiting.contains(&row[0].key_hash);
            if is_behind || !is_last && self.acts_on(schemas, &row[0], &waiting).await? {
                left.push(row);
            } else if row.len() == 1 {
                single.extend(row);
            } else {
                remade.push(row);
            }
        }
        left.extend(self.one_by_one(schemas, single).await?.into_iter().map(|entry| vec![entry]));
        for row in remade {
            let Some(change) = in_place(schemas, &row) else {
                let refused = self.one_by_one(schemas, row).await?;
                left.extend((!refused.is_empty()).then_some(refused));
                continue;
            };
            match self.apply(schemas, vec![change], &row, OnError::Fail).await {
                Ok(applied) => self.settled(schemas, &row, &applied),
                Err(error) if error.is_data() || matches!(error.kind(), Kind::Table { .. }) => left.push(row),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(left)
    }

    /// Whether a delete acts on one of these rows.
    async fn acts_on(
        &self,
        schemas: &[Arc<Schema>],
        delete: &Entry,
        rows: &HashSet<i64>,
    ) -> Result<bool, Error> {
        if rows.is_empty() {
            return Ok(false);
        }
        let table = delete.change.table;
        let row = (table, delete.change.op.key(&schemas[table]).to_owned());
        let cascades = self.cascades.read().clone();
        let reached = self.database.reached(&cascades, schemas, row).await?;
        Ok(reached.into_iter().any(|(table, key)| {
            let change = Change { table, position: 0, is_intent: false, op: Op::Delete(key) };
            rows.contains(&change.key_hash(schemas))
        }))
    }
}

/// A delete and what followed it as one change that leaves the row where it is, if it is there in the end.
fn in_place(schemas: &[Arc<Schema>], row: &[Entry]) -> Option<Change> {
    let (delete, later) = row.split_first()?;
    let mut later: Vec<Change> = later.iter().map(|entry| entry.change.clone()).collect();
    let coalesced = coalesce(&mut later, schemas, &vec![true; schemas.len()])?;
    let image = coalesced.into_iter().rev().find_map(|change| match change.op {
        Op::Insert(row) | Op::Put(row) => Some(row),
        _ => None,
    });
    let op = image.map_or_else(|| delete.change.op.clone(), Op::Put);
    Some(Change { op, ..delete.change.clone() })
}
