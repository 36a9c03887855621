//! The items application: the same bytes from four places, the bytes on the wire for a poll, and the polls of
//! 10,000 clients.

use super::load::forebay;
use super::peers::Side;
use super::peers::stores::{Persistence, Postgres, Redis};
use crate::machine;
use crate::measure::{Cost, Drive, Sample, beside_stores, clean, cpu, raw, sample};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Results, run};
use forebay_tests::{Folder, Server, example};
use serde_json::json;
use std::error::Error;

/// 10,000 clients, each every 15 s.
const POLLS_PER_S: u64 = 667;

/// The first of the 200 items that change once a minute.
const HOT: u64 = 1;

/// The first of 200 items that do not change.
const QUIET: u64 = 1_001;

/// The application on PostgreSQL and Redis, with its rows.
pub struct Application {
    server: Server,
    pub postgres: Postgres,
    pub redis: Redis,
    folder: Folder,
}

/// Bytes a request: to and from clients, Redis, PostgreSQL.
#[derive(Clone, Copy)]
struct Travelled {
    clients: f64,
    redis: f64,
    database: f64,
}

impl Application {
    /// `Apart`: the server has a core, the stores have the driver's.
    pub fn start(bench: &Bench, pinning: Pinning) -> Result<Application, Box<dyn Error>> {
        let stores = machine::on_core(bench.core(pinning), || {
            let postgres = Postgres::start().map_err(|error| error.to_string())?;
            let redis = Redis::start(Persistence::None).map_err(|error| error.to_string())?;
            Ok::<_, String>((postgres, redis))
        });
        let (postgres, redis) = stores??;
        let folder = Folder::new();
        // The memory tier is embedded: Redis holds only cached answers.
        let start = bench.start_file(&example("items.toml"), &folder, pinning).database(&postgres.url());
        let server = start.set(&format!("cache.shared={}", redis.url())).start();
        server.client().post("/items/generate?size=10000").expect(200);
        Ok(Application { server, postgres, redis, folder })
    }

    /// Its server.
    pub fn side(&self) -> Side {
        Side::from(&self.server)
    }

    /// The bytes on the wire during a load, and the load's result. The load returns its number of
    /// requests.
    fn count(
        &self,
        load: impl FnOnce() -> Result<(Results, f64), Box<dyn Error>>,
    ) -> Result<(Results, Travelled), Box<dyn Error>> {
        let stores = || -> Result<_, Box<dyn Error>> { Ok((self.redis.bytes()?, self.postgres.bytes()?)) };
        let before = stores()?;
        let (results, requests) = load()?;
        let after = stores()?;
        let clients = (results.bytes.read + results.bytes.written) as f64;
        let travelled = Travelled {
            clients: clients / results.requests.completed.max(1) as f64,
            redis: (after.0 - before.0) / requests,
            database: (after.1 - before.1) / requests,
        };
        Ok((results, travelled))
    }

    /// The bytes on the wire for a poll of one of 200 items from `first` on, when every client has
    /// polled before.
    fn polled(
        &self,
        bench: &Bench,
        path: &str,
        first: u64,
        validate: bool,
    ) -> Result<Travelled, Box<dyn Error>> {
        let clients = bench.scaled(10_000, 1_000);
        let text = format!(
            "connections = {clients}\n[[endpoint]]\npath = \"{path}/{{client_int({first},{})}}\"\nvalidate = {validate}\n",
            first + 199
        );
        let plan = self.folder.write("polls.toml", &text).display().to_string();
        // Every client polls once first, so that the later polls come from clients that already
        // have an answer.
        let (join_s, polls_s) = (clients.div_ceil(POLLS_PER_S) + 1, bench.scaled(45, 6));
        let (join, time) = (format!("{join_s}s"), format!("{polls_s}s"));
        let (rate, url) = (POLLS_PER_S.to_string(), format!("http://{}", self.server.address));
        let (_, travelled) = self.count(|| {
            let how = ["--plan", &plan, "-R", &rate, "--warmup", &join, "-d", &time, "-w", "1", &url];
            let results = clean(forebay(bench, None, &how)?)?;
            Ok((results, (POLLS_PER_S * (join_s + polls_s)) as f64))
        })?;
        Ok(travelled)
    }
}

/// Where the bytes come from: a constant, PostgreSQL, the shared level, the process.
pub const WAYS: [&str; 4] =
    ["/bench/empty", "/bench/db/items/1", "/bench/shared/items/1", "/bench/burst/items/1"];

/// One list of samples for each place, of the application or of a peer on the same stores.
pub fn ways(bench: &Bench, side: Side) -> Result<[Vec<Sample>; 4], Box<dyn Error>> {
    let mut samples: [Vec<Sample>; 4] = Default::default();
    for _ in 0..bench.turns() {
        for (way, samples) in WAYS.iter().zip(&mut samples) {
            let mut request = Fixed::new("GET", way, None);
            samples.push(sample(
                bench,
                Drive::new(side.address, None),
                Cost::System(side.pid),
                &mut request,
            )?);
        }
    }
    Ok(samples)
}

/// Row "items".
pub fn four_ways(bench: &Bench) -> Lines {
    let application = Application::start(bench, Pinning::Free)?;
    let drive = Drive::new(application.server.address, None);
    let samples = ways(bench, application.side())?;
    let mut lines = Vec::new();
    for (way, samples) in WAYS.iter().zip(&samples) {
        let (_, Travelled { clients, redis, database }) = application.count(|| {
            let results = clean(run(&drive.settings(bench.warm_up()), &mut Fixed::new("GET", way, None))?)?;
            let requests = results.requests.completed as f64;
            Ok((results, requests))
        })?;
        lines.push(
            Line::quoted(*way, cpu(samples), "cores/Mrps")
                .beside(format!(
                    "bytes a request: clients {clients:.0}, Redis {redis:.1}, database {database:.1}; {}",
                    beside_stores(samples)
                ))
                .samples(raw(samples)),
        );
    }
    lines.extend(polled_ways(bench, &application)?);
    Ok(lines)
}

/// What the local level saves between server and Redis, and what validators save between clients and server.
fn polled_ways(bench: &Bench, application: &Application) -> Lines {
    let shared = application.polled(bench, "/bench/shared/items", HOT, true)?;
    let local = application.polled(bench, "/bench/burst/items", HOT, true)?;
    let [hot, quiet] = [HOT, QUIET].map(|first| -> Result<[Travelled; 2], Box<dyn Error>> {
        let polled = |validate| application.polled(bench, "/bench/burst/items", first, validate);
        Ok([polled(false)?, polled(true)?])
    });
    let ([hot, hot_checked], [quiet, quiet_checked]) = (hot?, quiet?);
    let bytes = |name: &str, all: Travelled| {
        let Travelled { clients, redis, database } = all;
        format!("{name}: clients {clients:.0}, Redis {redis:.1}, database {database:.1} bytes a poll")
    };
    let polls = "667 polls a second of 200 items";
    Ok(vec![
        Line::new(
            format!("{polls}: Redis' bytes, shared to local + shared"),
            shared.redis / local.redis,
            "times",
            Bar::AtLeast(5.0),
            "",
        )
        .beside(format!("{}; {}", bytes("shared", shared), bytes("local + shared", local))),
        Line::new(
            format!("{polls} that do not change: clients' bytes, without validators to with"),
            quiet.clients / quiet_checked.clients,
            "times",
            Bar::AtLeast(4.0),
            "",
        )
        .beside(format!("{}; {}", bytes("without", quiet), bytes("with", quiet_checked))),
        // Every fourth poll finds a changed item, so validators can save at most a factor of 4.
        Line::quoted(
            format!("{polls} that change once a minute: the same"),
            hot.clients / hot_checked.clients,
            "times",
        )
        .beside(format!("{}; {}", bytes("without", hot), bytes("with", hot_checked))),
    ])
}

/// The plan of the items application: 10,000 clients join within 5 s and poll every 15 s.
pub fn polls(bench: &Bench) -> Lines {
    let application = Application::start(bench, Pinning::Apart)?;
    let server = &application.server;
    let plan = std::fs::read_to_string(example("items.load.toml"))?;
    let time = format!("for = \"{}s\"", bench.scaled(60, 10));
    let plan = application.folder.write("items.load.toml", &plan.replace("for = \"60s\"", &time));
    let (plan, url) = (plan.display().to_string(), format!("http://{}", server.address));
    let before_us = machine::process_cpu_us(server.pid())?;
    let (results, travelled) = application.count(|| {
        let how =
            ["--plan", plan.as_str(), "-w", "1", "--monitor", &format!("http://{}", server.admin), &url];
        let results = forebay(bench, bench.core(Pinning::Apart), &how)?;
        let requests = results.requests.completed as f64;
        Ok((results, requests))
    })?;
    let (requests, latency) = (&results.requests, &results.latency_ms);
    let answered = requests.completed.max(1) as f64;
    let cpu_us = (machine::process_cpu_us(server.pid())? - before_us) / answered;
    let unchanged = results.statuses.get(&304).copied().unwrap_or(0) as f64 / answered;
    let lost = requests.errors + requests.timeouts + requests.unexpected + requests.in_flight;
    let offered = requests.offered_per_s.unwrap_or(f64::NAN);
    let Travelled { clients, redis, database } = travelled;
    let why = results.verdict.as_ref().map_or("no verdict", |verdict| &verdict.why);
    Ok(vec![
        Line::new(
            "answered of what was due",
            requests.rate_per_s / offered,
            "",
            Bar::AtLeast(0.99),
            "99 %",
        )
        .beside(format!("{} polls, {:.0} % of them 304; {lost} errors; {why}", requests.completed, unchanged * 100.0)),
        Line::new("p99 from the time due", latency.percentile_ms(99.0), "ms", Bar::AtMost(10.0), "")
            .beside(format!(
                "p50 {:.2} ms, p99.9 {:.2} ms, max {:.1} ms",
                latency.percentile_ms(50.0),
                latency.percentile_ms(99.9),
                latency.percentile_ms(100.0)
            ))
            .samples(json!({
                "completed": requests.completed,
                "statuses": results.statuses,
                "p50_ms": latency.percentile_ms(50.0),
                "p99_ms": latency.percentile_ms(99.0),
                "max_ms": latency.percentile_ms(100.0),
                "verdict": results.verdict,
            })),
        Line::quoted("server", cpu_us, "cores/Mrps").beside(format!(
            "bytes a poll: clients {clients:.0}, Redis {redis:.1}, database {database:.1}; the join and its 10,000 connections counted"
        )),
    ])
}
