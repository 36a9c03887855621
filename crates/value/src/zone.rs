//! The zone of a database's clock, as far as `now()` needs it.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// The offsets of a zone: each with the second since 1970 from which on it holds, in order. The first holds
/// from the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Zone(Box<[(i64, i32)]>);

impl Zone {
    /// From offsets in seconds east of UTC, in the order of the times from which on they hold.
    pub fn new(offsets: Vec<(i64, i32)>) -> Zone {
        Zone(offsets.into())
    }

    /// What a clock of this zone shows at an instant, as the instant at which a clock in UTC shows the same.
    pub(crate) fn clock_at(&self, at: Timestamp) -> Timestamp {
        if !at.is_usual() {
            return at;
        }
        let second = at.0.div_euclid(1_000_000);
        let begun = self.0.partition_point(|(from, _)| *from <= second);
        let offset = begun.checked_sub(1).map_or(0, |index| self.0[index].1);
        Timestamp(at.0 + i64::from(offset) * 1_000_000)
    }
}
