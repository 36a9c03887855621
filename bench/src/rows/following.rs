//! Rows 21 and 23: changes that others commit to a followed table, and checkpoints.
//!
//! A followed table is changed by SQL as psql would, beside GETs; measured is the time until a GET shows
//! the change: by logical decoding, where the server has it, and by triggers.

use super::peers::stores::Postgres;
use super::servers::drain_rate;
use super::store::drain_all;
use crate::machine;
use crate::measure::{Cost, Drive, clean, median};
use crate::process::{Bench, Pinning, start_loaded};
use crate::report::{Bar, Line, Lines};
use forebay_load::{Fixed, run};
use forebay_tests::{Archive, Folder, Server};
use rustix::process::Signal;
use serde_json::json;
use std::error::Error;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONFIG: &str = "[table.things]\n[[endpoint]]\nroute = \"GET /things/{id}\"\nget = \"things\"\n";

/// Changes a second by others, ten a transaction.
const RATE: u64 = 1_000;

/// Rows that are changed one by one while GETs go on.
const ROWS: u64 = 20_000;

/// Pause between the requests of one reader.
const PAUSE: Duration = Duration::from_micros(500);

/// A timeout longer than any of these steps takes on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The methods of following, with their URL parameters.
const WAYS: [(&str, &str); 2] = [("logical decoding", "follow=logical"), ("triggers", "follow=triggers")];

/// A table of others with `rows` rows, and a server that follows it.
fn following(
    bench: &Bench,
    postgres: &Postgres,
    folder: &Folder,
    rows: u64,
    way: &str,
) -> Result<Server, Box<dyn Error>> {
    postgres.run(&format!(
        "DROP TABLE IF EXISTS things; CREATE TABLE things (id bigint PRIMARY KEY, seen bigint NOT NULL, text text); \
         INSERT INTO things SELECT n, 0, repeat('t', 100) FROM generate_series(1, {rows}) n; ANALYZE things"
    ))?;
    let config = folder.write("following.toml", CONFIG);
    let url = postgres.url();
    let url = format!("{url}{}{way}", if url.contains('?') { '&' } else { '?' });
    let server = start_loaded(&bench.start_file(&config, folder, Pinning::Free).database(&url))?;
    wait(&server, "tables are followed", |state| state["status"] == "following")?;
    Ok(server)
}

/// Waits until `/follow` shows this.
fn wait(
    server: &Server,
    what: &str,
    is_so: impl Fn(&serde_json::Value) -> bool,
) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    loop {
        let state = server.admin("GET", "/follow").json();
        if is_so(&state) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("{what}: {state}").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `work` while others change rows at [`RATE`], and while one reader reads; returns the longest time
/// of an answer, and the result of `work`.
fn beside<T>(
    postgres: &Postgres,
    server: &Server,
    is_changing: bool,
    work: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<(Duration, T), Box<dyn Error>> {
    let (is_over, url) = (AtomicBool::new(false), postgres.url());
    thread::scope(|scope| {
        let is_over = &is_over;
        if is_changing {
            scope.spawn(move || change(&Archive::postgres(&url), is_over));
        }
        let mut reader = server.client();
        let longest = scope.spawn(move || {
            let mut longest = Duration::ZERO;
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let asked = Instant::now();
                reader.get(&format!("/things/{}", 10 + number % (ROWS - 10))).expect(200);
                longest = longest.max(asked.elapsed());
                thread::sleep(PAUSE);
            }
            longest
        });
        let given = work();
        is_over.store(true, Ordering::Relaxed);
        let longest = longest.join().map_err(|_| "a read failed")?;
        Ok((longest, given?))
    })
}

fn change(others: &Archive, is_over: &AtomicBool) {
    let began = Instant::now();
    for round in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let first = 10 + round * 10 % (ROWS - 20);
        others
            .rows(&format!("UPDATE things SET text = '{round}' WHERE id BETWEEN {first} AND {}", first + 9));
        let due = began + Duration::from_millis(round * 10_000 / RATE);
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// The times from commit to visible of `count` changes, one after the other.
fn latencies(postgres: &Postgres, server: &Server, count: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let (mark, mut client) = (Archive::postgres(&postgres.url()), server.client());
    let mut took = Vec::with_capacity(count);
    for number in 1..=count {
        mark.rows(&format!("UPDATE things SET seen = {number} WHERE id = 1"));
        let committed = Instant::now();
        while client.get("/things/1").expect(200)["seen"] != number {
            if committed.elapsed() > PATIENCE {
                return Err(format!("change {number} is not seen").into());
            }
            thread::sleep(PAUSE);
        }
        took.push(committed.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Row 21.
pub fn others(bench: &Bench) -> Lines {
    let mut lines = Vec::new();
    for (way, parameter) in WAYS {
        let (postgres, folder) = (Postgres::start()?, Folder::new());
        let server = following(bench, &postgres, &folder, ROWS, parameter)?;
        let count = bench.scaled(1_000, 100) as usize;
        let (_, took) = beside(&postgres, &server, true, || latencies(&postgres, &server, count))?;
        let (p99, max) = (took[count * 99 / 100 - 1], took[count - 1]);
        lines.extend([
            Line::new(format!("commit to visible, p99, {way}"), p99, "ms", Bar::AtMost(100.0), "")
                .samples(json!(took)),
            Line::new(format!("the longest, {way}"), max, "ms", Bar::AtMost(1_000.0), ""),
        ]);
        lines.extend(copied(bench, &postgres, &server, way)?);
        server.kill();
        lines.push(backlog(bench, &postgres, way, parameter)?);
    }
    Ok(lines)
}

/// Rows that others COPY in, in one transaction.
fn copied(bench: &Bench, postgres: &Postgres, server: &Server, way: &str) -> Lines {
    let (before, ()) = beside(postgres, server, false, || {
        thread::sleep(bench.sample());
        Ok(())
    })?;
    let rows = bench.scaled(1_000_000, 100_000);
    let (first, last) = (ROWS + 1, ROWS + rows);
    let file = format!("{}/bench-things.copy", postgres.ask("SHOW data_directory")?);
    postgres.run(&format!(
        "COPY (SELECT n, 0, repeat('c', 100) FROM generate_series({first}, {last}) n) TO '{file}'"
    ))?;
    let (meanwhile, rate) = beside(postgres, server, false, || {
        postgres.run(&format!("COPY things FROM '{file}'"))?;
        let committed = Instant::now();
        let mut client = server.client();
        let target = format!("/things/{last}");
        while client.get(&target).status != 200 {
            if committed.elapsed() > PATIENCE {
                return Err(format!("row {last} does not come").into());
            }
            thread::sleep(PAUSE);
        }
        Ok(rows as f64 / committed.elapsed().as_secs_f64())
    })?;
    let more = meanwhile.saturating_sub(before).as_secs_f64() * 1e3;
    Ok(vec![
        Line::quoted(format!("{rows} rows by COPY, until the last is there, {way}"), rate, "rows/s"),
        Line::new(format!("the longest GET meanwhile, {way}"), more, "ms more", Bar::AtMost(100.0), "")
            .beside(format!("{:.1} ms before", before.as_secs_f64() * 1e3)),
    ])
}

/// Changes that were committed while the server did not run; timed from its start.
fn backlog(bench: &Bench, postgres: &Postgres, way: &str, parameter: &str) -> Result<Line, Box<dyn Error>> {
    let (rows, folder) = (bench.scaled(1_000_000, 100_000), Folder::new());
    let server = following(bench, postgres, &folder, rows, parameter)?;
    let seen = || server.admin("GET", "/follow").json()["rows_total"].as_u64().unwrap_or(0);
    let before = seen();
    server.signal(Signal::STOP);
    let mut sql = String::new();
    for first in (1..=rows).step_by(10_000) {
        writeln!(sql, "UPDATE things SET seen = 1 WHERE id BETWEEN {first} AND {};", first + 9_999)?;
    }
    // One transaction for each, as in psql.
    let others = Archive::postgres(&postgres.url());
    sql.lines().for_each(|line| drop(others.rows(line)));
    server.signal(Signal::CONT);
    let began = Instant::now();
    wait(&server, "a backlog is taken over", |state| state["rows_total"].as_u64() >= Some(before + rows))?;
    let rate = rows as f64 / began.elapsed().as_secs_f64();
    let mut client = server.client();
    for id in [1, rows / 2, rows] {
        if client.get(&format!("/things/{id}")).expect(200)["seen"] != 1 {
            return Err(format!("row {id} is not as the database has it").into());
        }
    }
    server.kill();
    Ok(Line::new(format!("a backlog of {rows} changes, {way}"), rate, "rows/s", Bar::AtLeast(100_000.0), ""))
}

/// Row 9 of a followed table: the database reports every drained row back.
pub fn drained_and_told(bench: &Bench) -> Lines {
    let rows = bench.scaled(500_000, 100_000);
    let (mut alone, mut followed) = (Vec::new(), Vec::new());
    let postgres = Postgres::start()?;
    drain_rate(bench, &postgres, rows)?;
    for _ in 0..bench.turns() {
        alone.push(drain_rate(bench, &postgres, rows)?);
        followed.push(told_rate(bench, &postgres, rows)?);
    }
    let bar = Bar::AtLeast(0.6 * median(alone.clone()));
    Ok(vec![
        Line::quoted("drain alone (row 9)", median(alone.clone()), "rows/s").samples(json!(alone)),
        Line::new("drained and told of it", median(followed.clone()), "rows/s", bar, "0.6 × row 9")
            .samples(json!(followed)),
    ])
}

/// Rows a second that are drained into a followed table, until memory has been told of the last.
fn told_rate(bench: &Bench, postgres: &Postgres, rows: u64) -> Result<f64, Box<dyn Error>> {
    let folder = Folder::new();
    postgres.run("TRUNCATE ucodes")?;
    let start = bench.start("codes.toml", &folder, Pinning::Free).database(&postgres.url());
    let server = start_loaded(&start.set("drain.paused=true").set("table.ucodes.follow=true"))?;
    wait(&server, "tables are followed", |state| state["status"] == "following")?;
    super::store::fill(&server, "/code-ultra-fast", rows)?;
    postgres.run("CHECKPOINT")?;
    let before = server.admin("GET", "/follow").json()["rows_total"].as_u64().unwrap_or(0);
    let began = Instant::now();
    drain_all(&server);
    // Memory already has the drained rows and does not read them again when they are reported; the change by
    // others comes after them.
    postgres.run("UPDATE ucodes SET code = 'theirs' WHERE id = (SELECT id FROM ucodes LIMIT 1)")?;
    wait(&server, "what was drained is told", |state| state["rows_total"].as_u64() > Some(before))?;
    let took = began.elapsed();
    server.kill();
    Ok(rows as f64 / took.as_secs_f64())
}

/// Row 23, checkpoints: the part of the CPU time of durable writes at full rate that their thread takes.
/// The log grows so fast that one checkpoint follows the other.
pub fn checkpoints(bench: &Bench) -> Lines {
    let mut shares = Vec::new();
    for _ in 0..bench.turns() {
        let folder = Folder::new();
        let start = bench.start("codes.toml", &folder, Pinning::Free).set("drain.paused=true");
        let server = start.start();
        let clocks = || -> Result<_, Box<dyn Error>> {
            let cost = Cost::System(server.pid()).cpu_us()?;
            Ok((cost, machine::thread_cpu_us(server.pid(), "checkpoint")?))
        };
        let before = clocks()?;
        let settings = Drive::new(server.address, None).settings(4 * bench.sample());
        let report = clean(run(&settings, &mut Fixed::new("POST", "/code-ultra-fast", None))?)?;
        let after = clocks()?;
        let share = 100.0 * (after.1 - before.1) / (after.0 - before.0);
        shares.push((share, report.requests.rate_per_s));
        server.kill();
    }
    let (share, rate) =
        (median(shares.iter().map(|of| of.0).collect()), median(shares.iter().map(|of| of.1).collect()));
    Ok(vec![
        Line::new(
            "the checkpoint thread's share of the system's CPU time",
            share,
            "%",
            Bar::AtMost(10.0),
            "",
        )
        .beside(format!("{rate:.0}/s"))
        .samples(json!(shares)),
    ])
}
