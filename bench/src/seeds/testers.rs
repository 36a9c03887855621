//! The testers that the documents use, beside `forebay load`, against the floor.

use super::figure::{Cell, Figure, Figures, Measured};
use super::programs::installed;
use crate::process::{Bench, Peer, succeeded};
use crate::rows::load::{forebay, turn, wrk};
use crate::rows::peers::why;
use forebay_tests::{Folder, root};
use serde_json::Value;
use std::error::Error;
use std::fs;

pub const ABOUT: &str = "\
autocannon is the tester of [1], wrk and k6 are the others that such documents use. 64 connections, one core for \
the tester and one for the floor (`peers/floor`), which only reads and writes 16 bytes: the CPU time is the \
tester's own, and the cores are those that it takes to send a million requests a second.";

const WANTED_PER_S: f64 = 1e6;

/// Answers a second of a tester against a URL.
type Rate = fn(&Bench, &str) -> Result<f64, Box<dyn Error>>;

const TESTERS: [(&str, Rate); 3] =
    [("autocannon", autocannon), ("wrk", |bench, url| wrk(bench, url, 1)), ("k6", k6)];

fn rate_of(json: &Value, path: &str) -> Result<f64, Box<dyn Error>> {
    json.pointer(path).and_then(Value::as_f64).ok_or_else(|| format!("no {path} in {json}").into())
}

fn autocannon(bench: &Bench, url: &str) -> Result<f64, Box<dyn Error>> {
    let script = root().join("peers/clients/node_modules/autocannon/autocannon.js");
    if !script.is_file() {
        return Err("autocannon is not there: scripts/install-peers".into());
    }
    let seconds = bench.sample().as_secs().to_string();
    let mut command = bench.pinned("node", Some(bench.driver_core));
    let output = command.arg(script).args(["-j", "-n", "-c", "64", "-d", &seconds, url]).output()?;
    succeeded(&output)?;
    let json: Value = serde_json::from_slice(&output.stdout)?;
    if rate_of(&json, "/errors")? + rate_of(&json, "/non2xx")? > 0.0 {
        return Err(format!("autocannon had errors: {json}").into());
    }
    rate_of(&json, "/requests/average")
}

fn k6(bench: &Bench, url: &str) -> Result<f64, Box<dyn Error>> {
    let (program, folder) = (installed("k6")?, Folder::new());
    let (summary, script) = (folder.path().join("summary.json"), root().join("peers/clients/k6.js"));
    let seconds = format!("{}s", bench.sample().as_secs());
    let mut command = bench.pinned(&program, Some(bench.driver_core));
    command.args(["run", "--quiet", "--no-usage-report", "--vus", "64", "--duration", &seconds]);
    let output = command.arg("--summary-export").arg(&summary).arg(script).env("URL", url).output()?;
    succeeded(&output)?;
    rate_of(&serde_json::from_slice(&fs::read(summary)?)?, "/metrics/http_reqs/rate")
}

fn ours(bench: &Bench, url: &str) -> Result<f64, Box<dyn Error>> {
    let time = format!("{}s", bench.sample().as_secs());
    let results = forebay(bench, Some(bench.driver_core), &["-c", "64", "-w", "1", "-d", &time, url])?;
    Ok(crate::measure::clean(results)?.requests.rate_per_s)
}

fn driven(bench: &Bench, floor: &Peer, rate: Rate) -> Cell {
    let url = format!("http://{}/", floor.address);
    let seconds = bench.sample().as_secs() as f64;
    let turn = turn(seconds, || rate(bench, &url)).map_err(|error| why(error.as_ref()))?;
    Ok(Measured { cpu_us: turn.cpu_us, rate_per_s: turn.rate_per_s, bytes: 0.0, beside: String::new() })
}

pub fn run(bench: &Bench) -> Figures {
    let floor = bench.peer("forebay-peer-floor", &["--size", "16"])?;
    let ours = driven(bench, &floor, ours);
    let figure = |(name, rate): (&str, Rate)| Figure {
        what: format!("{name}, one core"),
        published: "not known",
        theirs: driven(bench, &floor, rate),
        ours: ours.clone(),
        wanted_per_s: WANTED_PER_S,
    };
    Ok(TESTERS.map(figure).into())
}
