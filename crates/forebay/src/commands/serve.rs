//! `forebay serve`

use crate::cli::{ConfigArgs, Duty, Serve};
use crate::failure::Failure;
use crate::start::load_config;
use crate::{handlers, signals, takeover};
use forebay_drain::NewDatabase;
use forebay_server::{Duties, ServeOptions, serve};
use forebay_terminal::{say, warn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use tokio::sync::oneshot;

pub fn run(args: &Serve) -> Result<ExitCode, Failure> {
    let has = |duty| !args.without.contains(&duty);
    let duties = Duties { clients: true, drain: has(Duty::Drain), jobs: has(Duty::Jobs) };
    let stop = stop_signal("no new connections; answering what has arrived")?;
    // Caught before anything that takes time: an uncaught signal ends the process.
    let replaced = takeover_signal(args.config.clone())?;
    let config = load_config(&args.config)?;
    let again = args.config.clone();
    let read = Box::new(move || load_config(&again).map_err(|failure| failure.to_string().into()));
    let new_database = accept(args.new_database);
    let options = ServeOptions {
        handlers: handlers::bundled(),
        new_database,
        read: Some(read),
        duties,
        inherited: takeover::inherited()?,
        replaced: Some(Box::pin(replaced)),
    };
    raise_open_files();
    let listeners = serve(&config, options, stop).map_err(Failure::from)?;
    if listeners.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(takeover::execute(&listeners)) }
}

/// `forebay drain --forever`: what a server does, without clients.
pub fn work(config: &ConfigArgs, new_database: bool) -> Result<ExitCode, Failure> {
    let duties = Duties { clients: false, drain: true, jobs: true };
    let stop = stop_signal("draining what has arrived")?;
    let options = ServeOptions { new_database: accept(new_database), duties, ..ServeOptions::default() };
    serve(&load_config(config)?, options, stop).map_err(Failure::from)?;
    Ok(ExitCode::SUCCESS)
}

fn accept(new_database: bool) -> NewDatabase {
    if new_database { NewDatabase::Accept } else { NewDatabase::Refuse }
}

/// Every connection is an open file, so the soft limit, usually 1,024 for programs that use `select`, is
/// raised to the hard limit.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        say!("note: the limit of open files stays at {:?}: {error}", limit.current);
    }
}

/// Ready at the first SIGUSR2 at which another process can take over.
fn takeover_signal(config: ConfigArgs) -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let (take, taken) = oneshot::channel();
    let mut take = Some(take);
    signals::at_user_signal(move || {
        let checked = takeover::check();
        let checked = checked.and_then(|()| load_config(&config));
        if let Err(why) = checked {
            warn!("no takeover, this process continues to serve: {why}");
            return false;
        }
        say!("another process takes over: new connections wait for it; answering what has arrived");
        // When the receiver is gone the server has already ended.
        take.take().is_some_and(|take| take.send(()).is_ok())
    })?;
    Ok(async {
        if taken.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Ready at the first SIGTERM or SIGINT, also at one that comes while tables are still being opened.
fn stop_signal(doing: &'static str) -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let (stop, stopped) = oneshot::channel();
    signals::on_first(move || {
        // When the receiver is gone the server has already ended.
        let _ = stop.send(());
        say!("stopping: {doing} (once more to stop at once)");
    })?;
    Ok(async {
        if stopped.await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
