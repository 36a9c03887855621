//! `forebay check-config`

use super::{Failure, load_config};
use crate::cli::CheckConfig;
use std::process::ExitCode;

pub fn run(args: &CheckConfig) -> Result<ExitCode, Failure> {
    let config = load_config(args.config.file.as_deref(), &args.config.overrides)?;
    print!("{}", forebay_config::explain(&config));
    Ok(ExitCode::SUCCESS)
}
