//! When requests are due: arithmetic alone, no clock.
//!
//! Request `i` (from 0) is due at the first nanosecond at which the integral of the rate reaches
//! `i`. Nothing that happens during the run moves a time due: a generator that pauses sends late,
//! and its latencies count from the time due.

use crate::limits::RATE_PER_S_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Requests a second, stored in thousandths, so that times due are computed in integers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Rate {
    per_1000_s: u64,
}

impl Rate {
    /// No requests.
    pub const ZERO: Rate = Rate { per_1000_s: 0 };

    /// To a thousandth; `None` when negative, not a number, or above a billion.
    pub fn per_s(rate: f64) -> Option<Rate> {
        let fits = rate.is_finite() && (0.0..=RATE_PER_S_MAX).contains(&rate);
        fits.then(|| Rate { per_1000_s: (rate * 1000.0).round() as u64 })
    }

    /// Requests a second.
    pub fn as_per_s(self) -> f64 {
        self.per_1000_s as f64 / 1000.0
    }

    /// When request `index` is due, in nanoseconds from the first one.
    fn due_ns(self, index: u64) -> u64 {
        let exact = u128::from(index) * 1000 * u128::from(SECOND_NS) / u128::from(self.per_1000_s.max(1));
        u64::try_from(exact).unwrap_or(u64::MAX)
    }

    /// How many requests are due within `ns` nanoseconds.
    fn count_within(self, ns: u64) -> u64 {
        let exact = u128::from(ns) * u128::from(self.per_1000_s);
        u64::try_from(exact.div_ceil(1000 * u128::from(SECOND_NS))).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", self.as_per_s())
    }
}

/// A period in which the rate changes linearly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RateStage {
    /// At its beginning.
    pub from: Rate,
    /// At its end.
    pub to: Rate,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
}

impl RateStage {
    /// Requests of the stage as a real number: the area below the line.
    fn area(&self) -> f64 {
        (self.from.as_per_s() + self.to.as_per_s()) / 2.0 * (self.duration_ns as f64 / SECOND_NS as f64)
    }

    /// When the area below the line reaches `area`, in nanoseconds from the beginning.
    fn reaches_ns(&self, area: f64) -> u64 {
        if self.from == self.to {
            return (area / self.from.as_per_s() * SECOND_NS as f64).round() as u64;
        }
        // area = from·t + slope·t²/2, solved in the form that does not cancel.
        let seconds = self.duration_ns as f64 / SECOND_NS as f64;
        let (from, slope) = (self.from.as_per_s(), (self.to.as_per_s() - self.from.as_per_s()) / seconds);
        let root = (from * from + 2.0 * slope * area).max(0.0).sqrt();
        let at = if area <= 0.0 { 0.0 } else { 2.0 * area / (from + root) };
        ((at * SECOND_NS as f64).round() as u64).min(self.duration_ns)
    }
}

/// All times due of an open model.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Schedule {
    /// One rate, without end: time or amount ends the run.
    Constant(Rate),
    /// One stage after the other, and then the end.
    Stages(Vec<RateStage>),
}

impl Schedule {
    /// When request `index` is due, in nanoseconds from the start; `None` when there is no such request.
    pub fn due_ns(&self, index: u64) -> Option<u64> {
        match self {
            Schedule::Constant(rate) => Some(rate.due_ns(index)),
            Schedule::Stages(stages) => {
                let (mut area, mut start_ns) = (0.0, 0);
                for stage in stages {
                    let end = area + stage.area();
                    // A request that is due when the stage ends belongs to the next one, at its
                    // first nanosecond.
                    if (index as f64) < end - 1e-9 {
                        return Some(start_ns + stage.reaches_ns(index as f64 - area));
                    }
                    area = end;
                    start_ns += stage.duration_ns;
                }
                None
            }
        }
    }

    /// How many requests are due within the first `ns` nanoseconds.
    pub fn count_within(&self, ns: u64) -> u64 {
        match self {
            Schedule::Constant(rate) => rate.count_within(ns),
            Schedule::Stages(_) => {
                // Binary search for the first index that is due too late: times due rise with the
                // index.
                let (mut low, mut high) = (0, self.total().unwrap_or(u64::MAX));
                while low < high {
                    let middle = low + (high - low) / 2;
                    if self.due_ns(middle).is_some_and(|due| due < ns) {
                        low = middle + 1
                    } else {
                        high = middle
                    }
                }
                low
            }
        }
    }

    /// How many requests there are; `None` without end.
    pub fn total(&self) -> Option<u64> {
        match self {
            Schedule::Constant(_) => None,
            Schedule::Stages(stages) => {
                let area: f64 = stages.iter().map(RateStage::area).sum();
                Some((area - 1e-9).ceil().max(0.0) as u64)
            }
        }
    }

    /// How long it lasts; `None` without end.
    pub fn duration_ns(&self) -> Option<u64> {
        match self {
            Schedule::Constant(_) => None,
            Schedule::Stages(stages) => Some(stages.iter().map(|stage| stage.duration_ns).sum()),
        }
    }

    /// The highest rate.
    pub fn highest(&self) -> Rate {
        match self {
            Schedule::Constant(rate) => *rate,
            Schedule::Stages(stages) => {
                stages.iter().map(|stage| stage.from.max(stage.to)).max().unwrap_or(Rate::ZERO)
            }
        }
    }
}

/// The part of one schedule that one worker sends: every `of`th request, beginning with `first`.
/// All parts together are the whole schedule, with the same times due as with one sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Share {
    /// From 0.
    pub first: u64,
    /// At least 1.
    pub of: u64,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { first: 0, of: 1 };

    /// The part of this share that worker `index` of `workers` sends.
    pub fn part(self, index: u64, workers: u64) -> Share {
        Share { first: self.first + self.of * index, of: self.of * workers }
    }

    /// How many of the first `count` requests are in it.
    pub fn of_count(self, count: u64) -> u64 {
        if count > self.first { (count - self.first).div_ceil(self.of) } else { 0 }
    }
}

/// Walks through a share.
#[derive(Clone, Debug)]
pub struct Arrivals {
    schedule: Schedule,
    share: Share,
    /// No request from this index on, nor due at this time or later.
    end: u64,
    index: u64,
    next_ns: Option<u64>,
}

impl Arrivals {
    /// `amount`: only this many of all requests of the schedule; `duration_ns`: only those due
    /// before.
    pub fn new(schedule: Schedule, share: Share, amount: Option<u64>, duration_ns: Option<u64>) -> Arrivals {
        let mut end = amount.unwrap_or(u64::MAX).min(schedule.total().unwrap_or(u64::MAX));
        if let Some(ns) = duration_ns {
            end = end.min(schedule.count_within(ns));
        }
        let mut arrivals = Arrivals { schedule, share, end, index: share.first, next_ns: None };
        arrivals.look();
        arrivals
    }

    fn look(&mut self) {
        self.next_ns = if self.index < self.end { self.schedule.due_ns(self.index) } else { None };
    }

    /// When the next one is due; `None` when there is none left.
    pub fn peek_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes the next request if it is due by `now_ns`; returns its time due.
    pub fn take(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next_ns.filter(|due| *due <= now_ns)?;
        self.index = self.index.saturating_add(self.share.of);
        self.look();
        Some(due)
    }

    /// How many requests are due by `now_ns` and have not been taken.
    pub fn overdue(&self, now_ns: u64) -> u64 {
        let due = self.schedule.count_within(now_ns.saturating_add(1)).min(self.end);
        self.share.of_count(due).saturating_sub(self.share.of_count(self.index))
    }

    /// How many requests are due from `since_ns` to `now_ns` and have not been taken.
    pub fn overdue_since(&self, since_ns: u64, now_ns: u64) -> u64 {
        let before = self.schedule.count_within(since_ns).min(self.end).max(self.index);
        let due = self.schedule.count_within(now_ns.saturating_add(1)).min(self.end);
        self.share.of_count(due).saturating_sub(self.share.of_count(before))
    }
}
