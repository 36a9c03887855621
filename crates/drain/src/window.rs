//! The time of day in which a drain works. This file only computes with times.
//!
//! Times of day are UTC: a day has 1,440 minutes, always.

use forebay_value::Timestamp;

const MINUTE_US: i64 = 60_000_000;
const DAY_MIN: i64 = 1_440;
const DAY_US: i64 = DAY_MIN * MINUTE_US;

/// A time span of each day, in minutes after midnight, UTC. It spans midnight when it ends before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When it begins.
    pub begins_min: u16,
    /// When it ends; never the minute in which it begins.
    pub ends_min: u16,
}

/// One day's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DailyWindow {
    /// When it begins or has begun.
    pub begins: Timestamp,
    /// When it ends.
    pub ends: Timestamp,
}

impl DailyWindow {
    /// Whether it has begun.
    pub fn has_begun(&self, now: Timestamp) -> bool {
        self.begins <= now
    }
}

impl Window {
    /// The window that is open now, else the next one.
    pub fn opening(self, now: Timestamp) -> DailyWindow {
        let length_min = (i64::from(self.ends_min) - i64::from(self.begins_min)).rem_euclid(DAY_MIN);
        let midnight = now.0.div_euclid(DAY_US) * DAY_US;
        let today = midnight + i64::from(self.begins_min) * MINUTE_US;
        // Yesterday's window may still be open, today's may be over.
        let begins =
            [today - DAY_US, today].into_iter().find(|begins| begins + length_min * MINUTE_US > now.0);
        let begins = begins.unwrap_or(today + DAY_US);
        DailyWindow { begins: Timestamp(begins), ends: Timestamp(begins + length_min * MINUTE_US) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window that is open at this time, or the next one: `begins - ends`, each as day and time.
    fn at(window: (u16, u16), now: &str) -> (String, bool) {
        let now = Timestamp::parse(&format!("2026-11-{now}Z")).unwrap();
        let opening = Window { begins_min: window.0, ends_min: window.1 }.opening(now);
        let short = |time: Timestamp| time.to_string()[8..16].to_owned();
        (format!("{} - {}", short(opening.begins), short(opening.ends)), opening.has_begun(now))
    }

    #[test]
    fn a_window_within_a_day() {
        let night = (60, 300);
        for (now, expected) in [
            ("23T00:59:59.999999", ("23T01:00 - 23T05:00", false)),
            ("23T01:00:00", ("23T01:00 - 23T05:00", true)),
            ("23T04:59:59.999999", ("23T01:00 - 23T05:00", true)),
            ("23T05:00:00", ("24T01:00 - 24T05:00", false)),
        ] {
            assert_eq!(at(night, now), (expected.0.to_owned(), expected.1), "{now}");
        }
    }

    #[test]
    fn a_window_past_midnight() {
        let night = (1_320, 330);
        for (now, expected) in [
            ("23T00:00:00", ("22T22:00 - 23T05:30", true)),
            ("23T05:29:59.999999", ("22T22:00 - 23T05:30", true)),
            ("23T05:30:00", ("23T22:00 - 24T05:30", false)),
            ("23T22:00:00", ("23T22:00 - 24T05:30", true)),
            ("23T23:59:59", ("23T22:00 - 24T05:30", true)),
        ] {
            assert_eq!(at(night, now), (expected.0.to_owned(), expected.1), "{now}");
        }
    }
}
