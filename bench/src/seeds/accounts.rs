//! The accounts on one small machine: Spring Boot and Go beside Forebay, by SQL and hot, in control groups of
//! 1, 2 and 4 CPUs, each under the four profiles of the document.

use super::figure::{Cell, Figure, Figures, Measured};
use super::programs;
use crate::machine::{self, ControlGroup};
use crate::process::{Bench, Pinning, start_loaded};
use crate::rows::accounts::fill;
use crate::rows::load::forebay;
use crate::rows::peers::stores::Postgres;
use crate::rows::peers::{Side, why};
use forebay_tests::{Folder, example};
use std::error::Error;

pub const ABOUT: &str = "\
One machine holds the application and PostgreSQL: here a control group that both are in, of 1 CPU and 2 GiB, 2 \
and 4, 4 and 8 as far as this machine has the cores; the tester is outside of it. 1,250,000 rows; `examples/accounts.load.toml`, one \
write to two reads by id and two counts, at the document's four rates, open model, latency from the time \
due; a request is lost after 5 s. *Lost* is what was not answered in time. Spring Boot 3.5 has virtual threads, Go has net/http and pgx, \
20 connections to PostgreSQL each (`peers/spring`, `peers/go`). With 4 CPUs the document loses none at 4,000/s, with p99 0.746 s in one \
run and 0.944 s in another, and has 0.072 s at 20/s [3]. \
CPU time is that of the application and of PostgreSQL; it is counted in steps of 10 ms, which is coarse at the low rates, where \
waking up costs most.";

const GIB: u64 = 1 << 30;

/// Name and rate, and the published figures for 1, 2 and 4 CPUs.
const PROFILES: [(&str, u64, [&str; 3]); 4] = [
    ("low", 20, ["not known", "not known", "p99 72 ms [3]"]),
    ("average", 200, ["p99 60 ms [3]", "not known", "not known"]),
    ("high", 1_000, ["p99 99 ms [3]", "p99 23 ms [3]", "not known"]),
    (
        "very high",
        4_000,
        ["80 % lost [3]", "13 % lost, p50 1.04 s [3]", "p99 0.746 s and, in another run, 0.944 s [3]"],
    ),
];

/// The rate of the warm-up. The next constant says how many times the usual compile time the warm-up
/// lasts: on one CPU the JVM compiles while it serves.
const WARM_UP_PER_S: &str = "500";
const WARM_UP: u128 = 5;

/// One of the plan's rates: the answers, and the CPU time of all processes that the bench has
/// started.
fn profile(bench: &Bench, side: Side, rate_per_s: u64) -> Result<Measured, Box<dyn Error>> {
    let plan = example("accounts.load.toml").display().to_string();
    let url = format!("http://{}", side.address);
    let run = |rate: &str, time_ms: u128| {
        let time = format!("{time_ms}ms");
        let how = ["--plan", &plan, "-R", rate, "-d", &time, "--warmup", "0s", "-w", "1", "-t", "5s", &url];
        forebay(bench, None, &how)
    };
    let before = machine::started_cpu_us()?;
    let results = run(&rate_per_s.to_string(), bench.sample().as_millis() * 4 / 3)?;
    let spent_us = machine::started_cpu_us()? - before;
    let requests = &results.requests;
    let lost = requests.errors + requests.timeouts + requests.in_flight + requests.never_sent;
    let due = (requests.completed + lost).max(1) as f64;
    let beside = format!(
        "p99 {:.1} ms{}",
        results.latency_ms.percentile_ms(99.0),
        if lost > 0 { format!(", {:.0} % lost", lost as f64 / due * 100.0) } else { String::new() }
    );
    let (cpu_us, rate_per_s) = (spent_us / requests.completed.max(1) as f64, requests.rate_per_s);
    Ok(Measured { cpu_us, rate_per_s, bytes: 0.0, beside })
}

/// All profiles of one application in the group, after a warm-up.
fn profiles(bench: &Bench, group: &ControlGroup, side: Result<Side, String>) -> [Cell; 4] {
    let warm = || -> Result<(), String> {
        let side = side.clone()?;
        group.add_family(side.pid).map_err(|error| error.to_string())?;
        let plan = example("accounts.load.toml").display().to_string();
        let time = format!("{}ms", bench.compile().as_millis() * WARM_UP);
        let url = format!("http://{}", side.address);
        let how = ["--plan", &plan, "-R", WARM_UP_PER_S, "-d", &time, "--warmup", "0s", "-w", "1", &url];
        forebay(bench, None, &how).map(drop).map_err(|error| why(error.as_ref()))
    };
    let warmed = warm();
    PROFILES.map(|(_, rate_per_s, _)| {
        warmed.clone()?;
        profile(bench, side.clone()?, rate_per_s).map_err(|error| why(error.as_ref()))
    })
}

/// A PostgreSQL in the group, with its rows.
fn filled(bench: &Bench, file: &str, rows: u64) -> Result<Postgres, Box<dyn Error>> {
    let (postgres, folder) = (Postgres::start()?, Folder::new());
    let start = bench.start(file, &folder, Pinning::Free).database(&postgres.url());
    let server = start_loaded(&start.environment("ACCOUNTS_SECRET", ""))?;
    fill(&server, rows)?;
    postgres.run("VACUUM ANALYZE account")?;
    server.kill();
    Ok(postgres)
}

/// Forebay with one of its two files.
fn ours(bench: &Bench, group: &ControlGroup, file: &str, cpus: usize, postgres: &Postgres) -> [Cell; 4] {
    let folder = Folder::new();
    let start = bench.start(file, &folder, Pinning::Free).workers(cpus).database(&postgres.url());
    let server = start_loaded(&start.set("memory.limit=1GiB").environment("ACCOUNTS_SECRET", ""));
    let server = server.map_err(|error| why(error.as_ref()));
    profiles(bench, group, server.as_ref().map(Side::from).map_err(Clone::clone))
}

pub fn run(bench: &Bench) -> Figures {
    // Created first and so dropped last, when the group is empty.
    let group = ControlGroup::new(1, 2 * GIB)?;
    let rows = bench.scaled(1_250_000, 20_000);
    let postgres = filled(bench, "accounts.toml", rows)?;
    let mut figures = Vec::new();
    for (place, cpus) in [1, 2, 4].into_iter().enumerate().filter(|(_, cpus)| *cpus <= machine::cores()) {
        println!("  CPUs: {cpus}");
        group.resize(cpus, 2 * GIB * cpus as u64)?;
        group.add_family(postgres.pid()?)?;
        let theirs = [programs::SPRING, programs::GO].map(|program| {
            let peer = program.start(&postgres.url()).map_err(|error| why(error.as_ref()));
            (program.name, profiles(bench, &group, peer.as_ref().map(Side::from).map_err(Clone::clone)))
        });
        let sql = ours(bench, &group, "accounts.toml", cpus, &postgres);
        // The hot form follows the same table, with its current rows.
        let hot = ours(bench, &group, "accounts-hot.toml", cpus, &postgres);
        for (profile, (name, rate, published)) in PROFILES.into_iter().enumerate() {
            let published = published[place];
            for (place, form, ours) in [(0, "by SQL", &sql), (1, "by SQL", &sql), (1, "hot", &hot)] {
                let (peer, theirs) = &theirs[place];
                figures.push(Figure {
                    what: format!("{cpus} CPU, {name} ({rate}/s): {peer} beside Forebay {form}"),
                    published: if place == 0 { published } else { "not known" },
                    theirs: theirs[profile].clone(),
                    ours: ours[profile].clone(),
                    wanted_per_s: rate as f64,
                });
            }
        }
    }
    Ok(figures)
}
