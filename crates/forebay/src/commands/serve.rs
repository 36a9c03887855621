//! `forebay serve`

use super::{Failure, load_config};
use crate::cli::Serve;
use forebay_drain::NewRecord;
use forebay_server::{ServeOptions, serve};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a program that Ctrl-C ended (128 + SIGINT).
const INTERRUPTED: i32 = 130;

pub fn run(args: &Serve) -> Result<ExitCode, Failure> {
    let config = load_config(args.config.file.as_deref(), &args.config.overrides)?;
    let new_record = if args.new_record { NewRecord::Accept } else { NewRecord::Refuse };
    let options = ServeOptions { handlers: forebay_example_handlers::all(), new_record };
    raise_open_files();
    serve(&config, options, stop_signal()).map_err(Failure::from)?;
    Ok(ExitCode::SUCCESS)
}

/// Every connection is an open file, and the usual soft limit of 1,024 is for programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        eprintln!("note: the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Ready at the first SIGTERM or SIGINT. A second one ends the process at once.
async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        eprintln!("signals cannot be waited for; only SIGKILL stops this server");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    eprintln!("stopping: no new connections; answering what has arrived (once more to stop at once)");
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(INTERRUPTED);
    });
}
