//! Deletes that act on other rows: foreign keys with ON DELETE CASCADE, SET NULL or SET DEFAULT.
//!
//! Such a delete is never refused, so it must not come too early: a row that was moved to another parent
//! before the old one was deleted would go with that one, and a row that was inserted below it would be
//! refused. It is held without being tried (`queue`), and applied here, behind everything that lies before a
//! cut that was read after it was held: whatever was acknowledged before the delete is in the database by
//! then, or held. Of what is held the rest is tried first, and a delete that acts on a row with held changes
//! waits for those as long as any other delete can be applied, and as a whole what else is held: a move to a
//! parent that is held comes before the delete of the old parent.
//!
//! What was acknowledged *after* the delete may be in the database as well by then. That cannot be told from
//! what came before it, because queues keep no order between them; so the delete counts as the last of all
//! of it. A row that is deleted and made again is changed in place instead: its new children keep it, and so
//! do old ones. That it is made again is known in time: first the rows are found that the delete acts on,
//! then the row's own stream is read to its end. A child that is in the database then was acknowledged
//! before that, and so was what made its parent again, which is found in the stream. In the delete's
//! transaction, with the parents locked, the deletes that are applied together may act on no other rows than
//! those.
//!
//! Rows that a delete has acted on are told by its transaction, and memory reads them again.

use super::{Cut, Entry, Settler};
use crate::Error;
use crate::coalesce::coalesce;
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

/// A row's held changes from its first delete on that acts on others.
pub(super) type Acting = Vec<Entry>;

impl Settler {
    /// Takes those out, each with what follows it of its row; all others are left.
    pub(super) fn split_acting(
        &self,
        schemas: &[Arc<Schema>],
        entries: Vec<Entry>,
    ) -> (Vec<Entry>, Vec<Acting>) {
        let cascades = self.cascades.read().clone();
        let (mut others, mut acting) = (Vec::new(), BTreeMap::<i64, Acting>::new());
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

    /// Applies these deletes, but for those of rows with earlier changes that wait, or with later ones that
    /// are not known yet; and, unless `is_last`, those that act on rows that wait. The ones that are left.
    pub(super) async fn act(
        &mut self,
        schemas: &[Arc<Schema>],
        rows: Vec<Acting>,
        (waiting, cut): (&[Entry], &Cut),
        is_last: bool,
    ) -> Result<Vec<Acting>, Error> {
        let waiting: HashSet<i64> = waiting.iter().map(|entry| entry.key_hash).collect();
        let (mut left, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| waiting.contains(&row[0].key_hash));
        // First which rows they act on, then what else there is of their own rows.
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

    /// Those that were refused.
    async fn apply_acting(
        &mut self,
        schemas: &[Arc<Schema>],
        single: Vec<Entry>,
        remade: Vec<Acting>,
    ) -> Result<Vec<Acting>, Error> {
        let mut left: Vec<Acting> =
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
    async fn reached_by(&self, schemas: &[Arc<Schema>], rows: &[Acting]) -> Result<Vec<HashSet<i64>>, Error> {
        let place = |row: &Acting| {
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

    /// The rows, by hash, of which the shards of these ones have changes from behind the cut. A stream with a
    /// held change has everything that came behind it.
    async fn later_changes(&self, rows: &[Acting], cut: &Cut) -> Result<HashSet<i64>, Error> {
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
