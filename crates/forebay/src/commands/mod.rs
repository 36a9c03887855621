//! The commands.

mod advise;
mod agent;
mod check;
mod demo;
mod doctor;
mod drain;
mod init;
mod load;
mod openapi;
mod pages;
mod plan;
mod probe;
mod redis;
mod reload;
mod runs;
mod seed;
mod serve;
mod unfollow;
mod verify;
mod warm;

use crate::cli::Command;
use crate::failure::Failure;
use std::process::ExitCode;

/// Runs a command.
pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Seed(args) => seed::run(&args),
        Command::Warm(args) => warm::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Drain(args) => drain::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Openapi(args) => openapi::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Unfollow(args) => unfollow::run(&args),
        Command::Load(args) => {
            refuse_huge_pages();
            load::run(&args)
        }
        Command::Agent(args) => {
            refuse_huge_pages();
            agent::run(&args)
        }
        Command::Doctor(args) => doctor::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Pages(pages) => pages::run(&pages),
        Command::Redis(command) => redis::run(&command),
    }
}

/// A load tester needs some megabytes, and the amount does not grow. With huge pages (2 MiB) it needed ten
/// times as much, and grew for half an hour while the kernel collapsed small pages into huge ones.
fn refuse_huge_pages() {
    // A kernel without huge pages returns an error; the memory then is in small pages anyway.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}
