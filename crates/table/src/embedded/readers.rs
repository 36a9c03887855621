//! The reads of the database under way, with the drained position at which each began: no tombstone that one
//! of them needs is forgotten.

use super::rows::Rows;
use forebay_log::Position;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// The drained positions at which the reads under way began, with the number of reads at each.
#[derive(Default)]
pub(crate) struct Readers {
    since: Mutex<BTreeMap<Position, usize>>,
}

/// One read of the database: the rows that it reads contain everything up to `since`.
pub(crate) struct Reading<'a> {
    readers: &'a Readers,
    pub since: Position,
}

impl Readers {
    pub fn begin(&self, rows: &Rows) -> Reading<'_> {
        let mut since = self.since.lock();
        // Read under the lock: `floor` reads the drained position before it locks, and so never passes a
        // reader that it does not see.
        let drained = rows.drained();
        *since.entry(drained).or_default() += 1;
        Reading { readers: self, since: drained }
    }

    /// Tombstones at or before this are no longer needed.
    pub fn floor(&self, rows: &Rows) -> Position {
        let drained = rows.drained();
        let since = self.since.lock();
        since.first_key_value().map_or(drained, |(&first, _)| first.min(drained))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut since = self.readers.since.lock();
        if let Some(readers) = since.get_mut(&self.since) {
            *readers -= 1;
            if *readers == 0 {
                since.remove(&self.since);
            }
        }
    }
}
