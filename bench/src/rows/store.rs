//! Rows 9 and 10: between memory and SQLite. The yardstick is SQLite itself: the same rows,
//! prepared in memory, into a table with the same definition, in one transaction that is synced.

use crate::measure::{Drive, clean, median};
use crate::process::{Bench, Pinning, start_loaded, succeeded};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::{Fixed, Settings, Stop, run};
use forebay_tests::{Database, Folder, Server};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::json;
use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Inserts `rows` rows by `POST target`, as fast as possible. If the log's disk is too slow, some
/// are refused (503 with Retry-After), and the same number is sent again.
pub fn fill(server: &Server, target: &str, rows: u64) -> Result<(), Box<dyn Error>> {
    let mut left = rows;
    while left > 0 {
        let settings = Settings { pipelining: 16, ..Settings::new(server.address, Stop::Amount(left)) };
        let report = run(&settings, &mut Fixed::new("POST", target, None))?;
        let (taken, refused) = (report.status(201), report.status(503));
        if taken == 0 || taken + refused != left {
            return Err(format!("not all is well: {report}").into());
        }
        left -= taken;
    }
    Ok(())
}

/// Rows a second that SQLite takes: copies the rows of `table` from one database into a new one
/// with the same table and indexes.
fn yardstick(from: &Path, table: &str) -> Result<f64, Box<dyn Error>> {
    let folder = Folder::new();
    let mut source = Database::open(from);
    let sql = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC";
    let definitions = source.rows(sql, [table]);
    let mut target = Connection::open(folder.database())?;
    target.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    for definition in definitions.iter().flatten() {
        if let Value::Text(sql) = definition {
            target.execute_batch(sql)?;
        }
    }
    let rows = source.rows(&format!("SELECT * FROM {table} ORDER BY rowid"), []);
    let columns = rows.first().map_or(0, Vec::len);
    let places = vec!["?"; columns].join(", ");
    // Flushed before the clock starts, so that cached statements do not help.
    source.connection().flush_prepared_statement_cache();
    let began = Instant::now();
    let transaction = target.transaction()?;
    {
        let mut insert = transaction.prepare(&format!("INSERT INTO {table} VALUES ({places})"))?;
        for row in &rows {
            insert.execute(rusqlite::params_from_iter(row))?;
        }
    }
    transaction.commit()?;
    Ok(rows.len() as f64 / began.elapsed().as_secs_f64())
}

/// Waits until everything that is durable now is in SQLite; returns the time.
pub fn drain_all(server: &Server) -> Duration {
    let durable = server.drain_state()["durable"].as_u64();
    let began = Instant::now();
    server.pause_drain(false);
    while server.drain_state()["position"].as_u64() < durable {
        thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

/// Row 9.
pub fn drain(bench: &Bench) -> Lines {
    let rows = bench.scaled(500_000, 100_000);
    let (mut drained, mut inserted) = (Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        let folder = Folder::new();
        let server = bench.start("codes.toml", &folder, Pinning::Free).set("drain.paused=true").start();
        fill(&server, "/code-ultra-fast", rows)?;
        drained.push(rows as f64 / drain_all(&server).as_secs_f64());
        let stored = Database::open(&folder.database()).number("SELECT count(*) FROM ucodes", []);
        if stored as u64 != rows {
            return Err(format!("{stored} of {rows} rows are in SQLite").into());
        }
        server.kill();
        inserted.push(yardstick(&folder.database(), "ucodes")?);
    }
    let (rate, bar) = (median(drained.clone()), median(inserted.clone()));
    let mut lines = vec![
        Line::quoted("SQLite's own bulk insert", bar, "rows/s").samples(json!(inserted)),
        Line::new(
            format!("drain alone, {rows} rows, UUID key"),
            rate,
            "rows/s",
            Bar::AtLeast(0.8 * bar),
            "0.8 × SQLite",
        )
        .samples(json!(drained)),
    ];
    lines.extend(drain_under_load(bench)?);
    Ok(lines)
}

/// Both rates while both happen.
fn drain_under_load(bench: &Bench) -> Lines {
    let folder = Folder::new();
    let server = bench.start("codes.toml", &folder, Pinning::Free).start();
    let settings = Drive::new(server.address, None).settings(bench.sample());
    let before = server.drain_state()["rows_total"].as_f64().unwrap_or(0.0);
    let report = clean(run(&settings, &mut Fixed::new("POST", "/code-ultra-fast", None))?)?;
    let after = server.drain_state()["rows_total"].as_f64().unwrap_or(0.0);
    let beside = format!("{report}");
    Ok(vec![
        Line::quoted("writes while it drains", report.requests.rate_per_s, "rps").beside(beside),
        Line::quoted("drain while it is written to", (after - before) / report.duration_s, "rows/s"),
    ])
}

/// Row 10.
pub fn seed_and_warm(bench: &Bench) -> Lines {
    let rows = bench.scaled(1_000_000, 200_000);
    let (mut seeded, mut inserted, mut loaded, mut warmed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        let folder = Folder::new();
        let start = bench.start("codes.toml", &folder, Pinning::Free);
        let began = Instant::now();
        drop(start_loaded(&start)?);
        let empty = began.elapsed();
        let began = Instant::now();
        succeeded(&start.seed("codes", rows))?;
        seeded.push(rows as f64 / began.elapsed().as_secs_f64());
        let began = Instant::now();
        let server = start_loaded(&start)?;
        let full = began.elapsed();
        loaded.push(rows as f64 / full.saturating_sub(empty).as_secs_f64().max(1e-9));
        let began = Instant::now();
        let answer = server.admin("POST", "/warm?table=codes").expect(200);
        warmed.push(rows as f64 / began.elapsed().as_secs_f64());
        if answer["warmed"][0]["rows"].as_u64() != Some(rows) {
            return Err(format!("{rows} rows were seeded, warm says {answer}").into());
        }
        server.kill();
        inserted.push(yardstick(&folder.database(), "codes")?);
    }
    let bar = median(inserted.clone());
    Ok(vec![
        Line::quoted("SQLite's own bulk insert", bar, "rows/s").samples(json!(inserted)),
        Line::new(
            format!("seed, {rows} rows"),
            median(seeded.clone()),
            "rows/s",
            Bar::AtLeast(0.8 * bar),
            "0.8 × SQLite",
        )
        .samples(json!(seeded)),
        Line::new("warm at start", median(loaded.clone()), "rows/s", Bar::AtLeast(400_000.0), "")
            .samples(json!(loaded)),
        Line::quoted("warm again beside serving", median(warmed.clone()), "rows/s").samples(json!(warmed)),
    ])
}
