//! The results of a run: written by engines and agents, merged by controllers, read by reports.
//!
//! `--json` writes their JSON (serde). Two results merge exactly: counts add, histograms add bucket
//! for bucket, seconds add by their number. `sent = completed + errors + timeouts + in_flight`
//! holds in a result, in each of its endpoints, and after every merge.

mod counts;
mod error_kind;
mod hosts;
mod live;
mod model;
mod path;
mod rates;
mod second;

pub use counts::{Bytes, Connects, Requests};
pub use error_kind::ErrorKind;
pub use hosts::{Agent, Host, HostSecond, Limit, Role, Verdict};
pub use live::Live;
pub use model::Model;
pub use path::Path;
pub use rates::Rates;
pub use second::Second;

use crate::percentiles::{Latency, add_counts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of the JSON.
pub const FORMAT: u32 = 1;

/// One kind of request of a plan.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Endpoint {
    /// As the plan names it, or `METHOD /path`.
    pub name: String,
    /// The request counts.
    pub requests: Requests,
    /// From the time sent (closed) or due (open) to the answer.
    pub latency_ms: Latency,
    /// Of its answers and requests.
    pub bytes: Bytes,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests lost, by kind.
    pub errors_by_kind: BTreeMap<ErrorKind, u64>,
}

/// How the load was made.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// Connections over all workers and agents.
    pub connections: u64,
    /// Requests under way on each.
    pub pipelining: u64,
    /// Threads.
    pub workers: u64,
    /// Open model: the rate asked for, over all agents; with stages the highest.
    pub rate_per_s: Option<f64>,
    /// How long requests were to be sent, without warm-up, when time ended the run.
    pub planned_s: Option<f64>,
    /// How many were to be sent, when their number ended the run.
    pub amount: Option<u64>,
    /// How long an answer may take.
    pub timeout_s: f64,
    /// How long the load took to rise to its full height; part of the figures unless warm-up cuts it.
    pub ramp_s: f64,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The version of this shape: [`FORMAT`] when this program wrote it.
    pub format: u32,
    /// What was typed, the program first.
    pub command: Vec<String>,
    /// Labels that distinguish the run from others: `--label`, and `profile`.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The URL.
    pub target: String,
    /// When the first request was due, in milliseconds of Unix time (warm-up included).
    pub started_at_ms: u64,
    /// Closed or open.
    pub model: Model,
    /// How the load was made.
    pub load: Load,
    /// The warm-up: not part of the figures below, except `connects`.
    pub warmup_s: f64,
    /// How long requests were sent; with an amount, until the last answer.
    pub duration_s: f64,
    /// `duration_s`, and the wait for answers afterwards.
    pub elapsed_s: f64,
    /// The request counts.
    pub requests: Requests,
    /// From the time sent (closed) or due (open) to the answer.
    pub latency_ms: Latency,
    /// Open model: the same answers from the time their requests were really sent, which hides
    /// stalls. For comparison.
    pub latency_from_sent_ms: Option<Latency>,
    /// On the wire.
    pub bytes: Bytes,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests lost, and attempts to connect that failed, by kind.
    pub errors_by_kind: BTreeMap<ErrorKind, u64>,
    /// The first malformed answer: why it is malformed, and how it began.
    pub first_malformed: Option<String>,
    /// Connections, failed attempts and reconnects.
    pub connects: Connects,
    /// The counts and latencies of each kind of request, in the order of the plan.
    pub endpoints: Vec<Endpoint>,
    /// By the second, without gaps.
    pub seconds: Vec<Second>,
    /// What the network between testers and servers carried before the run.
    #[serde(default)]
    pub paths: Vec<Path>,
    /// Machines that were watched.
    pub hosts: Vec<Host>,
    /// What ran out.
    pub verdict: Option<Verdict>,
    /// The agents of a distributed run.
    pub agents: Vec<Agent>,
    /// Whether the run reached its end and all results were received.
    pub complete: bool,
    /// Why not.
    pub partial_reason: Option<String>,
    /// Sentences that every report must show, such as that the rate asked for was not reached.
    pub notes: Vec<String>,
}

impl Default for Results {
    fn default() -> Results {
        Results {
            format: FORMAT,
            command: Vec::new(),
            labels: BTreeMap::new(),
            target: String::new(),
            started_at_ms: 0,
            model: Model::Closed,
            load: Load::default(),
            warmup_s: 0.0,
            duration_s: 0.0,
            elapsed_s: 0.0,
            requests: Requests::default(),
            latency_ms: Latency::new(),
            latency_from_sent_ms: None,
            bytes: Bytes::default(),
            statuses: BTreeMap::new(),
            errors_by_kind: BTreeMap::new(),
            first_malformed: None,
            connects: Connects::default(),
            endpoints: Vec::new(),
            seconds: Vec::new(),
            paths: Vec::new(),
            hosts: Vec::new(),
            verdict: None,
            agents: Vec::new(),
            complete: true,
            partial_reason: None,
            notes: Vec::new(),
        }
    }
}

impl Results {
    /// Whole seconds of the time of sending: an incomplete last second, and the seconds after it,
    /// would look like a drop.
    pub fn whole_seconds(&self) -> &[Second] {
        let whole = (self.duration_s + 1e-6) as usize;
        if whole == 0 { &self.seconds } else { &self.seconds[..whole.min(self.seconds.len())] }
    }

    /// Answers a second, over whole seconds.
    pub fn request_rates(&self) -> Rates {
        Rates::of(self.whole_seconds().iter().map(|second| second.completed as f64))
    }

    /// Bytes read a second, over whole seconds.
    pub fn read_rates(&self) -> Rates {
        Rates::of(self.whole_seconds().iter().map(|second| second.bytes.read as f64))
    }

    /// Adds a part of the same run: that of another worker or agent.
    pub fn merge(&mut self, other: &Results) {
        self.duration_s = self.duration_s.max(other.duration_s);
        self.elapsed_s = self.elapsed_s.max(other.elapsed_s);
        self.started_at_ms = match self.started_at_ms {
            0 => other.started_at_ms,
            own => own.min(other.started_at_ms),
        };
        self.merge_load(&other.load);
        self.requests.merge(&other.requests);
        self.latency_ms.merge(&other.latency_ms);
        match (&mut self.latency_from_sent_ms, &other.latency_from_sent_ms) {
            (Some(own), Some(others)) => own.merge(others),
            (own @ None, Some(others)) => *own = Some(others.clone()),
            (_, None) => {}
        }
        self.bytes.merge(other.bytes);
        add_counts(&mut self.statuses, &other.statuses);
        add_counts(&mut self.errors_by_kind, &other.errors_by_kind);
        if self.first_malformed.is_none() {
            self.first_malformed.clone_from(&other.first_malformed);
        }
        self.connects.made += other.connects.made;
        self.connects.failed += other.connects.failed;
        self.connects.reconnects += other.connects.reconnects;
        self.connects.open_max += other.connects.open_max;
        self.merge_endpoints(&other.endpoints);
        self.merge_seconds(&other.seconds);
        self.paths.extend_from_slice(&other.paths);
        self.hosts.extend_from_slice(&other.hosts);
        self.agents.extend_from_slice(&other.agents);
        self.complete &= other.complete;
        if self.partial_reason.is_none() {
            self.partial_reason.clone_from(&other.partial_reason);
        }
        for note in &other.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        self.settle();
    }

    fn merge_load(&mut self, other: &Load) {
        let load = &mut self.load;
        load.connections += other.connections;
        load.workers += other.workers;
        load.pipelining = load.pipelining.max(other.pipelining);
        load.rate_per_s = match (load.rate_per_s, other.rate_per_s) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
        load.amount = match (load.amount, other.amount) {
            (Some(own), Some(others)) => Some(own + others),
            (own, others) => own.or(others),
        };
        load.planned_s = load.planned_s.or(other.planned_s);
        load.timeout_s = load.timeout_s.max(other.timeout_s);
        load.ramp_s = load.ramp_s.max(other.ramp_s);
    }

    fn merge_endpoints(&mut self, others: &[Endpoint]) {
        for other in others {
            let Some(own) = self.endpoints.iter_mut().find(|own| own.name == other.name) else {
                self.endpoints.push(other.clone());
                continue;
            };
            own.requests.merge(&other.requests);
            own.latency_ms.merge(&other.latency_ms);
            own.bytes.merge(other.bytes);
            add_counts(&mut own.statuses, &other.statuses);
            add_counts(&mut own.errors_by_kind, &other.errors_by_kind);
        }
    }

    /// Adds a kind of request, and adds its counts to the totals.
    pub(crate) fn add_endpoint(&mut self, endpoint: Endpoint) {
        self.requests.merge(&endpoint.requests);
        self.latency_ms.merge(&endpoint.latency_ms);
        add_counts(&mut self.statuses, &endpoint.statuses);
        add_counts(&mut self.errors_by_kind, &endpoint.errors_by_kind);
        self.endpoints.push(endpoint);
    }

    fn merge_seconds(&mut self, others: &[Second]) {
        for other in others {
            self.second(other.second).merge(other);
        }
    }

    /// The entry of a second; missing ones up to it are added.
    pub fn second(&mut self, number: u64) -> &mut Second {
        while (self.seconds.len() as u64) <= number {
            self.seconds.push(Second { second: self.seconds.len() as u64, ..Second::default() });
        }
        &mut self.seconds[number as usize]
    }

    /// Recomputes the rates from counts and duration. Engines call it once at the end;
    /// [`Results::merge`] does.
    pub fn settle(&mut self) {
        self.requests.settle(self.model, self.duration_s);
        for endpoint in &mut self.endpoints {
            endpoint.requests.settle(self.model, self.duration_s);
        }
    }

    /// Answers with that status.
    pub fn status(&self, status: u16) -> u64 {
        self.statuses.get(&status).copied().unwrap_or(0)
    }

    /// Errors of that kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors_by_kind.get(&kind).copied().unwrap_or(0)
    }

    /// Whether every request that was due was sent and answered with a status that was expected.
    pub fn is_clean(&self) -> bool {
        let requests = &self.requests;
        requests.completed == requests.sent
            && requests.never_sent == 0
            && requests.unexpected == 0
            && self.errors_by_kind.is_empty()
    }
}

impl fmt::Display for Results {
    /// One line: rate, latencies, statuses, errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [50.0, 99.0, 100.0].map(|percentile| self.latency_ms.percentile_ms(percentile));
        write!(f, "{:.0}/s, p50 {p50:.3} ms, p99 {p99:.3} ms, max {max:.3} ms,", self.requests.rate_per_s)?;
        for (status, count) in &self.statuses {
            write!(f, " {status}×{count}")?;
        }
        for (kind, count) in &self.errors_by_kind {
            write!(f, ", {kind}: {count}")?;
        }
        for (what, count) in
            [("in flight", self.requests.in_flight), ("never sent", self.requests.never_sent)]
        {
            if count > 0 {
                write!(f, ", {what}: {count}")?;
            }
        }
        self.first_malformed.iter().try_for_each(|text| write!(f, ", malformed: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(latencies_ns: &[u64], second: u64) -> Results {
        let mut results = Results { duration_s: 2.0, model: Model::Open, ..Results::default() };
        let mut coarse = Latency::coarse();
        for ns in latencies_ns {
            results.latency_ms.record(*ns);
            coarse.record(*ns);
        }
        let count = latencies_ns.len() as u64;
        results.requests = Requests {
            sent: count + 2,
            completed: count,
            errors: 1,
            in_flight: 1,
            completed_in_time: count,
            ..Requests::default()
        };
        results.statuses.insert(200, count);
        results.errors_by_kind.insert(ErrorKind::ClosedEarly, 1);
        results.second(second).completed = count;
        results.second(second).set_latency(&coarse);
        results.endpoints = vec![Endpoint {
            name: "GET /".into(),
            requests: results.requests.clone(),
            latency_ms: results.latency_ms.clone(),
            ..Endpoint::default()
        }];
        results.settle();
        results
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (a, b) = (part(&[1_000_000, 5_000_000], 0), part(&[3_000_000, 90_000_000_000], 2));
        let mut merged = a.clone();
        merged.merge(&b);
        let mut whole = Latency::new();
        [1_000_000, 5_000_000, 3_000_000, 90_000_000_000].into_iter().for_each(|ns| whole.record(ns));
        assert_eq!(merged.latency_ms, whole);
        assert_eq!(merged.endpoints[0].latency_ms, whole);
        assert_eq!(merged.endpoints.len(), 1);
        let requests = &merged.requests;
        assert_eq!(requests.sent, requests.completed + requests.errors + requests.in_flight);
        assert_eq!((requests.rate_per_s, requests.offered_per_s), (2.0, Some(4.0)));
        assert_eq!(merged.seconds.iter().map(|second| second.completed).collect::<Vec<_>>(), [2, 0, 2]);
        assert_eq!((merged.status(200), merged.errors(ErrorKind::ClosedEarly)), (4, 2));
    }

    #[test]
    fn json_there_and_back() {
        let mut results = part(&[1_000_000, 5_000_000], 1);
        results.hosts.push(Host { seconds: vec![HostSecond::default()], ..Host::default() });
        results.verdict = Some(Verdict { limit: Limit::RateMet, why: "it was".into() });
        results.agents.push(Agent::default());
        let text = serde_json::to_string(&results).unwrap();
        let back: Results = serde_json::from_str(&text).unwrap();
        assert_eq!(back, results);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for pointer in [
            "/model",
            "/duration_s",
            "/requests/sent",
            "/requests/offered_per_s",
            "/latency_ms/min",
            "/latency_ms/percentiles/99.9",
            "/latency_ms/percentiles/50",
            "/latency_ms/histogram",
            "/bytes/read",
            "/statuses/200",
            "/errors_by_kind/closed_early",
            "/endpoints/0/latency_ms/max",
            "/seconds/1/completed",
            "/hosts",
            "/verdict/limit",
            "/verdict/why",
            "/agents/0/complete",
            "/complete",
        ] {
            assert!(json.pointer(pointer).is_some(), "{pointer}: {text}");
        }
    }

    #[test]
    fn rates_over_whole_seconds() {
        let mut results = Results { duration_s: 2.5, ..Results::default() };
        for (second, completed) in [(0, 10), (1, 20), (2, 3), (3, 1)] {
            results.second(second).completed = completed;
        }
        let rates = results.request_rates();
        assert_eq!((rates.min, rates.mean, rates.max, rates.stdev), (10.0, 15.0, 20.0, 5.0));
    }

    #[test]
    fn kinds_stand_at_their_place() {
        for (place, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, place);
        }
    }
}
