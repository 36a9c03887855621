//! The input of the verdict: the results of a run, and its machines while requests were sent.

use super::super::thresholds::{DISK_STALLED, SECONDS_MIN, SEGMENTS_MIN, TESTER_SHARE, THREAD_BUSY};
use crate::results::{Host, HostSecond, Limit, Results, Role, Verdict};

pub(super) fn found(limit: Limit, why: String) -> Option<Verdict> {
    Some(Verdict { limit, why })
}

/// A machine while requests were sent.
pub(super) struct Machine<'a> {
    pub host: &'a Host,
    pub seconds: Vec<&'a HostSecond>,
}

impl Machine<'_> {
    pub fn mean(&self, figure: impl Fn(&HostSecond) -> f64) -> f64 {
        self.seconds.iter().map(|second| figure(second)).sum::<f64>() / self.seconds.len().max(1) as f64
    }

    /// Mean of a figure as a part of all cores, 0 to 1.
    pub fn part(&self, figure: impl Fn(&HostSecond) -> f32) -> f64 {
        self.mean(|second| f64::from(figure(second))) / 100.0 / f64::from(self.host.cores.max(1))
    }

    pub fn busy(&self) -> f64 {
        self.part(|second| second.cpu_percent)
    }

    pub fn stolen(&self) -> f64 {
        self.part(|second| second.stolen_percent)
    }

    pub fn process(&self) -> f64 {
        self.part(|second| second.process_cpu_percent)
    }

    /// Mean of an extra figure over the seconds that have it.
    pub fn extra(&self, name: &str) -> Option<f64> {
        let values: Vec<f64> =
            self.seconds.iter().filter_map(|second| second.extra.get(name).copied()).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Part of the segments of the whole run that were lost. A segment that was sent again although
    /// the receiver already had it (by an early tail-loss probe, as on a busy loopback) was not
    /// lost.
    pub fn lost_segments(&self) -> f64 {
        let count = |name| self.extra(name).unwrap_or(0.0) * self.seconds.len() as f64;
        let lost = count("resent_segments_per_s") - count("spurious_resent_segments_per_s");
        let sent = count("sent_segments_per_s");
        if sent < SEGMENTS_MIN { 0.0 } else { lost.max(0.0) / sent }
    }

    /// Whether the watched process is a good part of what keeps the machine busy.
    pub fn is_busy_by_itself(&self) -> bool {
        self.process() >= TESTER_SHARE * self.busy()
    }

    /// The busiest thread and its part of a core.
    pub fn thread(&self) -> Option<(&str, f64)> {
        let names = self.seconds.iter().flat_map(|second| second.extra.keys());
        let mut threads: Vec<&str> = names.filter_map(|name| name.strip_prefix("thread.")).collect();
        threads.sort_unstable();
        threads.dedup();
        let used = |name: &str| {
            self.mean(|second| second.extra.get(&format!("thread.{name}")).copied().unwrap_or(0.0)) / 100.0
        };
        threads.into_iter().map(|name| (name, used(name))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    pub fn busy_thread(&self) -> Option<(&str, f64)> {
        self.thread().filter(|(_, used)| *used >= THREAD_BUSY)
    }

    pub fn called(&self) -> String {
        let role = match self.host.role {
            Role::Tester => "tester",
            Role::Server => "server",
        };
        if self.host.name.is_empty() {
            format!("the {role}")
        } else {
            format!("the {role} ({})", self.host.name)
        }
    }
}

/// A run with its machines, as the verdict reads it.
pub(super) struct WatchedRun<'a> {
    pub results: &'a Results,
    pub machines: Vec<Machine<'a>>,
}

impl<'a> WatchedRun<'a> {
    pub fn new(results: &'a Results) -> WatchedRun<'a> {
        let last = (results.duration_s + 1e-6) as u64;
        let machine = |host: &'a Host| {
            let during: Vec<&HostSecond> =
                host.seconds.iter().filter(|second| second.second < last.max(1)).collect();
            Machine { host, seconds: during }
        };
        let machines = results.hosts.iter().map(machine);
        WatchedRun {
            results,
            machines: machines.filter(|machine| machine.seconds.len() >= SECONDS_MIN).collect(),
        }
    }

    pub fn of(&self, role: Role) -> impl Iterator<Item = &Machine<'a>> {
        self.machines.iter().filter(move |machine| machine.host.role == role)
    }

    pub fn sees_server(&self) -> bool {
        self.of(Role::Server).next().is_some()
    }

    /// Requests under way at once, by Little's law, over the answered requests.
    pub fn under_way(&self) -> f64 {
        let latency = self.results.latency_from_sent_ms.as_ref().unwrap_or(&self.results.latency_ms);
        self.results.requests.rate_per_s * latency.mean_ms() / 1_000.0
    }

    /// Most requests that all connections carry at once.
    pub fn places(&self) -> f64 {
        (self.results.load.connections * self.results.load.pipelining.max(1)) as f64
    }

    pub fn unknown(&self) -> Verdict {
        let server = if !self.sees_server() {
            "the server was not watched (--monitor http://HOST:ADMIN shows it)"
        } else {
            "neither machine, nor the network, nor the database was used up"
        };
        let tester = match self.of(Role::Tester).next() {
            Some(machine) => format!("the tester had {} of its CPU left", percent(1.0 - machine.busy())),
            None if self.results.duration_s < SECONDS_MIN as f64 => "the run was too short to tell".into(),
            None => "the tester was not watched".into(),
        };
        let disk = self.machines.iter().find_map(|machine| {
            let stalled = machine.extra("disk_stalled_percent")? / 100.0;
            let text = format!(
                "; processes waited for {}'s disk {} of the time",
                machine.called(),
                percent(stalled)
            );
            (stalled >= DISK_STALLED).then_some(text)
        });
        let why =
            format!("Nothing that was seen ran out: {tester}, and {server}{}.", disk.unwrap_or_default());
        Verdict { limit: Limit::Unknown, why }
    }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
