//! Proxies in front of an application: HAProxy, nginx and Varnish beside Forebay, as in row 29.

use super::figure::{Figure, Figures, Measured};
use crate::measure::median;
use crate::process::Bench;
use crate::report::Line;
use crate::rows::front::{kept, passed_on};

pub const ABOUT: &str = "\
A request that is passed on, kept answers of 1 KB, 304, and hits of 10,000 keys: rows 29 and 29-cache of `make bench`. The proxy has a \
core, what is behind it and the tester have the other; the CPU time is the proxy's alone. nginx keeps answers in a tmpfs, with \
`open_file_cache`, Varnish in memory. None of the documents tells figures of an HTTP proxy.";

const WANTED_PER_S: f64 = 1e6;
const OURS: &str = "Forebay";

/// Splits a line's name at the comma into the measurement and the program.
fn parted(line: &Line) -> Option<(&str, &str)> {
    line.what.rsplit_once(", ")
}

fn measured(line: &Line) -> Measured {
    let rate = |sample: &serde_json::Value| sample["rate_per_s"].as_f64();
    let rates: Vec<f64> = line.samples.as_array().into_iter().flatten().filter_map(rate).collect();
    let rate_per_s = if rates.is_empty() { f64::NAN } else { median(rates) };
    Measured { cpu_us: line.value, rate_per_s, bytes: 0.0, beside: String::new() }
}

/// Each line of others beside Forebay's of the same name.
fn figures(lines: &[Line]) -> Vec<Figure> {
    let parted = |line| parted(line).map(|(what, whose)| (what, whose, measured(line)));
    let all: Vec<(&str, &str, Measured)> = lines.iter().filter_map(parted).collect();
    let figure = |(what, whose, theirs): &(&str, &str, Measured)| {
        let ours = all.iter().find(|(of, whose, _)| of == what && *whose == OURS);
        Figure {
            what: format!("{what}, {whose}"),
            published: "not known",
            theirs: Ok(theirs.clone()),
            ours: ours.map(|(.., ours)| ours.clone()).ok_or_else(|| format!("{what}: no line of {OURS}")),
            wanted_per_s: WANTED_PER_S,
        }
    };
    all.iter().filter(|(_, whose, _)| *whose != OURS).map(figure).collect()
}

pub fn run(bench: &Bench) -> Figures {
    let mut lines = passed_on(bench)?;
    lines.extend(kept(bench)?);
    Ok(figures(&lines))
}
