//! An item of 1 KB four ways: constant, from PostgreSQL, from the shared level, from the process.

use super::figure::{Figure, Figures, measured};
use crate::process::{Bench, Pinning};
use crate::rows::items::{Application, WAYS, ways};

pub const ABOUT: &str = "\
`examples/items.toml` on PostgreSQL and Redis: the same bytes constant, from PostgreSQL each time, from the \
shared level in Redis, and from the process with Redis behind it. The document's figures and its program are not \
public, so that nothing of theirs stands here. 10,000 users who poll every 15 s are 667 requests a second.";

const WANTED_PER_S: f64 = 10_000.0 / 15.0;

pub fn run(bench: &Bench) -> Figures {
    let application = Application::start(bench, Pinning::Free)?;
    let samples = ways(bench, &application)?;
    let figure = |(way, samples): (&&str, &Vec<_>)| {
        let ours = samples.first().map(measured).ok_or_else(|| "it was not driven".to_owned());
        let theirs = Err("the document's program is not public".to_owned());
        Figure {
            what: format!("GET {way}"),
            published: "not known",
            theirs,
            ours,
            wanted_per_s: WANTED_PER_S,
        }
    };
    Ok(WAYS.iter().zip(&samples).map(figure).collect())
}
