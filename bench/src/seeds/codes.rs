//! The codes routes: Express, Fastify and Cpeak, with one process and with one for each core,
//! beside Forebay.

use super::figure::{Cell, Figure, Figures, cell};
use super::programs::{self, Program};
use crate::machine;
use crate::process::{Bench, Peer, start_loaded};
use crate::rows::peers::stores::{Persistence, Postgres, Redis};
use crate::rows::peers::table::{ROUTES, ROWS, ULTRA_FAST_BY_ID, embedded, measure, shown};
use crate::rows::peers::{Side, Started, forebay, node, why};
use forebay_tests::Folder;

pub const ABOUT: &str = "\
The document's routes [1], written anew for the three frameworks in `peers/`. They and Forebay have the same \
PostgreSQL (fsync on) and a Redis each that keeps nothing on disk; *embedded* is Forebay alone, where a write is synced \
to disk before it is answered. Nothing is copied from memory to the database meanwhile. The tester \
shares the cores with all of it, so that rates are those of a whole machine. Drogon with RapidJSON, a thread a core, is in no \
registry: it was built apart from its public source (`peers/README.md`), and serves the two routes that ask no store. On another \
machine of 2 cores it cost 8.3 and 45 µs. The document's rates are of pipelined requests, 2 at a time on its 12 cores and up to 100 \
on its 128; ours are not. Its last run, Drogon for 30 minutes, took 2,000,000,000 requests with 40 time-outs, and sent 60 TB.";

const WANTED_PER_S: f64 = 1e6;
const UNKNOWN: &str = "not known";

/// What serves a peer.
enum By {
    /// This many processes of `peers/FOLDER`.
    Node(&'static str, fn() -> usize),
    Program(Program),
}

/// Name on the page, and what serves it.
const PEERS: [(&str, By); 5] = [
    ("Express", By::Node("express", || 1)),
    ("Fastify", By::Node("fastify", || 1)),
    ("Cpeak", By::Node("cpeak", || 1)),
    ("Cpeak, a process a core", By::Node("cpeak", machine::cores)),
    (programs::DROGON.name, By::Program(programs::DROGON)),
];

/// Route, as the table of peers names it, and the published figure of each of [`PEERS`]; `None`: not
/// run.
const PUBLISHED: &[(&str, [Option<&str>; 5])] = &[
    (
        "/simple",
        [
            Some("18,000–20,000/s; 2 pipelined, 12 cores [1]"),
            Some("66,000/s; 2 pipelined, 12 cores [1]"),
            Some("73,000/s; 2 pipelined, 12 cores [1]"),
            Some("6,000,000/s; 100 pipelined, 128 cores [1]"),
            Some(UNKNOWN),
        ],
    ),
    (
        "/update-something/1234/Fred?value1=one&value2=two",
        [
            Some("barely 500,000/s by 180 processes on 192 cores [1]"),
            Some(UNKNOWN),
            Some("8,000/s on 12 cores [1]"),
            Some(
                "36,000–50,000/s on 12 cores; 100,000/s on 128, whose 50 Gbit/s were full; 160 Gbit/s on 192 [1]",
            ),
            Some("1,000,000/s on 192 cores with 600 Gbit/s [1]"),
        ],
    ),
    (
        "/code",
        [
            Some(UNKNOWN),
            Some(UNKNOWN),
            Some(UNKNOWN),
            Some("30,000–35,000/s; 66,000/s with 4 times the IOPS, for $1,000 a month more [1]"),
            None,
        ],
    ),
    (
        "/code-v4?max=20000",
        [
            Some(UNKNOWN),
            Some(UNKNOWN),
            Some(UNKNOWN),
            Some("400,000/s of 10,000,000 rows, where PostgreSQL's 64 cores were full [1]"),
            None,
        ],
    ),
    (
        "POST /code-fast",
        [None, None, Some(UNKNOWN), Some("100,000/s, later told as 150,000/s; 128 cores [1]"), None],
    ),
    (
        "GET /code-fast",
        [None, None, Some(UNKNOWN), Some("300,000/s, later told as 400,000/s; 128 cores [1]"), None],
    ),
    ("/code-ultra-fast", [None, None, Some(UNKNOWN), Some(UNKNOWN), None]),
    (ULTRA_FAST_BY_ID, [None, None, Some(UNKNOWN), Some(UNKNOWN), None]),
];

/// The index of a route in the table of peers, by its target, and by its method where two routes
/// share a target.
fn place(name: &str) -> Option<usize> {
    ROUTES.iter().position(|(method, target, _)| name == *target || name == format!("{method} {target}"))
}

fn started(postgres: &Postgres, redis: &Redis, by: &By) -> Result<Peer, String> {
    let started = match by {
        By::Node(folder, workers) => node::start_clustered(folder, &postgres.url(), &redis.url(), workers()),
        By::Program(program) => program.start(&postgres.url()),
    };
    started.map_err(|error| why(error.as_ref()))
}

pub fn run(bench: &Bench) -> Figures {
    let (postgres, own, folder) = (Postgres::start()?, Folder::new(), Folder::new());
    let redis = [Redis::start(Persistence::None)?, Redis::start(Persistence::None)?];
    postgres.run_file("fill.sql", ROWS)?;
    node::seed(&redis[0].url(), ROWS)?;
    let peers = PEERS.map(|(_, by)| started(&postgres, &redis[0], &by));
    let embedded = embedded(bench, &folder);
    let remote: Started = start_loaded(&forebay(bench, &own, &postgres, &redis[1], "async"))
        .map_err(|error| why(error.as_ref()));
    if let Ok(server) = &remote {
        server.admin("POST", "/warm?table=codes").expect(200);
    }
    let mut figures = Vec::new();
    for (name, published) in PUBLISHED {
        let route = place(name).ok_or_else(|| format!("no route {name}"))?;
        let (method, target, _) = ROUTES[route];
        let drive = |side: Result<Side, &String>| -> Cell {
            let side = side.map_err(Clone::clone)?;
            cell(measure(bench, side, route, true))
        };
        let what = shown(method, target);
        println!("  {what}");
        let ours = drive(remote.as_ref().map(Side::from));
        let mut cpeak = Err("Cpeak was not run".to_owned());
        for (peer, published) in published.iter().enumerate() {
            let Some(published) = *published else { continue };
            let theirs = drive(peers[peer].as_ref().map(Side::from));
            cpeak = theirs.clone();
            let what = format!("{what}, {}", PEERS[peer].0);
            figures.push(Figure { what, published, theirs, ours: ours.clone(), wanted_per_s: WANTED_PER_S });
        }
        if name.contains("fast") {
            let what = format!("{what}, {} beside Forebay embedded", PEERS[3].0);
            let ours = drive(embedded.as_ref().map(Side::from));
            figures.push(Figure {
                what,
                published: "as above",
                theirs: cpeak,
                ours,
                wanted_per_s: WANTED_PER_S,
            });
        }
    }
    Ok(figures)
}
