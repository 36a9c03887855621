//! Rows 1 to 3: the HTTP engine against the floor and against a minimal hyper server.

use crate::measure::{Cost, Drive, Sample, beside, cpu, median_of, raw, sample};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::Fixed;
use forebay_tests::Folder;
use std::net::SocketAddr;

/// A driven server: its name, its address, and whose CPU time counts.
struct Side {
    name: &'static str,
    address: SocketAddr,
    pid: u32,
}

/// The samples of all sides, in turns.
fn in_turns(
    bench: &Bench,
    sides: &[Side],
    pipelining: usize,
    request: &Fixed,
) -> Result<Vec<Vec<Sample>>, Box<dyn std::error::Error>> {
    let mut samples: Vec<Vec<Sample>> = sides.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.turns() {
        for (side, samples) in sides.iter().zip(&mut samples) {
            let drive = Drive::new(side.address, bench.core(Pinning::Apart)).pipelined(pipelining);
            let sampled = sample(bench, drive, Cost::Server(side.pid), &mut request.clone());
            samples.push(sampled.map_err(|error| format!("{}: {error}", side.name))?);
        }
    }
    Ok(samples)
}

fn line(what: &str, samples: &[Sample], bar: Bar, from: &str) -> Line {
    Line::new(what, cpu(samples), "cores/Mrps", bar, from).beside(beside(samples)).samples(raw(samples))
}

/// Row 1.
pub fn simple(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Apart).start();
    let floor = bench.peer("forebay-peer-floor", &["--size", "16"])?;
    let hyper = bench.peer("forebay-peer-hyper", &[])?;
    let sides = [
        Side { name: "floor", address: floor.address, pid: floor.pid() },
        Side { name: "hyper", address: hyper.address, pid: hyper.pid() },
        Side { name: "forebay", address: server.address, pid: server.pid() },
    ];
    let samples = in_turns(bench, &sides, 1, &Fixed::new("GET", "/simple", None))?;
    let (floor, hyper) = (cpu(&samples[0]), cpu(&samples[1]));
    Ok(vec![
        line("floor", &samples[0], Bar::None, ""),
        line("minimal hyper", &samples[1], Bar::None, ""),
        line("forebay against the floor", &samples[2], Bar::AtMost(1.12 * floor), "1.12 × floor"),
        line("forebay against hyper", &samples[2], Bar::AtMost(hyper), "minimal hyper"),
    ])
}

/// Row 2.
pub fn simple_pipelined(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Apart).start();
    let floor = bench.peer("forebay-peer-floor", &["--size", "16", "--pipelined"])?;
    let hyper = bench.peer("forebay-peer-hyper", &[])?;
    let sides = [
        Side { name: "floor", address: floor.address, pid: floor.pid() },
        Side { name: "hyper", address: hyper.address, pid: hyper.pid() },
        Side { name: "forebay", address: server.address, pid: server.pid() },
    ];
    let samples = in_turns(bench, &sides, 16, &Fixed::new("GET", "/simple", None))?;
    let hyper = cpu(&samples[1]);
    let rate = median_of(&samples[2], |sample| sample.report.requests.rate_per_s);
    Ok(vec![
        line("floor, pipelined", &samples[0], Bar::None, ""),
        line("minimal hyper", &samples[1], Bar::None, ""),
        line("forebay against hyper", &samples[2], Bar::AtMost(0.8 * hyper), "0.80 × minimal hyper"),
        Line::new("rate on one core", rate, "rps", Bar::AtLeast(1e6), "")
            .beside("the driver has the other core"),
        Line::new(
            "what a core could do",
            1e6 / cpu(&samples[2]),
            "rps",
            Bar::AtLeast(1e6),
            "requests by CPU time",
        ),
    ])
}

/// A body as the contract describes it.
pub const UPDATE_BODY: &str = r#"{"foo1":"some text one","foo2":"some text two","foo3":"some text three","foo4":"some text four","foo5":"some text five","foo6":"some text six","foo7":"some text seven","foo8":"some text eight","foo9":"some text nine","foo10":"some text ten"}"#;

pub const UPDATE_TARGET: &str = "/update-something/1234/Fred?value1=one&value2=two";

/// Row 3.
pub fn update_something(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Apart).start();
    let answer = server.client().ask("PATCH", UPDATE_TARGET, Some(UPDATE_BODY));
    answer.expect(200);
    let size = answer.body.len();
    let floor = bench.peer("forebay-peer-floor", &["--size", &size.to_string()])?;
    let sides = [
        Side { name: "floor", address: floor.address, pid: floor.pid() },
        Side { name: "forebay", address: server.address, pid: server.pid() },
    ];
    let request = Fixed::new("PATCH", UPDATE_TARGET, Some(UPDATE_BODY.as_bytes()));
    let samples = in_turns(bench, &sides, 1, &request)?;
    let floor = cpu(&samples[0]);
    Ok(vec![
        line(&format!("floor, {size} bytes"), &samples[0], Bar::None, ""),
        line("forebay", &samples[1], Bar::AtMost(1.6 * floor), "1.6 × floor"),
        Line::new("cores for a million a second", cpu(&samples[1]), "cores", Bar::AtMost(15.0), ""),
    ])
}
