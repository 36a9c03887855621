//! `forebay serve`

use crate::cli::Serve;
use crate::failure::Failure;
use crate::start::load_config;
use crate::{handlers, signals};
use forebay_drain::NewDatabase;
use forebay_server::{ServeOptions, serve};
use forebay_terminal::say;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use tokio::sync::oneshot;

pub fn run(args: &Serve) -> Result<ExitCode, Failure> {
    let stop = stop_signal()?;
    let config = load_config(&args.config)?;
    let new_database = if args.new_database { NewDatabase::Accept } else { NewDatabase::Refuse };
    let again = args.config.clone();
    let read = Box::new(move || load_config(&again).map_err(|failure| failure.to_string()));
    let options = ServeOptions { handlers: handlers::bundled(), new_database, read: Some(read) };
    raise_open_files();
    serve(&config, options, stop).map_err(Failure::from)?;
    Ok(ExitCode::SUCCESS)
}

/// Every connection is an open file, and the usual soft limit of 1,024 is for programs that use `select`.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        say!("note: the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Ready at the first SIGTERM or SIGINT, also at one that comes while tables are still being opened.
fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let (stop, stopped) = oneshot::channel();
    signals::on_first(move || {
        // When the receiver is gone the server has ended by itself.
        let _ = stop.send(());
        say!("stopping: no new connections; answering what has arrived (once more to stop at once)");
    })?;
    Ok(async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
