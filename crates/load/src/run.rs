//! A run: its workers begin at the same moment, and their counts are merged into one result.

use crate::limits::{FILES_BESIDE, SWEEP_NS};
use crate::results::{Connects, ErrorKind, Live, Load, Model, Results};
use crate::schedule::SECOND_NS;
use crate::series::Sink;
use crate::settings::{Pace, Settings, Stop};
use crate::traffic::Traffic;
use crate::worker::{Worker, WorkerPart};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Below this part of the rate asked for, a result says that it was not reached.
pub const RATE_REACHED: f64 = 0.99;

/// Stops a run from another thread, and reads its state while it runs.
#[derive(Clone)]
pub struct Handle(Arc<RunState>);

struct RunState {
    stop: AtomicBool,
    sink: OnceLock<Sink>,
    started: OnceLock<Instant>,
    settings: OnceLock<Settings>,
    /// When the first worker was awake.
    woke: OnceLock<Instant>,
    gate: Option<Gate>,
}

/// Holds connected workers until they are told when to begin.
#[derive(Default)]
struct Gate {
    is_reached: AtomicBool,
    opens: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Default for Handle {
    fn default() -> Handle {
        Handle::new()
    }
}

impl Handle {
    /// For one run that has not begun.
    pub fn new() -> Handle {
        Handle::with_gate(None)
    }

    /// For a run that connects, and then waits for [`Handle::release`].
    pub fn held() -> Handle {
        Handle::with_gate(Some(Gate::default()))
    }

    fn with_gate(gate: Option<Gate>) -> Handle {
        Handle(Arc::new(RunState {
            stop: AtomicBool::new(false),
            sink: OnceLock::new(),
            started: OnceLock::new(),
            settings: OnceLock::new(),
            woke: OnceLock::new(),
            gate,
        }))
    }

    /// Whether a held run is connected, and waits.
    pub fn is_ready(&self) -> bool {
        self.0.gate.as_ref().is_some_and(|gate| gate.is_reached.load(Ordering::Acquire))
    }

    /// Starts a held run at `begins`, or at once if that is past. A second call has no effect.
    pub fn release(&self, begins: Instant) {
        let Some(gate) = &self.0.gate else { return };
        gate.opens.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(begins);
        gate.changed.notify_all();
    }

    /// Waits at the gate, if there is one; `None` when there is none, or when the run was stopped meanwhile.
    fn wait_at_gate(&self) -> Option<Instant> {
        let gate = self.0.gate.as_ref()?;
        gate.is_reached.store(true, Ordering::Release);
        let mut opens = gate.opens.lock().unwrap_or_else(PoisonError::into_inner);
        while opens.is_none() && !self.is_stopped() {
            let waited = gate.changed.wait_timeout(opens, Duration::from_nanos(SWEEP_NS));
            opens = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *opens
    }

    /// When the first worker was awake for the first request: [`Handle::started`] plus the time of the
    /// wake-up.
    pub fn woke(&self) -> Option<Instant> {
        self.0.woke.get().copied()
    }

    /// Ends the run now, with partial results. Unanswered requests count as in flight.
    pub fn stop(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }

    /// Whether [`Handle::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// When the first request was due; `None` before it is known.
    pub fn started(&self) -> Option<Instant> {
        self.0.started.get().copied()
    }

    /// The complete seconds, from `second` on.
    ///
    /// # Errors
    /// When they cannot be read back.
    pub fn seconds_from(&self, second: u64) -> io::Result<Vec<crate::results::Second>> {
        self.0.sink.get().map_or(Ok(Vec::new()), |sink| sink.seconds_from(second))
    }

    /// The state of the run; `None` until the first request is due.
    pub fn live(&self) -> Option<Live> {
        let started = self.0.started.get()?;
        let (sink, settings) = (self.0.sink.get()?, self.0.settings.get()?);
        let elapsed_s = Instant::now().saturating_duration_since(*started).as_secs_f64();
        let warmup_s = settings.warmup.as_secs_f64();
        let mut live = Live { elapsed_s, warming_up: elapsed_s < warmup_s, ..sink.live() };
        live.progress = match settings.stop {
            Stop::After(time) => Some((elapsed_s / (warmup_s + time.as_secs_f64())).min(1.0)),
            Stop::Amount(amount) => Some((live.completed as f64 / amount as f64).min(1.0)),
        };
        if let Pace::Open(schedule) = &settings.pace {
            let due_within = |seconds: f64| {
                settings.share.of_count(schedule.count_within((seconds.max(0.0) * SECOND_NS as f64) as u64))
            };
            // The sums cover whole seconds, so the due requests do too.
            let whole_s = warmup_s + (elapsed_s - warmup_s).max(0.0).floor();
            let due = due_within(whole_s) - due_within(warmup_s);
            live.overdue = due.saturating_sub(live.sent);
            live.offered_per_s = Some((due_within(whole_s) - due_within(whole_s - 1.0)) as f64);
        }
        Some(live)
    }
}

/// Where the workers meet.
struct StartBarrier<'a> {
    settings: &'a Settings,
    handle: &'a Handle,
    workers: usize,
    barrier: Barrier,
    connected: AtomicU64,
    begin: OnceLock<Option<StartTime>>,
}

#[derive(Clone, Copy)]
struct StartTime {
    instant: Instant,
    unix_ms: u64,
}

impl StartBarrier<'_> {
    /// Waits until all workers have connected. Returns the moment at which all begin; `None` when
    /// no worker has a connection, or the run was stopped.
    fn wait_for_start(&self, connected: u64) -> Option<StartTime> {
        self.connected.fetch_add(connected, Ordering::Relaxed);
        if self.barrier.wait().is_leader() {
            let is_connected = self.connected.load(Ordering::Relaxed) > 0;
            let held_until = if is_connected { self.handle.wait_at_gate() } else { None };
            let begin = (is_connected && !self.handle.is_stopped()).then(|| match held_until {
                Some(instant) => begin_after(instant.saturating_duration_since(Instant::now())),
                None => begin_at(self.settings.start_at),
            });
            if let Some(begin) = begin {
                let _ = self.handle.0.started.set(begin.instant);
            }
            let _ = self.begin.set(begin);
        }
        self.barrier.wait();
        let begin = self.begin.get().copied().flatten()?;
        // Sleeps in steps, so that a run that begins in an hour can be stopped.
        while let Some(wait) = begin.instant.checked_duration_since(Instant::now())
            && !wait.is_zero()
            && !self.handle.is_stopped()
        {
            thread::sleep(wait.min(Duration::from_nanos(SWEEP_NS)));
        }
        let _ = self.handle.0.woke.set(Instant::now());
        Some(begin)
    }
}

fn begin_at(start_at: Option<SystemTime>) -> StartTime {
    let now = SystemTime::now();
    begin_after(start_at.and_then(|at| at.duration_since(now).ok()).unwrap_or_default())
}

fn begin_after(wait: Duration) -> StartTime {
    let unix = (SystemTime::now() + wait).duration_since(UNIX_EPOCH).unwrap_or_default();
    StartTime { instant: Instant::now() + wait, unix_ms: u64::try_from(unix.as_millis()).unwrap_or(0) }
}

/// Drives the server until the end, on this thread alone, and returns the results. Fails when the
/// settings are invalid, when this machine refuses epoll, or when no connection could be opened.
/// Later errors are in the results.
pub fn run<T: Traffic>(settings: &Settings, traffic: &mut T) -> io::Result<Results> {
    let handle = Handle::new();
    let settings = Settings { workers: 1, ..settings.clone() };
    let meeting = begin(&settings, &handle)?;
    let results = conclude(&meeting, vec![work(&meeting, 0, traffic)])?;
    if results.connects.made == 0 {
        let why = results.partial_reason.unwrap_or_default();
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, why));
    }
    Ok(results)
}

/// As [`run`], on a thread for each worker; `make` returns the traffic of a worker. When no
/// connection could be opened the results say so: they are not complete, and `connects.made` is 0.
pub fn run_workers<T: Traffic + Send>(
    settings: &Settings,
    handle: &Handle,
    mut make: impl FnMut(usize) -> T,
) -> io::Result<Results> {
    let meeting = begin(settings, handle)?;
    let mut traffics: Vec<T> = (0..meeting.workers).map(&mut make).collect();
    let meeting = &meeting;
    let parts = thread::scope(|scope| {
        let threads: Vec<_> = traffics
            .iter_mut()
            .enumerate()
            .map(|(index, traffic)| scope.spawn(move || work(meeting, index, traffic)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    conclude(meeting, parts)
}

fn panicked() -> io::Error {
    io::Error::other("a worker panicked")
}

fn begin<'a>(settings: &'a Settings, handle: &'a Handle) -> io::Result<StartBarrier<'a>> {
    settings.check()?;
    let workers = settings.workers.min(settings.connections);
    raise_file_limit(settings.places() as u64 + FILES_BESIDE + workers as u64)?;
    let _ = handle.0.sink.set(Sink::new(workers)?);
    let _ = handle.0.settings.set(settings.clone());
    Ok(StartBarrier {
        settings,
        handle,
        workers,
        barrier: Barrier::new(workers),
        connected: AtomicU64::new(0),
        begin: OnceLock::new(),
    })
}

/// Raises the limit of open files to `needed`; fails when the hard limit is lower.
fn raise_file_limit(needed: u64) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(most) = limit.maximum.filter(|most| *most < needed) {
        let why = format!(
            "{needed} open files are needed, and this process may have {most}: raise it with ulimit -n"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })?;
    Ok(())
}

/// One worker from its connections to its results.
fn work<T: Traffic>(meeting: &StartBarrier<'_>, index: usize, traffic: &mut T) -> io::Result<Results> {
    let part = WorkerPart::new(meeting.settings, index, meeting.workers);
    let sink = meeting.handle.0.sink.get().expect("a run begins with it").clone();
    let made = Worker::new(meeting.settings, part, traffic, sink, &meeting.handle.0.stop);
    let connected = made.and_then(|mut worker| Ok((worker.connect_all()?, worker)));
    // A failed worker still passes the barrier; the others would wait for ever without it.
    let begin = meeting.wait_for_start(connected.as_ref().map_or(0, |(connected, _)| *connected));
    let (_, mut worker) = connected?;
    if let Some(begin) = begin {
        worker.drive(begin.instant)?;
    }
    let (mut results, stop_reason) = worker.finish(begin.is_some());
    results.started_at_ms = begin.map_or(0, |begin| begin.unix_ms);
    results.complete = stop_reason.is_none();
    results.partial_reason = stop_reason;
    Ok(results)
}

/// Merges the parts and adds the notes.
fn conclude(meeting: &StartBarrier<'_>, parts: Vec<io::Result<Results>>) -> io::Result<Results> {
    let mut whole: Option<Results> = None;
    for part in parts {
        let part = part?;
        match &mut whole {
            None => whole = Some(part),
            Some(whole) => whole.merge(&part),
        }
    }
    let mut results = whole.unwrap_or_default();
    let settings = meeting.settings;
    let seconds = meeting.handle.0.sink.get().map(Sink::finish).transpose();
    results.load = load_of(settings, meeting.workers);
    if results.connects.made == 0 {
        let kind = results.errors_by_kind.iter().max_by_key(|(_, count)| **count).map(|(kind, _)| *kind);
        results.complete = false;
        results.partial_reason = Some(match kind {
            Some(kind) => {
                format!("no connection to {} could be made: {kind}{}", settings.address, advice(kind))
            }
            None => "stopped before the first request".into(),
        });
    } else if meeting.handle.is_stopped() {
        results.complete = false;
        results.partial_reason.get_or_insert_with(|| "interrupted".into());
    }
    let unread = seconds.map(|seconds| results.seconds = seconds.unwrap_or_default()).err();
    results.settle();
    results.notes = notes(&results);
    results.notes.extend(unread.map(|error| format!("the figures by the second are lost: {error}")));
    Ok(results)
}

/// The results of a run that could not begin: all of its connections failed with `kind`.
pub fn not_begun(settings: &Settings, kind: ErrorKind, why: String) -> Results {
    let failed = settings.connections as u64;
    Results {
        model: if matches!(settings.pace, Pace::Open(_)) { Model::Open } else { Model::Closed },
        load: load_of(settings, settings.workers.min(settings.connections)),
        errors_by_kind: [(kind, failed)].into(),
        connects: Connects { failed, ..Connects::default() },
        complete: false,
        partial_reason: Some(why),
        ..Results::default()
    }
}

fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => " (is the server running, and on that port?)",
        ErrorKind::Tls => " (-k takes any certificate)",
        ErrorKind::PortsExhausted => " (wait a minute, or use more addresses)",
        _ => "",
    }
}

pub(crate) fn load_of(settings: &Settings, workers: usize) -> Load {
    let (planned_s, amount) = match settings.stop {
        Stop::After(time) => (Some(time.as_secs_f64()), None),
        Stop::Amount(amount) => (None, Some(amount)),
    };
    Load {
        connections: settings.connections as u64,
        pipelining: settings.pipelining as u64,
        workers: workers as u64,
        rate_per_s: match &settings.pace {
            Pace::Open(schedule) => Some(schedule.highest().as_per_s() / settings.share.of as f64),
            Pace::Closed => None,
        },
        planned_s,
        amount,
        timeout_s: settings.timeout.as_secs_f64(),
        ramp_s: settings.ramp.as_secs_f64(),
    }
}

/// The notes that a reader needs to understand the figures.
pub(crate) fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    let requests = &results.requests;
    if results.model == Model::Closed {
        notes.push(
            "closed model: a request is sent when the one before it was answered, so that a stall of the server is one slow sample a \
             connection and not the requests it kept waiting; -R shows those"
                .into(),
        );
    }
    if let Some(offered) = requests.offered_per_s.filter(|offered| *offered > 0.0) {
        let reached = requests.rate_per_s / offered;
        if reached < RATE_REACHED {
            notes.push(format!(
                "the rate was not reached: {:.1}/s of {offered:.1}/s offered ({:.1} %); {} sent late, {} never sent",
                requests.rate_per_s,
                reached * 100.0,
                requests.sent_late,
                requests.never_sent
            ));
        }
    }
    if requests.in_flight > 0 {
        notes.push(format!("{} requests had no answer when the run was over", requests.in_flight));
    }
    notes
}

/// Time that a run may take at most, connecting included; `None` when its amount ends it.
pub fn longest(settings: &Settings) -> Option<Duration> {
    match settings.stop {
        Stop::After(time) => Some(settings.connect_timeout + settings.warmup + time + settings.grace),
        Stop::Amount(_) => None,
    }
}
