//! `forebay check`: explains a config, or every mistake in it; opens nothing that it names.

use crate::cli::Check;
use crate::failure::Failure;
use crate::start::load_config;
use std::process::ExitCode;

pub fn run(args: &Check) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    print!("{}", forebay_config::explain(&config));
    Ok(ExitCode::SUCCESS)
}
