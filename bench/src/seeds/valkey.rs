//! The Valkey ladder: one server, pipelined deeper and deeper, with replicas, as clusters.

use super::figure::{Cell, Figure, Figures, Measured};
use crate::machine;
use crate::process::{Bench, succeeded};
use crate::rows::load::forebay;
use crate::rows::peers::why;
use forebay_topology::{Local, Persistence, Spec, Topology};
use std::error::Error;
use std::process::Command;
use std::time::Duration;

pub const ABOUT: &str = "\
GETs of 32 bytes out of 100,000 keys, 50 connections, nothing on disk; Valkey where it is installed, else Redis. \
*Theirs* is redis-benchmark as the tester, *Forebay* is `forebay load`; the CPU time is that of servers and tester together, \
and the ratio says what the tester adds. The nodes share the cores with the tester: a ladder of rates needs more machines, one of CPU time a \
request does not. The document's tester is memtier_benchmark on another machine, and writes too. Its last figures are those of 15 rented \
nodes, for about $1,100 a month: 1,000,000/s, and 14,000,000/s with 100 pipelined [2].";

const WANTED_PER_S: f64 = 1e6;
const KEYS: &str = "100000";
const CONNECTIONS: &str = "50";
/// The time in which most keys are written before they are read.
const FILL: Duration = Duration::from_millis(500);

/// A rung of the ladder.
struct Rung {
    what: &'static str,
    published: &'static str,
    topology: Topology,
    depth: usize,
}

const fn rung(what: &'static str, published: &'static str, topology: Topology, depth: usize) -> Rung {
    Rung { what, published, topology, depth }
}

const fn cluster(masters: usize) -> Topology {
    Topology::Cluster { masters, replicas: 0 }
}

const RUNGS: &[Rung] = &[
    rung("one server", "about 200,000/s on a mini PC of 4 cores, over a network [2]", Topology::Single, 1),
    rung("the same, 2 pipelined", "twice as many as without [2]", Topology::Single, 2),
    rung("the same, 10 pipelined", "about 1,000,000/s [2]", Topology::Single, 10),
    rung("the same, 100 pipelined", "about 2,500,000/s, which filled the network [2]", Topology::Single, 100),
    rung(
        "2 replicas, which are read",
        "about 300,000/s on 3 machines, the writes to the primary among them [2]",
        Topology::Replicas { replicas: 2 },
        1,
    ),
    rung("a cluster of 3", "about 400,000/s, reads and writes, on 3 machines [2]", cluster(3), 1),
    rung("a cluster of 3, 10 pipelined", "not known", cluster(3), 10),
    rung("a cluster of 10", "1,000,000/s on 3 machines of the author's own [2]", cluster(10), 1),
];

/// CPU time of all nodes so far.
fn servers_us(nodes: &Local) -> Result<f64, Box<dyn Error>> {
    let mut sum = 0.0;
    for node in nodes.status()?.nodes {
        sum += machine::process_cpu_us(u32::try_from(node.pid.ok_or("a node has ended")?)?)?;
    }
    Ok(sum)
}

/// Runs a tester, which returns its number of operations and their rate. Returns the CPU time of
/// the tester and of the servers for each operation.
fn driven(
    nodes: &Local,
    tester: impl FnOnce() -> Result<(f64, f64), Box<dyn Error>>,
) -> Result<Measured, Box<dyn Error>> {
    let clocks = || -> Result<_, Box<dyn Error>> { Ok((servers_us(nodes)?, machine::ended_cpu_us()?)) };
    let before = clocks()?;
    let (operations, rate_per_s) = tester()?;
    let after = clocks()?;
    let (servers, tester) = ((after.0 - before.0) / operations, (after.1 - before.1) / operations);
    let beside = format!("servers {servers:.2} µs, tester {tester:.2}");
    Ok(Measured { cpu_us: servers + tester, rate_per_s, bytes: 0.0, beside })
}

/// redis-benchmark: operations a second.
fn redis_benchmark(nodes: &Local, command: &str, depth: usize, amount: u64) -> Result<f64, Box<dyn Error>> {
    let (port, depth, amount) =
        (nodes.nodes()[0].port.to_string(), depth.to_string(), amount.max(1).to_string());
    let how = ["-h", "127.0.0.1", "-p", &port, "-t", command, "-c", CONNECTIONS, "-d", "32", "-r", KEYS];
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(how).args(["-P", &depth, "-n", &amount, "--csv"]);
    if nodes.topology().is_cluster() {
        benchmark.arg("--cluster");
    }
    let output = benchmark.output().map_err(|error| format!("redis-benchmark: {error}"))?;
    succeeded(&output)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let named = format!("\"{}\"", command.to_uppercase());
    let line = text.lines().find_map(|line| Some(&line[line.find(&named)?..]));
    let rate = line.and_then(|line| line.split(',').nth(1)?.trim_matches('"').parse().ok());
    rate.ok_or_else(|| format!("redis-benchmark: {text}").into())
}

fn theirs(bench: &Bench, nodes: &Local, rung: &Rung) -> Result<Measured, Box<dyn Error>> {
    if matches!(rung.topology, Topology::Replicas { .. }) {
        return Err("redis-benchmark asks one server alone: it has no figure for replicas".into());
    }
    redis_benchmark(nodes, "set", 16, 100_000)?;
    let first = redis_benchmark(nodes, "get", rung.depth, 20_000)?;
    // redis-benchmark ends by amount: a first, short run shows how many operations last as long as
    // a sample.
    let amount = (first * bench.sample().as_secs_f64()) as u64 + 1;
    driven(nodes, || Ok((amount as f64, redis_benchmark(nodes, "get", rung.depth, amount)?)))
}

fn ours(bench: &Bench, nodes: &Local, rung: &Rung) -> Result<Measured, Box<dyn Error>> {
    let scheme = if nodes.topology().is_cluster() { "redis-cluster" } else { "redis" };
    let url = format!("{scheme}://127.0.0.1:{}", nodes.nodes()[0].port);
    let depth = rung.depth.to_string();
    let run =
        |time: Duration, ratio: &str, depth: &str, more: &[&str]| -> Result<(f64, f64), Box<dyn Error>> {
            let time = format!("{}ms", time.as_millis());
            let how = ["-c", CONNECTIONS, "-w", "1", "-d", &time, "-p", depth, "--ratio", ratio];
            let arguments = [&how[..], &["--data-size", "32", "--key-maximum", KEYS], more, &[&url]].concat();
            let requests = crate::measure::clean(forebay(bench, None, &arguments)?)?.requests;
            Ok((requests.completed as f64, requests.rate_per_s))
        };
    run(FILL, "1:0", "32", &[])?;
    let replicas = matches!(rung.topology, Topology::Replicas { .. });
    let more: &[&str] = if replicas { &["--read-from", "replicas"] } else { &[] };
    driven(nodes, || run(bench.sample(), "0:1", &depth, more))
}

pub fn run(bench: &Bench) -> Figures {
    let mut figures = Vec::new();
    let mut nodes: Option<Local> = None;
    for rung in RUNGS {
        println!("  {}", rung.what);
        let current = match nodes.take() {
            Some(nodes) if nodes.topology() == rung.topology => nodes,
            // The previous topology is stopped before the next one starts.
            other => {
                drop(other);
                Local::up(Spec::new(rung.topology).keep(Persistence::None))?
            }
        };
        // Name and version, without the folder.
        let server = current.server();
        let server = server.rsplit('/').next().unwrap_or(&server);
        let cell = |measured: Result<Measured, Box<dyn Error>>| -> Cell {
            measured.map_err(|error| why(error.as_ref()))
        };
        figures.push(Figure {
            what: format!("{}, GET ({server})", rung.what),
            published: rung.published,
            theirs: cell(theirs(bench, &current, rung)),
            ours: cell(ours(bench, &current, rung)),
            wanted_per_s: WANTED_PER_S,
        });
        nodes = Some(current);
    }
    Ok(figures)
}
