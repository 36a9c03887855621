//! What a batch has made of its changes so far.

use crate::{Batch, Change, Error, Op, Refused};
use forebay_value::Value;

/// What became of the changes that were not simply applied.
#[derive(Default)]
pub(super) struct Done {
    pub(super) dead: u64,
    pub(super) unwritten: u64,
    pub(super) missing: u64,
    pub(super) differing: Vec<(usize, Value)>,
    pub(super) refused: Vec<Refused>,
}

impl Done {
    /// So many of these changes met no row.
    pub(super) fn met(&mut self, missing: u64, batch: &Batch, changes: &[Change]) {
        self.missing += missing;
        if missing > 0 {
            let wants_row = |change: &&Change| matches!(change.op, Op::Update { .. } | Op::Increment { .. });
            self.differing.extend(changes.iter().filter(wants_row).map(|change| batch.place(change)));
        }
    }

    /// This change was refused, and is a letter, in the database or elsewhere.
    pub(super) fn buried(&mut self, batch: &Batch, change: &Change, is_written: bool) {
        self.dead += 1;
        self.unwritten += u64::from(!is_written);
        self.differing.push(batch.place(change));
    }

    /// This intent was refused, or met no row.
    pub(super) fn refused(&mut self, change: &Change, reason: Option<Error>) {
        self.refused.push(Refused { position: change.position, reason });
    }
}
