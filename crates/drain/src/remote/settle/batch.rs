//! Held changes in batches: tried one by one, or made dead letters.

use super::{HeldEntry, PendingShow, Settler};
use crate::Error;
use crate::limits::UNCOALESCED_ROWS;
use crate::misfit::misfit;
use forebay_database::{Applied, Batch, Change, HeldId, Holding, Kind, Note, OnError, Patience, Priority};
use forebay_value::Schema;
use std::collections::HashSet;
use std::sync::Arc;

impl Settler {
    /// Tries these changes in order, each by itself; returns the refused ones, and the later changes of their
    /// rows.
    pub(super) async fn one_by_one(
        &mut self,
        schemas: &[Arc<Schema>],
        entries: Vec<HeldEntry>,
    ) -> Result<Vec<HeldEntry>, Error> {
        let (mut waiting, mut blocked) = (Vec::new(), HashSet::new());
        // Parts still to be tried, the first part last.
        let mut parts: Vec<Vec<HeldEntry>> =
            entries.chunks(UNCOALESCED_ROWS).rev().map(<[HeldEntry]>::to_vec).collect();
        while let Some(part) = parts.pop() {
            let (behind, mut part): (Vec<_>, Vec<_>) =
                part.into_iter().partition(|entry| blocked.contains(&entry.key_hash));
            waiting.extend(behind);
            if part.is_empty() {
                continue;
            }
            let changes = part.iter().map(|entry| entry.change.clone()).collect();
            match self.apply(schemas, changes, &part, OnError::Hold).await {
                Ok(applied) => {
                    let held: HashSet<usize> = applied.held.iter().copied().collect();
                    let split = part.into_iter().enumerate().partition(|(at, _)| held.contains(at));
                    let (refused, settled): (Vec<_>, Vec<_>) = split;
                    blocked.extend(refused.iter().map(|(_, entry)| entry.key_hash));
                    waiting.extend(refused.into_iter().map(|(_, entry)| entry));
                    let settled: Vec<HeldEntry> = settled.into_iter().map(|(_, entry)| entry).collect();
                    self.settled(schemas, &settled, &applied);
                }
                // Refused at the commit, which names no change.
                Err(error) if error.is_data() && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(error) => match error.kind() {
                    Kind::Table { table, .. } | Kind::DeadLetter { table, .. } => {
                        let of_table = |entry: &HeldEntry| schemas[entry.change.table].name == *table;
                        let (stopped, others): (Vec<_>, Vec<_>) = part.into_iter().partition(of_table);
                        blocked.extend(stopped.iter().map(|entry| entry.key_hash));
                        waiting.extend(stopped);
                        parts.push(others);
                    }
                    _ => return Err(error.into()),
                },
            }
        }
        waiting.sort_by_key(|entry| entry.id);
        Ok(waiting)
    }

    /// Makes dead letters of the changes that are refused once more; returns how many are no longer held, and
    /// how many of them became dead letters.
    pub(super) async fn make_dead_letters(
        &mut self,
        schemas: &[Arc<Schema>],
        mut entries: Vec<HeldEntry>,
    ) -> Result<(usize, u64), Error> {
        for (table, schema) in schemas.iter().enumerate() {
            if !entries.iter().any(|entry| entry.change.table == table) {
                continue;
            }
            // A table that would refuse every row must be repaired; its rows do not become dead letters.
            let found = self.database.describe(&schema.name).await?;
            if misfit(schema, found.as_ref(), None).is_some() {
                entries.retain(|entry| entry.change.table != table);
            }
        }
        let (mut dead_lettered, mut dead) = (0, 0);
        let mut parts: Vec<Vec<HeldEntry>> =
            entries.chunks(UNCOALESCED_ROWS).rev().map(<[HeldEntry]>::to_vec).collect();
        while let Some(mut part) = parts.pop() {
            let changes = part.iter().map(|entry| entry.change.clone()).collect();
            match self.apply(schemas, changes, &part, OnError::DeadLetter).await {
                Ok(applied) => {
                    dead_lettered += part.len();
                    dead += applied.dead;
                    self.settled(schemas, &part, &applied);
                }
                Err(error) if error.is_data() && part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((dead_lettered, dead))
    }

    /// Applies changes and deletes these held ones, in one transaction.
    pub(super) async fn apply(
        &self,
        schemas: &[Arc<Schema>],
        changes: Vec<Change>,
        entries: &[HeldEntry],
        on_error: OnError,
    ) -> Result<Applied, forebay_database::Error> {
        let settles: Vec<HeldId> = entries.iter().map(|entry| entry.id).collect();
        let batch = Batch {
            log: entries.first().map_or(0, |entry| entry.id.log),
            from: None,
            to: 0,
            note: Note::default(),
            opening: String::new(),
            schemas: schemas.to_vec(),
            changes,
            basis: None,
            on_error,
            priority: Priority::Holds,
            patience: Patience::default(),
            held: Holding {
                more: Vec::new(),
                settles,
                cascades: Some(self.cascades.read().clone()),
                reached: self.reached.clone(),
            },
        };
        self.database.apply(batch).await
    }

    /// Has memory show the rows as the database has them, in case they differ from what these changes say.
    pub(super) fn settled(&mut self, schemas: &[Arc<Schema>], entries: &[HeldEntry], applied: &Applied) {
        let all = applied.differing.iter().map(|(table, key)| PendingShow {
            row: (schemas[*table].clone(), key.clone()),
            unless: None,
            tries: 0,
        });
        self.shows.extend(all);
        // A tier that has lost the row since then read it from the database, as it was before.
        for entry in entries {
            let schema = &schemas[entry.change.table];
            let row = (schema.clone(), entry.change.op.key(schema).to_owned());
            self.shows.push(PendingShow { row, unless: Some(entry.id.position), tries: 0 });
        }
    }
}
