//! The outcome of a batch's changes so far.

use crate::{Batch, Change, Error, Op, Refused};
use forebay_value::Value;
use std::collections::HashSet;

/// The changes that were not simply applied.
#[derive(Default)]
pub(super) struct Done {
    pub(super) dead: u64,
    pub(super) unwritten: u64,
    pub(super) missing: u64,
    pub(super) differing: Vec<(usize, Value)>,
    /// The indexes of the changes that are held, and the hashes of their keys.
    pub(super) held: Vec<usize>,
    held_keys: HashSet<i64>,
    pub(super) refused: Vec<Refused>,
    /// The positions of the changes that are held, dead letters or refused.
    pub(super) not_applied: HashSet<u64>,
}

impl Done {
    /// Counts the changes that met no row.
    pub(super) fn met(&mut self, missing: u64, batch: &Batch, changes: &[Change]) {
        self.missing += missing;
        if missing > 0 {
            let wants_row = |change: &&Change| matches!(change.op, Op::Update { .. } | Op::Increment { .. });
            self.differing.extend(changes.iter().filter(wants_row).map(|change| batch.place(change)));
        }
    }

    /// Records that the change with this index is held.
    pub(super) fn held(&mut self, batch: &Batch, index: usize) {
        self.held.push(index);
        self.not_applied.insert(batch.changes[index].position);
        self.held_keys.insert(batch.changes[index].key_hash(&batch.schemas));
    }

    /// Whether earlier changes of the same row are held.
    pub(super) fn is_behind_held(&self, batch: &Batch, change: &Change) -> bool {
        !self.held_keys.is_empty() && self.held_keys.contains(&change.key_hash(&batch.schemas))
    }

    /// Records that this change was refused and is a dead letter, in the database or elsewhere.
    pub(super) fn dead_lettered(&mut self, batch: &Batch, change: &Change, is_written: bool) {
        self.dead += 1;
        self.not_applied.insert(change.position);
        self.unwritten += u64::from(!is_written);
        self.differing.push(batch.place(change));
    }

    /// Records that this intent was refused, or met no row.
    pub(super) fn refused(&mut self, change: &Change, reason: Option<Error>) {
        self.not_applied.insert(change.position);
        self.refused.push(Refused { position: change.position, reason });
    }
}
