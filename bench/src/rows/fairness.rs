//! No client is served at the expense of others: connections over workers, slow SQL beside fast
//! answers, clients that send slowly, never read, or are idle.

use super::hot::with_codes;
use crate::measure::{Drive, clean, median};
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Pace, Settings, Stop, run};
use forebay_tests::{Client, Folder, Server, request_bytes};
use serde_json::json;
use std::collections::{BTreeSet, HashSet};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The sockets that each epoll set of a process watches (proc(5), `fdinfo`): each worker has its
/// own set. A set may be open under several descriptors, so it is identified by its sockets.
/// Sockets are identified by their inodes, because descriptor numbers are reused.
fn watched(pid: u32) -> Result<HashSet<BTreeSet<PathBuf>>, Box<dyn Error>> {
    let mut sets = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may have been closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let numbers = text.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next());
        sets.insert(
            numbers.filter_map(|number| fs::read_link(format!("/proc/{pid}/fd/{number}")).ok()).collect(),
        );
    }
    Ok(sets)
}

/// 20 connections on 2 workers, opened one after the other.
pub fn connections(bench: &Bench) -> Lines {
    let mut seen = Vec::new();
    for _ in 0..bench.turns() {
        let folder = Folder::new();
        let server = bench.start("codes.toml", &folder, Pinning::Free).workers(2).start();
        server.wait_healthy();
        let before: BTreeSet<PathBuf> = watched(server.pid())?.into_iter().flatten().collect();
        let mut clients: Vec<Client> = (0..20).map(|_| server.client()).collect();
        clients.iter_mut().for_each(|client| {
            client.get("/simple");
        });
        let after = watched(server.pid())?;
        let mut counts: Vec<usize> = after.iter().map(|set| set.difference(&before).count()).collect();
        counts.retain(|count| *count > 0);
        counts.sort_unstable();
        if counts.iter().sum::<usize>() != 20 {
            return Err(format!("20 connections were opened, the epoll sets grew by {counts:?}").into());
        }
        seen.push(counts);
    }
    let most = seen.iter().flatten().max().copied().unwrap_or(0);
    let line = Line::new("most connections of one worker", most as f64, "of 20", Bar::AtMost(11.0), "");
    Ok(vec![line.beside(format!("{seen:?}")).samples(json!(seen))])
}

/// `GET /simple` at 5,000/s while 16 connections sort a million rows each time.
pub fn slow_sql(bench: &Bench) -> Lines {
    let rows = bench.scaled(1_000_000, 100_000);
    let folder = Folder::new();
    let server = with_codes(bench, &folder, rows, Pinning::Free)?;
    let time = Duration::from_secs(bench.scaled(15, 3));
    let fast = Settings {
        connections: 16,
        pace: Pace::rate(5000.0),
        ..Settings::new(server.address, Stop::After(time))
    };
    let alone = clean(run(&fast, &mut Fixed::new("GET", "/simple", None))?)?;
    let slow = Settings {
        connections: 16,
        timeout: Duration::from_secs(40),
        ..Settings::new(server.address, Stop::After(time + Duration::from_secs(1)))
    };
    let (beside, sorted) = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let slow = scope.spawn(|| run(&slow, &mut Fixed::new("GET", "/code-v1", None)));
        thread::sleep(Duration::from_millis(500));
        let fast = run(&fast, &mut Fixed::new("GET", "/simple", None))?;
        Ok((fast, slow.join().map_err(|_| "the driver panicked")??))
    })?;
    let beside = clean(beside)?;
    Ok(vec![
        Line::quoted("p99 of /simple at 5,000/s, alone", alone.latency_ms.percentile_ms(99.0), "ms")
            .beside(alone.to_string()),
        Line::new(
            "the same beside GET /code-v1",
            beside.latency_ms.percentile_ms(99.0),
            "ms",
            Bar::AtMost(10.0),
            "",
        )
        .beside(beside.to_string()),
        Line::quoted(format!("GET /code-v1 on {rows} rows"), sorted.requests.rate_per_s, "rps")
            .beside(sorted.to_string()),
    ])
}

/// The rate of `GET /simple`, driver and server on a core each.
fn rate(bench: &Bench, server: &Server) -> Result<f64, Box<dyn Error>> {
    let core = bench.core(Pinning::Apart);
    let settings = Drive::new(server.address, core).settings(bench.sample() / 2);
    let report = crate::machine::on_core(core, || run(&settings, &mut Fixed::new("GET", "/simple", None)))??;
    Ok(clean(report)?.requests.rate_per_s)
}

/// One byte a second.
fn trickle(server: &Server, stop: &AtomicBool) {
    let mut client = server.client();
    for byte in request_bytes("GET", "/simple", &[("X-Long", &"x".repeat(1000))], None) {
        if stop.load(Ordering::Relaxed) || client.send(&[byte]).is_err() {
            return;
        }
        for _ in 0..20 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Requests 32 KB repeatedly, and never reads.
fn never_read(server: &Server, stop: &AtomicBool) -> std::io::Result<()> {
    let client = server.client();
    let mut stream = client.stream();
    stream.set_write_timeout(Some(Duration::from_millis(100)))?;
    let requests = request_bytes("PATCH", "/update-something/1/name", &[], Some("{}")).repeat(100);
    while !stop.load(Ordering::Relaxed) {
        // Once the server stops reading, the socket is full, as intended.
        match stream.write(&requests) {
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            // The server may close the connection after its write timeout.
            Err(_) => return Ok(()),
        }
    }
    Ok(())
}

/// The rate alone, and beside each kind of misbehaving clients, in turns.
pub fn slow_clients(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Apart).start();
    let mut rates: [Vec<f64>; 4] = Default::default();
    for _ in 0..bench.turns() {
        rates[0].push(rate(bench, &server)?);
        let stop = AtomicBool::new(false);
        rates[1].push(thread::scope(|scope| {
            scope.spawn(|| trickle(&server, &stop));
            thread::sleep(Duration::from_millis(200));
            let measured = rate(bench, &server);
            stop.store(true, Ordering::Relaxed);
            measured
        })?);
        let stop = AtomicBool::new(false);
        rates[2].push(thread::scope(|scope| {
            scope.spawn(|| never_read(&server, &stop));
            thread::sleep(Duration::from_millis(500));
            let measured = rate(bench, &server);
            stop.store(true, Ordering::Relaxed);
            measured
        })?);
        let idle: Vec<Client> = (0..10_000).map(|_| server.client()).collect();
        rates[3].push(rate(bench, &server)?);
        drop(idle);
        // Closing ten thousand connections takes CPU time that must not count in the next sample.
        thread::sleep(Duration::from_millis(500));
    }
    let alone = median(rates[0].clone());
    let names = [
        "alone",
        "beside one byte a second",
        "beside one that never reads",
        "beside 10,000 idle connections",
    ];
    let lines = names.into_iter().zip(&rates).enumerate().map(|(place, (name, rates))| {
        let bar = if place == 0 { Bar::None } else { Bar::AtLeast(0.9 * alone) };
        let from = if place == 0 { "" } else { "0.9 × alone" };
        Line::new(name, median(rates.clone()), "rps", bar, from).samples(json!(rates))
    });
    Ok(lines.collect())
}
