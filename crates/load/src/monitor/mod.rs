//! Watches the machines of a run: the tester's own, and servers through their admin listeners or
//! through agents beside them.
//!
//! `source` takes a [`Sample`] each second; `usage` makes two of them into a [`HostSecond`];
//! `recorded` stores it; [`verdict()`] says from all seconds and the engines' counts what ran out,
//! by the limits in `thresholds`.
//!
//! Promises: one thread for each machine, which sleeps between samples; some hundred bytes of file a
//! second and machine. A server that does not answer leaves a gap and a note, never a zero. The
//! presentation is left to `report`.

mod recorded;
mod source;
mod thresholds;
mod usage;
mod verdict;

pub use usage::between;
pub use verdict::verdict;

use crate::report::Error;
use crate::results::{Host, HostSecond, Results, Role};
use forebay_host::Sample;
use recorded::Recorded;
use source::SampleSource;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use thresholds::INTERVAL;

/// Watches machines until it is told to finish.
#[derive(Debug)]
pub struct Monitor {
    watches: Vec<Watch>,
}

/// The watched machines after a run.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// Each machine; for [`Results::hosts`](crate::results::Results::hosts).
    pub hosts: Vec<Host>,
    /// Notes for the report; for [`Results::notes`](crate::results::Results::notes).
    pub notes: Vec<String>,
}

#[derive(Debug)]
struct Watch {
    role: Role,
    place: String,
    seen: Arc<Mutex<Seen>>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Seen {
    seconds: Recorded,
    last: Option<Sample>,
    failures: u64,
    failure: Option<String>,
}

impl Monitor {
    /// Begins to watch this machine (where it can be sampled) and the servers at these URLs: admin
    /// listeners (`http://…`) or agents beside servers (`agent://…`, which know the token).
    ///
    /// # Errors
    /// When a URL is invalid, or its first sample fails: taken before any load is sent.
    pub fn start(servers: &[String], token: &str) -> Result<Monitor, Error> {
        Monitor::watching(cfg!(target_os = "linux"), servers, token)
    }

    /// As [`Monitor::start`], without this machine: agents elsewhere send the load.
    ///
    /// # Errors
    /// As [`Monitor::start`].
    pub fn start_elsewhere(servers: &[String], token: &str) -> Result<Monitor, Error> {
        Monitor::watching(false, servers, token)
    }

    fn watching(here: bool, servers: &[String], token: &str) -> Result<Monitor, Error> {
        let mut sources = Vec::new();
        if here {
            sources.push((Role::Tester, SampleSource::here()));
        }
        for url in servers {
            sources.push((Role::Server, SampleSource::of(url, token)?));
        }
        let mut watches = Vec::new();
        for (role, source) in sources {
            watches.push(Watch::start(role, source)?);
        }
        Ok(Monitor { watches })
    }

    /// The latest second of each machine, for a live view.
    pub fn now(&self) -> Vec<(Role, HostSecond)> {
        let last = |watch: &Watch| Some((watch.role, lock(&watch.seen).seconds.latest()?.clone()));
        self.watches.iter().filter_map(last).collect()
    }

    /// Ends the watch, and adds the machines, the notes and the verdict to a result. The result may be
    /// of any run since the start.
    pub fn complete(self, results: &mut Results) {
        let began_ms = results.started_at_ms as f64 + results.warmup_s * 1_000.0;
        let now_ms =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64() * 1_000.0);
        let ago = Duration::from_secs_f64((now_ms - began_ms).max(0.0) / 1_000.0);
        let now = Instant::now();
        let watched = self.finish(now.checked_sub(ago).unwrap_or(now));
        let ended = results.elapsed_s.ceil() as u64;
        for mut host in watched.hosts {
            host.seconds.retain(|second| second.second < ended);
            results.hosts.push(host);
        }
        results.notes.extend(watched.notes);
        results.verdict = Some(verdict(results));
    }

    /// Ends the watch. Seconds count from `began`, the end of the warm-up; earlier ones are omitted.
    pub fn finish(self, began: Instant) -> Watched {
        let mut watched = Watched::default();
        let mut tester: Option<(String, String)> = None;
        for watch in self.watches {
            // Dropping the sender ends the thread at once; a panic in it was printed when it happened.
            drop(watch.stop);
            let _ = watch.thread.join();
            let seen = std::mem::take(&mut *lock(&watch.seen));
            if let Some(failure) = &seen.failure {
                watched.notes.push(format!(
                    "the monitor of {} missed {} seconds: {failure}",
                    watch.place, seen.failures
                ));
            }
            let Some(last) = seen.last else { continue };
            let seconds = seen.seconds.into_all().unwrap_or_else(|error| {
                watched.notes.push(format!("the seconds of {} are lost: {error}", watch.place));
                Vec::new()
            });
            let mut host = usage::describe(&last, watch.role, seconds_from(seconds, began));
            match &tester {
                // The same boot id is the same machine, whatever its host name in a container.
                Some((name, boot)) if *boot == last.host.boot_id => host.name.clone_from(name),
                None if watch.role == Role::Tester => {
                    tester = Some((host.name.clone(), last.host.boot_id.clone()));
                }
                _ => {}
            }
            watched.hosts.push(host);
        }
        watched
    }
}

impl Watch {
    fn start(role: Role, source: SampleSource) -> Result<Watch, Error> {
        let first = source.sample()?;
        let place = source.to_string();
        let seen = Arc::new(Mutex::new(Seen { last: Some(first), ..Seen::default() }));
        let (stop, stopped) = channel();
        let (shared, name) = (seen.clone(), format!("monitor-{role:?}").to_lowercase());
        let thread =
            std::thread::Builder::new().name(name).spawn(move || watch(&source, &shared, &stopped)).map_err(
                |source| Error::new(crate::report::Kind::File, "cannot start a thread").with_source(source),
            )?;
        Ok(Watch { role, place, seen, stop, thread })
    }
}

/// One sample every second, on a schedule that does not slip.
fn watch(source: &SampleSource, seen: &Mutex<Seen>, stopped: &Receiver<()>) {
    let mut taken = Instant::now();
    let mut due = taken;
    loop {
        due += INTERVAL;
        match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        let sample = source.sample();
        let now = Instant::now();
        // After a stall (a suspended machine, a slow answer) the schedule restarts instead of catching up.
        if now > due + INTERVAL {
            due = now;
        }
        let mut seen = lock(seen);
        match sample {
            Ok(sample) => {
                if let Some(second) = seen.last.as_ref().and_then(|last| between(last, &sample)) {
                    seen.seconds.push(taken + (now - taken) / 2, second);
                }
                seen.last = Some(sample);
                taken = now;
            }
            Err(error) => {
                seen.failures += 1;
                seen.failure = Some(error.to_string());
            }
        }
    }
}

/// Numbers the seconds; two intervals that fall into the same one (after a stall) leave the first.
fn seconds_from(seconds: Vec<(Instant, HostSecond)>, began: Instant) -> Vec<HostSecond> {
    let mut numbered: Vec<HostSecond> = Vec::with_capacity(seconds.len());
    for (middle, mut second) in seconds {
        let Some(since) = middle.checked_duration_since(began) else { continue };
        second.second = since.as_secs();
        if numbered.last().is_none_or(|last| last.second < second.second) {
            numbered.push(second);
        }
    }
    numbered
}

/// After a panic the data is still consistent: each change is one push or one count.
fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
