//! Budgets of callers.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A) stores one number for each caller: the time at
//! which all requests granted so far are paid off at the configured rate. A request advances that time by one
//! interval and is refused when it is more than a period ahead of the clock. So a caller may use its whole
//! count at once, and from then on has one request an interval.
//!
//! Promises: no allocation after start; memory that does not depend on the number of callers.

use crate::limits::RATE_WAYS;
use parking_lot::Mutex;
use std::hash::RandomState;
use std::time::Duration;

/// Callers, each with its budget.
pub struct Callers {
    pub hasher: RandomState,
    /// The time that one request uses up.
    pub interval_ns: u64,
    /// How far ahead of the clock a caller may be before its request.
    pub ahead_ns_max: u64,
    sets: Box<[Mutex<[Caller; RATE_WAYS]>]>,
}

#[derive(Clone, Copy, Default)]
struct Caller {
    id: u64,
    /// When everything that the caller was granted is used up.
    used_until_ns: u64,
}

impl Callers {
    /// At most `count` requests of a caller (at least 1) in each `period`. It remembers `sets` sets of
    /// callers, a power of two.
    pub fn new(count: u64, period: Duration, sets: usize) -> Callers {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let interval_ns = (period_ns / count.max(1)).max(1);
        Callers {
            hasher: RandomState::new(),
            interval_ns,
            ahead_ns_max: interval_ns * (count.max(1) - 1),
            sets: std::iter::repeat_with(Mutex::default).take(sets).collect(),
        }
    }

    /// The number of requests left to a caller that is `ahead_ns` ahead of the clock.
    pub fn left(&self, ahead_ns: u64) -> u64 {
        self.ahead_ns_max.checked_sub(ahead_ns).map_or(0, |rest_ns| rest_ns / self.interval_ns + 1)
    }

    /// How long a caller must wait until a request would be granted; nothing is taken.
    pub fn wait(&self, id: u64, now_ns: u64) -> Option<Duration> {
        let set = self.set(id).lock();
        let caller = set.iter().find(|caller| caller.id == id)?;
        let ahead_ns = caller.used_until_ns.saturating_sub(now_ns);
        ahead_ns.checked_sub(self.ahead_ns_max).filter(|wait_ns| *wait_ns > 0).map(Duration::from_nanos)
    }

    fn set(&self, id: u64) -> &Mutex<[Caller; RATE_WAYS]> {
        &self.sets[id as usize & (self.sets.len() - 1)]
    }

    /// Takes one request of a caller's budget and returns how far ahead of the clock the caller is then, in
    /// nanoseconds; the error is the time until the next request will be granted.
    pub fn take(&self, id: u64, now_ns: u64) -> Result<u64, Duration> {
        let mut set = self.set(id).lock();
        let caller = match set.iter().position(|caller| caller.id == id) {
            Some(index) => &mut set[index],
            None => {
                let idlest = set.iter_mut().min_by_key(|caller| caller.used_until_ns);
                let idlest = idlest.expect("a set has at least one place");
                *idlest = Caller { id, used_until_ns: 0 };
                idlest
            }
        };
        let used_until_ns = caller.used_until_ns.max(now_ns);
        match (used_until_ns - now_ns).checked_sub(self.ahead_ns_max) {
            None | Some(0) => {
                caller.used_until_ns = used_until_ns + self.interval_ns;
                Ok(caller.used_until_ns - now_ns)
            }
            Some(wait_ns) => Err(Duration::from_nanos(wait_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn take(callers: &Callers, id: u64, now_ns: u64) -> Result<(), Duration> {
        callers.take(id, now_ns).map(drop)
    }

    #[test]
    fn what_is_left_is_what_is_given() {
        let callers = Callers::new(5, Duration::from_secs(1), 1);
        for left in [4, 3, 2, 1, 0] {
            assert_eq!(callers.take(7, MS).map(|ahead_ns| callers.left(ahead_ns)), Ok(left));
        }
        assert!(take(&callers, 7, MS).is_err());
        assert_eq!(callers.take(7, 401 * MS).map(|ahead_ns| callers.left(ahead_ns)), Ok(1));
    }

    #[test]
    fn a_whole_count_at_once_and_then_one_an_interval() {
        let callers = Callers::new(10, Duration::from_secs(1), 1);
        for _ in 0..10 {
            assert_eq!(take(&callers, 7, 5 * MS), Ok(()));
        }
        assert_eq!(take(&callers, 7, 5 * MS), Err(Duration::from_millis(100)));
        assert_eq!(take(&callers, 7, 80 * MS), Err(Duration::from_millis(25)), "a refusal costs nothing");
        assert_eq!(callers.wait(7, 80 * MS), Some(Duration::from_millis(25)));
        assert_eq!((callers.wait(7, 105 * MS), callers.wait(8, 80 * MS)), (None, None));
        assert_eq!(take(&callers, 7, 105 * MS), Ok(()));
        assert_eq!(take(&callers, 7, 105 * MS), Err(Duration::from_millis(100)));
        // A caller that was idle for a period has the whole count again, and not more.
        for _ in 0..10 {
            assert_eq!(take(&callers, 7, 60_000 * MS), Ok(()));
        }
        assert!(take(&callers, 7, 60_000 * MS).is_err());
    }

    #[test]
    fn in_the_long_run_the_rate_is_what_was_asked_for() {
        let callers = Callers::new(7, Duration::from_secs(1), 1);
        let given = (0..100_000u64).filter(|ms| take(&callers, 1, ms * MS).is_ok()).count();
        assert!((700..=707).contains(&given), "{given} in 100 s at 7 a second");
    }

    #[test]
    fn callers_do_not_share() {
        let callers = Callers::new(1, Duration::from_secs(1), 64);
        for id in 0..64 * RATE_WAYS as u64 {
            assert_eq!(take(&callers, id, MS), Ok(()), "{id}");
        }
        for id in 0..64 * RATE_WAYS as u64 {
            assert!(take(&callers, id, MS).is_err(), "{id}");
        }
    }

    #[test]
    fn too_many_callers_are_forgotten_and_never_punished() {
        let callers = Callers::new(2, Duration::from_secs(1), 1);
        take(&callers, 1, MS).expect("the first");
        take(&callers, 1, MS).expect("the second");
        for id in 100..100 + 10 * RATE_WAYS as u64 {
            assert_eq!(take(&callers, id, MS), Ok(()), "one that is new has its whole count: {id}");
        }
        // The caller that had used most is evicted last.
        assert!(take(&callers, 1, MS).is_err());
    }

    #[test]
    fn the_first_request_is_given_whatever_the_clock_says() {
        let callers = Callers::new(1, Duration::from_secs(86_400), 1);
        assert_eq!(take(&callers, 0, 0), Ok(()));
        assert_eq!(take(&callers, 0, 0), Err(Duration::from_secs(86_400)));
        assert_eq!(take(&Callers::new(1_000_000_000, Duration::from_secs(1), 1), 0, 0), Ok(()));
    }
}
