//! Rates: how often an endpoint may be called, by all together or by each caller.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A): of each caller one number is kept, the time at which all that it has been
//! given would be used up at the rate allowed. A request moves that time on by one interval and is refused when it is more than a period
//! ahead of the clock. So a caller may use its whole count at once, and from then on has one request an interval.
//!
//! Promises: no allocation after start; memory that does not depend on how many callers there are; a caller that is forgotten
//! because there are too many is given more, never less. Each server counts for itself.

use crate::limits::{RATE_SETS, RATE_WAYS};
use crate::problem::Problem;
use forebay_http::{Request, percent_decode};
use parking_lot::Mutex;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Who shares a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Per {
    /// Everybody.
    Endpoint,
    /// Each client's address, which trusted proxies name; of IPv6 the network of 64 bits, which one customer has
    /// whole.
    Ip,
    /// Who sends the same value of this header field; those without it share one.
    Header(String),
    /// Who asks for the same: the parameters of the path.
    Path,
}

/// The rate of one endpoint.
pub struct Rate {
    per: Per,
    callers: Callers,
    began: Instant,
}

impl Rate {
    /// At most `count` requests (at least 1) in each `period`.
    pub fn new(count: u64, period: Duration, per: Per) -> Rate {
        let sets = if per == Per::Endpoint { 1 } else { RATE_SETS };
        Rate { per, callers: Callers::new(count, period, sets), began: Instant::now() }
    }

    /// Counts a request; 429 when its caller has none left. `path` holds the route's parameters.
    pub fn check(&self, request: &Request<'_>, path: &[(&str, &str)]) -> Result<(), Problem> {
        let caller = self.caller(request, path);
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
        self.callers.take(caller, now_ns).map_err(|wait| {
            // Rounded up: a client that comes back then is served.
            let wait_s = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            Problem {
                headers: vec![("Retry-After", wait_s.to_string())],
                ..Problem::new(429, "too many requests; try again later")
            }
        })
    }

    /// Who this is, as a number that nobody can choose: the hash has a key of its own.
    fn caller(&self, request: &Request<'_>, path: &[(&str, &str)]) -> u64 {
        let mut hasher = self.callers.hasher.build_hasher();
        match &self.per {
            Per::Endpoint => return 0,
            Per::Ip => match request.client().address {
                IpAddr::V4(address) => address.octets().hash(&mut hasher),
                IpAddr::V6(address) => address.octets()[..8].hash(&mut hasher),
            },
            Per::Header(name) => request.header(name).unwrap_or_default().hash(&mut hasher),
            Per::Path => {
                for (_, value) in path {
                    // Decoded, so that another spelling is no other key. What cannot be decoded is refused later.
                    match percent_decode(value) {
                        Ok(value) => value.hash(&mut hasher),
                        Err(_) => value.hash(&mut hasher),
                    }
                }
            }
        }
        hasher.finish()
    }
}

/// What is known of the callers of one endpoint.
struct Callers {
    hasher: RandomState,
    /// What one request uses up.
    interval_ns: u64,
    /// How far ahead of the clock a caller may be before its request.
    ahead_ns_max: u64,
    sets: Box<[Mutex<[Caller; RATE_WAYS]>]>,
}

#[derive(Clone, Copy, Default)]
struct Caller {
    id: u64,
    /// When everything that it was given is used up.
    used_until_ns: u64,
}

impl Callers {
    fn new(count: u64, period: Duration, sets: usize) -> Callers {
        let period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        let interval_ns = (period_ns / count.max(1)).max(1);
        Callers {
            hasher: RandomState::new(),
            interval_ns,
            ahead_ns_max: interval_ns * (count.max(1) - 1),
            sets: std::iter::repeat_with(Mutex::default).take(sets).collect(),
        }
    }

    /// Takes one request of a caller's budget, or says when there will be one.
    fn take(&self, id: u64, now_ns: u64) -> Result<(), Duration> {
        let mut set = self.sets[id as usize & (self.sets.len() - 1)].lock();
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
                Ok(())
            }
            Some(wait_ns) => Err(Duration::from_nanos(wait_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_whole_count_at_once_and_then_one_an_interval() {
        let callers = Callers::new(10, Duration::from_secs(1), 1);
        for _ in 0..10 {
            assert_eq!(callers.take(7, 5 * MS), Ok(()));
        }
        assert_eq!(callers.take(7, 5 * MS), Err(Duration::from_millis(100)));
        assert_eq!(callers.take(7, 80 * MS), Err(Duration::from_millis(25)), "a refusal costs nothing");
        assert_eq!(callers.take(7, 105 * MS), Ok(()));
        assert_eq!(callers.take(7, 105 * MS), Err(Duration::from_millis(100)));
        // Whoever was away for a period has the whole count again, and not more.
        for _ in 0..10 {
            assert_eq!(callers.take(7, 60_000 * MS), Ok(()));
        }
        assert!(callers.take(7, 60_000 * MS).is_err());
    }

    #[test]
    fn in_the_long_run_the_rate_is_what_was_asked_for() {
        let callers = Callers::new(7, Duration::from_secs(1), 1);
        let given = (0..100_000u64).filter(|ms| callers.take(1, ms * MS).is_ok()).count();
        assert!((700..=707).contains(&given), "{given} in 100 s at 7 a second");
    }

    #[test]
    fn callers_do_not_share() {
        let callers = Callers::new(1, Duration::from_secs(1), 64);
        for id in 0..64 * RATE_WAYS as u64 {
            assert_eq!(callers.take(id, MS), Ok(()), "{id}");
        }
        for id in 0..64 * RATE_WAYS as u64 {
            assert!(callers.take(id, MS).is_err(), "{id}");
        }
    }

    #[test]
    fn too_many_callers_are_forgotten_and_never_punished() {
        let callers = Callers::new(2, Duration::from_secs(1), 1);
        callers.take(1, MS).expect("the first");
        callers.take(1, MS).expect("the second");
        for id in 100..100 + 10 * RATE_WAYS as u64 {
            assert_eq!(callers.take(id, MS), Ok(()), "one that is new has its whole count: {id}");
        }
        // The one that had used most is the last that is forgotten.
        assert!(callers.take(1, MS).is_err());
    }

    #[test]
    fn the_first_request_is_given_whatever_the_clock_says() {
        let callers = Callers::new(1, Duration::from_secs(86_400), 1);
        assert_eq!(callers.take(0, 0), Ok(()));
        assert_eq!(callers.take(0, 0), Err(Duration::from_secs(86_400)));
        assert_eq!(Callers::new(1_000_000_000, Duration::from_secs(1), 1).take(0, 0), Ok(()));
    }
}
