//! Merges what the agents deliver: a live view while they run, one result at the end.

use crate::percentiles::Latency;
use crate::results::{Agent, HostSecond, Live, Results, Role, Second};
use crate::run::notes;
use crate::settings::Settings;
use crate::spool::Spool;

/// What one agent has delivered so far.
#[derive(Debug)]
pub(super) struct Delivered {
    pub name: String,
    /// Its clock minus the controller's.
    pub clock_offset_ns: i64,
    pub is_ready: bool,
    pub live: Option<Live>,
    pub seconds: Spool<Second>,
    pub hosts: Vec<(Role, HostSecond)>,
    pub outcome: Option<Outcome>,
}

/// How an agent's part ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// With results, and the start by the agent's own clock.
    Done { results: Box<Results>, started_unix_ns: Option<u64> },
    /// Without results.
    Lost(String),
}

impl Delivered {
    pub fn new(name: &str, clock_offset_ns: i64) -> Delivered {
        Delivered {
            name: name.to_owned(),
            clock_offset_ns,
            is_ready: false,
            live: None,
            seconds: Spool::new(),
            hosts: Vec::new(),
            outcome: None,
        }
    }

    /// Adds seconds. If one cannot be stored, the agent counts as lost, because its series would have
    /// a silent gap.
    pub fn add(&mut self, seconds: &[Second]) {
        let kept: std::io::Result<()> = seconds.iter().try_for_each(|second| self.seconds.push(second));
        if let Err(error) = kept {
            self.outcome = Some(Outcome::Lost(format!("its seconds cannot be stored: {error}")));
        }
    }

    /// The results of a lost agent, built from the seconds that it delivered. Its counts by status
    /// and by endpoint are lost.
    fn salvaged(&self, why: &str) -> Results {
        let read = self.seconds.from(0);
        let unread = read.as_ref().err().map(|error| format!(", but cannot be read back: {error}"));
        let mut results =
            Results { complete: false, seconds: read.unwrap_or_default(), ..Results::default() };
        let requests = &mut results.requests;
        let mut latency = Latency::new();
        for second in &results.seconds {
            requests.sent += second.sent;
            requests.completed += second.completed;
            requests.errors += second.errors;
            requests.timeouts += second.timeouts;
            results.bytes.merge(second.bytes);
            if let Some(of_second) = second.latency.unpack() {
                latency.merge(&of_second);
            }
        }
        requests.completed_in_time = requests.completed;
        requests.in_flight =
            requests.sent.saturating_sub(requests.completed + requests.errors + requests.timeouts);
        results.latency_ms = latency;
        results.duration_s = results.seconds.len() as f64;
        results.elapsed_s = results.duration_s;
        results.partial_reason = Some(format!(
            "agent {} was lost ({why}): {} whole seconds of it are here{}",
            self.name,
            self.seconds.len(),
            unread.unwrap_or_default()
        ));
        results
    }
}

/// The live view of all agents; `None` until the first agent has begun.
pub(super) fn live(all: &[Delivered]) -> Option<Live> {
    let mut looks = all.iter().filter_map(|one| one.live.as_ref());
    let mut whole = looks.next()?.clone();
    let mut count = 1.0;
    for look in looks {
        count += 1.0;
        whole.elapsed_s = whole.elapsed_s.max(look.elapsed_s);
        whole.warming_up |= look.warming_up;
        whole.progress = whole.progress.zip(look.progress).map(|(own, other)| own + other);
        whole.sent += look.sent;
        whole.completed += look.completed;
        whole.errors += look.errors;
        whole.timeouts += look.timeouts;
        whole.in_flight += look.in_flight;
        whole.overdue += look.overdue;
        whole.connections += look.connections;
        whole.reconnects += look.reconnects;
        whole.offered_per_s = whole.offered_per_s.zip(look.offered_per_s).map(|(own, other)| own + other);
    }
    whole.progress = whole.progress.map(|sum| sum / count);
    let last = last_second(all).unwrap_or_default();
    (whole.rate_per_s, whole.read_bytes_per_s) = (last.completed as f64, last.bytes.read as f64);
    (whole.p50_ms, whole.p99_ms, whole.max_ms) = (last.p50_ms, last.p99_ms, last.max_ms);
    Some(whole)
}

/// The last second that every running agent has delivered.
fn last_second(all: &[Delivered]) -> Option<Second> {
    let running = all.iter().filter(|one| one.outcome.is_none());
    let last = running.map(|one| one.seconds.len()).min()?.checked_sub(1)?;
    let mut whole = Second { second: last as u64, ..Second::default() };
    let mut latency = Latency::coarse();
    // This is only a live view; the results report seconds that cannot be read.
    let seconds =
        all.iter().filter(|one| last < one.seconds.len()).filter_map(|one| one.seconds.get(last).ok());
    for second in seconds {
        whole.add_counts(&second);
        latency.merge(&second.latency.unpack().unwrap_or_else(Latency::coarse));
    }
    whole.set_latency(&latency);
    Some(whole)
}

/// One result of all agents, as if one tester had sent the whole load.
pub(super) fn results(all: &[Delivered], settings: &Settings, start_unix_ns: u64) -> Results {
    let mut whole = Results {
        model: settings.pace.model(),
        warmup_s: settings.warmup.as_secs_f64(),
        ..Results::default()
    };
    let mut workers = 0;
    for one in all {
        let mut agent = Agent {
            name: one.name.clone(),
            clock_offset_ms: one.clock_offset_ns as f64 / 1e6,
            ..Agent::default()
        };
        let mut own = match &one.outcome {
            Some(Outcome::Done { results, started_unix_ns }) => {
                if let Some(started_ns) = started_unix_ns {
                    let started_ns = i128::from(*started_ns) - i128::from(one.clock_offset_ns);
                    agent.start_offset_ms = (started_ns - i128::from(start_unix_ns)) as f64 / 1e6;
                }
                (**results).clone()
            }
            Some(Outcome::Lost(why)) => one.salvaged(why),
            None => one.salvaged("it did not end"),
        };
        (agent.complete, agent.reason) = (own.complete, own.partial_reason.clone());
        own.model = whole.model;
        own.settle();
        (agent.sent, agent.completed) = (own.requests.sent, own.requests.completed);
        agent.rate_per_s = own.requests.rate_per_s;
        workers += own.load.workers;
        // An agent's clock and its view of its own part do not describe the whole.
        own.notes.clear();
        own.started_at_ms = start_unix_ns / 1_000_000;
        for host in &mut own.hosts {
            host.name = format!("{} ({})", host.name, one.name);
        }
        whole.merge(&own);
        whole.agents.push(agent);
    }
    whole.load = crate::run::load_of(settings, 0);
    whole.load.workers = workers;
    whole.settle();
    whole.notes = notes(&whole);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::ErrorKind;
    use crate::settings::Stop;
    use std::net::SocketAddr;
    use std::time::Duration;

    fn settings() -> Settings {
        let address = SocketAddr::from(([127, 0, 0, 1], 80));
        Settings::new(address, Stop::After(Duration::from_secs(2)))
    }

    /// Latencies from 50 µs to 90 s; the same index gives the same latency.
    fn sample(index: u64) -> u64 {
        let spread = index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        50_000 + spread * spread % 90_000_000_000
    }

    #[test]
    fn buckets_are_those_of_one_histogram_fed_with_every_sample() {
        let mut one = Latency::new();
        let mut all: Vec<Delivered> = Vec::new();
        for agent in 0..4 {
            let mut results = Results::default();
            for index in (agent..100_000).step_by(4) {
                one.record(sample(index));
                results.latency_ms.record(sample(index));
            }
            results.requests.sent = results.latency_ms.count() + 1;
            results.requests.completed = results.latency_ms.count();
            results.requests.errors = 1;
            results.errors_by_kind.insert(ErrorKind::Reset, 1);
            results.duration_s = 2.0;
            // Serialised, as an agent sends it.
            let text = serde_json::to_vec(&results).unwrap();
            let results = Box::new(serde_json::from_slice(&text).unwrap());
            let mut delivered = Delivered::new(&format!("agent-{agent}"), 5_000_000_000);
            let started_unix_ns = Some(6_000_000_000 + agent * 1_000_000);
            delivered.outcome = Some(Outcome::Done { results, started_unix_ns });
            all.push(delivered);
        }
        let whole = results(&all, &settings(), 1_000_000_000);
        assert_eq!(whole.latency_ms, one);
        assert_eq!((whole.requests.sent, whole.requests.completed), (100_004, 100_000));
        assert_eq!(whole.errors(ErrorKind::Reset), 4);
        assert!(whole.complete && whole.partial_reason.is_none());
        let offsets: Vec<f64> = whole.agents.iter().map(|agent| agent.start_offset_ms).collect();
        assert_eq!(offsets, [0.0, 1.0, 2.0, 3.0], "by the controller's clock");
        assert_eq!(whole.agents[1].clock_offset_ms, 5_000.0);
    }

    #[test]
    fn an_agent_that_is_lost_leaves_its_seconds() {
        let mut lost = Delivered::new("b:7070", 0);
        for number in 0..3 {
            let mut latency = Latency::coarse();
            (0..100).for_each(|index| latency.record(sample(index)));
            let mut second = Second { second: number, sent: 101, completed: 100, ..Second::default() };
            second.set_latency(&latency);
            lost.seconds.push(&second).unwrap();
        }
        lost.outcome = Some(Outcome::Lost("connection reset".into()));
        let whole = results(&[lost], &settings(), 0);
        assert!(!whole.complete);
        let why = whole.partial_reason.unwrap();
        assert!(why.contains("b:7070") && why.contains("3 whole seconds"), "{why}");
        assert_eq!((whole.requests.sent, whole.requests.completed, whole.requests.in_flight), (303, 300, 3));
        assert_eq!(whole.latency_ms.count(), 300);
        assert_eq!(whole.agents[0].reason.as_deref(), Some(why.as_str()));
        assert!(!whole.agents[0].complete);
    }
}
