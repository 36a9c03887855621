//! `forebay openapi`: the routes of a config as OpenAPI 3.1. Serves nothing and creates nothing.

use crate::cli::Openapi;
use crate::failure::Failure;
use crate::start::{load_config, runtime};
use forebay_server::{open, openapi};
use forebay_terminal::answer;
use std::process::ExitCode;

pub fn run(args: &Openapi) -> Result<ExitCode, Failure> {
    let config = load_config(&args.config)?;
    let schemas = runtime()?.block_on(open::known_schemas(&config)).map_err(Failure::from)?;
    let document = openapi::document(&config, &schemas, |_| None).map_err(Failure::from)?;
    answer!("{}", serde_json::to_string_pretty(&document).map_err(Failure::from)?);
    Ok(ExitCode::SUCCESS)
}
