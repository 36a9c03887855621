//! `forebay pages`: completions and man pages, generated from the definition of the command line.

use crate::cli::{Cli, Pages};
use crate::failure::Failure;
use clap::CommandFactory;
use forebay_terminal::answer;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

pub fn run(pages: &Pages) -> Result<ExitCode, Failure> {
    match pages {
        Pages::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "forebay", &mut script);
            answer!("{}", String::from_utf8_lossy(&script).trim_end());
        }
        Pages::Man { folder } => write_man(folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `forebay.1`, `forebay-serve.1`, `forebay-redis-up.1` …
fn write_man(folder: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::from(format!("cannot write man pages to {}: {error}", folder.display()))
    };
    fs::create_dir_all(folder).map_err(failed)?;
    // The subcommands of `help` would get pages that repeat the others.
    let command = Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, folder).map_err(failed)
}
