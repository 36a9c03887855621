//! Rates: how often an endpoint may be called, by all clients together or by each caller.
//!
//! Promises that a caller that is evicted because there are too many gets a larger budget, never a smaller
//! one. Each server counts for itself unless [`SharedBudgets`] decide; even then it keeps its own count, for
//! when they do not respond.

use super::callers::Callers;
use super::matched_request::Matched;
use super::shared_budgets::{Decision, SharedBudgets};
use crate::functions::hex;
use crate::limits::RATE_SETS;
use crate::problem::Problem;
use forebay_config::model::Per;
use forebay_http::{HeaderLines, Request, percent_decode};
use ring::digest;
use serde::de::IgnoredAny;
use std::hash::{BuildHasher, Hasher};
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
