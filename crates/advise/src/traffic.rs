//! The requests by route, and how many of them a cache in front would have answered.

use crate::access_log::Logged;
use crate::route;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The lifetimes of answers in seconds, in the simulated caches.
pub const LIVES_S: [i64; 3] = [1, 10, 60];

/// The logged requests, read line by line in the order of time.
#[derive(Default)]
pub struct Traffic {
    routes: HashMap<(String, Vec<String>), Route>,
    targets: HashMap<u64, PathTraffic>,
    /// Lines that are a request.
    pub requests: u64,
    /// Lines that are not a request.
    pub others: u64,
    first_ms: Option<i64>,
    last_ms: i64,
}

/// The state of one path and query.
#[derive(Default)]
struct PathTraffic {
    /// When each simulated cache last fetched it; `None`: not yet.
    filled_ms: [Option<i64>; LIVES_S.len()],
    second: Option<i64>,
}

/// The counts of one route.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// The number of requests.
    pub requests: u64,
    /// Requests that were answered with 2xx or 304.
    pub good: u64,
    /// Requests for a path and query that an earlier request asked for in the same second.
    pub at_one_time: u64,
    /// Requests that a cache would have answered, by the lifetime of its answers.
    pub hits: [u64; LIVES_S.len()],
    /// Requests whose user is logged.
    pub identified: u64,
    /// The bytes of all bodies.
    pub bytes: u64,
    /// The summed duration of the requests whose duration is logged.
    pub timed_ms: f64,
    /// The number of requests whose duration is logged.
    pub timed: u64,
    /// The most requests in a second.
    pub peak_per_s: u64,
    second: i64,
    in_second: u64,
}

impl Traffic {
    /// Counts a line.
    pub fn add(&mut self, line: &str) {
        let Some(logged) = crate::access_log::read(line) else {
            self.others += u64::from(!line.trim().is_empty());
            return;
        };
        self.requests += 1;
        self.first_ms.get_or_insert(logged.at_ms);
        self.last_ms = self.last_ms.max(logged.at_ms);
        let target = self.targets.entry(hash(&logged)).or_default();
        let key = (logged.method.clone(), route::parts(&logged.target));
        self.routes.entry(key).or_default().add(&logged, target);
    }

    /// From the first to the last request, in seconds; at least one.
    pub fn seconds(&self) -> f64 {
        let first = self.first_ms.unwrap_or(self.last_ms);
        ((self.last_ms - first) as f64 / 1e3).max(1.0)
    }

    /// All routes with their methods, those with the most requests first. `None`: paths that no config can
    /// name.
    pub fn routes(mut self) -> Vec<(String, Option<String>, Route)> {
        self.merge_siblings();
        let shown =
            |((method, parts), route): ((String, Vec<String>), Route)| (method, route::shown(&parts), route);
        let mut routes: Vec<_> = self.routes.into_iter().map(shown).collect();
        routes.sort_by(|a, b| (b.2.requests, &a.0, &a.1).cmp(&(a.2.requests, &b.0, &b.1)));
        routes
    }

    /// Merges routes that differ in one part.
    fn merge_siblings(&mut self) {
        let kinds: std::collections::HashSet<(String, usize)> =
            self.routes.keys().map(|(method, parts)| (method.clone(), parts.len())).collect();
        for (method, length) in kinds {
            loop {
                let is_of = |key: &&(String, Vec<String>)| key.0 == method && key.1.len() == length;
                let found: Vec<&[String]> =
                    self.routes.keys().filter(is_of).map(|key| key.1.as_slice()).collect();
                let Some(at) = route::varying(&found) else { break };
                let of = std::mem::take(&mut self.routes);
                for ((other_method, mut parts), route) in of {
                    if other_method == method && parts.len() == length {
                        parts[at] = route::any();
                    }
                    self.routes.entry((other_method, parts)).or_default().merge(&route);
                }
            }
        }
    }
}

fn hash(logged: &Logged) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&logged.method, &logged.target).hash(&mut hasher);
    hasher.finish()
}

impl Route {
    fn add(&mut self, logged: &Logged, target: &mut PathTraffic) {
        let second = logged.at_ms.div_euclid(1_000);
        self.requests += 1;
        self.bytes += logged.bytes;
        self.identified += u64::from(logged.is_identified);
        if let Some(duration_ms) = logged.duration_ms {
            self.timed += 1;
            self.timed_ms += duration_ms;
        }
        if second != self.second {
            (self.second, self.in_second) = (second, 0);
        }
        self.in_second += 1;
        self.peak_per_s = self.peak_per_s.max(self.in_second);
        if !(200..300).contains(&logged.status) && logged.status != 304 {
            return;
        }
        self.good += 1;
        self.at_one_time += u64::from(target.second == Some(second));
        target.second = Some(second);
        for (index, life_s) in LIVES_S.into_iter().enumerate() {
            match target.filled_ms[index] {
                Some(filled_ms) if logged.at_ms < filled_ms + life_s * 1_000 => self.hits[index] += 1,
                _ => target.filled_ms[index] = Some(logged.at_ms),
            }
        }
    }

    /// Adds the counts of another route. The higher of the two peaks is taken.
    fn merge(&mut self, other: &Route) {
        self.requests += other.requests;
        self.good += other.good;
        self.at_one_time += other.at_one_time;
        self.hits.iter_mut().zip(other.hits).for_each(|(own, other)| *own += other);
        self.identified += other.identified;
        self.bytes += other.bytes;
        self.timed_ms += other.timed_ms;
        self.timed += other.timed;
        self.peak_per_s = self.peak_per_s.max(other.peak_per_s);
    }

    /// The mean duration of a request; `None` if no duration is logged.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.timed_ms / self.timed as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(second: u32, method: &str, target: &str, status: u16) -> String {
        format!(
            "::1 - - [10/Oct/2000:13:55:{second:02} +0000] \"{method} {target} HTTP/1.1\" {status} 100 \"-\" \"x\" 0.010"
        )
    }

    #[test]
    fn what_a_cache_would_have_answered() {
        let mut traffic = Traffic::default();
        // Three at one time, one 5 s later, one 20 s later; another item; one that failed.
        for (second, target, status) in [
            (0, "/items/1", 200),
            (0, "/items/1", 200),
            (0, "/items/1", 200),
            (5, "/items/1", 200),
            (20, "/items/1", 200),
            (20, "/items/2", 200),
            (21, "/items/2", 500),
        ] {
            traffic.add(&line(second, "GET", target, status));
        }
        traffic.add("noise");
        assert_eq!((traffic.requests, traffic.others, traffic.seconds()), (7, 1, 21.0));
        let routes = traffic.routes();
        let [(method, shown, route)] = &routes[..] else { panic!("{routes:?}") };
        assert_eq!((method.as_str(), shown.as_deref()), ("GET", Some("/items/{id}")));
        assert_eq!((route.requests, route.good, route.at_one_time, route.peak_per_s), (7, 6, 2, 3));
        assert_eq!(route.hits, [2, 3, 4]);
        assert!(route.mean_ms().is_some_and(|mean| (mean - 10.0).abs() < 1e-9));
    }

    #[test]
    fn names_become_a_parameter() {
        let mut traffic = Traffic::default();
        for name in 0..26 {
            traffic.add(&line(0, "GET", &format!("/shop/{}", char::from(b'a' + name)), 200));
        }
        traffic.add(&line(0, "POST", "/shop/a", 200));
        let shown: Vec<_> =
            traffic.routes().into_iter().map(|(method, route, of)| (method, route, of.requests)).collect();
        assert_eq!(
            shown,
            [("GET".into(), Some("/shop/{id}".into()), 26), ("POST".into(), Some("/shop/a".into()), 1)]
        );
    }
}
