//! An item of 1 KB four ways: constant, from PostgreSQL, from the shared level, from the process.

use super::figure::{Cell, Figure, Figures, measured};
use crate::measure::Sample;
use crate::process::{Bench, Pinning};
use crate::rows::items::{Application, WAYS, ways};
use crate::rows::peers::{Side, node, why};
use forebay_load::Fixed;
use std::error::Error;

pub const ABOUT: &str = "\
`examples/items.toml` on PostgreSQL and Redis: the same bytes constant, from PostgreSQL each time, from the \
shared level in Redis, and from the process with Redis behind it. The document [5] prints a part of its program: \
what stands for it is `peers/fastify/items.js`, one process on the same stores, with cache-aside in Redis, promises \
kept for 2 s in the process, and ETags. Its figures are of one process on a laptop of 4 cores, 200 connections, with the CPU \
time that the process took. 10,000 users who poll every 15 s are 667 requests a second.";

/// The published figure of each way.
const PUBLISHED: [&str; 4] = [
    "5,396/s; p95 53 ms; 115 % CPU [5]",
    "645/s; p95 349 ms; 230 % CPU [5]",
    "4,143/s; p95 68 ms; 125 % CPU [5]",
    "4,516/s; p95 60 ms; 120 % CPU [5]",
];

const WANTED_PER_S: f64 = 10_000.0 / 15.0;

/// All ways, or why there are none.
type Ways = Result<[Vec<Sample>; 4], String>;

fn driven(bench: &Bench, side: Side) -> Result<[Vec<Sample>; 4], Box<dyn Error>> {
    for way in WAYS {
        side.warm(bench, &mut Fixed::new("GET", way, None))?;
    }
    ways(bench, side)
}

pub fn run(bench: &Bench) -> Figures {
    let application = Application::start(bench, Pinning::Free)?;
    let peer = node::start_items(&application.postgres.url(), &application.redis.url());
    let theirs: Ways =
        peer.and_then(|peer| driven(bench, Side::from(&peer))).map_err(|error| why(error.as_ref()));
    let ours: Ways = driven(bench, application.side()).map_err(|error| why(error.as_ref()));
    let cell = |ways: &Ways, way: usize| -> Cell {
        let samples = &ways.as_ref().map_err(Clone::clone)?[way];
        samples.first().map(measured).ok_or_else(|| "it was not driven".to_owned())
    };
    let figure = |(way, path): (usize, &&str)| Figure {
        what: format!("GET {path}, Fastify"),
        published: PUBLISHED[way],
        theirs: cell(&theirs, way),
        ours: cell(&ours, way),
        wanted_per_s: WANTED_PER_S,
    };
    Ok(WAYS.iter().enumerate().map(figure).collect())
}
