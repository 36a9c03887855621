//! The seconds of one machine, in a file until the report is made.

use crate::results::HostSecond;
use crate::spool::Spool;
use std::io;
use std::time::{Duration, Instant};

/// The seconds of one machine, and the latest of them.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The origin of the entries' times.
    base: Instant,
    /// Each with the middle of its interval, in nanoseconds.
    seconds: Spool<(u64, HostSecond)>,
    latest: Option<HostSecond>,
    failure: Option<io::Error>,
}

impl Default for Recorded {
    fn default() -> Recorded {
        Recorded { base: Instant::now(), seconds: Spool::new(), latest: None, failure: None }
    }
}

impl Recorded {
    /// Adds a second; `middle` is the middle of its interval.
    pub fn push(&mut self, middle: Instant, second: HostSecond) {
        let since = middle.saturating_duration_since(self.base);
        let entry = (u64::try_from(since.as_nanos()).unwrap_or(u64::MAX), second);
        if let Err(error) = self.seconds.push(&entry) {
            self.failure.get_or_insert(error);
        }
        self.latest = Some(entry.1);
    }

    /// The last one.
    pub fn latest(&self) -> Option<&HostSecond> {
        self.latest.as_ref()
    }

    /// All seconds.
    ///
    /// # Errors
    /// When a second could not be recorded, or cannot be read back.
    pub fn into_all(self) -> io::Result<Vec<(Instant, HostSecond)>> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let at = |(since, second)| (self.base + Duration::from_nanos(since), second);
        Ok(self.seconds.from(0)?.into_iter().map(at).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_comes_back() {
        let second = |number: u64, figures: &[(&str, f64)]| HostSecond {
            second: number,
            cpu_percent: 40.0,
            core_percents: vec![10.0; 4],
            extra: figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..HostSecond::default()
        };
        let all =
            [second(0, &[("a", 1.5), ("b", 2.0)]), second(1, &[]), second(2, &[("b", 3.0), ("c", 4e9)])];
        let mut recorded = Recorded::default();
        let now = Instant::now();
        all.iter().for_each(|second| recorded.push(now, second.clone()));
        assert_eq!(recorded.latest(), all.last());
        let (middles, seconds): (Vec<_>, Vec<_>) = recorded.into_all().unwrap().into_iter().unzip();
        assert_eq!(seconds, all);
        assert_eq!(middles, [now; 3]);
    }
}
