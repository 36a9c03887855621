//! The codes routes on Forebay and the three Node peers, side by side: one table, in the terminal
//! and in `bench/results/`, and one page.
//!
//! Forebay is measured twice: embedded, the default of `forebay serve`, and on the PostgreSQL and
//! the Redis of the peers.

use super::node;
use super::page;
use super::stores::{Persistence, Postgres, Redis};
use super::{Side, Started, forebay, why};
use crate::machine;
use crate::measure::{Cost, Drive, Sample, median_of, raw, sample};
use crate::process::{Bench, Pinning, start_loaded, succeeded};
use forebay_load::{Fixed, Generated, Traffic};
use forebay_tests::{Client, Folder, root};
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Rows that reads choose from. The two routes that scan every row are slow enough with this
/// number.
pub const ROWS: u64 = 20_000;

/// Rows that are read by their UUID.
const BY_UUID: usize = 1000;

const BODY: &[u8] = br#"{"foo1":"some text one","foo2":"some text two","foo3":"some text three","foo4":"some text four","foo5":"some text five","foo6":"some text six","foo7":"some text seven","foo8":"some text eight","foo9":"some text nine","foo10":"some text ten"}"#;

/// Method, target, body. Reads first, so that all of them see the same number of rows.
pub const ROUTES: [(&str, &str, Option<&[u8]>); 11] = [
    ("GET", "/simple", None),
    ("PATCH", "/update-something/1234/Fred?value1=one&value2=two", Some(BODY)),
    ("GET", "/code-v1", None),
    ("GET", "/code-v2", None),
    ("GET", "/code-v3", None),
    ("GET", "/code-v4?max=20000", None),
    ("GET", "/code-fast", None),
    ("GET", ULTRA_FAST_BY_ID, None),
    ("POST", "/code", None),
    ("POST", "/code-fast", None),
    ("POST", "/code-ultra-fast", None),
];

pub const ULTRA_FAST_BY_ID: &str = "/code-ultra-fast/{id}";

/// A column of the table.
struct Column {
    name: &'static str,
    side: Result<Side, String>,
    /// One list a route.
    samples: Vec<Result<Vec<Sample>, String>>,
}

impl Column {
    fn new(name: &'static str, side: Result<Side, String>) -> Column {
        Column { name, side, samples: ROUTES.iter().map(|_| Ok(Vec::new())).collect() }
    }

    /// CPU microseconds a request, and requests a second; or why they are unknown.
    fn figures(&self, route: usize) -> Result<(f64, f64), String> {
        let samples = self.samples[route].as_ref().map_err(Clone::clone)?;
        if samples.is_empty() {
            return Err("it was not driven".into());
        }
        let spent = median_of(samples, |sample| sample.started_cpu_us);
        Ok((spent, median_of(samples, |sample| sample.report.requests.rate_per_s)))
    }

    fn cell(&self, route: usize) -> String {
        self.figures(route).map_or_else(|_| "–".into(), |(spent, rate)| format!("{spent:.1} ({rate:.0}/s)"))
    }

    fn json(&self) -> Value {
        let routes = ROUTES.iter().zip(&self.samples).map(|((method, target, _), samples)| match samples {
            Ok(samples) => json!({ "route": format!("{method} {target}"), "samples": raw(samples) }),
            Err(why) => json!({ "route": format!("{method} {target}"), "not_measured": why }),
        });
        json!({ "server": self.name, "routes": routes.collect::<Value>() })
    }
}

/// Creates rows, and returns their UUIDs for reads.
fn uuids(side: Side) -> Result<Vec<String>, Box<dyn Error>> {
    let mut client = Client::connect(side.address)?;
    (0..BY_UUID)
        .map(|_| {
            let answer = client.post("/code-ultra-fast");
            let made: Value = serde_json::from_slice(&answer.body)?;
            let id = made["created_code"]["id"].as_str();
            id.map(str::to_owned).ok_or_else(|| format!("no id: {answer:?}").into())
        })
        .collect()
}

fn drive(
    bench: &Bench,
    side: Side,
    first: bool,
    traffic: &mut (impl Traffic + Send),
) -> Result<Sample, Box<dyn Error>> {
    if first {
        side.warm(bench, traffic)?;
    }
    sample(bench, Drive::new(side.address, None), Cost::System(side.pid), traffic)
}

/// One sample of a route; before the first one the server is driven for as long as just-in-time
/// compilers need.
pub fn measure(bench: &Bench, side: Side, route: usize, first: bool) -> Result<Sample, Box<dyn Error>> {
    let (method, target, body) = ROUTES[route];
    if target != ULTRA_FAST_BY_ID {
        return drive(bench, side, first, &mut Fixed::new(method, target, body));
    }
    let (ids, mut next) = (uuids(side)?, 0);
    let mut by_id = Generated(move |_: usize, out: &mut Vec<u8>| {
        next = (next + 1) % ids.len();
        out.extend_from_slice(b"GET /code-ultra-fast/");
        out.extend_from_slice(ids[next].as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\n\r\n");
    });
    drive(bench, side, first, &mut by_id)
}

/// Every route on every server, in turns; a server that fails on a route has no figure for it.
fn fill(bench: &Bench, columns: &mut [Column]) {
    for (route, (method, target, _)) in ROUTES.iter().enumerate() {
        println!("{method} {target}");
        for turn in 0..bench.turns() {
            for column in &mut *columns {
                let sampled = match &column.side {
                    Ok(side) => measure(bench, *side, route, turn == 0).map_err(|error| why(error.as_ref())),
                    Err(why) => Err(why.clone()),
                };
                match (sampled, &mut column.samples[route]) {
                    (Ok(sample), Ok(samples)) => samples.push(sample),
                    (Err(why), samples) => {
                        if column.side.is_ok() {
                            println!("  {}: {why}", column.name);
                        }
                        *samples = Err(why);
                    }
                    (Ok(_), Err(_)) => {}
                }
            }
        }
    }
}

/// The name of a route on the page.
pub fn shown(method: &str, target: &str) -> String {
    let path = target.split('?').next().unwrap_or(target).replace("/1234/Fred", "/{id}/{name}");
    format!("{method} {path}")
}

fn table(columns: &[Column]) -> String {
    let mut rows = vec![
        std::iter::once("cores/Mrps".to_owned())
            .chain(columns.iter().map(|column| column.name.to_owned()))
            .collect::<Vec<_>>(),
    ];
    for (route, (method, target, _)) in ROUTES.iter().enumerate() {
        rows.push(
            std::iter::once(shown(method, target))
                .chain(columns.iter().map(|column| column.cell(route)))
                .collect(),
        );
    }
    let width = |place: usize| rows.iter().map(|row| row[place].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &[String]| -> String {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let body: String = rows[1..].iter().map(|row| line(row)).collect();
    format!("{}{}{body}", line(&rows[0]), line(&rule))
}

/// Embedded, with the same number of rows.
pub fn embedded(bench: &Bench, folder: &Folder) -> Started {
    // Without this, the drain would continue while another server is measured.
    let start = bench.start("codes.toml", folder, Pinning::Free).set("drain.paused=true");
    let run = || -> Result<_, Box<dyn Error>> {
        succeeded(&start.seed("codes", ROWS))?;
        start_loaded(&start)
    };
    run().map_err(|error| why(error.as_ref()))
}

/// Measures and prints.
pub fn side_by_side(bench: &Bench) -> Result<(), Box<dyn Error>> {
    let (postgres, own_postgres) = (Postgres::start()?, Folder::new());
    let redis = [Redis::start(Persistence::None)?, Redis::start(Persistence::None)?];
    postgres.run_file("fill.sql", ROWS)?;
    node::seed(&redis[0].url(), ROWS)?;
    let nodes =
        ["cpeak", "fastify", "express"].map(|name| node::start(name, &postgres.url(), &redis[0].url()));
    let [cpeak, fastify, express] = nodes;
    let (cpeak, fastify, express) = (cpeak?, fastify?, express?);
    let folder = Folder::new();
    let embedded = embedded(bench, &folder);
    let start = forebay(bench, &own_postgres, &postgres, &redis[1], "async");
    let remote = start_loaded(&start).map_err(|error| why(error.as_ref()));
    if let Ok(server) = &remote {
        server.admin("POST", "/warm?table=codes").expect(200);
    }
    let side = |started: &Started| started.as_ref().map(Side::from).map_err(Clone::clone);
    let mut columns = [
        Column::new("Forebay, embedded", side(&embedded)),
        Column::new("Forebay, same stores", side(&remote)),
        Column::new("Cpeak", Ok(Side::from(&cpeak))),
        Column::new("Fastify", Ok(Side::from(&fastify))),
        Column::new("Express", Ok(Side::from(&express))),
    ];
    machine::warn_when_busy();
    fill(bench, &mut columns);
    let mut text = format!("\n{}\n", table(&columns));
    text += "CPU time of server and stores together by requests: cores for a million a second; in brackets the rate. 64 \
             connections.\nThe peers: one process each, PostgreSQL and Redis (nothing on disk). Forebay embedded: every write synced \
             before it is answered, SQLite. Nobody copies \
             from memory to the database meanwhile.\n";
    for column in &columns {
        if let Err(why) = &column.side {
            text += &format!("{}: not measured: {why}\n", column.name);
            continue;
        }
        for (route, (method, target, _)) in ROUTES.iter().enumerate() {
            if let Err(why) = column.figures(route) {
                text += &format!("{} on {}: {why}\n", column.name, shown(method, target));
            }
        }
    }
    println!("{text}");
    keep(bench, &text, &columns)
}

fn keep(bench: &Bench, text: &str, columns: &[Column]) -> Result<(), Box<dyn Error>> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let folder = root().join("bench/results");
    fs::create_dir_all(&folder)?;
    let name = format!("peers-{since}{}", if bench.quick { "-quick" } else { "" });
    fs::write(folder.join(format!("{name}.md")), format!("{}\n{text}", machine::describe()))?;
    let all = json!({
        "machine": machine::describe(),
        "unix_time_s": since,
        "quick": bench.quick,
        "servers": columns.iter().map(Column::json).collect::<Value>(),
    });
    fs::write(folder.join(format!("{name}.json")), format!("{all:#}\n"))?;
    let routes: Vec<String> = ROUTES.iter().map(|(method, target, _)| shown(method, target)).collect();
    let server = |column: &Column| page::Server {
        name: column.name,
        routes: (0..ROUTES.len()).map(|route| column.figures(route)).collect(),
    };
    let servers: Vec<page::Server> = columns.iter().map(server).collect();
    // The page already contains the table.
    let notes = text.rsplit_once("|\n").map_or(text, |(_, notes)| notes);
    let html = page::page(&routes, &servers, &machine::describe(), notes);
    fs::write(folder.join(format!("{name}.html")), html)?;
    println!("kept in {}.html, .md and .json", folder.join(name).display());
    Ok(())
}
