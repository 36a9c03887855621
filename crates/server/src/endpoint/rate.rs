//! Rates: how often an endpoint may be called, by all clients together or by each caller.
//!
//! The generic cell rate algorithm (ITU-T I.371, annex A) stores one number for each caller: the time at
//! which all requests granted so far are paid off at the configured rate. A request advances that time by one
//! interval and is refused when it is more than a period ahead of the clock. So a caller may use its whole
//! count at once, and from then on has one request an interval.
//!
//! Promises: no allocation after start; memory that does not depend on the number of callers; a caller that
//! is evicted because there are too many gets a larger budget, never a smaller one. Each server counts for
//! itself unless [`SharedBudgets`] decide; even then it keeps its own count, for when they do not respond.

use super::matched_request::Matched;
use super::shared_budgets::{Decision, SharedBudgets};
use crate::functions::hex;
use crate::limits::{RATE_SETS, RATE_WAYS};
use crate::problem::Problem;
use forebay_config::model::Per;
use forebay_http::{HeaderLines, Request, percent_decode};
use parking_lot::Mutex;
use ring::digest;
use serde::de::IgnoredAny;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A part of the Redis keys. Servers of different versions count under the same keys, so it must not change.
fn key_part(per: &Per) -> String {
    match per {
        Per::Endpoint => "endpoint".to_owned(),
        Per::Ip => "ip".to_owned(),
        Per::Header(name) => format!("header {}", name.to_ascii_lowercase()),
        Per::Claim(name) => format!("auth.{name}"),
        Per::Path => "path".to_owned(),
    }
}

/// The rate of one endpoint.
pub struct Rate {
    per: Per,
    callers: Callers,
    /// The count and the period in seconds, in the form of RateLimit-Policy.
    policy: String,
    began: Instant,
    /// Where all servers count together, and the name of this rate there.
    shared: Option<(Arc<SharedBudgets>, String)>,
}

/// A caller whose requests all servers count together.
pub struct SharedCaller {
    id: u64,
    key: Vec<u8>,
}

impl Rate {
    /// At most `count` requests (at least 1) in each `period`.
    pub fn new(count: u64, period: Duration, per: Per) -> Rate {
        let sets = if per == Per::Endpoint { 1 } else { RATE_SETS };
        let window = match (period.as_secs(), period.subsec_nanos()) {
            (period_s, 0) => format!(";w={period_s}"),
            // The field can only express whole seconds.
            _ => String::new(),
        };
        let policy = format!("\"default\";q={count}{window}");
        let callers = Callers::new(count, period, sets);
        Rate { per, callers, policy, began: Instant::now(), shared: None }
    }

    /// The same rate, counted by all servers together for the endpoint of this name.
    pub fn shared(self, budgets: Arc<SharedBudgets>, endpoint: &str) -> Rate {
        let name = format!("{endpoint} {} {}", self.policy, key_part(&self.per));
        Rate { shared: Some((budgets, name)), ..self }
    }

    /// Whether all servers count together: then [`Rate::check_shared`] must be called instead of
    /// [`Rate::check`].
    pub fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Counts a request; 429 when its caller has no budget left. Writes the caller's remaining budget into
    /// `lines` (draft-ietf-httpapi-ratelimit-headers-10).
    pub fn check(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        lines: &mut Vec<u8>,
    ) -> Result<(), Problem> {
        let decision = self.take(self.caller(request, matched)?);
        self.tell(decision, lines)
    }

    /// Like [`Rate::check`], decided by what all servers have counted.
    pub async fn check_shared(&self, caller: SharedCaller, lines: &mut Vec<u8>) -> Result<(), Problem> {
        let SharedCaller { id, key } = caller;
        // Counted locally in either case: a caller that has used up its shared budget must not get a second
        // one when this server falls back to its own count.
        let own = self.take(id);
        let Callers { interval_ns, ahead_ns_max, .. } = self.callers;
        let (interval, ahead_max) = (Duration::from_nanos(interval_ns), Duration::from_nanos(ahead_ns_max));
        let decision = match &self.shared {
            Some((budgets, _)) => budgets.take(key, interval, ahead_max).await,
            None => None,
        };
        self.tell(decision.unwrap_or(own), lines)
    }

    fn take(&self, id: u64) -> Decision {
        let now_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX / 2);
        self.callers.take(id, now_ns).map(Duration::from_nanos)
    }

    /// Writes the decision as header lines, and as a 429 when it refuses.
    fn tell(&self, decision: Decision, lines: &mut Vec<u8>) -> Result<(), Problem> {
        let (left, whole_in) = match decision {
            Ok(ahead) => (self.callers.left(u64::try_from(ahead.as_nanos()).unwrap_or(u64::MAX)), ahead),
            Err(wait) => (0, wait),
        };
        // Rounded up, so that a client that returns after this many seconds is served.
        let wait_s = whole_in.as_secs() + u64::from(whole_in.subsec_nanos() > 0);
        let mut writer = HeaderLines::new(lines);
        let standing = [
            ("RateLimit-Policy", self.policy.clone()),
            ("RateLimit", format!("\"default\";r={left};t={wait_s}")),
        ];
        for (name, value) in standing {
            writer.add(name, value).expect("fields of our own are well-formed");
        }
        decision.map(drop).map_err(|_| Problem {
            headers: vec![("Retry-After", wait_s.to_string())],
            ..Problem::new(429, "too many requests; try again later")
        })
    }

    /// A hash of the caller. The hash is keyed, so no client can choose its value.
    fn caller(&self, request: &Request<'_>, matched: Matched<'_>) -> Result<u64, Problem> {
        if self.per == Per::Endpoint {
            return Ok(0);
        }
        let mut hasher = self.callers.hasher.build_hasher();
        self.each_part(request, matched, |part| {
            hasher.write_usize(part.len());
            hasher.write(part);
        })?;
        Ok(hasher.finish())
    }

    /// The caller of a rate that all servers count, under the same key on each of them. The key has 128 bits
    /// of a SHA-256, so no client can construct two callers with one key.
    pub fn shared_caller(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
    ) -> Result<SharedCaller, Problem> {
        let id = self.caller(request, matched)?;
        let (root, name) = self.shared.as_ref().map_or(("", ""), |(budgets, name)| (budgets.root(), name));
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        add(name.as_bytes());
        self.each_part(request, matched, add)?;
        let hash = hex(&context.finish().as_ref()[..16]);
        Ok(SharedCaller { id, key: format!("{root}{hash}").into_bytes() })
    }

    /// Passes each part that identifies a caller to `add`.
    #[inline(always)]
    fn each_part(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        mut add: impl FnMut(&[u8]),
    ) -> Result<(), Problem> {
        match &self.per {
            Per::Endpoint => {}
            Per::Ip => match request.client().address {
                IpAddr::V4(address) => add(&address.octets()),
                IpAddr::V6(address) => add(&address.octets()[..8]),
            },
            Per::Claim(name) => {
                add(matched.identity.map_or("", |identity| &identity.auth).as_bytes());
                add(single(name, matched.claim(name)?)?.as_bytes());
            }
            Per::Header(name) => add(request.header(name).unwrap_or_default()),
            Per::Path => {
                for (_, value) in matched.path {
                    // Decoded, so that another spelling is the same key. A value that cannot be decoded is
                    // refused later.
                    match percent_decode(value) {
                        Ok(value) => add(value.as_bytes()),
                        Err(_) => add(value.as_bytes()),
                    }
                }
            }
        }
        Ok(())
    }
}

/// A claim that is a single value; 403 for a list or an object, which could be written in several ways, each
/// with its own budget.
fn single<'a>(name: &str, value: &'a str) -> Result<&'a str, Problem> {
    let is_several = value.starts_with(['[', '{']) && serde_json::from_str::<IgnoredAny>(value).is_ok();
    match is_several {
        false => Ok(value),
        true => Err(Problem::new(403, format!("the claim `{name}` is not one value, which the rate needs"))),
    }
}

/// The callers of one endpoint.
struct Callers {
    hasher: RandomState,
    /// The time that one request uses up.
    interval_ns: u64,
    /// How far ahead of the clock a caller may be before its request.
    ahead_ns_max: u64,
    sets: Box<[Mutex<[Caller; RATE_WAYS]>]>,
}

#[derive(Clone, Copy, Default)]
struct Caller {
    id: u64,
    /// When everything that the caller was granted is used up.
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

    /// The number of requests left to a caller that is `ahead_ns` ahead of the clock.
    fn left(&self, ahead_ns: u64) -> u64 {
        self.ahead_ns_max.checked_sub(ahead_ns).map_or(0, |rest_ns| rest_ns / self.interval_ns + 1)
    }

    /// Takes one request of a caller's budget and returns how far ahead of the clock the caller is then, in
    /// nanoseconds; the error is the time until the next request will be granted.
    fn take(&self, id: u64, now_ns: u64) -> Result<u64, Duration> {
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
    fn a_claim_that_is_a_list_is_no_caller() {
        for (value, is_single) in [
            ("acme", true),
            ("5", true),
            ("true", true),
            ("", true),
            ("[acme] inc", true),
            ("[", true),
            ("[]", false),
            (r#"["acme"]"#, false),
            (r#"["acme","other"]"#, false),
            (r#"{"org":"acme"}"#, false),
        ] {
            let found = single("org", value);
            assert_eq!(found.as_ref().ok() == Some(&value), is_single, "{value}");
            assert!(is_single || found.is_err_and(|problem| problem.status == 403), "{value}");
        }
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
