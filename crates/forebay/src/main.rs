//! The command line: one small module a command, everything else in the libraries.

mod admin_client;
mod cli;
mod commands;
mod failure;
mod handlers;
mod progress;
mod signals;
mod start;
mod takeover;

use clap::Parser;
use forebay_terminal::error;
use std::process::ExitCode;

/// Rows are many small blocks of many sizes, allocated on one thread and freed on another; this
/// allocator is fast at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // What it creates is for its own user: logs and databases contain rows, configs contain passwords.
    #[cfg(unix)]
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let cli = cli::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            error!("forebay: {error}");
            ExitCode::FAILURE
        }
    }
}
