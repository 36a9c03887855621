//! The tester's own memory at full rate: it does not grow with time. `make load-long` runs it for half an
//! hour.

use crate::forebay;
use forebay_tests::{Folder, Start, binary, example};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// How long it runs, in seconds, when nobody says.
const SECONDS: u64 = 12;

/// How much longer than that it may take to start and to report, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(300);

/// What it may grow by once it is warm.
const GROWTH: f64 = 0.05;

/// The same in a run of seconds, in which rare latencies still touch their part of a histogram for the
/// first time, and lists that double are small. A machine that is busy has many rare latencies: 25 % were
/// seen on one. What is kept for each request would be more.
const GROWTH_SHORT: f64 = 0.50;

/// What it has allocated, and touched: not the pages of its own code.
fn resident_bytes(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
}

#[test]
fn memory_does_not_grow_with_time() {
    let seconds =
        std::env::var("FOREBAY_LOAD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let folder = Folder::new();
    let server = Start::new(binary(), &folder, &example("codes.toml")).start();
    let (time, url) = (format!("{seconds}s"), format!("http://{}/simple", server.address));
    // A line a second, which nobody reads here: a pipe of 64 KiB would be full after twelve minutes.
    let mut child =
        forebay(&["load", "-c", "64", "-d", &time, &url]).stderr(Stdio::null()).spawn().expect("it runs");
    let began = Instant::now();
    // Warm: every buffer has been used, and every histogram has met its usual values. A long run also
    // leaves behind some hundred bytes a second (the report's series), which is what the five per cent are
    // for.
    let warm = Duration::from_secs(seconds / 3);
    let mut seen = Vec::new();
    while child.try_wait().expect("a child can be looked at").is_none() {
        assert!(began.elapsed() < Duration::from_secs(seconds) + PATIENCE, "it does not end");
        // Until sending ends: writing the report afterwards needs memory of its own.
        let during = began.elapsed() < Duration::from_secs(seconds);
        if let Some(bytes) = resident_bytes(child.id()).filter(|_| during && began.elapsed() > warm) {
            seen.push(bytes);
        }
        thread::sleep(Duration::from_millis(200));
    }
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
    let first = *seen.first().expect("it was looked at");
    let growth = if seconds < 60 { GROWTH_SHORT } else { GROWTH };
    let most = seen.iter().copied().fold(first, f64::max);
    eprintln!(
        "resident: {:.1} MiB when warm, at most {:.1} MiB in {seconds} s",
        first / 1048576.0,
        most / 1048576.0
    );
    assert!(most <= first * (1.0 + growth), "{first} bytes when warm, then {most}");
}
