//! `forebay redis`: local topologies, by the crate `forebay-topology`.

mod print;

use crate::cli::redis::{
    AppendFsync, One, Redis, Reshard, Resume, Server, Shape, Status, TopologyFolder, Up, YesNo,
};
use crate::failure::Failure;
use crate::start::runtime;
use forebay_terminal::{answer, say};
use forebay_topology::{Flavour, Local, Persistence, Spec, Topology};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the spinner of a start moves.
const TICK: Duration = Duration::from_millis(100);

pub fn run(command: &Redis) -> Result<ExitCode, Failure> {
    match command {
        Redis::Up(args) => up(args),
        Redis::Status(args) => status(args),
        Redis::Kill(args) => one(args, Local::kill, "killed"),
        Redis::Start(args) => one(args, Local::start, "serves"),
        Redis::Stop(args) => one(args, Local::pause, "stopped"),
        Redis::Cont(args) => one(args, Local::resume_node, "continues"),
        Redis::Reshard(args) => reshard(args),
        Redis::Halt(args) => halt(&args.place),
        Redis::Resume(args) => resume(args),
        Redis::Down(args) => down(&args.place),
    }
}

fn topology(args: &Up) -> Result<Topology, Failure> {
    if !matches!(args.topology, Shape::Cluster) && args.masters.is_some_and(|masters| masters != 1) {
        return Err("--masters is for a cluster: add --topology cluster, or leave it out".into());
    }
    let replicas = args.replicas.unwrap_or(1);
    Ok(match args.topology {
        Shape::Single if args.replicas.is_some_and(|replicas| replicas > 0) => {
            return Err("single has no replicas: say --topology replicas, sentinel or cluster".into());
        }
        Shape::Single => Topology::Single,
        Shape::Replicas => Topology::Replicas { replicas },
        Shape::Sentinel => Topology::Sentinel { replicas },
        Shape::Cluster => Topology::Cluster { masters: args.masters.unwrap_or(3), replicas },
    })
}

fn spec(args: &Up, cancel: Arc<AtomicBool>) -> Result<Spec, Failure> {
    let mut spec = Spec::new(topology(args)?);
    spec.flavour = args.server.map(|server| match server {
        Server::Valkey => Flavour::Valkey,
        Server::Redis => Flavour::Redis,
    });
    spec.folder = Some(args.place.folder.clone());
    spec.port = Some(args.port);
    spec.persistence = match (args.appendonly, args.appendfsync) {
        (YesNo::No, _) => Persistence::None,
        (YesNo::Yes, AppendFsync::Always) => Persistence::Always,
        (YesNo::Yes, AppendFsync::Everysec) => Persistence::EverySecond,
        (YesNo::Yes, AppendFsync::No) => Persistence::AppendOnly,
    };
    spec.password = args.password.clone();
    spec.detached = true;
    spec.cancel = Some(cancel);
    Ok(spec)
}

/// Ctrl-C ends the servers that have been started.
fn up(args: &Up) -> Result<ExitCode, Failure> {
    let cancel = Arc::new(AtomicBool::new(false));
    let spec = spec(args, Arc::clone(&cancel))?;
    let began = Instant::now();
    let spinner = ProgressBar::new_spinner().with_message(format!("starting {}", spec.topology));
    spinner.enable_steady_tick(TICK);
    let started = runtime()?.block_on(async {
        let mut start = tokio::task::spawn_blocking(|| Local::up(spec));
        tokio::select! {
            ended = &mut start => ended,
            _ = tokio::signal::ctrl_c() => {
                cancel.store(true, Ordering::Relaxed);
                start.await
            }
        }
    });
    spinner.finish_and_clear();
    let local = started.map_err(Failure::from)?.map_err(Failure::from)?;
    ready(&local, &args.place, args.json, began)
}

/// Prints that all nodes are ready, and the URL.
fn ready(local: &Local, place: &TopologyFolder, json: bool, began: Instant) -> Result<ExitCode, Failure> {
    if json {
        let status = local.status().map_err(Failure::from)?;
        answer!("{}", print::json(&status)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (seconds, folder) = (began.elapsed().as_secs_f64(), place.folder.display());
    say!("{} of {} in {folder}, ready after {seconds:.1} s", local.topology(), local.server());
    answer!("{}", local.url());
    Ok(ExitCode::SUCCESS)
}

fn halt(place: &TopologyFolder) -> Result<ExitCode, Failure> {
    open(&place.folder)?.halt().map_err(Failure::from)?;
    say!("{} is halted; its data stays for `forebay redis resume`", place.folder.display());
    Ok(ExitCode::SUCCESS)
}

/// Ctrl-C leaves the started servers running: another `resume` continues with them.
fn resume(args: &Resume) -> Result<ExitCode, Failure> {
    let (local, began) = (open(&args.place.folder)?, Instant::now());
    let spinner = ProgressBar::new_spinner().with_message(format!("resuming {}", local.topology()));
    spinner.enable_steady_tick(TICK);
    let resumed = local.resume();
    spinner.finish_and_clear();
    resumed.map_err(Failure::from)?;
    ready(&local, &args.place, args.json, began)
}

fn open(folder: &Path) -> Result<Local, Failure> {
    Local::open(folder).map_err(Failure::from)
}

fn status(args: &Status) -> Result<ExitCode, Failure> {
    let status = open(&args.place.folder)?.status().map_err(Failure::from)?;
    if args.json {
        answer!("{}", print::json(&status)?);
    } else {
        print::status(&status);
    }
    Ok(if status.healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(
    args: &One,
    act: impl FnOnce(&Local, &str) -> forebay_topology::Result<()>,
    done: &str,
) -> Result<ExitCode, Failure> {
    act(&open(&args.place.folder)?, &args.node).map_err(Failure::from)?;
    say!("{} {done}", args.node);
    Ok(ExitCode::SUCCESS)
}

fn reshard(args: &Reshard) -> Result<ExitCode, Failure> {
    let local = open(&args.place.folder)?;
    let bar = ProgressBar::new(u64::from(args.slots)).with_message(format!("{} to {}", args.from, args.to));
    let template = "{msg} {wide_bar} {human_pos}/{human_len} slots, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
    let moved =
        local.reshard(&args.from, &args.to, args.slots, |moved| bar.set_position(u64::from(moved.slots)));
    bar.finish_and_clear();
    let moved = moved.map_err(Failure::from)?;
    if args.json {
        answer!("{}", json!({ "slots": moved.slots, "keys": moved.keys }));
    } else {
        say!("{} slots with {} keys moved from {} to {}", moved.slots, moved.keys, args.from, args.to);
    }
    Ok(ExitCode::SUCCESS)
}

fn down(place: &TopologyFolder) -> Result<ExitCode, Failure> {
    let folder = place.folder.display();
    if forebay_topology::down(&place.folder).map_err(Failure::from)? {
        say!("{folder} is down");
    } else {
        say!("{folder} is not there: nothing to do");
    }
    Ok(ExitCode::SUCCESS)
}
