//! `forebay serve`

use super::{Failure, load_config};
use crate::cli::Serve;
use forebay_drain::NewDatabase;
use forebay_server::{ServeOptions, serve};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use std::sync::mpsc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Exit code of a program that Ctrl-C ended (128 + SIGINT).
const INTERRUPTED: i32 = 130;

pub fn run(args: &Serve) -> Result<ExitCode, Failure> {
    let stop = stop_signal()?;
    let config = load_config(args.config.file.as_deref(), &args.config.overrides)?;
    let new_database = if args.new_database { NewDatabase::Accept } else { NewDatabase::Refuse };
    let options = ServeOptions { handlers: forebay_example_handlers::all(), new_database };
    raise_open_files();
    serve(&config, options, stop).map_err(Failure::from)?;
    Ok(ExitCode::SUCCESS)
}

/// Every connection is an open file, and the usual soft limit of 1,024 is for programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        eprintln!("note: the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Ready at the first SIGTERM or SIGINT; a second one ends the process at once. The signals are caught from the return of
/// this function on, so that one that comes while tables are still being opened stops gracefully as well.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let (caught, registered) = mpsc::channel();
    let (stop, stopped) = oneshot::channel();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::from)?;
    let thread = std::thread::Builder::new().name("signals".into());
    let wait = async move {
        let signals = signal(SignalKind::terminate()).and_then(|t| Ok((t, signal(SignalKind::interrupt())?)));
        // The receiver waits for exactly this message.
        let (mut terminate, mut interrupt) = match signals {
            Ok(signals) => {
                let _ = caught.send(Ok(()));
                signals
            }
            Err(error) => {
                let _ = caught.send(Err(error));
                return;
            }
        };
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        next().await;
        eprintln!("stopping: no new connections; answering what has arrived (once more to stop at once)");
        // When the receiver is gone the server has ended by itself.
        let _ = stop.send(());
        next().await;
        std::process::exit(INTERRUPTED);
    };
    thread.spawn(move || runtime.block_on(wait)).map_err(Failure::from)?;
    registered.recv().map_err(Failure::from)?.map_err(Failure::from)?;
    Ok(async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
