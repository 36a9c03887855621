//! The age of the oldest change that the database has not applied yet.
//!
//! The log's records have no time stamp. So the end of the log is noted periodically, with the last time at
//! which it was the end: whatever lies after it was appended later. The result is at most one interval too
//! high. For changes from before the start it is the time since the start.

use forebay_drain::Drain;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How often the end of the log is noted.
pub(super) const EVERY: Duration = Duration::from_millis(100);

/// The most notes. When a drain stalls for longer than they cover, every other note is dropped, which costs
/// some precision.
const NOTES_MAX: usize = 4096;

/// Ends of the log, each with the last time at which it was the end.
#[derive(Debug, Default)]
pub(super) struct Lag(Mutex<VecDeque<(Instant, u64)>>);

impl Lag {
    /// Notes that the log ends at `end`, and that the database has applied everything before `drained`.
    pub(super) fn note(&self, now: Instant, end: u64, drained: u64) {
        let mut notes = self.0.lock();
        if notes.is_empty() {
            notes.push_back((now, drained));
        }
        while notes.get(1).is_some_and(|(_, next)| *next <= drained) {
            notes.pop_front();
        }
        match notes.back_mut() {
            Some(last) if last.1 == end => last.0 = now,
            _ => notes.push_back((now, end)),
        }
        if notes.len() > NOTES_MAX {
            let mut place = 0;
            notes.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
    }

    /// The age of the oldest change that the database, which has applied everything before `drained`, lacks.
    pub(super) fn age(&self, now: Instant, end: u64, drained: u64) -> Duration {
        if end <= drained {
            return Duration::ZERO;
        }
        let notes = self.0.lock();
        let before = notes.iter().take_while(|(_, end)| *end <= drained).last();
        before.or(notes.front()).map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }
}

/// The end of the log, and the drain's position.
pub(super) fn ends(drain: &Drain) -> (u64, u64) {
    let state = drain.state();
    (state.position.0 + state.backlog_bytes, state.position.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_age_of_the_oldest_change_that_is_not_drained() {
        let (lag, began) = (Lag::default(), Instant::now());
        let at = |second| began + Duration::from_secs(second);
        let age = |second, end, drained| lag.age(at(second), end, drained).as_secs();
        lag.note(at(0), 0, 0);
        lag.note(at(10), 0, 0);
        assert_eq!(age(11, 0, 0), 0);
        // The first change comes between 10 and 11, the second between 14 and 15.
        lag.note(at(11), 5, 0);
        lag.note(at(14), 5, 0);
        lag.note(at(15), 9, 0);
        assert_eq!((age(20, 9, 0), age(20, 9, 5), age(20, 9, 9)), (10, 6, 0));
        lag.note(at(20), 9, 9);
        lag.note(at(21), 12, 9);
        assert_eq!(age(22, 12, 9), 2);
    }

    #[test]
    fn a_drain_that_stands_still_does_not_fill_memory() {
        let (lag, began) = (Lag::default(), Instant::now());
        for tick in 0..20_000 {
            lag.note(began + EVERY * tick, u64::from(tick), 0);
        }
        assert!(lag.0.lock().len() <= NOTES_MAX);
        assert_eq!(lag.age(began + EVERY * 20_000, 20_000, 0), EVERY * 20_000);
    }
}
