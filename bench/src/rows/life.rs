//! Row 16: start, recovery, stop.

use super::store::fill;
use crate::measure::median;
use crate::process::{Bench, Pinning, start_loaded};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, OnClose, Response, Settings, Stop, Traffic, run};
use forebay_tests::Folder;
use rustix::process::Signal;
use serde_json::json;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// From the start of the process to the first answer, without any data, in milliseconds.
fn first_answer_ms(bench: &Bench) -> f64 {
    let folder = Folder::new();
    let start = bench.start("codes.toml", &folder, Pinning::Free);
    let began = Instant::now();
    let server = start.start();
    server.client().get("/simple").expect(200);
    began.elapsed().as_secs_f64() * 1e3
}

/// Row 16.
pub fn start_recover_stop(bench: &Bench) -> Lines {
    let starts: Vec<f64> = (0..if bench.quick { 3 } else { 9 }).map(|_| first_answer_ms(bench)).collect();
    let rows = bench.scaled(2_000_000, 300_000);
    let (mut recovered, mut recovered_small) = (Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        recovered.push(recovery(bench, rows, "memory.huge_pages=true")?);
        recovered_small.push(recovery(bench, rows, "memory.huge_pages=false")?);
    }
    let mut lines = vec![
        Line::new("start to first answer", median(starts.clone()), "ms", Bar::AtMost(100.0), "")
            .samples(json!(starts)),
        Line::new(
            format!("recovery of {rows} rows from the log"),
            median(recovered.clone()),
            "rows/s",
            Bar::AtLeast(1e6),
            "",
        )
        .samples(json!(recovered)),
        Line::quoted("the same in pages of 4 KiB", median(recovered_small.clone()), "rows/s")
            .samples(json!(recovered_small)),
    ];
    lines.push(stop(bench)?);
    Ok(lines)
}

/// Rows a second that are recovered from the log after a kill, with this setting.
fn recovery(bench: &Bench, rows: u64, setting: &str) -> Result<f64, Box<dyn Error>> {
    let folder = Folder::new();
    let start = bench.start("codes.toml", &folder, Pinning::Free).set("drain.paused=true").set(setting);
    let began = Instant::now();
    let server = start_loaded(&start)?;
    let empty = began.elapsed();
    fill(&server, "/code-ultra-fast", rows)?;
    server.kill();
    let began = Instant::now();
    let server = start_loaded(&start)?;
    let full = began.elapsed();
    let tables = server.admin("GET", "/tables").expect(200);
    let found = tables["tables"].as_array().into_iter().flatten().find(|table| table["table"] == "ucodes");
    if found.and_then(|table| table["rows"].as_u64()) != Some(rows) {
        return Err(format!("{rows} rows were acknowledged, {tables} came back").into());
    }
    Ok(rows as f64 / full.saturating_sub(empty).as_secs_f64().max(1e-9))
}

/// Writes, and counts which of them were sent before the signal.
struct Counted<'a> {
    request: Fixed,
    signalled: &'a AtomicBool,
    /// For each connection: sent, answered, sent before the signal.
    connections: Vec<(u64, u64, u64)>,
    /// Accepted requests that will never be answered.
    missing: u64,
}

impl Traffic for Counted<'_> {
    fn request(&mut self, connection: usize, out: &mut Vec<u8>) {
        self.request.request(connection, out);
        let (sent, _, before) = &mut self.connections[connection];
        *sent += 1;
        if !self.signalled.load(Ordering::Relaxed) {
            *before = *sent;
        }
    }

    fn response(&mut self, connection: usize, _response: &Response<'_>) {
        self.connections[connection].1 += 1;
    }

    fn lost(&mut self, connection: usize, _unanswered: usize) {
        let (_, answered, before) = self.connections[connection];
        self.missing += before.saturating_sub(answered);
    }
}

/// SIGTERM under load: everything that was sent before it is answered.
fn stop(bench: &Bench) -> Result<Line, Box<dyn Error>> {
    let folder = Folder::new();
    let mut server = bench.start("codes.toml", &folder, Pinning::Free).start();
    let settings = Settings {
        pipelining: 8,
        on_close: OnClose::Stay,
        ..Settings::new(server.address, Stop::After(Duration::from_secs(30)))
    };
    let signalled = AtomicBool::new(false);
    let mut traffic = Counted {
        request: Fixed::new("POST", "/code-ultra-fast", None),
        signalled: &signalled,
        connections: vec![(0, 0, 0); settings.connections],
        missing: 0,
    };
    let (report, took) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let driver = scope.spawn(|| run(&settings, &mut traffic));
        thread::sleep(bench.sample());
        signalled.store(true, Ordering::Relaxed);
        // Requests that were created before this moment are in the server's sockets after this
        // pause.
        thread::sleep(Duration::from_millis(10));
        let began = Instant::now();
        server.signal(Signal::TERM);
        let ended = server.wait();
        let took = began.elapsed();
        if !ended.status.success() {
            return Err(format!("{ended:?}").into());
        }
        let report = driver.join().map_err(|_| "the driver panicked")??;
        Ok((report, took))
    })?;
    let what = "accepted and not answered when stopped";
    Ok(Line::new(what, traffic.missing as f64, "requests", Bar::AtMost(0.0), "")
        .beside(format!("stopped in {:.0} ms; {report}", took.as_secs_f64() * 1e3)))
}
