//! The gauges of a tier that need no round trip.

use super::lag::ends;
use super::{Memory, Tier};
use forebay_drain::{Drain, Status};
use std::time::{Duration, Instant};

/// How full a tier is and how far its drain is behind, as far as is known without a round trip.
pub struct Gauges {
    /// Records that the database has not applied.
    pub backlog_rows: Option<u64>,
    /// Their size in the log in bytes; 0 for a remote tier.
    pub backlog_bytes: u64,
    /// The age of the oldest of them; `None` before the drain has started, and for a remote tier.
    pub lag: Option<Duration>,
    /// Bytes of changes of stopped tables that are set aside; 0 for a remote tier.
    pub set_aside_bytes: u64,
    /// How long ago memory was known to have all that others committed, and the number of rows received;
    /// `None`: no table is followed.
    pub follow: Option<(Duration, u64)>,
    /// Whether the drain waits for its window; `None`: it has no window.
    pub waits: Option<bool>,
    /// Memory that hot tables use; 0 for a remote tier.
    pub used_bytes: u64,
    /// The limit of that memory.
    pub limit_bytes: u64,
}

impl Tier {
    /// How full the tier is, and how far its drain is behind.
    pub fn gauges(&self) -> Gauges {
        let state = self.drain.get().map(Drain::state);
        let lag = |drain| {
            let (end, drained) = ends(drain);
            self.lag.age(Instant::now(), end, drained)
        };
        Gauges {
            lag: match &self.memory {
                Memory::Embedded(_) => self.drain.get().map(lag),
                Memory::Remote(_) => None,
            },
            follow: self.follow.get().map(|follow| {
                let state = follow.state();
                (state.seen_until.elapsed(), state.rows_total)
            }),
            waits: state
                .as_ref()
                .filter(|state| state.opening.is_some())
                .map(|state| state.status == Status::Waiting),
            backlog_rows: state.as_ref().and_then(|state| state.backlog_rows),
            backlog_bytes: state.as_ref().map_or(0, |state| state.backlog_bytes),
            set_aside_bytes: match &self.memory {
                Memory::Embedded(embedded) => embedded.log.aside().0,
                Memory::Remote(_) => 0,
            },
            used_bytes: match &self.memory {
                Memory::Embedded(embedded) => embedded.tables.used_bytes(),
                Memory::Remote(_) => 0,
            },
            limit_bytes: match &self.memory {
                Memory::Embedded(embedded) => embedded.tables.limit_bytes(),
                Memory::Remote(remote) => remote.tables.limit_bytes(),
            },
        }
    }

    /// Rows drained since the start.
    pub fn drained_rows(&self) -> u64 {
        self.drain.get().map_or(0, |drain| drain.state().rows_total)
    }

    /// Changes that became dead letters since the start.
    pub fn dead_letters(&self) -> u64 {
        self.drain.get().map_or(0, |drain| drain.state().dead_total)
    }
}
