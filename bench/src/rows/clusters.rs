//! Row 25: POST and GET /code-ultra-fast through clusters of 1, 3 and 6 masters, drained meanwhile by a
//! separate process, beside Cpeak on the same cluster.
//!
//! The cost of a write is reported by process: server, Redis, drain, PostgreSQL. A sample of writes ends
//! when the last row is in PostgreSQL, so that their whole cost is included. Cpeak copies nothing to a
//! database, and is measured before Forebay starts, whose drainer polls every shard all the time. The
//! masters share the cores of this machine: a constant CPU time a write shows how more machines would scale;
//! the rates do not.

use super::peers::node;
use super::peers::stores::{self, Postgres};
use crate::machine;
use crate::measure::{Drive, clean, median};
use crate::process::{Bench, start_loaded};
use crate::report::{Bar, Line, Lines};
use forebay_load::{Fixed, Generated, Results, Traffic, run};
use forebay_tests::{Client, Folder, Server, example};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::process::Child;

const MASTERS: [usize; 3] = [1, 3, 6];
/// Rows that are read, by their UUIDs.
const READ_ROWS: usize = 1_000;
/// How far the tier's cost of a write may be from its mean, as a part.
const CONSTANT: f64 = 0.1;

/// A process that is killed when dropped.
struct Drainer(Child);

impl Drop for Drainer {
    fn drop(&mut self) {
        // The error means that the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU time so far, in microseconds.
struct Clocks {
    server: f64,
    drain: f64,
    /// By master.
    redis: Vec<f64>,
    postgres: f64,
}

/// CPU microseconds a request.
struct Spent {
    server: f64,
    redis: f64,
    drain: f64,
    postgres: f64,
    /// The busiest master's CPU time, divided by the mean.
    most: f64,
    rate_per_s: f64,
}

impl Spent {
    fn total(&self) -> f64 {
        self.server + self.redis + self.drain + self.postgres
    }

    fn json(&self) -> Value {
        json!({ "server": self.server, "redis": self.redis, "drain": self.drain, "postgres": self.postgres,
            "most_by_mean": self.most, "rate_per_s": self.rate_per_s })
    }
}

/// The processes on a cluster: Forebay's server with its drainer, or Cpeak.
struct Fixture<'c> {
    cluster: &'c Local,
    address: SocketAddr,
    pid: u32,
    /// The server and drainer, for Forebay only.
    drained_by: Option<(&'c Server, &'c Drainer)>,
}

impl Fixture<'_> {
    fn clocks(&self) -> Result<Clocks, Box<dyn Error>> {
        let mut redis = Vec::new();
        for node in self.cluster.status()?.nodes {
            let pid = node.pid.ok_or("a node of the cluster has ended")?;
            redis.push(machine::process_cpu_us(u32::try_from(pid)?)?);
        }
        let server = machine::process_cpu_us(self.pid)?;
        let drain = self.drained_by.map(|(_, drainer)| machine::process_cpu_us(drainer.0.id()));
        let drain = drain.transpose()?.unwrap_or(0.0);
        let postgres = machine::started_cpu_us()? - redis.iter().sum::<f64>() - server - drain;
        Ok(Clocks { server, drain, redis, postgres })
    }

    /// Waits until all written rows are in PostgreSQL.
    fn finish(&self) {
        if let Some((server, _)) = self.drained_by {
            server.admin("POST", "/drain/finish").expect(200);
        }
    }

    fn sample(&self, bench: &Bench, traffic: &mut (impl Traffic + Send)) -> Result<Spent, Box<dyn Error>> {
        let drive = Drive::new(self.address, None);
        clean(run(&drive.settings(bench.warm_up()), traffic)?)?;
        self.finish();
        let before = self.clocks()?;
        let report: Results = clean(run(&drive.settings(bench.sample()), traffic)?)?;
        self.finish();
        let after = self.clocks()?;
        let requests = report.requests.completed as f64;
        let redis: Vec<f64> = after.redis.iter().zip(&before.redis).map(|(now, then)| now - then).collect();
        let sum = redis.iter().sum::<f64>();
        let most = redis.iter().copied().fold(0.0, f64::max);
        Ok(Spent {
            server: (after.server - before.server) / requests,
            redis: sum / requests,
            drain: (after.drain - before.drain) / requests,
            postgres: (after.postgres - before.postgres) / requests,
            most: most * redis.len() as f64 / sum,
            rate_per_s: report.requests.rate_per_s,
        })
    }

    /// Samples of writes, and of reads.
    fn samples(&self, bench: &Bench) -> Result<[Vec<Spent>; 2], Box<dyn Error>> {
        let mut samples: [Vec<Spent>; 2] = Default::default();
        for _ in 0..bench.turns() {
            samples[0].push(self.sample(bench, &mut Fixed::new("POST", "/code-ultra-fast", None))?);
            samples[1].push(self.sample(bench, &mut reads(self.address)?)?);
        }
        Ok(samples)
    }
}

/// Measures Cpeak, and then Forebay, on an otherwise idle cluster.
fn on_cluster(
    bench: &Bench,
    postgres: &Postgres,
    masters: usize,
) -> Result<[[Vec<Spent>; 2]; 2], Box<dyn Error>> {
    let spec = Spec::new(Topology::Cluster { masters, replicas: 0 }).on(Flavour::Redis);
    let cluster = Local::up(spec.keep(Persistence::None))?;
    let nodes: Vec<SocketAddr> =
        cluster.nodes().iter().map(|node| SocketAddr::from(([127, 0, 0, 1], node.port))).collect();
    let places: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
    let cpeak = node::start_on_cluster("cpeak", &postgres.url(), &places.join(","), 1)?;
    let (address, pid) = (cpeak.address, cpeak.pid());
    let theirs = Fixture { cluster: &cluster, address, pid, drained_by: None }.samples(bench)?;
    drop(cpeak);
    nodes.into_iter().try_for_each(stores::empty)?;

    let folder = Folder::new();
    let start = bench.start_remote(&example("codes.toml"), &folder, &postgres.url(), &cluster.url());
    let start = start.set("memory.durability=async");
    let server = start_loaded(&start.clone().argument("--without").argument("drain"))?;
    let drainer = start.data(folder.path().join("drainer")).argument("--forever");
    let drainer = Drainer(drainer.spawn("drain"));
    let (address, pid) = (server.address, server.pid());
    let fixture = Fixture { cluster: &cluster, address, pid, drained_by: Some((&server, &drainer)) };
    Ok([theirs, fixture.samples(bench)?])
}

/// Reads of rows by their UUIDs; creates the rows.
fn reads(address: SocketAddr) -> Result<impl Traffic + Send, Box<dyn Error>> {
    let mut client = Client::connect(address)?;
    let mut ids = Vec::with_capacity(READ_ROWS);
    for _ in 0..READ_ROWS {
        let made = client.post("/code-ultra-fast").json();
        ids.push(made["created_code"]["id"].as_str().ok_or("a row has no id")?.to_owned());
    }
    let mut next = 0;
    Ok(Generated(move |_: usize, out: &mut Vec<u8>| {
        next = (next + 1) % ids.len();
        out.extend_from_slice(
            format!("GET /code-ultra-fast/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", ids[next]).as_bytes(),
        );
    }))
}

fn middle(samples: &[Spent], value: impl Fn(&Spent) -> f64) -> f64 {
    median(samples.iter().map(value).collect())
}

fn beside(samples: &[Spent]) -> String {
    let of = |value: fn(&Spent) -> f64| middle(samples, value);
    format!(
        "server {:.1}, Redis {:.1}, drain {:.1}, PostgreSQL {:.1}; the busiest master {:.2} × the mean; {:.0}/s",
        of(|spent| spent.server),
        of(|spent| spent.redis),
        of(|spent| spent.drain),
        of(|spent| spent.postgres),
        of(|spent| spent.most),
        of(|spent| spent.rate_per_s)
    )
}

/// All three clusters, one after the other.
pub fn through_clusters(bench: &Bench) -> Lines {
    let (mut lines, mut tier) = (Vec::new(), Vec::new());
    let postgres = Postgres::start()?;
    for masters in MASTERS {
        // The rows and claims of the previous cluster do not belong to this one.
        postgres.run("DROP TABLE IF EXISTS ucodes, forebay_position")?;
        let [cpeak, forebay] = on_cluster(bench, &postgres, masters)?;
        tier.push(middle(&forebay[0], |spent| spent.redis));
        let raw = |samples: &[Spent]| samples.iter().map(Spent::json).collect::<Value>();
        for ((method, cpeak), forebay) in ["POST", "GET"].into_iter().zip(&cpeak).zip(&forebay) {
            let what = format!("{method} /code-ultra-fast, masters: {masters}");
            let (theirs, ours) = (middle(cpeak, Spent::total), middle(forebay, Spent::total));
            let line = Line::quoted(format!("{what}, Cpeak"), theirs, "cores/Mrps");
            lines.push(line.beside(beside(cpeak)).samples(raw(cpeak)));
            let bar = Bar::AtMost(theirs / 3.0);
            let line = Line::new(format!("{what}, Forebay"), ours, "cores/Mrps", bar, "1/3 of Cpeak");
            lines.push(line.beside(beside(forebay)).samples(raw(forebay)));
        }
    }
    let mean = tier.iter().sum::<f64>() / tier.len() as f64;
    let off = tier.iter().map(|cost| (cost / mean - 1.0).abs()).fold(0.0, f64::max);
    let what = "Redis' cost a write, 1 to 6 masters, from its mean";
    lines.push(Line::new(what, off, "×", Bar::AtMost(CONSTANT), "").samples(json!(tier)));
    Ok(lines)
}
