//! The clocks of controller and agent, and the offset between them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The wall clock read once and continued by the monotonic clock, so that setting the system time
/// does not move a start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    base: Instant,
    base_unix_ns: u64,
}

impl Clock {
    /// This machine's clock, off by `offset_ns`.
    pub fn off_by(offset_ns: i64) -> Clock {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: Instant::now(), base_unix_ns: nanoseconds(unix).saturating_add_signed(offset_ns) }
    }

    /// Nanoseconds of Unix time.
    pub fn unix_ns(&self, instant: Instant) -> u64 {
        match instant.checked_duration_since(self.base) {
            Some(since) => self.base_unix_ns.saturating_add(nanoseconds(since)),
            None => self.base_unix_ns.saturating_sub(nanoseconds(self.base - instant)),
        }
    }

    pub fn now_ns(&self) -> u64 {
        self.unix_ns(Instant::now())
    }

    /// The instant at which this clock shows `unix_ns`; now, if that time is past.
    pub fn instant(&self, unix_ns: u64) -> Instant {
        let now = Instant::now();
        now + Duration::from_nanos(unix_ns.saturating_sub(self.unix_ns(now)))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The other clock minus this one. The shortest of all round trips counts: it waited in no queue, so
/// the agent answered near its middle, and the error is at most half of the round trip.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Offset {
    best: Option<(u64, i64)>,
}

impl Offset {
    /// Adds a round trip: sent and received by this clock, answered by the other clock.
    pub fn add(&mut self, sent_ns: u64, answered_ns: u64, received_ns: u64) {
        let round_trip_ns = received_ns.saturating_sub(sent_ns);
        let middle_ns = sent_ns + round_trip_ns / 2;
        let offset_ns = i64::try_from(i128::from(answered_ns) - i128::from(middle_ns)).unwrap_or(0);
        if self.best.is_none_or(|(shortest_ns, _)| round_trip_ns < shortest_ns) {
            self.best = Some((round_trip_ns, offset_ns));
        }
    }

    pub fn ns(self) -> i64 {
        self.best.map_or(0, |(_, offset_ns)| offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_counts() {
        let mut offset = Offset::default();
        // The agent is 5 s ahead; the first request waits 3 ms in a queue, the later ones do not
        // wait.
        offset.add(1_000, 5_000_000_000 + 1_000 + 3_100_000, 1_000 + 3_200_000);
        offset.add(9_000_000, 5_000_000_000 + 9_100_000, 9_200_000);
        offset.add(20_000_000, 5_000_000_000 + 20_100_000, 25_000_000);
        assert_eq!(offset.ns(), 5_000_000_000);
    }

    #[test]
    fn a_time_is_the_same_moment_there_and_back() {
        let clock = Clock::off_by(-5_000_000_000);
        let moment = Instant::now() + Duration::from_millis(200);
        let back = clock.instant(clock.unix_ns(moment));
        assert!(back.max(moment) - back.min(moment) < Duration::from_micros(1));
    }
}
