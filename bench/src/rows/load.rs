//! Rows 14 and 15: the load tester itself, as a user starts it, beside wrk, and against a server that
//! stalls.

use crate::machine;
use crate::measure::median;
use crate::process::{Bench, Peer};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::Results;
use forebay_tests::{Folder, root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::error::Error;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// The rate that a tester reached, and the tester's cost.
#[derive(Clone, Copy)]
pub struct Turn {
    /// Answers a second.
    pub rate_per_s: f64,
    /// CPU microseconds of the tester for each answer.
    pub cpu_us: f64,
}

/// `forebay load`, pinned to `core` if given.
pub fn forebay(bench: &Bench, core: Option<usize>, arguments: &[&str]) -> Result<Results, Box<dyn Error>> {
    let folder = Folder::new();
    let json = folder.path().join("results.json");
    let mut command = bench.command("forebay", core);
    command.arg("load").args(arguments).arg("--json").arg(&json);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("forebay load: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(forebay_load::report::read_json(&json)?)
}

/// wrk on the driver's core: answers a second. A run with errors fails.
pub fn wrk(bench: &Bench, url: &str, pipelining: usize) -> Result<f64, Box<dyn Error>> {
    let seconds = format!("{}s", bench.sample().as_secs());
    let mut command = bench.pinned("wrk", Some(bench.driver_core));
    command.args(["-t", "1", "-c", "64", "-d", &seconds, "--latency", url]);
    if pipelining > 1 {
        command.arg("-s").arg(root().join("bench/wrk/pipelined.lua"));
    }
    let output =
        command.output().map_err(|error| format!("wrk: {error}; install it to measure beside it"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok());
    match rate {
        Some(rate) if !text.contains("Socket errors") && !text.contains("Non-2xx") => Ok(rate),
        _ => Err(format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// Runs a tester for this time, and reads its CPU time as that of an ended child.
pub fn turn(
    seconds: f64,
    tester: impl FnOnce() -> Result<f64, Box<dyn Error>>,
) -> Result<Turn, Box<dyn Error>> {
    let before = machine::ended_cpu_us()?;
    let rate_per_s = tester()?;
    let cpu_us = (machine::ended_cpu_us()? - before) / (rate_per_s * seconds).max(1.0);
    Ok(Turn { rate_per_s, cpu_us })
}

/// The median of a value over the turns.
pub fn middle(turns: &[Turn], value: fn(&Turn) -> f64) -> f64 {
    median(turns.iter().map(value).collect())
}

/// Two lines: the yardstick, and Forebay with its bar.
pub fn beside(what: &str, yardstick: (&str, &[Turn]), ours: &[Turn], bar: f64) -> [Line; 2] {
    let rates = |turns: &[Turn]| json!(turns.iter().map(|turn| turn.rate_per_s).collect::<Vec<_>>());
    let (name, others) = yardstick;
    let [theirs, rate] = [others, ours].map(|turns| middle(turns, |turn| turn.rate_per_s));
    let cost = |turns: &[Turn]| format!("{:.2} µs of CPU each", middle(turns, |turn| turn.cpu_us));
    [
        Line::quoted(format!("{what}, {name}"), theirs, "rps").beside(cost(others)).samples(rates(others)),
        Line::new(
            format!("{what}, forebay load"),
            rate,
            "rps",
            Bar::AtLeast(bar * theirs),
            format!("{bar:?} × {name}"),
        )
        .beside(cost(ours))
        .samples(rates(ours)),
    ]
}

/// wrk and Forebay in turns, one core each, against a server on the other core.
pub fn beside_wrk(
    bench: &Bench,
    what: &str,
    url: &str,
    pipelining: usize,
) -> Result<[Line; 2], Box<dyn Error>> {
    let (time, depth) = (format!("{}s", bench.sample().as_secs()), pipelining.to_string());
    let seconds = bench.sample().as_secs_f64();
    let (mut others, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        others.push(turn(seconds, || wrk(bench, url, pipelining))?);
        let arguments = ["-c", "64", "-w", "1", "-k", "-d", &time, "-p", &depth, url];
        let measured = || {
            let results = forebay(bench, Some(bench.driver_core), &arguments)?;
            Ok(crate::measure::clean(results)?.requests.rate_per_s)
        };
        ours.push(turn(seconds, measured)?);
    }
    Ok(beside(what, ("wrk", &others), &ours, 1.0))
}

/// Row 14.
pub fn beside_wrk_on_the_floor(bench: &Bench) -> Lines {
    let mut lines = Vec::new();
    for (what, pipelining, pipelined) in [("plain", 1, &[][..]), ("16 pipelined", 16, &["--pipelined"][..])] {
        let floor = bench.peer("forebay-peer-floor", &[&["--size", "16"], pipelined].concat())?;
        let url = format!("http://{}/", floor.address);
        lines.extend(beside_wrk(bench, what, &url, pipelining)?);
    }
    Ok(lines)
}

/// When the server of row 15 stalls: once in every `period`, for `stall`.
struct Stalls {
    period: Duration,
    stall: Duration,
    periods: u32,
}

impl Stalls {
    /// Causes the stalls until the sender of `end` is dropped.
    fn make(&self, server: &Peer, end: &mpsc::Receiver<()>) -> Result<(), Box<dyn Error>> {
        let pid = Pid::from_raw(server.pid().cast_signed()).ok_or("a process has an id")?;
        let before = (self.period - self.stall) / 2;
        let mut pause = before;
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            kill_process(pid, Signal::STOP)?;
            thread::sleep(self.stall);
            kill_process(pid, Signal::CONT)?;
            pause = self.period - self.stall;
        }
        Ok(())
    }
}

/// Row 15: the floor is stopped (SIGSTOP) for a second of every ten. A share f of the requests
/// becomes due in stalls of length S, so that L(p) = S · (1 − (1 − p) / f) for p ≥ 1 − f.
pub fn stalls(bench: &Bench) -> Lines {
    let scale = bench.scaled(1, 5) as u32;
    let stalls = Stalls {
        period: Duration::from_secs(10) / scale,
        stall: Duration::from_secs(1) / scale,
        periods: bench.scaled(3, 2) as u32,
    };
    let floor = bench.peer("forebay-peer-floor", &["--size", "16"])?;
    let (url, time) =
        (format!("http://{}/", floor.address), format!("{}s", (stalls.period * stalls.periods).as_secs()));
    let results = thread::scope(|scope| -> Result<Results, Box<dyn Error>> {
        let (running, ended) = mpsc::channel();
        let (stalls, floor) = (&stalls, &floor);
        let stopping = scope.spawn(move || stalls.make(floor, &ended).map_err(|error| error.to_string()));
        let results = forebay(bench, None, &["-R", "1000", "-c", "64", "-w", "1", "-d", &time, &url]);
        drop(running);
        stopping.join().map_err(|_| "the stalls ended early")??;
        results
    })?;
    let results = crate::measure::clean(results)?;
    let stall_ms = stalls.stall.as_secs_f64() * 1000.0;
    let latency = &results.latency_ms;
    let off = |what: &str, found: f64, expected: f64| {
        let off_percent = (found - expected).abs() / expected * 100.0;
        Line::new(format!("{what}: off the expected"), off_percent, "%", Bar::AtMost(5.0), "")
            .beside(format!("{found:.1} ms, expected {expected:.0} ms"))
    };
    Ok(vec![
        Line::new("p85", latency.percentile_ms(85.0), "ms", Bar::AtMost(10.0), "")
            .beside(results.to_string()),
        off("p95", latency.percentile_ms(95.0), 0.5 * stall_ms),
        off("p99", latency.percentile_ms(99.0), 0.9 * stall_ms),
        off("max", latency.percentile_ms(100.0), stall_ms),
        Line::new(
            "answered",
            results.requests.completed as f64,
            "requests",
            Bar::AtLeast(1000.0 * results.duration_s),
            "offered",
        ),
    ])
}
