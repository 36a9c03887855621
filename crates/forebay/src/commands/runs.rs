//! `forebay runs`: runs of `forebay load` side by side.

use crate::cli::runs::Runs;
use crate::failure::{ARGUMENTS, Failure};
use forebay_load::report::{list, pivot, read_runs};
use forebay_terminal::{answer, say};
use std::process::ExitCode;

pub fn run(args: &Runs) -> Result<ExitCode, Failure> {
    let runs = read_runs(&args.paths).map_err(Failure::from)?;
    if runs.is_empty() {
        return Err("there is no run; forebay load --history keeps them".into());
    }
    if let (Some(rows), Some(columns)) = (&args.rows, &args.columns) {
        for label in [rows, columns] {
            if !runs.iter().any(|run| run.results.labels.contains_key(label)) {
                return Ok(wrong(&format!("no run has a label `{label}`")));
            }
        }
        answer!("{}", pivot(&runs, rows, columns).trim_end());
        return Ok(ExitCode::SUCCESS);
    }
    let against = args.against.unwrap_or(1);
    if !(1..=runs.len()).contains(&against) {
        return Ok(wrong(&format!("--against {against}: there are {} runs", runs.len())));
    }
    answer!("{}", list(&runs, against - 1).trim_end());
    Ok(ExitCode::SUCCESS)
}

fn wrong(why: &str) -> ExitCode {
    say!("forebay: {why}");
    ExitCode::from(ARGUMENTS)
}
