//! `forebay check`: explains a config, or every mistake in it; then lists the constraints of its
//! database, if reachable, that memory cannot check, and what a start would refuse. Creates nothing.

use crate::cli::Check;
use crate::failure::Failure;
use crate::start::{load_config, runtime};
use forebay_server::open;
use forebay_terminal::answer;
use std::process::ExitCode;

pub fn run(args: &Check) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    answer!("{}", forebay_config::explain(&config).trim_end());
    forebay_config::weaknesses(&config).iter().for_each(|weakness| answer!("{weakness}"));
    match runtime()?.block_on(open::findings(&config)) {
        Ok(found) => {
            found.lines.iter().for_each(|line| answer!("{line}"));
            found.refused.iter().for_each(|why| answer!("a start would be refused: {why}"));
            Ok(if found.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            answer!("what the database enforces is not known: {error}");
            Ok(ExitCode::SUCCESS)
        }
    }
}
