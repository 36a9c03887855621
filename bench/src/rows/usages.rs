//! Row 18: a million usages a minute on the smallest machine, each of them stored.

use crate::machine::ControlGroup;
use crate::measure::{Drive, clean};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Pace, Settings, Stop, run};
use forebay_tests::{Database, Folder};
use std::time::{Duration, Instant};

/// A little more than a million a minute, so that rounding does not decide.
const RATE_PER_S: f64 = 1_000_000.0 / 60.0 * 1.02;
const MEMORY_BYTES: u64 = 2 << 30;
/// A usage.
pub const BODY: &[u8] = br#"{"patientId":100,"timestamp":"2016-11-01T14:11:51Z","medication":"Albuterol"}"#;

/// Row 18.
pub fn metering(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let start = bench.start("usages.toml", &folder, Pinning::Free).set("memory.limit=1GiB").workers(1);
    let (group, start, place) = match ControlGroup::new(1, MEMORY_BYTES) {
        Ok(group) => (Some(group), start, "control group of 1 CPU and 2 GiB".to_owned()),
        Err(error) => {
            let start = bench.start("usages.toml", &folder, Pinning::Apart).set("memory.limit=1GiB");
            (None, start, format!("on one core, memory not limited (no control group: {error})"))
        }
    };
    let server = start.start();
    if let Some(group) = &group {
        group.add(server.pid())?;
    }
    let request = Fixed::new("POST", "/api/usages", Some(BODY));
    let time = Duration::from_secs(bench.scaled(25, 4));
    let settings =
        Settings { pace: Pace::rate(RATE_PER_S), ..Settings::new(server.address, Stop::After(time)) };
    let report = clean(run(&settings, &mut request.clone())?)?;
    let began = Instant::now();
    server.drain();
    let behind = began.elapsed();
    let stored = Database::open(&folder.database()).number("SELECT count(*) FROM usages", []) as u64;
    let most = clean(run(&Drive::new(server.address, None).settings(bench.sample()), &mut request.clone())?)?;
    server.kill();
    drop(group);
    Ok(vec![
        Line::new(
            "answered at a constant rate",
            report.requests.rate_per_s * 60.0,
            "a minute",
            Bar::AtLeast(1e6),
            "",
        )
        .beside(format!("{place}; {report}")),
        Line::new(
            "p99 from the time due",
            report.latency_ms.percentile_ms(99.0),
            "ms",
            Bar::AtMost(10.0),
            "",
        ),
        Line::new(
            "stored after the drain",
            stored as f64,
            "rows",
            Bar::AtLeast(report.requests.completed as f64),
            "acknowledged",
        )
        .beside(format!("the drain was {:.1} s behind", behind.as_secs_f64())),
        Line::quoted("at most, by the closed model", most.requests.rate_per_s * 60.0, "a minute")
            .beside(most.to_string()),
    ])
}
