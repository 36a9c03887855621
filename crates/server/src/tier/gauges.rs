//! The numbers of a tier that are known without asking anyone.

use super::lag::ends;
use super::{Memory, Tier};
use forebay_drain::{Drain, Status};
use std::time::{Duration, Instant};

/// How full a tier is and how far behind its drain, as far as is known without asking anyone.
pub struct Gauges {
    /// Records that are not in the database.
    pub backlog_rows: Option<u64>,
    /// Bytes of them in the log; 0 for a tier over the network.
    pub backlog_bytes: u64,
    /// The age of the oldest of them; `None` before the drain has begun, and for a tier over the network.
    pub lag: Option<Duration>,
    /// For how long what others commit may not have come to memory, and how many rows of theirs came; `None`:
    /// no table is followed.
    pub follow: Option<(Duration, u64)>,
    /// Whether the drain waits for its window; `None`: it has none.
    pub waits: Option<bool>,
    /// Memory that hot tables take; 0 for a tier over the network.
    pub used_bytes: u64,
    /// Memory that they may take.
    pub limit_bytes: u64,
}

impl Tier {
    /// How full it is, and how far behind its drain.
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
