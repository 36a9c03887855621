//! The commands.

mod agent;
mod check;
mod check_config;
mod demo;
mod drain;
mod load;
mod redis;
mod seed;
mod serve;
mod warm;

use crate::cli::{Command, OverrideArgs};
use forebay_config::{self as config, Config};
use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why a command failed: one sentence, or one a mistake.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Failure {
    pub fn from(error: impl fmt::Display) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Seed(args) => seed::run(&args),
        Command::Warm(args) => warm::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::CheckConfig(args) => check_config::run(&args),
        Command::Load(args) => {
            refuse_huge_pages();
            load::run(&args)
        }
        Command::Agent(args) => {
            refuse_huge_pages();
            agent::run(&args)
        }
        Command::Redis(command) => redis::run(&command),
    }
}

/// A load tester needs some megabytes, for ever the same. In huge pages (2 MiB) they were ten times as many, and grew for half an hour, as the
/// kernel put small pages together.
fn refuse_huge_pages() {
    // A kernel that has none refuses this, and all is well.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// The config of a command: the file named, or the bundled example, with what stands above it.
fn load_config(file: Option<&str>, overrides: &OverrideArgs) -> Result<Config, Failure> {
    let (overrides, env) = (overrides.to_overrides(), |name: &str| std::env::var(name).ok());
    let loaded = match file {
        Some(path) => config::load(Path::new(path), &overrides, &env),
        None => {
            let (name, text) = config::BUNDLED[0];
            config::parse(name, text, &overrides, &env)
        }
    };
    loaded.map_err(Failure::from)
}

/// A runtime for commands that talk to stores.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().map_err(Failure::from)
}
