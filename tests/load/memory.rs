//! The tester's own memory at full rate: it does not grow with time. `make load-long` runs it for half an
//! hour.

use crate::forebay;
use forebay_tests::{Folder, Start, binary, example};
use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The default length of the run, in seconds.
const SECONDS: u64 = 12;

/// How much longer starting and reporting may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The allowed growth after the warm-up, as a part.
const GROWTH: f64 = 0.05;

/// The same for a run of seconds, in which rare latencies still touch their part of a histogram for the
/// first time, and growing lists are small. A busy machine has many rare latencies: 25 % were seen on
/// one. Memory kept for each request would exceed this.
const GROWTH_SHORT: f64 = 0.50;

/// Anonymous resident memory, without the pages of the program's code.
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
    // The live view prints a line a second: an unread pipe of 64 KiB would be full after twelve
    // minutes.
    let mut child =
        forebay(&["load", "-c", "64", "-d", &time, &url]).stderr(Stdio::null()).spawn().expect("it runs");
    let began = Instant::now();
    // After this time every buffer has been used, and every histogram has seen its usual values. A long
    // run also retains some hundred bytes a second (the report's series), for which the five per cent are
    // meant.
    let warm = Duration::from_secs(seconds / 3);
    let mut seen = Vec::new();
    while child.try_wait().expect("a child can be looked at").is_none() {
        assert!(began.elapsed() < Duration::from_secs(seconds) + PATIENCE, "it does not end");
        // Until sending ends: writing the report afterwards needs additional memory.
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
