//! The plan of the accounts application, by SQL on PostgreSQL and from memory: row 19 on 1,250,000 rows, the
//! server on one core; row 28, the generation of these rows; row 30, the cost of a request at a tenth of the
//! capacity.

use super::load::forebay;
use super::peers::stores::Postgres;
use crate::machine;
use crate::measure::median;
use crate::process::{Bench, Pinning};
use crate::report::Lines;
use crate::report::{Bar, Line};
use forebay_load::Results;
use forebay_tests::{Folder, Server, example};
use serde_json::json;
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

/// A timeout that even a slow generation (a million rows a minute) meets.
const FILL_TIMEOUT: Duration = Duration::from_secs(900);

/// A form of the application, and its bar.
struct Form {
    name: &'static str,
    file: &'static str,
    rate_per_s: u64,
    p99_ms: f64,
}

const FORMS: [Form; 2] = [
    Form { name: "SQL on PostgreSQL", file: "accounts.toml", rate_per_s: 4_000, p99_ms: 20.0 },
    Form { name: "hot", file: "accounts-hot.toml", rate_per_s: 40_000, p99_ms: 10.0 },
];

/// Generates the rows through the application's own route, and waits until all of them are in
/// PostgreSQL.
pub fn fill(server: &Server, rows: u64) -> Result<(), Box<dyn Error>> {
    let answer = server.client().post(&format!("/accounts/generate-test-data?size={rows}"));
    if answer.status != 202 {
        return Err(format!("no rows are made: {answer:?}").into());
    }
    let began = Instant::now();
    loop {
        let jobs = server.admin("GET", "/jobs").json();
        match jobs["jobs"][0]["state"].as_str() {
            Some("done") => break,
            Some("failed") => return Err(format!("no rows are made: {jobs}").into()),
            _ if began.elapsed() > FILL_TIMEOUT => return Err(format!("still no rows: {jobs}").into()),
            _ => thread::sleep(Duration::from_millis(100)),
        }
    }
    server.drain();
    Ok(())
}

/// Warms up, then measures. Returns the tester's results, and the server's CPU microseconds a
/// request.
fn drive(bench: &Bench, form: &Form, server: &Server) -> Result<(Results, f64), Box<dyn Error>> {
    let plan = example("accounts.load.toml").display().to_string();
    let (rate, url) = (form.rate_per_s.to_string(), format!("http://{}", server.address));
    let admin = format!("http://{}", server.admin);
    let run = |seconds: u64| {
        let time = format!("{seconds}s");
        let how = ["--plan", &plan, "-R", &rate, "-d", &time, "--warmup", "0s", "-w", "1"];
        forebay(bench, bench.core(Pinning::Apart), &[&how[..], &["--monitor", &admin, &url]].concat())
    };
    run(bench.scaled(5, 1))?;
    let before = machine::process_cpu_us(server.pid())?;
    let results = run(bench.scaled(20, 3))?;
    let spent_us = machine::process_cpu_us(server.pid())? - before;
    let answered = results.requests.completed.max(1) as f64;
    Ok((results, spent_us / answered))
}

fn lines(form: &Form, results: &Results, cpu_us: f64, made_in: Duration, rows: u64) -> [Line; 3] {
    let (requests, latency) = (&results.requests, &results.latency_ms);
    let verdict = results.verdict.as_ref().map_or("no verdict", |verdict| &verdict.why);
    let lost = requests.errors + requests.timeouts + requests.unexpected + requests.in_flight;
    let samples = json!({
        "offered_per_s": requests.offered_per_s,
        "achieved_per_s": requests.rate_per_s,
        "p50_ms": latency.percentile_ms(50.0),
        "p99_ms": latency.percentile_ms(99.0),
        "errors": lost,
        "server_cpu_us_per_request": cpu_us,
        "verdict": results.verdict,
    });
    [
        Line::new(
            format!("{}: achieved of {}/s offered", form.name, form.rate_per_s),
            requests.rate_per_s,
            "rps",
            Bar::AtLeast(0.99 * form.rate_per_s as f64),
            "99 % of the rate",
        )
        .beside(format!("{rows} rows, made in {:.0} s; {lost} errors; {verdict}", made_in.as_secs_f64())),
        Line::new(
            format!("{}: p99 from the time due", form.name),
            latency.percentile_ms(99.0),
            "ms",
            Bar::AtMost(form.p99_ms),
            "",
        )
        .beside(format!(
            "p50 {:.2} ms, max {:.1} ms",
            latency.percentile_ms(50.0),
            latency.percentile_ms(100.0)
        ))
        .samples(samples),
        Line::quoted(format!("{}: server", form.name), cpu_us, "cores/Mrps"),
    ]
}

/// Row 19.
pub fn plan(bench: &Bench) -> Lines {
    let rows = bench.scaled(1_250_000, 20_000);
    let mut all = Vec::new();
    for form in &FORMS {
        let (postgres, folder) = (Postgres::start()?, Folder::new());
        let start = bench.start(form.file, &folder, Pinning::Apart).database(&postgres.url());
        let server = crate::process::start_loaded(&start.environment("ACCOUNTS_SECRET", ""))?;
        let began = Instant::now();
        fill(&server, rows)?;
        let made_in = began.elapsed();
        postgres.run("VACUUM ANALYZE account")?;
        let (results, cpu_us) = drive(bench, form, &server)?;
        all.extend(lines(form, &results, cpu_us, made_in, rows));
        server.kill();
    }
    Ok(all)
}

/// A server that is driven in row 30.
struct Driven {
    pid: u32,
    /// Arguments of `forebay load` for the requests and the address.
    asked: Vec<String>,
}

/// One run, closed or at a rate: requests a second, and the server's CPU microseconds a request.
fn cost(bench: &Bench, driven: &Driven, rate_per_s: Option<f64>) -> Result<(f64, f64), Box<dyn Error>> {
    let seconds = format!("{}s", bench.scaled(10, 2));
    let mut how = vec!["-d", &seconds, "--warmup", "1s", "-w", "1"];
    let rate = rate_per_s.map(|rate| format!("{}", rate.round()));
    how.extend(rate.iter().flat_map(|rate| ["-R", rate]));
    how.extend(driven.asked.iter().map(String::as_str));
    let before = machine::process_cpu_us(driven.pid)?;
    let results = forebay(bench, None, &how)?;
    let spent_us = machine::process_cpu_us(driven.pid)? - before;
    // CPU time and requests both include the warm-up, at the same rate.
    let seconds = results.duration_s + 1.0;
    Ok((results.requests.rate_per_s, spent_us / (results.requests.rate_per_s * seconds).max(1.0)))
}

/// The cost of a request at a tenth of the capacity, beside its cost at full capacity.
fn tenth_line(bench: &Bench, name: &str, driven: &Driven, bar: Bar) -> Result<Line, Box<dyn Error>> {
    let (mut full, mut tenth) = (Vec::new(), Vec::new());
    for _ in 0..bench.turns() {
        let (rate_per_s, full_us) = cost(bench, driven, None)?;
        let (_, tenth_us) = cost(bench, driven, Some(rate_per_s / 10.0))?;
        full.push((rate_per_s, full_us));
        tenth.push(tenth_us);
    }
    let (rate_per_s, full_us) =
        (median(full.iter().map(|of| of.0).collect()), median(full.iter().map(|of| of.1).collect()));
    let tenth_us = median(tenth.clone());
    let what = format!("{name}: CPU a request at a tenth of capacity");
    let line = Line::new(what, tenth_us / full_us, "×", bar, "at capacity");
    Ok(line
        .beside(format!("{tenth_us:.1} µs against {full_us:.1} µs at {rate_per_s:.0} rps"))
        .samples(json!({ "full": full, "tenth_us": tenth })))
}

/// Row 30. The floor does nothing but read and write: its figure is the cost of wake-ups for any server
/// on this machine.
pub fn tenth(bench: &Bench) -> Lines {
    let floor = bench.peer("forebay-peer-floor", &["--size", "16"])?;
    let driven = Driven {
        pid: floor.pid(),
        asked: vec!["-c".into(), "64".into(), format!("http://{}/", floor.address)],
    };
    let mut all = vec![tenth_line(bench, "floor", &driven, Bar::None)?];
    drop(floor);
    let rows = bench.scaled(100_000, 20_000);
    for form in &FORMS {
        let (postgres, folder) = (Postgres::start()?, Folder::new());
        let start = bench.start(form.file, &folder, Pinning::Free).database(&postgres.url());
        let server = crate::process::start_loaded(&start.environment("ACCOUNTS_SECRET", ""))?;
        fill(&server, rows)?;
        let plan = example("accounts.load.toml").display().to_string();
        let driven = Driven {
            pid: server.pid(),
            asked: vec!["--plan".into(), plan, format!("http://{}", server.address)],
        };
        all.push(tenth_line(bench, form.name, &driven, Bar::AtMost(2.0))?);
        server.kill();
    }
    Ok(all)
}
