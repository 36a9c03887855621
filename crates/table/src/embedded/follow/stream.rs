//! The place in the database's stream of changes up to which memory has everything: a checkpoint has it, and
//! a start follows from there.
//!
//! The database keeps what was committed since the place that is *held*: that of the last checkpoint, or of
//! the first one while it is written. When more has been told since than rows are followed, several times
//! over, it is let go: a start then reads the tables anew, which is cheaper.

use crate::limits::{HELD_TOLD_MIN, HELD_TOLD_TIMES};
use parking_lot::Mutex;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Stream(Mutex<Places>);

#[derive(Default)]
struct Places {
    /// Of memory; `None`: it is not known to have everything up to any.
    now: Option<Arc<str>>,
    held: Option<Arc<str>>,
    /// Rows that were told since the one that is held.
    told: u64,
    /// How often places became void.
    voided: u64,
}

/// The place of a checkpoint that is being written.
#[derive(Clone)]
pub(crate) struct Mark {
    pub place: Arc<str>,
    told: u64,
    voided: u64,
}

impl Stream {
    /// Memory came from a checkpoint at this place.
    pub fn begin(&self, place: Arc<str>) {
        let mut places = self.0.lock();
        (places.now, places.held) = (Some(place.clone()), Some(place));
    }

    /// Memory has everything up to there, `None`: up to no place that is known; so many rows were told since
    /// the last call, of `rows`. The place that is to be held.
    pub fn reached(&self, place: Option<Arc<str>>, told: u64, rows: u64) -> Option<Arc<str>> {
        let mut places = self.0.lock();
        places.told += told;
        places.now = place;
        if places.told > due(rows).saturating_mul(HELD_TOLD_TIMES) {
            places.held = None;
        }
        places.held.clone().or_else(|| places.now.clone())
    }

    /// No place from before is one to go on from.
    pub fn void(&self) {
        let mut places = self.0.lock();
        *places = Places { voided: places.voided + 1, ..Places::default() };
    }

    /// For a checkpoint that begins: before anything of memory is in it.
    pub fn mark(&self) -> Option<Mark> {
        let mut places = self.0.lock();
        let place = places.now.clone()?;
        if places.held.is_none() {
            (places.held, places.told) = (Some(place.clone()), 0);
        }
        Some(Mark { place, told: places.told, voided: places.voided })
    }

    /// A start may use that checkpoint.
    pub fn published(&self, mark: Mark) {
        let mut places = self.0.lock();
        if places.voided == mark.voided {
            places.told -= mark.told.min(places.told);
            places.held = Some(mark.place);
        }
    }

    /// Whether so much was told since the last checkpoint that it is time for another.
    pub fn is_due(&self, rows: u64) -> bool {
        let places = self.0.lock();
        places.now.is_some() && places.told > due(rows)
    }
}

fn due(rows: u64) -> u64 {
    rows.max(HELD_TOLD_MIN)
}
