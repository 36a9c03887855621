//! The benchmarks: every row of the targets, measured and printed with its bar.
//!
//! `forebay-bench [ROW…] [--quick]`; `--list` names the rows; `--peers` measures the codes routes
//! of all peers beside Forebay's. Compared programs run in turns, three times, and the median
//! counts; CPU time is read from `/proc` and divided by the answered requests: cores per million
//! requests a second. Nothing here asserts a time: it prints ratios. A table (Markdown) and all
//! samples (JSON) go to `bench/results/`.
//!
//! `machine` reads the clocks of processes and machine, `process` starts servers and peers,
//! `measure` drives and samples, `report` prints the results, `rows` has one module for each topic,
//! `seeds` the page of the documents, `wire` counts bytes on connections.

mod machine;
mod measure;
mod process;
mod report;
mod rows;
mod seeds;
mod wire;

use process::Bench;
use report::Report;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut names = Vec::new();
    let (mut quick, mut peers, mut seeds) = (false, false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => quick = true,
            "--peers" => peers = true,
            "--seeds" => seeds = true,
            "--list" => {
                rows::ALL.iter().for_each(|row| println!("{:14} {}", row.name, row.title));
                return ExitCode::SUCCESS;
            }
            name if seeds && seeds::is_section(name) => names.push(name.to_owned()),
            name if !seeds && rows::ALL.iter().any(|row| row.name == name) => names.push(name.to_owned()),
            other => {
                eprintln!(
                    "forebay-bench: there is no row {other:?}; --list names them, --quick makes runs short"
                );
                return ExitCode::from(2);
            }
        }
    }
    let measured = match (peers, seeds) {
        (true, _) => side_by_side(quick),
        (_, true) => seeds::replay(quick, &names),
        _ => run(&names, quick),
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("forebay-bench: {error}");
            ExitCode::from(2)
        }
    }
}

fn side_by_side(quick: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let bench = Bench::new(quick)?;
    machine::raise_file_limit();
    rows::peers::table::side_by_side(&bench)?;
    Ok(true)
}

/// Whether every row could be measured. A bar that is missed is a result, not a failure.
fn run(names: &[String], quick: bool) -> Result<bool, Box<dyn std::error::Error>> {
    let bench = Bench::new(quick)?;
    machine::raise_file_limit();
    let mut report = Report::new(quick);
    let mut all_measured = true;
    for row in rows::ALL.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)) {
        println!("\n{}: {}", row.name, row.title);
        machine::warn_when_busy();
        match (row.run)(&bench) {
            Ok(lines) => lines.into_iter().for_each(|line| report.add(row.name, line)),
            Err(error) => {
                println!("  not measured: {error}");
                report.failed(row.name, &error.to_string());
                all_measured = false;
            }
        }
    }
    report.finish()?;
    Ok(all_measured)
}
