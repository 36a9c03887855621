//! Rows 4, 5 and 11: hot tables.

use crate::machine;
use crate::measure::{Cost, Drive, Sample, beside, beside_system, cpu, median_of, raw, sample};
use crate::process::{Bench, Pinning, start_loaded, succeeded};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::Fixed;
use forebay_tests::{Database, Folder, Server};
use std::error::Error;

/// More memory than the rows of a sample need, so that no sample pays for fresh memory. Its cost at
/// start is not measured here.
pub const TAKEN_AHEAD: &str = "memory.reserve=3GiB";

/// Row 4: a fresh server for each sample, so that none starts with the memory of the previous one.
/// Once with reserved memory, once without.
pub fn ultra_fast(bench: &Bench) -> Lines {
    let mut samples: [Vec<Sample>; 4] = Default::default();
    let ways = [(1, TAKEN_AHEAD), (16, TAKEN_AHEAD), (1, AS_IT_COMES), (16, AS_IT_COMES)];
    for _ in 0..bench.turns() {
        for ((pipelining, reserve), samples) in ways.into_iter().zip(&mut samples) {
            let folder = Folder::new();
            let start = bench.start("codes.toml", &folder, Pinning::Free).set("drain.paused=true");
            let server = start.set(reserve).start();
            let drive = Drive::new(server.address, None).pipelined(pipelining);
            samples.push(sample(
                bench,
                drive,
                Cost::System(server.pid()),
                &mut Fixed::new("POST", "/code-ultra-fast", None),
            )?);
        }
    }
    let [plain, pipelined, plain_new, pipelined_new] = samples;
    let p99 = median_of(&plain, |sample| sample.report.latency_ms.percentile_ms(99.0));
    let line = |what: &str, samples: &[Sample], bar| {
        Line::new(what, cpu(samples), "cores/Mrps", bar, "")
            .beside(beside_system(samples))
            .samples(raw(samples))
    };
    Ok(vec![
        line("plain, memory taken ahead", &plain, Bar::AtMost(10.0)),
        Line::new("p99 at 64 connections", p99, "ms", Bar::AtMost(5.0), ""),
        line("16 pipelined", &pipelined, Bar::AtMost(4.0)),
        line("plain, memory as it comes", &plain_new, Bar::None),
        line("16 pipelined", &pipelined_new, Bar::None),
    ])
}

const AS_IT_COMES: &str = "memory.reserve=0B";

/// A server with this many rows in `codes`, all in memory, on its own core.
pub fn with_codes(
    bench: &Bench,
    folder: &Folder,
    rows: u64,
    pinning: Pinning,
) -> Result<Server, Box<dyn Error>> {
    let start = bench.start("codes.toml", folder, pinning);
    succeeded(&start.seed("codes", rows))?;
    start_loaded(&start)
}

/// `GET /code-fast` and `GET /simple` of one server, in turns.
fn read_in_turns(bench: &Bench, server: &Server) -> Result<[Vec<Sample>; 2], Box<dyn Error>> {
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for _ in 0..bench.turns() {
        for (target, samples) in ["/simple", "/code-fast"].into_iter().zip(&mut samples) {
            let drive = Drive::new(server.address, bench.core(Pinning::Apart));
            samples.push(sample(
                bench,
                drive,
                Cost::Server(server.pid()),
                &mut Fixed::new("GET", target, None),
            )?);
        }
    }
    Ok(samples)
}

/// Row 5, first half.
pub fn code_fast(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let rows = bench.scaled(1_000_000, 100_000);
    let server = with_codes(bench, &folder, rows, Pinning::Apart)?;
    let [simple, fast] = read_in_turns(bench, &server)?;
    Ok(vec![
        Line::quoted("GET /simple", cpu(&simple), "cores/Mrps").beside(beside(&simple)).samples(raw(&simple)),
        Line::new(
            format!("GET /code-fast, {rows} rows"),
            cpu(&fast),
            "cores/Mrps",
            Bar::AtMost(1.25 * cpu(&simple)),
            "1.25 × /simple",
        )
        .beside(beside(&fast))
        .samples(raw(&fast)),
    ])
}

/// Row 5, second half. Filling ten million rows takes longer than measuring them.
pub fn code_fast_by_size(bench: &Bench) -> Lines {
    let (few, many) = (100_000, bench.scaled(10_000_000, 1_000_000));
    let folders = [Folder::new(), Folder::new()];
    let servers = [
        with_codes(bench, &folders[0], few, Pinning::Apart)?,
        with_codes(bench, &folders[1], many, Pinning::Apart)?,
    ];
    let mut samples: [Vec<Sample>; 2] = Default::default();
    for _ in 0..bench.turns() {
        for (server, samples) in servers.iter().zip(&mut samples) {
            let drive = Drive::new(server.address, bench.core(Pinning::Apart));
            samples.push(sample(
                bench,
                drive,
                Cost::Server(server.pid()),
                &mut Fixed::new("GET", "/code-fast", None),
            )?);
        }
    }
    let [small, large] = samples;
    let memory = machine::resident_bytes(servers[1].pid())? >> 20;
    Ok(vec![
        Line::quoted(format!("{few} rows"), cpu(&small), "cores/Mrps")
            .beside(beside(&small))
            .samples(raw(&small)),
        Line::new(
            format!("{many} rows"),
            cpu(&large),
            "cores/Mrps",
            Bar::AtMost(1.3 * cpu(&small)),
            "1.3 × the small one",
        )
        .beside(format!("{}, {memory} MiB resident", beside(&large)))
        .samples(raw(&large)),
    ])
}

/// Row 11.
pub fn memory(bench: &Bench) -> Lines {
    let rows = bench.scaled(1_000_000, 200_000);
    let (empty_folder, folder) = (Folder::new(), Folder::new());
    let empty = start_loaded(&bench.start("codes.toml", &empty_folder, Pinning::Free))?;
    let base = machine::resident_bytes(empty.pid())?;
    drop(empty);
    let server = with_codes(bench, &folder, rows, Pinning::Free)?;
    let loaded = machine::resident_bytes(server.pid())?.saturating_sub(base);
    // A row's own bytes: two numbers of 8 bytes and the text.
    let database = Database::open(&folder.database());
    let bytes = database.number("SELECT sum(16 + length(CAST(code AS BLOB))) FROM codes", []) as f64;
    let bar = 1.5 * bytes + 64.0 * rows as f64;
    let mib = f64::from(1 << 20);
    Ok(vec![
        Line::new(
            format!("{rows} rows of {:.0} bytes", bytes / rows as f64),
            loaded as f64 / mib,
            "MiB",
            Bar::AtMost(bar / mib),
            "1.5 × rows + 64 bytes each",
        )
        .beside(format!(
            "{:.0} bytes a row; {} MiB with no rows",
            loaded as f64 / rows as f64,
            base >> 20
        )),
    ])
}
