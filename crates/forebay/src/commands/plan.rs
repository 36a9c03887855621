//! `forebay plan`: machines and dollars for a rate.

use crate::cli::plan::{Plan, number};
use crate::failure::Failure;
use forebay_plan::measured::Measured;
use forebay_plan::report::{self, Other};
use forebay_plan::scaling::{Law, Point};
use forebay_plan::shared::Tester;
use forebay_plan::{Behind, Demand, Power, Prices, odds};
use forebay_terminal::{answer, say};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Plan) -> Result<ExitCode, Failure> {
    if !args.point.is_empty() {
        answer!("{}", sweep(args)?.trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let measured = args.report.as_deref().map(read_report).transpose()?;
    if let Some(tester) = measured.as_ref().and_then(|run| run.tester) {
        say!(
            "note: the tester took {:.1} µs a request of the same {} cores; the plan is of servers alone",
            tester.cpu_us,
            tester.cores
        );
    }
    let prices = args.prices.as_deref().map(read).transpose()?;
    let prices = Prices::read(prices.as_deref()).map_err(Failure::from)?;
    let others = args.beside.iter().map(|text| other(text)).collect::<Result<Vec<_>, Failure>>()?;
    answer!("{}", report::plan(&wanted(args, measured.as_ref())?, &others, &prices).trim_end());
    Ok(ExitCode::SUCCESS)
}

/// Flags override the measured figures.
fn wanted(args: &Plan, measured: Option<&Measured>) -> Result<Demand, Failure> {
    let lacks = |what: &str, flag: &str| format!("{what} is not known: give {flag}, or a report");
    let rate = args.rate.or_else(|| args.users.map(|users| odds::requests_per_s(users, args.every)));
    let rate_per_s =
        rate.or(measured.map(|run| run.rate_per_s)).ok_or_else(|| lacks("the rate", "-R RATE"))?;
    if !(rate_per_s.is_finite() && rate_per_s > 0.0) {
        return Err("the rate must be above 0".into());
    }
    let answer_bytes = args.body.or(measured.map(|run| run.answer_bytes));
    let cpu_us = args.cpu.or(measured.and_then(|run| run.cpu_us));
    Ok(Demand {
        rate_per_s,
        growth_a_month: args.growth / 100.0,
        months: args.months,
        answer_bytes: answer_bytes.ok_or_else(|| lacks("the length of an answer", "--body BYTES"))?,
        cpu_us: cpu_us.ok_or_else(|| lacks("the CPU of a request", "--cpu MICROSECONDS"))?,
        utilisation: args.utilisation / 100.0,
        write_share: args.writes / 100.0,
        row_bytes: args.row,
        retention_days: args.retention,
        copies: args.copies,
        spare: args.spare,
        behind: Behind {
            tier_cpu_us: args.tier_cpu,
            database_rows_per_s: args.database_rows,
            disk_row_bytes: args.disk_row,
        },
        power: match measured.and_then(|run| run.joules_a_million) {
            Some(joules) => Power::Counted(joules),
            None => Power::Model(args.watts),
        },
    })
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

fn read_report(path: &Path) -> Result<Measured, Failure> {
    let measured = Measured::read(&read(path)?)
        .map_err(|why| format!("{} is no report of forebay load: {why}", path.display()))?;
    if let Some(unreliable_because) = &measured.unreliable_because {
        say!("note: {}: {unreliable_because}", path.display());
    }
    Ok(measured)
}

/// Parses one `--beside`: microseconds, or a report, from which the CPU of the watched server is
/// taken.
fn other(text: &str) -> Result<Other, Failure> {
    let must = "must be NAME=MICROSECONDS or NAME=REPORT, such as Express=61.1";
    let (name, cpu) = text.split_once('=').ok_or_else(|| format!("--beside {text}: {must}"))?;
    let cpu_us = match number(cpu) {
        Ok(cpu_us) => cpu_us,
        Err(_) => read_report(Path::new(cpu))?
            .cpu_us
            .ok_or_else(|| format!("--beside {text}: the report watched no server (--monitor)"))?,
    };
    Ok(Other { name: name.to_owned(), cpu_us })
}

/// Parses one `--point`: a rate, or a report, from which the rate of this number of workers is
/// taken.
fn point(text: &str) -> Result<(Point, Option<Tester>), Failure> {
    let (workers, rate) = text
        .split_once('=')
        .ok_or_else(|| format!("--point {text}: must be WORKERS=RATE or WORKERS=REPORT, such as 2=98k"))?;
    let workers = number(workers).map_err(|why| format!("--point {text}: {why}"))?;
    if let Ok(rate_per_s) = number(rate) {
        return Ok((Point { workers, rate_per_s }, None));
    }
    let measured = read_report(Path::new(rate))?;
    Ok((Point { workers, rate_per_s: measured.capacity_per_s(workers) }, measured.tester))
}

fn sweep(args: &Plan) -> Result<String, Failure> {
    let points = args.point.iter().map(|text| point(text)).collect::<Result<Vec<_>, Failure>>()?;
    let (points, testers): (Vec<Point>, Vec<Option<Tester>>) = points.into_iter().unzip();
    let law = Law::fit(&points).map_err(Failure::from)?;
    Ok(report::scaling(&law, Tester::of_all(&testers), &args.workers))
}
