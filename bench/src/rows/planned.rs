//! What `forebay plan` predicts of two workers from runs on one, beside a run on two.
//!
//! One worker has one core, and the tester has the other; two workers and two threads of the tester share
//! both. The two sides never share a single core, because a request that stays on one core takes two
//! thirds of the time. Each worker has the same number of connections and a thread of the tester to
//! itself, because a worker that waits for its clients more often spends more on each request. All
//! figures are those of `forebay load --monitor --json`, as `forebay plan --point 1=REPORT --workers 2`
//! reads them.

use super::http::{UPDATE_BODY, UPDATE_TARGET};
use crate::machine;
use crate::measure::median;
use crate::process::{Bench, Pinning, succeeded};
use crate::report::{Bar, Line, Lines};
use forebay_plan::measured::Measured;
use forebay_plan::scaling::{Law, Point};
use forebay_plan::shared::Tester;
use forebay_tests::Folder;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;

/// By how many per cent a measured rate may differ from the prediction.
const MISS_MAX: f64 = 15.0;
/// Of each worker.
const CONNECTIONS: usize = 64;

/// A route, as arguments of `forebay load`.
struct Route {
    name: &'static str,
    target: &'static str,
    arguments: Vec<&'static str>,
}

/// One run, with the figures that `plan` reads.
struct Run {
    rate_per_s: f64,
    capacity_per_s: f64,
    server_us: f64,
    tester: Tester,
}

impl Run {
    /// The rate of all cores if only the tester and the server used them.
    fn by_cpu(&self) -> f64 {
        self.tester.cores * 1e6 / (self.server_us + self.tester.cpu_us)
    }

    fn json(&self) -> Value {
        json!({ "rate_per_s": self.rate_per_s, "server_us": self.server_us, "tester_us": self.tester.cpu_us })
    }
}

/// A closed loop against a new server: one worker and the tester have a core each, two share both.
fn run(bench: &Bench, workers: usize, route: &Route) -> Result<Run, Box<dyn Error>> {
    let folder = Folder::new();
    let pinning = if workers == 1 { Pinning::Apart } else { Pinning::Free };
    let server = bench.start("codes.toml", &folder, pinning).workers(workers).start();
    server.wait_healthy();
    let admin = server.address_behind("admin on http://").ok_or("the server has no admin listener")?;
    let report = folder.path().join("load.json");
    let mut load = bench.command("forebay", bench.core(pinning));
    load.args(["load", "-c", &(CONNECTIONS * workers).to_string(), "-w", &workers.to_string()]);
    load.args(["-d", &format!("{}ms", bench.sample().as_millis())]);
    load.args(["--warmup", &format!("{}ms", bench.warm_up().as_millis())]);
    load.args(["--threshold", "errors==0", "--monitor", &format!("http://{admin}"), "--json"]);
    load.arg(&report).args(&route.arguments).arg(format!("http://{}{}", server.address, route.target));
    succeeded(&load.output()?)?;
    let measured = Measured::read(&fs::read_to_string(&report)?)?;
    Ok(Run {
        rate_per_s: measured.rate_per_s,
        capacity_per_s: measured.capacity_per_s(workers as f64),
        server_us: measured.cpu_us.ok_or("the report has no CPU time of the server")?,
        tester: measured.tester.ok_or("the report does not say that the tester shares the machine")?,
    })
}

/// The plan's prediction for two workers, beside a run on two: by the clock, and by CPU time, which other
/// load on the machine does not change.
fn held(bench: &Bench, route: &Route) -> Lines {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        one.push(run(bench, 1, route)?);
        two.push(run(bench, 2, route)?);
    }
    let points: Vec<Point> =
        one.iter().map(|run| Point { workers: 1.0, rate_per_s: run.capacity_per_s }).collect();
    let testers: Vec<Option<Tester>> = one.iter().map(|run| Some(run.tester)).collect();
    let tester = Tester::of_all(&testers).ok_or("the machine has changed between two runs")?;
    let (predicted, _) = tester.rate_per_s(&Law::fit(&points)?, 2.0);
    let of = |runs: &[Run], figure: fn(&Run) -> f64| median(runs.iter().map(figure).collect());
    let raw = |runs: &[Run]| -> Value { runs.iter().map(Run::json).collect() };
    let samples = json!({ "one": raw(&one), "two": raw(&two) });
    let line = |by: &str, measured: f64| {
        let miss = (measured / predicted - 1.0).abs() * 100.0;
        let what = format!("{}: 2 workers beside what is predicted from 1, by {by}", route.name);
        Line::new(what, miss, "%", Bar::AtMost(MISS_MAX), "").beside(format!(
            "predicted {predicted:.0}/s, measured {measured:.0}/s; server and tester {:.2} + {:.2} µs a request on one, {:.2} + {:.2} on two",
            of(&one, |run| run.server_us),
            of(&one, |run| run.tester.cpu_us),
            of(&two, |run| run.server_us),
            of(&two, |run| run.tester.cpu_us),
        ))
    };
    Ok(vec![
        line("the clock", of(&two, |run| run.rate_per_s)).samples(samples),
        line("CPU time", of(&two, Run::by_cpu)),
    ])
}

/// Two routes: one whose cost is the HTTP engine's, and one with 32 KB of work.
pub fn two_workers(bench: &Bench) -> Lines {
    if machine::cores() != 2 {
        return Err("two workers and the tester share all cores: needs a machine of two".into());
    }
    let routes = [
        Route { name: "GET /simple", target: "/simple", arguments: Vec::new() },
        Route {
            name: "PATCH /update-something, 32 KB",
            target: UPDATE_TARGET,
            arguments: vec!["-m", "PATCH", "-b", UPDATE_BODY],
        },
    ];
    let mut lines = Vec::new();
    for route in &routes {
        lines.extend(held(bench, route)?);
    }
    Ok(lines)
}
