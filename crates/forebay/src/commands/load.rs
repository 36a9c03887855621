//! `forebay load`: passes the arguments to the load tester, and its results to the terminal and into files.
//!
//! Exit codes: 0; 1 when the run failed; 2 for wrong arguments; 3 when a threshold is broken; 130 when the
//! run was interrupted, with the results up to that moment.

use super::agent;
use crate::cli::load::Load;
use crate::failure::{ARGUMENTS, Failure};
use crate::signals::{self, INTERRUPTED};
use forebay_load::agent::Controller;
use forebay_load::monitor::Monitor;
use forebay_load::report::{self, Checked, Comparison, Screen, Threshold};
use forebay_load::{
    ErrorKind, Handle, Pace, Planned, Results, Settings, Stop, Unconnectable, find, not_begun, run_workers,
};
use forebay_terminal::{answer, say};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

const THRESHOLD_BROKEN: u8 = 3;

/// How often the screen is updated.
const LOOK: Duration = Duration::from_millis(100);

/// The duration of a step of `--find-max`, when it is not given.
const STEP_TIME: Duration = Duration::from_secs(5);

/// The parsed arguments.
struct Task {
    planned: Planned,
    /// The agents that send the load; `None` when this machine does.
    agents: Option<Controller>,
    thresholds: Vec<Threshold>,
    find_max: Option<Vec<Threshold>>,
    before: Option<Results>,
    labels: BTreeMap<String, String>,
}

pub fn run(args: &Load) -> Result<ExitCode, Failure> {
    match understand(args) {
        Ok(task) => drive(args, &task),
        Err(why) => {
            say!("forebay: {why}");
            Ok(ExitCode::from(ARGUMENTS))
        }
    }
}

fn understand(args: &Load) -> Result<Task, Failure> {
    let parse = |text: &String| Threshold::parse_all(text).map_err(Failure::from);
    let thresholds: Vec<_> = args.threshold.iter().map(parse).collect::<Result<_, _>>()?;
    let find_max = args.find_max.as_ref().map(parse).transpose();
    let find_max = find_max.map_err(|why| why.to_string().replace("--threshold", "--find-max"))?;
    if find_max.is_some() && args.run.rate.is_some() {
        return Err("--find-max chooses the rate itself; leave -R out".into());
    }
    if find_max.is_some() && args.run.ramp.is_some() {
        return Err("--find-max holds each rate from the first moment; leave --ramp out".into());
    }
    let mut planned = args.run.resolve().map_err(Failure::from)?;
    if find_max.is_some() {
        let said = args.run.duration.is_some();
        planned.settings.stop = match planned.settings.stop {
            Stop::After(time) if said => Stop::After(time),
            _ => Stop::After(STEP_TIME),
        };
        // The concurrency of an open model without -c.
        if args.run.connections.is_none() && planned.settings.max_concurrency.is_none() {
            planned.settings.max_concurrency = Some(1000);
        }
    }
    let token = agent::token(args.token.as_deref());
    let controller = |agents: &String| {
        let controller = Controller::parse(agents, &token)?;
        controller.parts(&planned.settings).map(|_| controller)
    };
    let agents = args.agents.as_ref().map(controller).transpose().map_err(Failure::from)?;
    let read = |path: &String| report::read_json(Path::new(path)).map_err(Failure::from);
    if let Some(folder) = &args.history {
        report::prepare(folder).map_err(|why| format!("--history: {why}"))?;
    }
    let before = args.compare.as_ref().map(read).transpose()?;
    Ok(Task { planned, agents, thresholds: thresholds.concat(), find_max, before, labels: labels(args)? })
}

fn labels(args: &Load) -> Result<BTreeMap<String, String>, Failure> {
    let profile = args.run.profile.iter().map(|name| Ok(("profile".to_owned(), name.clone())));
    let typed = args.label.iter().map(|text| {
        let named = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
        let (name, value) = named.ok_or_else(|| format!("--label `{text}`: write NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    });
    profile.chain(typed).collect()
}

fn drive(args: &Load, task: &Task) -> Result<ExitCode, Failure> {
    // Agents resolve names themselves, and watch their own machines.
    let token = agent::token(args.token.as_deref());
    let (settings, monitor) = match &task.agents {
        None => match task.planned.connectable() {
            Ok(settings) => (settings, Monitor::start(&args.monitor, &token)),
            Err(Unconnectable::NameNotFound(why)) => {
                let target = task.planned.target.to_string();
                let results = Results { target, ..not_begun(&task.planned.settings, ErrorKind::Dns, why) };
                return conclude(args, task, results, false);
            }
            Err(error) => return Err(Failure::from(error)),
        },
        Some(_) => (task.planned.settings.clone(), Monitor::start_elsewhere(&args.monitor, &token)),
    };
    let monitor = monitor.map_err(Failure::from)?;
    let interrupt = Interrupt::catch()?;
    let (paths, unmeasured) = forebay_load::agent::paths(task.agents.as_ref(), &args.monitor, &token);
    let mut screen = Screen::stderr();
    let mut results = match &task.find_max {
        None => once(task, &settings, &monitor, &interrupt, &mut screen)?,
        Some(conditions) => search(task, conditions, &settings, &monitor, &interrupt, &mut screen)?,
    };
    screen.end();
    results.target = task.planned.target.to_string();
    results.paths = paths;
    results.notes.extend(unmeasured);
    monitor.complete(&mut results);
    conclude(args, task, results, interrupt.is_caught())
}

/// Prints and writes the results, and returns the exit code.
fn conclude(
    args: &Load,
    task: &Task,
    mut results: Results,
    is_interrupted: bool,
) -> Result<ExitCode, Failure> {
    results.command = without_secrets(std::env::args());
    results.labels.clone_from(&task.labels);
    let checked: Vec<Checked> = task.thresholds.iter().map(|threshold| threshold.check(&results)).collect();
    tell(args, task, &results, &checked)?;
    if results.connects.made == 0 && !is_interrupted {
        let why = results.partial_reason.unwrap_or_default();
        return Err(Failure::from(why));
    }
    Ok(if is_interrupted {
        ExitCode::from(INTERRUPTED)
    } else if checked.iter().any(|one| !one.held) {
        ExitCode::from(THRESHOLD_BROKEN)
    } else {
        ExitCode::SUCCESS
    })
}

/// The command line without its secrets, for reports that other people read.
fn without_secrets(typed: impl Iterator<Item = String>) -> Vec<String> {
    let mut is_token = false;
    let hide = |word: String| {
        let was_flag = std::mem::replace(&mut is_token, word == "--token");
        // Removes a URL's user and password.
        if let Some((scheme, rest)) = word.split_once("://").filter(|(scheme, _)| scheme.starts_with("redis"))
            && let Some((_, place)) = rest.rsplit_once('@')
        {
            return format!("{scheme}://…@{place}");
        }
        match word.starts_with("--token=") {
            true => "--token=…".to_owned(),
            false if was_flag => "…".to_owned(),
            false => word,
        }
    };
    typed.map(hide).collect()
}

fn tell(args: &Load, task: &Task, results: &Results, checked: &[Checked]) -> Result<(), Failure> {
    let comparison = task.before.as_ref().map(|before| Comparison::of(before, results));
    // With `--json -`, standard output is reserved for the JSON.
    if args.json.as_deref() != Some("-") {
        answer!("{}", report::tables(results, comparison.as_ref(), checked).trim_end());
    }
    if let Some(path) = &args.json {
        report::write_json(results, Path::new(path)).map_err(Failure::from)?;
    }
    if let Some(folder) = &args.history {
        let kept = report::keep(results, folder).map_err(Failure::from)?;
        say!("kept as {}", kept.display());
    }
    if let Some(path) = &args.html {
        report::write_html(results, comparison.as_ref(), checked, Path::new(path)).map_err(Failure::from)?;
    }
    Ok(())
}

/// One run, with a live view.
fn once(
    task: &Task,
    settings: &Settings,
    monitor: &Monitor,
    interrupt: &Interrupt,
    screen: &mut Screen,
) -> Result<Results, Failure> {
    let (planned, handle) = (&task.planned, Handle::new());
    interrupt.stops(&handle);
    if let Some(controller) = &task.agents {
        let planned = Planned { settings: settings.clone(), ..planned.clone() };
        let results = forebay_load::agent::drive(controller, &planned, &handle, |live, hosts| {
            screen.update(live, &[hosts, &monitor.now()].concat());
        });
        return results.map_err(Failure::from);
    }
    let results = thread::scope(|scope| {
        let (done, is_done) = mpsc::channel();
        let running = handle.clone();
        scope.spawn(move || {
            let results = run_workers(settings, &running, |worker| planned.traffic(worker, settings));
            // The receiver waits for exactly this message.
            let _ = done.send(results);
        });
        loop {
            match is_done.recv_timeout(LOOK) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(results) => return results,
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the run panicked"));
                }
            }
            if let Some(live) = handle.live() {
                screen.update(&live, &monitor.now());
            }
        }
    });
    results.map_err(Failure::from)
}

/// Runs at several rates; returns the results of the highest rate that held.
fn search(
    task: &Task,
    conditions: &[Threshold],
    settings: &Settings,
    monitor: &Monitor,
    interrupt: &Interrupt,
    screen: &mut Screen,
) -> Result<Results, Failure> {
    let mut best: Option<Results> = None;
    let mut last = None;
    let found = find::search(|rate_per_s| {
        if interrupt.is_caught() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let settings = Settings { pace: Pace::rate(rate_per_s), ..settings.clone() };
        let results = once(task, &settings, monitor, interrupt, screen).map_err(io::Error::other)?;
        let checked: Vec<Checked> = conditions.iter().map(|condition| condition.check(&results)).collect();
        let shown: Vec<_> = checked.iter().map(|one| format!("{} ({})", one.condition, one.actual)).collect();
        let outcome = match find::shortfall(&results) {
            None => (checked.iter().all(|one| one.held), shown.join(", ")),
            Some(why) => (false, why),
        };
        screen.end();
        say!("{rate_per_s}/s: {}: {}", if outcome.0 { "holds" } else { "does not hold" }, outcome.1);
        let is_best = best.as_ref().is_none_or(|before| before.load.rate_per_s < results.load.rate_per_s);
        if outcome.0 && is_best {
            best = Some(results);
        } else {
            last = Some(results);
        }
        Ok(outcome)
    });
    let note = match found {
        Ok(found) => match (found.rate_per_s, found.is_bounded) {
            (Some(rate), true) => {
                format!("the highest rate that holds: {rate}/s ({} steps)", found.tried.len())
            }
            (Some(rate), false) => format!("{rate}/s hold, and no higher rate is tried"),
            (None, _) => "no rate holds, not even 1/s".into(),
        },
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            "interrupted before the end of the search".into()
        }
        Err(error) => return Err(Failure::from(error)),
    };
    let mut results = best.or(last).unwrap_or_default();
    results.notes.insert(0, note);
    Ok(results)
}

/// Ctrl-C and SIGTERM: the first ends the run, the second the process.
struct Interrupt(Arc<Mutex<Caught>>);

#[derive(Default)]
struct Caught {
    handle: Option<Handle>,
    is_caught: bool,
}

impl Interrupt {
    fn catch() -> Result<Interrupt, Failure> {
        let shared: Arc<Mutex<Caught>> = Arc::default();
        let own = shared.clone();
        signals::on_first(move || {
            let mut caught = own.lock().unwrap_or_else(PoisonError::into_inner);
            caught.is_caught = true;
            caught.handle.iter().for_each(Handle::stop);
        })?;
        Ok(Interrupt(shared))
    }

    /// The signal stops this run from now on.
    fn stops(&self, handle: &Handle) {
        let mut caught = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if caught.is_caught {
            handle.stop();
        }
        caught.handle = Some(handle.clone());
    }

    fn is_caught(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_caught
    }
}
