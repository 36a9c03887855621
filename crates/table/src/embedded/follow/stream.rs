//! The place in the database's stream of changes up to which memory has everything. A checkpoint stores the
//! place, and a start follows from there.
//!
//! The database retains its changes since the place that is *held*: that of the last checkpoint, or of the
//! first one while it is written. When the stream has reported several times as many rows since then as are
//! followed, the place is released: the next start reads the tables anew, which is cheaper.

use crate::limits::{HELD_TOLD_MIN, HELD_TOLD_TIMES};
use parking_lot::Mutex;
use std::sync::Arc;

/// The place that memory has reached, and the one that is held: see the module.
#[derive(Default)]
pub(crate) struct Stream(Mutex<Places>);

#[derive(Default)]
struct Places {
    /// The place that memory has reached; `None` while that is not known.
    now: Option<Arc<str>>,
    held: Option<Arc<str>>,
    /// Rows that the stream reported since the held place.
    told: u64,
    /// How often all places were invalidated.
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
    /// Memory was loaded from a checkpoint at this place.
    pub fn begin(&self, place: Arc<str>) {
        let mut places = self.0.lock();
        (places.now, places.held) = (Some(place.clone()), Some(place));
    }

    /// Memory has everything up to `place` (`None`: up to no known place); the stream reported `told` rows
    /// since the last call, and the tables have `rows`. Returns the place that the database is to hold.
    pub fn reached(&self, place: Option<Arc<str>>, told: u64, rows: u64) -> Option<Arc<str>> {
        let mut places = self.0.lock();
        places.told += told;
        places.now = place;
        if places.told > due(rows).saturating_mul(HELD_TOLD_TIMES) {
            places.held = None;
        }
        places.held.clone().or_else(|| places.now.clone())
    }

    /// Invalidates all earlier places.
    pub fn void(&self) {
        let mut places = self.0.lock();
        *places = Places { voided: places.voided + 1, ..Places::default() };
    }

    /// The place for a checkpoint that begins. To be called before anything of memory is written to it.
    pub fn mark(&self) -> Option<Mark> {
        let mut places = self.0.lock();
        let place = places.now.clone()?;
        if places.held.is_none() {
            (places.held, places.told) = (Some(place.clone()), 0);
        }
        Some(Mark { place, told: places.told, voided: places.voided })
    }

    /// The checkpoint with this mark is published: a start may use it.
    pub fn published(&self, mark: Mark) {
        let mut places = self.0.lock();
        if places.voided == mark.voided {
            places.told -= mark.told.min(places.told);
            places.held = Some(mark.place);
        }
    }

    /// Whether the stream has reported so many rows since the last checkpoint that another is due.
    pub fn is_due(&self, rows: u64) -> bool {
        let places = self.0.lock();
        places.now.is_some() && places.told > due(rows)
    }
}

fn due(rows: u64) -> u64 {
    rows.max(HELD_TOLD_MIN)
}
