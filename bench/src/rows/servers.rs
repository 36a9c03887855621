//! Stores that are servers: rows 9 and 10 into PostgreSQL and Redis, and a write load over a
//! cluster of 15 masters and 15 replicas.
//!
//! The yardstick of PostgreSQL is PostgreSQL itself: a binary COPY of the same rows from a file on
//! the server into the same table with its indexes.

use super::peers::stores::{self, Persistence, Postgres, Redis};
use super::store::{drain_all, fill};
use crate::machine;
use crate::measure::{Drive, clean, median};
use crate::process::{Bench, Pinning, start_loaded, succeeded};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Results, run};
use forebay_tests::{Folder, Server, Start, example};
use forebay_topology::{Local, NodeStatus, Persistence as Kept, Spec, Topology};
use serde_json::json;
use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Masters of the large cluster; each has one replica.
const MASTERS: usize = 15;

/// The rows of a table in a file of the server's, for [`copy_rate`].
fn copy_out(postgres: &Postgres, table: &str) -> Result<String, Box<dyn Error>> {
    let file = format!("{}/bench-{table}.copy", postgres.ask("SHOW data_directory")?);
    postgres.run(&format!("COPY {table} TO '{file}' (FORMAT binary)"))?;
    Ok(file)
}

/// Rows a second of the server's own COPY from that file, into the same table.
fn copy_rate(postgres: &Postgres, table: &str, file: &str, rows: u64) -> Result<f64, Box<dyn Error>> {
    postgres.run(&format!("TRUNCATE {table}"))?;
    postgres.run("CHECKPOINT")?;
    let began = Instant::now();
    postgres.run(&format!("COPY {table} FROM '{file}' (FORMAT binary)"))?;
    let took = began.elapsed();
    let stored: u64 = postgres.ask(&format!("SELECT count(*) FROM {table}"))?.parse()?;
    if stored == rows {
        Ok(rows as f64 / took.as_secs_f64())
    } else {
        Err(format!("{stored} of {rows} rows are copied").into())
    }
}

/// Rows a second that a server drains into an empty table; the rows were written before.
pub fn drain_rate(bench: &Bench, postgres: &Postgres, rows: u64) -> Result<f64, Box<dyn Error>> {
    let folder = Folder::new();
    let start = bench.start("codes.toml", &folder, Pinning::Free).database(&postgres.url());
    let server = start_loaded(&start.set("drain.paused=true"))?;
    postgres.run("TRUNCATE ucodes")?;
    fill(&server, "/code-ultra-fast", rows)?;
    postgres.run("CHECKPOINT")?;
    let took = drain_all(&server);
    let stored: u64 = postgres.ask("SELECT count(*) FROM ucodes")?.parse()?;
    if stored != rows {
        return Err(format!("{stored} of {rows} rows are in PostgreSQL").into());
    }
    server.kill();
    Ok(rows as f64 / took.as_secs_f64())
}

/// Row 9 into PostgreSQL. Both sides in turn on one server, whose files have already been
/// allocated: otherwise the first side would pay for allocating memory and WAL files.
pub fn drain(bench: &Bench) -> Lines {
    let rows = bench.scaled(500_000, 100_000);
    let (mut drained, mut copied) = (Vec::new(), Vec::new());
    let postgres = Postgres::start()?;
    drain_rate(bench, &postgres, rows)?;
    let file = copy_out(&postgres, "ucodes")?;
    for _ in 0..bench.turns() {
        copied.push(copy_rate(&postgres, "ucodes", &file, rows)?);
        drained.push(drain_rate(bench, &postgres, rows)?);
    }
    drop(postgres);
    let bar = 0.8 * median(copied.clone());
    let what = format!("drain alone, {rows} rows, UUID key");
    let mut lines = vec![
        Line::quoted("server-side binary COPY", median(copied.clone()), "rows/s").samples(json!(copied)),
        Line::new(what, median(drained.clone()), "rows/s", Bar::AtLeast(bar), "0.8 × COPY")
            .samples(json!(drained)),
    ];
    lines.extend(drain_under_load(bench)?);
    Ok(lines)
}

/// The rates of writing and draining at the same time.
fn drain_under_load(bench: &Bench) -> Lines {
    let (postgres, folder) = (Postgres::start()?, Folder::new());
    let server = start_loaded(&bench.start("codes.toml", &folder, Pinning::Free).database(&postgres.url()))?;
    let settings = Drive::new(server.address, None).settings(bench.sample());
    let drained = || server.drain_state()["rows_total"].as_f64().unwrap_or(0.0);
    let before = drained();
    let report = clean(run(&settings, &mut Fixed::new("POST", "/code-ultra-fast", None))?)?;
    let rate = (drained() - before) / report.duration_s;
    Ok(vec![
        Line::quoted("writes while it drains", report.requests.rate_per_s, "rps").beside(format!("{report}")),
        Line::quoted("drain while it is written to", rate, "rows/s"),
    ])
}

/// Row 10 with servers: seed into PostgreSQL, and from there into memory and into one Redis.
///
/// The first process that fills this much memory pays for the pages that the host allocates, the
/// second one does not: both figures are reported.
pub fn seed_and_warm(bench: &Bench) -> Lines {
    let rows = bench.scaled(1_000_000, 100_000);
    let mut figures: [Vec<f64>; 8] = Default::default();
    let mut costs = [String::new(), String::new()];
    for _ in 0..bench.turns() {
        let (postgres, folder) = (Postgres::start()?, Folder::new());
        let start = bench.start("codes.toml", &folder, Pinning::Free).database(&postgres.url());
        let empty = start_time(&start)?;
        let began = Instant::now();
        succeeded(&start.seed("codes", rows))?;
        let seeded = rate(rows, began.elapsed(), Duration::ZERO);
        let first = rate(rows, start_time(&start)?, empty);
        let again = rate(rows, start_time(&start)?, empty);
        let [redis_first, redis_again, redis_full] =
            into_redis(bench, &postgres, (rows, empty), &mut costs[0])?;
        let cluster = into_cluster(bench, &postgres, (rows, empty), &mut costs[1])?;
        let copied = copy_rate(&postgres, "codes", &copy_out(&postgres, "codes")?, rows)?;
        let turn = [copied, seeded, again, first, redis_again, redis_first, redis_full, cluster];
        figures.iter_mut().zip(turn).for_each(|(samples, figure)| samples.push(figure));
    }
    let [copied, ..] = figures.clone().map(median);
    let bars = [
        ("server-side binary COPY", None),
        ("seed", Some(Bar::AtLeast(0.8 * copied))),
        ("warm at start", Some(Bar::AtLeast(400_000.0))),
        ("warm at start, memory never used before", None),
        ("warm one Redis at start", Some(Bar::AtLeast(200_000.0))),
        ("warm one Redis at start, memory never used before", None),
        ("warm one Redis that has them all", None),
        ("warm a cluster of 3 at start", Some(Bar::AtLeast(150_000.0))),
    ];
    let line = |((what, bar), samples): ((&str, Option<Bar>), Vec<f64>)| {
        let (figure, raw) = (median(samples.clone()), json!(samples));
        let line = match bar {
            Some(bar) => Line::new(format!("{what}, {rows} rows"), figure, "rows/s", bar, ""),
            None => Line::quoted(what, figure, "rows/s"),
        };
        line.samples(raw)
    };
    let mut lines: Vec<Line> = bars.into_iter().zip(figures).map(line).collect();
    for (at, cost) in [4, 7].into_iter().zip(costs) {
        lines[at].beside = cost;
    }
    Ok(lines)
}

/// From the process's start until it serves.
fn start_time(start: &Start) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    drop(start_loaded(start)?);
    Ok(began.elapsed())
}

/// Rows a second, of a start that took `empty` before there were rows.
fn rate(rows: u64, took: Duration, empty: Duration) -> f64 {
    rows as f64 / took.saturating_sub(empty).as_secs_f64().max(1e-9)
}

/// Rows a second from PostgreSQL into a Redis: at the start of the first server, of the first after
/// it was emptied, and by `forebay warm` beside that one.
fn into_redis(
    bench: &Bench,
    postgres: &Postgres,
    (rows, empty): (u64, Duration),
    cost: &mut String,
) -> Result<[f64; 3], Box<dyn Error>> {
    let (folder, redis) = (Folder::new(), Redis::start(Persistence::None)?);
    let start = bench.start_remote(&example("codes.toml"), &folder, &postgres.url(), &redis.url());
    let start = start.set("memory.durability=async");
    forget_claims(postgres)?;
    let first = rate(rows, start_time(&start)?, empty);
    redis.empty()?;
    forget_claims(postgres)?;
    let before = machine::process_cpu_us(redis.pid())?;
    let began = Instant::now();
    let server = start_loaded(&start)?;
    let again = rate(rows, began.elapsed(), empty);
    *cost = cpu_a_row(&server, machine::process_cpu_us(redis.pid())? - before, rows)?;
    let began = Instant::now();
    let answer = server.admin("POST", "/warm?table=codes").expect(200);
    let full = rate(rows, began.elapsed(), Duration::ZERO);
    match answer["warmed"][0]["rows"].as_u64() {
        Some(found) if found == rows => Ok([first, again, full]),
        _ => Err(format!("{rows} rows were seeded, warm says {answer}").into()),
    }
}

/// Deletes the claims of ended servers: a start would wait until they expire.
fn forget_claims(postgres: &Postgres) -> Result<(), Box<dyn Error>> {
    postgres.run("DROP TABLE IF EXISTS forebay_position")
}

/// Rows a second from PostgreSQL into a cluster of 3, at the start of a server.
fn into_cluster(
    bench: &Bench,
    postgres: &Postgres,
    (rows, empty): (u64, Duration),
    cost: &mut String,
) -> Result<f64, Box<dyn Error>> {
    let (folder, before) = (Folder::new(), Folder::new());
    let config = example("codes.toml");
    let start = |folder: &Folder, cluster: &Local| {
        let start = bench.start_remote(&config, folder, &postgres.url(), &cluster.url());
        start.set("memory.durability=async")
    };
    let up = || Local::up(Spec::new(Topology::Cluster { masters: 3, replicas: 0 }).keep(Kept::None));
    let cluster = up()?;
    // Repeated with memory that the nodes have already allocated, as above.
    forget_claims(postgres)?;
    drop(start_loaded(&start(&before, &cluster))?);
    for node in cluster.nodes() {
        stores::empty(SocketAddr::from(([127, 0, 0, 1], node.port)))?;
    }
    forget_claims(postgres)?;
    let redis_us = || -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for node in cluster.status()?.nodes {
            sum += machine::process_cpu_us(u32::try_from(node.pid.ok_or("a node has ended")?)?)?;
        }
        Ok(sum)
    };
    let before_us = redis_us()?;
    let began = Instant::now();
    let server = start_loaded(&start(&folder, &cluster))?;
    let rate = rate(rows, began.elapsed(), empty);
    *cost = cpu_a_row(&server, redis_us()? - before_us, rows)?;
    Ok(rate)
}

/// The CPU time of server and Redis for each row.
fn cpu_a_row(server: &Server, redis_us: f64, rows: u64) -> Result<String, Box<dyn Error>> {
    let (server_us, rows) = (machine::process_cpu_us(server.pid())?, rows as f64);
    Ok(format!("CPU a row: server {:.2} µs, Redis {:.2} µs", server_us / rows, redis_us / rows))
}

/// A cluster of 15 + 15: how soon it is ready, and how evenly writes spread over it.
pub fn nodes(bench: &Bench) -> Lines {
    let began = Instant::now();
    let cluster = Local::up(Spec {
        persistence: Kept::None,
        ..Spec::new(Topology::Cluster { masters: MASTERS, replicas: 1 })
    })?;
    let up_s = began.elapsed().as_secs_f64();
    let (folder, database) = (Folder::new(), Folder::new());
    let record = format!("sqlite:{}", database.database().display());
    let start = bench.start_remote(&example("codes.toml"), &folder, &record, &cluster.url());
    let server = start_loaded(&start.set("memory.durability=async").set("drain.paused=true"))?;
    let settings = Drive::new(server.address, None).settings(bench.sample());
    let masters = || -> Result<Vec<NodeStatus>, Box<dyn Error>> {
        let nodes = cluster.status()?.nodes;
        Ok(nodes.into_iter().filter(|node| node.slots > 0).collect())
    };
    let before = masters()?;
    let report = clean(run(&settings, &mut Fixed::new("POST", "/code-ultra-fast", None))?)?;
    // A primary's replication offset shows how much was written to it.
    let written: Vec<f64> = before
        .iter()
        .zip(masters()?)
        .map(|(before, after)| after.offset_bytes.saturating_sub(before.offset_bytes) as f64)
        .collect();
    let mean = written.iter().sum::<f64>() / written.len() as f64;
    let most = written.iter().copied().fold(0.0, f64::max);
    Ok(vec![
        Line::new(
            format!("{MASTERS} + {MASTERS} nodes are up"),
            up_s,
            "s",
            Bar::AtMost(UP.as_secs_f64()),
            "",
        ),
        Line::new("most written to one master", most / mean, "× mean", Bar::AtMost(1.5), "")
            .beside(format!("{report}"))
            .samples(json!(written)),
    ])
}

/// The time in which a cluster of thirty must be ready on two cores.
const UP: Duration = Duration::from_secs(30);

/// Makes PostgreSQL refuse one row in ten, by a constraint that only PostgreSQL can check.
const REFUSE: &str = "ALTER TABLE ucodes ADD CONSTRAINT nine_in_ten CHECK (abs(hashtext(code) % 10) <> 3)";

/// Drives one route, after a warm-up.
fn driven(
    bench: &Bench,
    server: &Server,
    target: &str,
    connections: usize,
    pipelining: usize,
) -> Result<Results, Box<dyn Error>> {
    let drive = Drive { connections, pipelining, ..Drive::new(server.address, None) };
    run(&drive.settings(bench.warm_up()), &mut Fixed::new("POST", target, None))?;
    Ok(run(&drive.settings(bench.sample()), &mut Fixed::new("POST", target, None))?)
}

/// Pipelined requests on each of 1,000 connections, where the server's capacity is measured rather than
/// the driver's.
const PIPELINED: usize = 16;

/// The codes example, with a limit that allows as many waiting requests as are pipelined.
fn patient_codes(folder: &Folder) -> Result<PathBuf, Box<dyn Error>> {
    let (text, route) =
        (std::fs::read_to_string(example("codes.toml"))?, "route = \"POST /code-ultra-fast\"\n");
    if !text.contains(route) {
        return Err(format!("codes.toml has no {route}").into());
    }
    Ok(folder
        .write("codes.toml", &text.replace(route, &format!("{route}concurrency = {}\n", 2_000 * PIPELINED))))
}

/// Row 22: `durability = "database"`, beside one statement a request and beside the drain alone. The rate
/// without a database at 1,000 connections is quoted, because the driver uses a part of the cores.
pub fn committed(bench: &Bench) -> Lines {
    let rows = bench.scaled(500_000, 100_000);
    let mut figures: [Vec<f64>; 8] = Default::default();
    let postgres = Postgres::start()?;
    for _ in 0..bench.turns() {
        let drained = drain_rate(bench, &postgres, rows)?;
        let folder = Folder::new();
        let start = bench.start_file(&patient_codes(&folder)?, &folder, Pinning::Free);
        let server = start_loaded(&start.database(&postgres.url()).set("memory.durability=database"))?;
        let taken = |target: &str, connections: usize, pipelining: usize| {
            let report = driven(bench, &server, target, connections, pipelining)?;
            Ok::<f64, Box<dyn Error>>(clean(report)?.requests.rate_per_s)
        };
        let (sql, few) = (taken("/code", 64, 1)?, taken("/code-ultra-fast", 64, 1)?);
        let (many, more) =
            (taken("/code-ultra-fast", 1_000, 1)?, taken("/code-ultra-fast", 1_000, PIPELINED)?);
        postgres.run("TRUNCATE ucodes")?;
        postgres.run(REFUSE)?;
        let refused = refused_rate(bench, &server, 1)?;
        let refused_more = refused_rate(bench, &server, PIPELINED)?;
        postgres.run("ALTER TABLE ucodes DROP CONSTRAINT nine_in_ten")?;
        server.kill();
        postgres.run("TRUNCATE ucodes")?;
        let turn = [sql, drained, memory_rate(bench)?, few, many, more, refused, refused_more];
        figures.iter_mut().zip(turn).for_each(|(samples, figure)| samples.push(figure));
    }
    let [by_sql, row_9, ..] = figures.clone().map(median);
    let bars = [
        ("POST /code by SQL, 64 connections", None),
        ("drain alone (row 9)", None),
        ("in memory (`sync`), 1,000 connections", None),
        ("committed, 64 connections", Some((2.0 * by_sql, "2 × SQL"))),
        ("committed, 1,000 connections", Some((0.6 * row_9, "0.6 × row 9"))),
        ("the same, 16 pipelined", Some((0.6 * row_9, "0.6 × row 9"))),
        ("one in ten refused, 1,000 connections", Some((0.3 * row_9, "0.3 × row 9"))),
        ("the same, 16 pipelined", Some((0.3 * row_9, "0.3 × row 9"))),
    ];
    let line = |what: &str, bar: Option<(f64, &str)>, samples: Vec<f64>| {
        let (figure, raw) = (median(samples.clone()), json!(samples));
        let line = match bar {
            Some((bar, of)) => Line::new(what, figure, "rps", Bar::AtLeast(bar), of),
            None => Line::quoted(what, figure, "rps"),
        };
        line.samples(raw)
    };
    Ok(bars.into_iter().zip(figures).map(|((what, bar), samples)| line(what, bar, samples)).collect())
}

/// Answers a second where PostgreSQL refuses one row in ten.
fn refused_rate(bench: &Bench, server: &Server, pipelining: usize) -> Result<f64, Box<dyn Error>> {
    let report = driven(bench, server, "/code-ultra-fast", 1_000, pipelining)?;
    let (taken, refused) = (report.status(201), report.status(422));
    if taken == 0 || refused == 0 || taken + refused != report.requests.completed {
        return Err(format!("not all is well: {report}").into());
    }
    Ok(report.requests.rate_per_s)
}

/// The rate of machine and driver at 1,000 connections without a database.
fn memory_rate(bench: &Bench) -> Result<f64, Box<dyn Error>> {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Free).set("drain.paused=true").start();
    Ok(clean(driven(bench, &server, "/code-ultra-fast", 1_000, 1)?)?.requests.rate_per_s)
}
