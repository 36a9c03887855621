//! Rows 6 to 8: Forebay on Redis and PostgreSQL against Cpeak on the same stores, and against
//! PostgreSQL's own tester.
//!
//! CPU time is that of everything but the load generator, stores included. Where Forebay does not
//! start, the others are still measured and Forebay's lines say why.

pub mod node;
mod page;
pub mod stores;
pub mod table;

use crate::measure::{Cost, Drive, Sample, beside_stores, clean, cpu, median_of, raw, sample};
use crate::process::{Bench, Peer, start_loaded, succeeded};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Traffic, run};
use forebay_tests::{Folder, Server, Start, example};
use serde_json::json;
use std::error::Error;
use std::net::SocketAddr;
use stores::{Persistence, Postgres, Redis, Transactions};

/// Rows of row 6, and of row 8.
const REDIS_ROWS: u64 = 1_000_000;
const POSTGRES_ROWS: u64 = 300_000;

/// The driven server.
#[derive(Clone, Copy)]
pub struct Side {
    /// Where it serves.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
}

impl From<&Peer> for Side {
    fn from(peer: &Peer) -> Side {
        Side { address: peer.address, pid: peer.pid() }
    }
}

impl From<&Server> for Side {
    fn from(server: &Server) -> Side {
        Side { address: server.address, pid: server.pid() }
    }
}

impl Side {
    /// Drives the server until it has reached its full speed.
    pub fn warm(self, bench: &Bench, traffic: &mut (impl Traffic + Send)) -> Result<(), Box<dyn Error>> {
        clean(run(&Drive::new(self.address, None).settings(bench.compile()), traffic)?)?;
        Ok(())
    }

    /// One sample of the same request over and over, the whole system's CPU time.
    fn sample(self, bench: &Bench, method: &str, target: &str) -> Result<Sample, Box<dyn Error>> {
        let mut request = Fixed::new(method, target, None);
        sample(bench, Drive::new(self.address, None), Cost::System(self.pid), &mut request)
    }
}

/// A running Forebay server, or why it did not start.
pub type Started = Result<Server, String>;

/// `codes.toml` on PostgreSQL and Redis, a worker a core. The drain is paused: the peers copy
/// nothing to PostgreSQL either.
pub fn forebay(
    bench: &Bench,
    folder: &Folder,
    postgres: &Postgres,
    redis: &Redis,
    durability: &str,
) -> Start {
    bench
        .start_remote(&example("codes.toml"), folder, &postgres.url(), &redis.url())
        .set(&format!("memory.durability={durability}"))
        .set("drain.paused=true")
}

/// Starts a server; `Err` is the first line of the reason.
fn started(start: &Start) -> Started {
    start_loaded(start).map_err(|error| why(error.as_ref()))
}

/// The line of an error that says it: the one that Forebay itself printed, if there is one, else the first.
pub fn why(error: &dyn Error) -> String {
    let text = error.to_string();
    let told = text.find("forebay: ").map_or(text.as_str(), |at| &text[at..]);
    told.split(['\n', '\\']).next().unwrap_or_default().to_owned()
}

/// Forebay's line. A value that could not be measured misses its bar.
fn against(what: &str, forebay: &Result<Vec<Sample>, String>, bar: f64, from: &str) -> Line {
    match forebay {
        Ok(samples) => Line::new(what, cpu(samples), "cores/Mrps", Bar::AtMost(bar), from)
            .beside(beside_stores(samples))
            .samples(raw(samples)),
        Err(why) => Line::new(what, f64::NAN, "cores/Mrps", Bar::AtMost(bar), from)
            .beside(format!("not measured: {why}")),
    }
}

fn quoted(what: &str, samples: &[Sample]) -> Line {
    Line::quoted(what, cpu(samples), "cores/Mrps").beside(beside_stores(samples)).samples(raw(samples))
}

/// Makes both ready for a route.
fn warm(
    bench: &Bench,
    cpeak: &Peer,
    server: &Started,
    method: &str,
    target: &str,
) -> Result<(), Box<dyn Error>> {
    let mut request = Fixed::new(method, target, None);
    Side::from(cpeak).warm(bench, &mut request)?;
    server.as_ref().map_or(Ok(()), |server| Side::from(server).warm(bench, &mut request))
}

/// Adds a sample of Forebay, if it runs.
fn add(
    samples: &mut Result<Vec<Sample>, String>,
    server: &Started,
    measure: impl FnOnce(Side) -> Result<Sample, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    match (server, samples) {
        (Ok(server), Ok(samples)) => samples.push(measure(Side::from(server))?),
        (Err(why), samples) => *samples = Err(why.clone()),
        (Ok(_), Err(_)) => {}
    }
    Ok(())
}

/// The durability of both sides of a like-for-like row: answer when Redis has the row, whether or
/// not it is on disk.
const ASYNC: &str = "memory.durability=async";

/// Forebay with `rows` codes in its Redis.
fn seeded(start: &Start, postgres: &Postgres, redis: &Redis, rows: u64) -> Started {
    let config = example("codes.toml").display().to_string();
    let (rows, record, memory) = (rows.to_string(), postgres.url(), redis.url());
    // The file requires `sync`, which a Redis without persistence cannot provide.
    let arguments = [
        "codes",
        "-r",
        &rows,
        "--config",
        &config,
        "--database",
        &record,
        "--memory",
        &memory,
        "--set",
        ASYNC,
    ];
    succeeded(&start.run_bare("seed", arguments)).map_err(|error| why(error.as_ref()))?;
    let server = started(start)?;
    // Rows that `seed` left in the database alone are loaded.
    if server.client().get("/code-fast").status != 200 {
        server.admin("POST", "/warm?table=codes").expect(200);
    }
    Ok(server)
}

/// Row 6: each side on its own Redis, without persistence.
pub fn code_fast_on_redis(bench: &Bench) -> Lines {
    let rows = bench.scaled(REDIS_ROWS, 100_000);
    let postgres = Postgres::start()?;
    let redis = [Redis::start(Persistence::None)?, Redis::start(Persistence::None)?];
    node::seed(&redis[0].url(), rows)?;
    let cpeak = node::start("cpeak", &postgres.url(), &redis[0].url())?;
    let folder = Folder::new();
    let server = seeded(&forebay(bench, &folder, &postgres, &redis[1], "async"), &postgres, &redis[1], rows);

    let routes = [("POST", "/code-fast"), ("GET", "/code-fast")];
    for (method, target) in routes {
        warm(bench, &cpeak, &server, method, target)?;
    }
    let mut peers: [Vec<Sample>; 2] = Default::default();
    let mut ours = [Ok(Vec::new()), Ok(Vec::new())];
    for _ in 0..bench.turns() {
        for (i, (method, target)) in routes.into_iter().enumerate() {
            peers[i].push(Side::from(&cpeak).sample(bench, method, target)?);
            add(&mut ours[i], &server, |side| side.sample(bench, method, target))?;
        }
    }
    drop((server, cpeak));
    let [posted, got] = &ours;
    Ok(vec![
        quoted("POST /code-fast, Cpeak", &peers[0]),
        against("POST /code-fast, Forebay, async", posted, cpu(&peers[0]) / 5.0, "1/5 of Cpeak"),
        synced(bench, &postgres)?,
        quoted(&format!("GET /code-fast, {rows} rows, Cpeak"), &peers[1]),
        against("GET /code-fast, Forebay", got, cpu(&peers[1]) / 3.0, "1/3 of Cpeak"),
    ])
}

/// The same writes on a Redis that syncs each of them, as `durability = "sync"` requires.
fn synced(bench: &Bench, postgres: &Postgres) -> Result<Line, Box<dyn Error>> {
    let (folder, redis) = (Folder::new(), Redis::start(Persistence::Always)?);
    let server = started(&forebay(bench, &folder, postgres, &redis, "sync"));
    let mut samples = Ok(Vec::new());
    for _ in 0..bench.turns() {
        add(&mut samples, &server, |side| side.sample(bench, "POST", "/code-fast"))?;
    }
    let what = "POST /code-fast, Forebay, sync";
    Ok(match &samples {
        Ok(samples) => quoted(what, samples),
        Err(why) => Line::quoted(what, f64::NAN, "cores/Mrps").beside(format!("not measured: {why}")),
    })
}

/// The medians of pgbench's rate and CPU time.
fn transactions(runs: &[Transactions]) -> (f64, f64) {
    let of = |value: fn(&Transactions) -> f64| crate::measure::median(runs.iter().map(value).collect());
    (of(|run| run.cpu_us), of(|run| run.rate_per_s))
}

fn pgbench_line(what: &str, runs: &[Transactions]) -> Line {
    let (cpu_us, rate) = transactions(runs);
    let started = crate::measure::median(runs.iter().map(|run| run.started_cpu_us).collect());
    let samples = runs.iter().map(|run| {
        json!({ "cpu_us": run.cpu_us, "started_cpu_us": run.started_cpu_us, "rate_per_s": run.rate_per_s })
    });
    Line::quoted(what, cpu_us, "cores/Mrps")
        .beside(format!(
            "with its stores {started:.2}, {rate:.0}/s; 64 clients, prepared, pgbench itself not counted"
        ))
        .samples(samples.collect())
}

/// Both sides and pgbench on one table, in turns; `before` resets the table before each of them.
struct OnPostgres {
    cpeak: Vec<Sample>,
    forebay: Result<Vec<Sample>, String>,
    pgbench: Vec<Transactions>,
}

fn on_postgres(
    bench: &Bench,
    postgres: &Postgres,
    request: (&str, &str),
    pgbench: (&str, u64),
    before: &str,
) -> Result<OnPostgres, Box<dyn Error>> {
    let (folder, redis) = (Folder::new(), Redis::start(Persistence::None)?);
    let cpeak = node::start("cpeak", &postgres.url(), &redis.url())?;
    let server = started(&forebay(bench, &folder, postgres, &redis, "async"));
    let mut all = OnPostgres { cpeak: Vec::new(), forebay: Ok(Vec::new()), pgbench: Vec::new() };
    let (method, target) = request;
    warm(bench, &cpeak, &server, method, target)?;
    for _ in 0..bench.turns() {
        postgres.run(before)?;
        all.cpeak.push(Side::from(&cpeak).sample(bench, method, target)?);
        postgres.run(before)?;
        add(&mut all.forebay, &server, |side| side.sample(bench, method, target))?;
        postgres.run(before)?;
        all.pgbench.push(postgres.pgbench(pgbench.0, pgbench.1, bench.sample())?);
    }
    Ok(all)
}

/// Row 7.
pub fn code_on_postgres(bench: &Bench) -> Lines {
    let postgres = Postgres::start()?;
    let emptied = "TRUNCATE codes";
    let all = on_postgres(bench, &postgres, ("POST", "/code"), ("insert.sql", 0), emptied)?;
    let (_, pgbench) = transactions(&all.pgbench);
    let rate = match &all.forebay {
        Ok(samples) => median_of(samples, |sample| sample.report.requests.rate_per_s),
        Err(_) => f64::NAN,
    };
    Ok(vec![
        pgbench_line("pgbench, one row a commit", &all.pgbench),
        quoted("POST /code, Cpeak", &all.cpeak),
        against("POST /code, Forebay", &all.forebay, cpu(&all.cpeak) / 3.0, "1/3 of Cpeak"),
        Line::new("rate, Forebay", rate, "rps", Bar::AtLeast(pgbench), "1.0 × pgbench"),
    ])
}

/// Row 8.
pub fn code_v4_on_postgres(bench: &Bench) -> Lines {
    let rows = bench.scaled(POSTGRES_ROWS, 50_000);
    let postgres = Postgres::start()?;
    postgres.run_file("fill.sql", rows)?;
    let target = format!("/code-v4?max={rows}");
    let all = on_postgres(bench, &postgres, ("GET", &target), ("by_key.sql", rows), "SELECT 1")?;
    let (pgbench, _) = transactions(&all.pgbench);
    let what = format!("GET /code-v4, {rows} rows");
    Ok(vec![
        pgbench_line("pgbench, by key", &all.pgbench),
        quoted(&format!("{what}, Cpeak"), &all.cpeak),
        against("Forebay against Cpeak", &all.forebay, cpu(&all.cpeak) / 2.0, "1/2 of Cpeak"),
        against("Forebay against pgbench", &all.forebay, 1.5 * pgbench, "1.5 × pgbench"),
    ])
}
