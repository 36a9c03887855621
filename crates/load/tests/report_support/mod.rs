//! Reproducible results of a run, for tests of the reports.

use forebay_load::Latency;
use forebay_load::results::{
    Bytes, Connects, Endpoint, ErrorKind, Host, HostSecond, Limit, Load, Model, Requests, Results, Role,
    Verdict,
};

/// Pseudo-random numbers (Numerical Recipes' generator).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    /// From 0 to 1.
    pub fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The fields that are known before the first request.
fn planned(model: Model, seconds: u64) -> Results {
    Results {
        command: "forebay load -c 64 -R 20k -d 60s --html report.html http://10.0.0.7:3000/items/{random_int(1,1000)}"
            .split(' ')
            .map(String::from)
            .collect(),
        target: "http://10.0.0.7:3000/items/{random_int(1,1000)}".into(),
        started_at_ms: 1_795_267_446_000,
        model,
        load: Load { connections: 64, pipelining: 1, workers: 2, timeout_s: 10.0, ..Load::default() },
        warmup_s: 5.0,
        duration_s: seconds as f64,
        elapsed_s: seconds as f64 + 0.4,
        latency_ms: Latency::new(),
        ..Results::default()
    }
}

/// Both machines, watched.
fn hosts(seconds: u64) -> Vec<Host> {
    vec![host(Role::Tester, "loadbox-1", 4, seconds, 0.3), host(Role::Server, "edge-7", 8, seconds, 0.94)]
}

/// A run of `seconds`, about `rate` answers a second of about `median_ms`, with a stall of a second
/// and a half in the middle.
pub fn run(model: Model, seconds: u64, rate: f64, median_ms: f64, seed: u64) -> Results {
    let mut chance = Chance::new(seed);
    let mut results = planned(model, seconds);
    if model == Model::Open {
        results.load.rate_per_s = Some(rate);
        results.latency_from_sent_ms = Some(Latency::new());
    }
    let mut reads = Latency::new();
    let mut writes = Latency::new();
    for second in 0..seconds {
        let stalled = second == seconds / 2;
        let factor = if stalled { 0.35 } else { 0.97 + 0.06 * chance.part() };
        let completed = (rate * factor) as u64;
        let mut coarse = Latency::coarse();
        // One latency for ten answers: enough for the shape.
        for _ in 0..completed / 10 {
            let tail = 1.0 / (1.0 - chance.part()).max(1e-5);
            let base = median_ms * (0.6 + 0.5 * chance.part()) * tail.powf(0.35);
            let stall = if stalled { 1_500.0 * chance.part() } else { 0.0 };
            let ns = ((base + stall) * 1e6) as u64;
            for _ in 0..10 {
                results.latency_ms.record(ns);
                coarse.record(ns);
                if let Some(from_sent) = &mut results.latency_from_sent_ms {
                    from_sent.record((base * 1e6) as u64);
                }
            }
            if chance.part() < 0.2 { writes.record(ns) } else { reads.record(ns) }
        }
        let slot = results.second(second);
        slot.sent = rate as u64;
        slot.completed = completed;
        slot.timeouts = if stalled { 12 } else { 0 };
        slot.bytes = Bytes { read: completed * 1_180, written: completed * 96 };
        slot.set_latency(&coarse);
    }
    let completed: u64 = results.seconds.iter().map(|second| second.completed).sum();
    results.requests = Requests {
        sent: completed + 12,
        completed,
        timeouts: 12,
        completed_in_time: completed,
        ..Requests::default()
    };
    results.bytes = Bytes { read: completed * 1_180, written: completed * 96 };
    results.statuses = [(200, completed - 40), (404, 40)].into();
    results.errors_by_kind = [(ErrorKind::Timeout, 12)].into();
    results.connects = Connects { made: 76, failed: 0, reconnects: 12, open_max: 64 };
    results.endpoints = [("GET /items/{id}", reads, 4), ("PUT /items/{id}", writes, 1)]
        .map(|(name, latency_ms, part)| Endpoint {
            name: name.into(),
            requests: Requests {
                sent: completed * part / 5,
                completed: completed * part / 5,
                completed_in_time: completed * part / 5,
                ..Requests::default()
            },
            latency_ms,
            statuses: [(200, completed * part / 5)].into(),
            ..Endpoint::default()
        })
        .to_vec();
    results.hosts = hosts(seconds);
    results.verdict = Some(Verdict {
        limit: Limit::ServerCpu,
        why: "The server (edge-7) was busy for 94 % of its 8 cores: the server's process used 88 %.".into(),
    });
    results.settle();
    results
}

fn host(role: Role, name: &str, cores: u32, seconds: u64, busy: f64) -> Host {
    let mut chance = Chance::new(u64::from(cores));
    let second = |second| {
        let core_percents: Vec<f32> = (0..cores)
            .map(|_| ((busy + 0.08 * (chance.part() - 0.5)) * 100.0).clamp(0.0, 100.0) as f32)
            .collect();
        let cpu_percent = core_percents.iter().sum();
        let bytes = (22e6 * (0.95 + 0.1 * chance.part())) as u64;
        HostSecond {
            second,
            core_percents,
            cpu_percent,
            process_cpu_percent: cpu_percent * 0.93,
            memory_used_bytes: 3_200_000_000,
            process_memory_bytes: 412_000_000,
            network_read_bytes: if role == Role::Tester { bytes } else { bytes / 12 },
            network_written_bytes: if role == Role::Tester { bytes / 12 } else { bytes },
            network_read_packets: 21_000,
            network_written_packets: 20_000,
            connections: 66,
            ..HostSecond::default()
        }
    };
    Host {
        name: name.into(),
        role,
        cores,
        memory_bytes: 16_000_000_000,
        network_bits_per_s: Some(10_000_000_000),
        seconds: (0..seconds).map(second).collect(),
    }
}
