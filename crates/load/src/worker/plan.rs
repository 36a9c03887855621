//! The part of one worker; the parts of all workers add up to the whole.

use crate::schedule::{SECOND_NS, Share};
use crate::settings::{Pace, Settings, Stop, part};
use std::time::Duration;

/// A worker's part.
#[derive(Clone, Debug)]
pub(crate) struct WorkerPart {
    /// Connections from the start.
    pub connections: usize,
    /// The highest number of connections.
    pub places: usize,
    /// Requests that may be under way.
    pub concurrency: usize,
    /// The worker's share of the schedule.
    pub share: Share,
    /// Closed model: the time over which connections are opened one after the other.
    ramp_ns: u64,
    /// Requests before this time are not counted.
    pub warmup_ns: u64,
    /// When sending ends, if time ends it.
    pub ends_ns: Option<u64>,
    /// How many requests after the warm-up end the run (closed model).
    pub amount: Option<u64>,
    /// How many requests the whole schedule has, warm-up included (open model).
    pub amount_of_schedule: Option<u64>,
}

impl WorkerPart {
    /// When the connection at `place` is opened. Without a ramp, all are opened before the start;
    /// the first one always is.
    pub fn opens_ns(&self, place: usize) -> u64 {
        let share = place as u128 * u128::from(self.ramp_ns) / self.connections.max(1) as u128;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    pub fn new(settings: &Settings, index: usize, of: usize) -> WorkerPart {
        let warmup_ns = ns(settings.warmup);
        let mut amount = None;
        let mut amount_of_schedule = None;
        let ends_ns = match (settings.stop, &settings.pace) {
            (Stop::After(time), _) => Some(warmup_ns.saturating_add(ns(time))),
            (Stop::Amount(whole), Pace::Closed) => {
                let whole = usize::try_from(whole).unwrap_or(usize::MAX);
                amount = Some(part(whole, index, of) as u64);
                None
            }
            (Stop::Amount(whole), Pace::Open(schedule)) => {
                let all = whole.saturating_add(schedule.count_within(warmup_ns));
                amount_of_schedule = Some(all);
                // The last request's interval counts too, so that amount divided by duration is the
                // rate.
                schedule.due_ns(all).or(schedule.duration_ns())
            }
        };
        let places = part(settings.places(), index, of);
        let concurrency = match (settings.max_concurrency, &settings.pace) {
            (Some(most), Pace::Open(_)) => part(most, index, of).max(1),
            _ => usize::MAX,
        };
        let ramp_ns = if settings.pace == Pace::Closed { ns(settings.ramp) } else { 0 };
        WorkerPart {
            ramp_ns,
            connections: part(settings.connections, index, of),
            places,
            concurrency,
            share: settings.share.part(index as u64, of as u64),
            warmup_ns,
            ends_ns,
            amount,
            amount_of_schedule,
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / (2 * SECOND_NS) * SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn parts_add_up() {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        let settings = Settings { connections: 10, ..Settings::new(address, Stop::Amount(1001)) };
        let parts: Vec<_> = (0..3).map(|index| WorkerPart::new(&settings, index, 3)).collect();
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [4, 3, 3]);
        assert_eq!(parts.iter().filter_map(|part| part.amount).sum::<u64>(), 1001);
        let open = Settings { pace: Pace::rate(1000.0), warmup: Duration::from_secs(1), ..settings };
        let part = WorkerPart::new(&open, 1, 3);
        assert_eq!(part.amount_of_schedule, Some(2001));
        assert_eq!(part.ends_ns, Some(2_001_000_000));
        assert_eq!(part.share, Share { first: 1, of: 3 });
    }
}
