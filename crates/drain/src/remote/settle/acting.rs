//! Deletes that act on other rows: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! Such a delete is never refused, so it must not come too early: a row that was moved to another parent
//! before the old parent was deleted would be deleted with that parent, and a row that was inserted below the
//! old parent would be refused. The delete is held without being tried (`stream_queue`), and applied here,
//! after everything that lies before a cut that was read after the delete was held: whatever was acknowledged
//! before the delete is then in the database, or held. The other held changes are tried first. A delete that
//! acts on a row with held changes waits for those as long as any other delete can be applied, and as long as
//! the other held changes can be applied as a whole: a held move to a new parent comes before the delete of
//! the old parent.
//!
//! What was acknowledged *after* the delete may be in the database by then too. It cannot be distinguished
//! from what came before, because queues have no common order; so the delete counts as later than all of it.
//! A row that is deleted and inserted again is instead changed in place: its new children stay, and so do old
//! ones. The drain learns in time that the row is inserted again: first it finds the rows that the delete
//! acts on, then it reads the row's own stream to the end. A child that is in the database then was
//! acknowledged before that, and so was the insert of its parent, which is found in the stream. In the
//! delete's transaction, with the parents locked, the deletes that are applied together may act on no other
//! rows than those found.
//!
//! The delete's transaction returns the rows that it has acted on, and memory reads them again.

use super::{Cut, HeldEntry, Settler};
use crate::Error;
use crate::coalesce::combine;
use crate::queue::{Schemas, decode};
use crate::remote::Queues;
use crate::remote::limits::READ_ROWS;
use crate::remote::queues::bounded;
use crate::remote::stream_queue::bad_record;
use forebay_database::{Change, Kind, OnError, Op};
use forebay_log::Position;
use forebay_value::Schema;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A row's held changes, starting with its first delete that acts on other rows.
pub(super) type ActingRow = Vec<HeldEntry>;

impl Settler {
    /// Splits off the acting deletes, each with the later changes of its row; returns the other changes
    /// first.
    pub(super) fn split_acting(
        &self,
        schemas: &[Arc<Schema>],
        entries: Vec<HeldEntry>,
    ) -> (Vec<HeldEntry>, Vec<ActingRow>) {
        let cascades = self.cascades.read().clone();
        let (mut others, mut acting) = (Vec::new(), BTreeMap::<i64, ActingRow>::new());
        for entry in entries {
            let name = &schemas[entry.change.table].name;
            let acts = matches!(entry.change.op, Op::Delete(_)) && cascades.has(name);
            if acts || acting.contains_key(&entry.key_hash) {
                acting.entry(entry.key_hash).or_default().push(entry);
            } else {
                others.push(entry);
            }
        }
        (others, acting.into_values().collect())
    }

    /// Applies these deletes, except those of rows with earlier changes that wait, or with later changes that
    /// are not held yet; and, unless `is_last`, those that act on rows with waiting changes. Returns the
    /// rest.
    pub(super) async fn act(
        &mut self,
        schemas: &[Arc<Schema>],
        rows: Vec<ActingRow>,
        (waiting, cut): (&[HeldEntry], &Cut),
        is_last: bool,
    ) -> Result<Vec<ActingRow>, Error> {
        let waiting: HashSet<i64> = waiting.iter().map(|entry| entry.key_hash).collect();
        let (mut left, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| waiting.contains(&row[0].key_hash));
        // First find the rows on which they act, then the later changes of their own rows.
        let reached = self.reached_by(schemas, &rows).await?;
        let later = self.later_changes(&rows, cut).await?;
        let (mut single, mut remade, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for (row, reached) in rows.into_iter().zip(reached) {
            if later.contains(&row[0].key_hash) || !is_last && !waiting.is_disjoint(&reached) {
                left.push(row);
                continue;
            }
            known.extend(reached);
            if row.len() == 1 {
                single.extend(row);
            } else {
                remade.push(row);
            }
        }
        self.reached = Some(Arc::new(known));
        let refused = self.apply_acting(schemas, single, remade).await;
        self.reached = None;
        left.extend(refused?);
        Ok(left)
    }

    /// Returns those that were refused.
    async fn apply_acting(
        &mut self,
        schemas: &[Arc<Schema>],
        single: Vec<HeldEntry>,
        remade: Vec<ActingRow>,
    ) -> Result<Vec<ActingRow>, Error> {
        let mut left: Vec<ActingRow> =
            self.one_by_one(schemas, single).await?.into_iter().map(|entry| vec![entry]).collect();
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

    /// For each row, the rows that its delete acts on.
    async fn reached_by(
        &self,
        schemas: &[Arc<Schema>],
        rows: &[ActingRow],
    ) -> Result<Vec<HashSet<i64>>, Error> {
        let place = |row: &ActingRow| {
            let change = &row[0].change;
            (change.table, change.op.key(&schemas[change.table]).to_owned())
        };
        let cascades = self.cascades.read().clone();
        let reached = self.database.reached(&cascades, schemas, rows.iter().map(place).collect()).await?;
        let hash = |(table, key)| {
            Change { table, position: 0, is_intent: false, op: Op::Delete(key) }.key_hash(schemas)
        };
        Ok(reached.into_iter().map(|rows| rows.into_iter().map(hash).collect()).collect())
    }

    /// The rows, by hash, that have changes behind the cut in the streams of these rows. A stream with a held
    /// change still contains everything behind that change.
    async fn later_changes(&self, rows: &[ActingRow], cut: &Cut) -> Result<HashSet<i64>, Error> {
        let Queues { queue, link } = &self.queues;
        let logs: HashSet<u128> = rows.iter().map(|row| row[0].id.log).collect();
        let (catalogue, mut schemas) = (queue.catalogue(), Schemas::new(self.own.clone()));
        let mut found = HashSet::new();
        for (shard, log) in (0..).zip(self.queues.logs()).filter(|(_, log)| logs.contains(log)) {
            let mut after = cut.passed.get(&log).copied().unwrap_or(0);
            loop {
                let records = bounded(queue.read(link, shard, after, READ_ROWS)).await?;
                let is_last = records.len() < READ_ROWS;
                for (position, record) in records {
                    let changes = decode(Position(position), &record, &catalogue, &mut schemas)
                        .map_err(|what| bad_record(shard, Position(position), &what))?;
                    found.extend(changes.into_iter().map(|change| change.key_hash(&schemas.list)));
                    after = position;
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(found)
    }
}

/// A delete and the later changes of its row as one change that keeps the row in place, if the row exists in
/// the end.
fn in_place(schemas: &[Arc<Schema>], row: &[HeldEntry]) -> Option<Change> {
    let (delete, later) = row.split_first()?;
    let later: Vec<Change> = later.iter().map(|entry| entry.change.clone()).collect();
    let coalesced = combine(later, schemas, &vec![true; schemas.len()])?;
    let image = coalesced.into_iter().rev().find_map(|change| match change.op {
        Op::Insert(row) | Op::Put(row) => Some(row),
        _ => None,
    });
    let op = image.map_or_else(|| delete.change.op.clone(), Op::Put);
    Some(Change { op, ..delete.change.clone() })
}
