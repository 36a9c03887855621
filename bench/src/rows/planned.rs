//! What `forebay plan` predicts of two workers from runs on one, beside a run on two.
//!
//! One worker has a core to itself, and so has the tester. Two workers and the tester share both cores: what
//! is predicted is what is left for the server, by the tester's own CPU time of a request in the runs on one.

use crate::machine;
use crate::measure::{Drive, clean, median};
use crate::process::{Bench, Pinning};
use crate::report::{Bar, Line, Lines};
use forebay_load::{Fixed, run};
use forebay_plan::scaling::{Law, Point};
use forebay_tests::Folder;
use serde_json::{Value, json};
use std::error::Error;

/// The per cent that a measured rate may differ from what was predicted.
const MISS_MAX: f64 = 15.0;

/// One run: its rate, and the CPU time of server and tester by request.
#[derive(Clone, Copy)]
struct Run {
    rate_per_s: f64,
    server_us: f64,
    tester_us: f64,
}

impl Run {
    fn json(self) -> Value {
        json!({ "rate_per_s": self.rate_per_s, "server_us": self.server_us, "tester_us": self.tester_us })
    }
}

/// A closed loop of 64 connections against a new server.
fn one(bench: &Bench, pinning: Pinning, request: &Fixed) -> Result<Run, Box<dyn Error>> {
    let folder = Folder::new();
    let start = bench.start("codes.toml", &folder, pinning);
    let server = if pinning == Pinning::Free { start.workers(2) } else { start }.start();
    server.wait_healthy();
    let drive = Drive::new(server.address, bench.core(pinning));
    let clocks = || -> std::io::Result<_> {
        Ok((machine::process_cpu_us(server.pid())?, machine::process_cpu_us(std::process::id())?))
    };
    let (before, report) = machine::on_core(drive.core, || -> std::io::Result<_> {
        run(&drive.settings(bench.warm_up()), &mut request.clone())?;
        let before = clocks()?;
        Ok((before, run(&drive.settings(bench.sample()), &mut request.clone())?))
    })??;
    let after = clocks()?;
    let report = clean(report)?;
    let requests = report.requests.completed as f64;
    Ok(Run {
        rate_per_s: report.requests.rate_per_s,
        server_us: (after.0 - before.0) / requests,
        tester_us: (after.1 - before.1) / requests,
    })
}

/// What two workers that share two cores with the tester do, by a law of runs on one: each request takes
/// what two whole cores would take for it, and the tester's time.
fn predicted(law: &Law, tester_us: f64) -> f64 {
    let server_us = 2e6 / law.rate_per_s(2.0);
    2e6 / (server_us + tester_us)
}

/// Two routes: one of which the engine is the cost, and one of 32 KB of work.
pub fn two_workers(bench: &Bench) -> Lines {
    if machine::cores() != 2 {
        return Err(
            "two workers and the tester share all cores: needs a machine, or a taskset, of two".into()
        );
    }
    let mut lines = Vec::new();
    for (name, request) in [
        ("GET /simple", Fixed::new("GET", "/simple", None)),
        ("PATCH /update-something, 32 KB", super::http::update_something_request()),
    ] {
        let (mut alone, mut both) = (Vec::new(), Vec::new());
        for _ in 0..bench.turns() {
            alone.push(one(bench, Pinning::Apart, &request)?);
            both.push(one(bench, Pinning::Free, &request)?);
        }
        let points: Vec<Point> =
            alone.iter().map(|run| Point { workers: 1.0, rate_per_s: run.rate_per_s }).collect();
        let tester_us = median(alone.iter().map(|run| run.tester_us).collect());
        let predicted = predicted(&Law::fit(&points)?, tester_us);
        let measured = median(both.iter().map(|run| run.rate_per_s).collect());
        let one_alone = median(alone.iter().map(|run| run.rate_per_s).collect());
        // What is told by CPU time holds on a busy machine as well.
        let by_cpu =
            |runs: &[Run]| median(runs.iter().map(|run| 2e6 / (run.server_us + run.tester_us)).collect());
        let (cpu_alone, cpu_both) = (by_cpu(&alone), by_cpu(&both));
        let miss = (measured / predicted - 1.0).abs() * 100.0;
        let what = format!("{name}: 2 workers beside what is predicted from 1");
        let line = Line::new(what, miss, "%", Bar::AtMost(MISS_MAX), "").beside(format!(
            "predicted {predicted:.0}/s, measured {measured:.0}/s; one worker {one_alone:.0}/s, the tester {tester_us:.1} µs a request; by CPU time {cpu_alone:.0}/s predicted, {cpu_both:.0}/s measured"
        ));
        let raw = |runs: &[Run]| -> Value { runs.iter().map(|run| run.json()).collect() };
        lines.push(line.samples(json!({ "one": raw(&alone), "two": raw(&both) })));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tester_takes_its_part_of_both_cores() {
        // 10 µs a request on one worker, 10 µs of the tester: each core spends half of its time on either.
        let law = Law::fit(&[Point { workers: 1.0, rate_per_s: 100_000.0 }]).expect("a point");
        assert!((predicted(&law, 10.0) - 100_000.0).abs() < 1e-6);
        assert!((predicted(&law, 0.001) - 200_000.0).abs() < 20.0);
    }
}
